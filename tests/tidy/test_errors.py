"""The error tree has no dead leaves."""

import ast
import re

from tests.tidy import tree

ERRORS = tree.DOMAIN + "errors.py"


def leaves_of(source: str) -> set[str]:
    """The classes of the tree that no other class of it extends."""
    classes = [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]
    extended = {ast.unparse(base) for node in classes for base in node.bases}
    return {node.name for node in classes if node.bases} - extended


def made_in(source: str) -> set[str]:
    """The names of what `source` raises or calls: an error is made before it is raised."""
    made = set()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Raise(exc=ast.Name() | ast.Attribute() as raised):
                made.add(ast.unparse(raised).split(".")[-1])
            case ast.Call(func=ast.Name() | ast.Attribute() as called):
                made.add(ast.unparse(called).split(".")[-1])
    return made


def test_every_leaf_is_raised() -> None:
    """An error that nothing raises is a promise that nothing keeps."""
    made = set().union(*(made_in(source) for source in tree.code().values()))

    assert sorted(leaves_of(tree.text(ERRORS)) - made) == [], "raise it where it is due or drop it"


def test_every_leaf_is_tested() -> None:
    """An error that no test provokes may never come, or come for the wrong reason."""
    words = set()
    for name, source in tree.tests().items():
        if not name.startswith("tests/tidy/"):
            words |= set(re.findall(r"\w+", source))

    assert sorted(leaves_of(tree.text(ERRORS)) - words) == [], "write a test that provokes it"


def test_a_dead_leaf_is_seen() -> None:
    """A rule that cannot fail guards nothing."""
    source = "class Root(Exception): ...\nclass Lost(Root): ...\nclass Gone(Lost): ...\n"

    assert leaves_of(source) == {"Gone"}
    assert made_in("raise errors.Gone(verb='x')") >= {"Gone"}
    assert made_in("raise Gone") == {"Gone"}
    assert made_in("try: ...\nexcept Gone: ...") == set()
