"""Where files are, what they are called, and that each says what it is for."""

import ast
from pathlib import PurePosixPath

import pytest

from tests.tidy import tree

VAGUE = {
    "utils",
    "util",
    "helpers",
    "helper",
    "manager",
    "managers",
    "data",
    "info",
    "common",
    "misc",
}


def is_namespace_breaker(name: str) -> bool:
    return name.endswith("oncefence/__init__.py")


def is_vague(name: str) -> bool:
    return bool({part.removesuffix(".py") for part in PurePosixPath(name).parts} & VAGUE)


def says_what_it_is_for(source: str) -> bool:
    return bool(ast.get_docstring(ast.parse(source)))


def undocumented_tests(source: str) -> list[str]:
    return [
        node.name
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
        and not ast.get_docstring(node)
    ]


def test_the_namespace_belongs_to_no_folder() -> None:
    """Four folders share one import name; an __init__.py in it would hide the other three."""
    found = [name for name in tree.code() if is_namespace_breaker(name)]

    assert found == [], (
        "remove it: oncefence is a PEP 420 namespace, and this hides its other parts"
    )


def test_every_package_says_that_it_is_typed() -> None:
    """Without py.typed the types of a subpackage are lost to whoever installs it."""
    packages = {"/".join(name.split("/")[:3]) for name in tree.code() if name.count("/") > 2}

    untyped = [name for name in sorted(packages) if f"{name}/py.typed" not in tree.texts()]

    assert untyped == [], "add an empty py.typed: a namespace package needs one in each part"


def test_names_say_what_is_inside() -> None:
    """A vague file collects whatever has no home, and nobody finds it again."""
    vague = [name for name in tree.code() if is_vague(name)]

    assert vague == [], "name the file after its noun or verb"


def test_every_module_says_what_it_is_for() -> None:
    """A reader learns from the first line whose fact or which verb this is."""
    silent = [
        name
        for name, source in (tree.code() | tree.tests()).items()
        if not says_what_it_is_for(source)
    ]

    assert silent == [], "begin the module with a docstring: whose fact, which verb"


def test_every_test_says_why_it_matters() -> None:
    """The name of a test is its claim, its docstring the reason to keep it."""
    silent = {
        name: missing
        for name, source in tree.tests().items()
        if (missing := undocumented_tests(source))
    }

    assert silent == {}, "give each test one sentence that says what it defends"


@pytest.mark.parametrize("name", ["src/oncefence/app/utils.py", "src/oncefence/helpers/a.py"])
def test_a_vague_name_is_seen(name: str) -> None:
    """A rule that cannot fail guards nothing: files and folders are both judged."""
    assert is_vague(name)
    assert not is_vague("storage/oncefence/storage/handoffs.py")


def test_a_silent_module_and_a_silent_test_are_seen() -> None:
    """A rule that cannot fail guards nothing."""
    source = "class TestA:\n    async def test_b(self):\n        pass\n"

    assert not says_what_it_is_for(source)
    assert undocumented_tests(source) == ["test_b"]
    assert is_namespace_breaker("storage/oncefence/__init__.py")
    assert not is_namespace_breaker("storage/oncefence/storage/__init__.py")
