"""The table of README.md says what is true: each clause is in it, and each test that it names."""

import ast
import re
from functools import cache
from pathlib import Path

from tests.tidy import tree
from tests.tidy.test_documents import CONTRACT, defined_in

ROOT = Path(__file__).parents[2]
TABLE = (Path(__file__).parent / "README.md").read_text(encoding="utf-8")
FIRST, LAST = 500, 530
ROW = re.compile(r"^\| (?P<clause>C\d+) \| (?P<proven>[^|]+) \| (?P<by>[^|]+) \|$", re.MULTILINE)
TEST = re.compile(r"`(tests/[\w/]+\.py)::([\w:]+)`")
LATER = re.compile(r"later: needs \w+")


@cache
def names_in(path: str) -> frozenset[str]:
    """The tests of a module as pytest names them; none where there is no such module."""
    if not (ROOT / path).is_file():
        return frozenset()
    found = set()
    for node in ast.parse((ROOT / path).read_text(encoding="utf-8")).body:
        inside = node.body if isinstance(node, ast.ClassDef) else [node]
        before = f"{node.name}::" if isinstance(node, ast.ClassDef) else ""
        found |= {
            before + each.name
            for each in inside
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
            and each.name.startswith("test_")
        }
    return frozenset(found)


def missing_in(text: str) -> list[str]:
    return sorted(
        f"{path}::{name}" for path, name in TEST.findall(text) if name not in names_in(path)
    )


def test_every_test_that_is_named_exists() -> None:
    """A test that was renamed or dropped leaves its clause without a proof."""
    assert missing_in(TABLE) == [], "name the test that proves it now"


def test_every_clause_of_the_proof_has_its_row() -> None:
    """Those of the contract, all of them and no other."""
    known = {clause for clause in defined_in(tree.text(CONTRACT)) if FIRST <= clause <= LAST}

    rows = [int(row["clause"][1:]) for row in ROW.finditer(TABLE)]

    assert sorted(rows) == sorted(known)
    assert len(rows) == len(set(rows))


def test_every_row_names_a_test_or_what_it_waits_for() -> None:
    """`later` without its reason is a promise that nobody remembers."""
    bare = [
        line
        for line in TABLE.splitlines()
        if line.startswith("| ")
        and not line.startswith(("| Clause ", "| Verb ", "| C510 "))
        and not TEST.search(line)
        and not LATER.search(line)
    ]

    assert bare == []


def test_every_module_of_the_suite_is_named() -> None:
    """What is here proves a rule, and whoever looks for the rule finds it."""
    named = {f"{path}::{name}" for path, name in TEST.findall(TABLE)}
    modules = {f"tests/conformance/{path.name}" for path in Path(__file__).parent.glob("test_*.py")}
    unnamed = [path for path in modules if not any(each.startswith(path) for each in named)]

    assert unnamed == [f"tests/conformance/{Path(__file__).name}"]


def test_a_test_that_is_gone_is_seen() -> None:
    """The check itself fails where it should."""
    gone = "`tests/conformance/test_claims.py::TestAClaim::test_that_nobody_wrote`"

    assert missing_in(gone) == [gone.strip("`")]
    assert missing_in("`tests/nowhere.py::test_x`") == ["tests/nowhere.py::test_x"]
