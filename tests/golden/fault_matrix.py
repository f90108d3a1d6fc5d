"""
The fault matrix of principals and quota, as the tests have it.

    python -m tests.golden.fault_matrix

writes `docs/fault-matrix.md` from the tests that are marked with `fault(...)`. A test holds the
page to them, and names the faults that must have a cell.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "fault-matrix.md"
HEAD: Final = """# What goes wrong, and what holds

Each row is a test that makes the fault happen, with a real database, real HTTP and, where it says
so, real processes. The page is made from the tests: `python -m tests.golden.fault_matrix`.
"""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Cell:
    """One fault at one step, what holds then, and the test that shows it."""

    what: str
    at: str
    then: str
    test: str


def cells_of(path: Path) -> Iterator[Cell]:
    """The cells that the tests of one file are marked as."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    yield from _cells(tree.body, str(path.relative_to(ROOT)))


def _cells(body: list[ast.stmt], place: str) -> Iterator[Cell]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from _cells(node.body, f"{place}::{node.name}")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for mark in node.decorator_list:
                if isinstance(mark, ast.Call) and getattr(mark.func, "id", None) == "fault":
                    named = {str(word.arg): ast.literal_eval(word.value) for word in mark.keywords}
                    (what,) = (ast.literal_eval(word) for word in mark.args)
                    yield Cell(
                        what=what, at=named["at"], then=named["then"], test=f"{place}::{node.name}"
                    )


def all_cells() -> list[Cell]:
    """Every cell, in the order of the page."""
    tests = sorted(ROOT.glob("tests/**/test_*.py"))
    return sorted(cell for path in tests for cell in cells_of(path))


def page(cells: list[Cell]) -> str:
    """The page with these cells, one table for each fault."""
    lines = [HEAD]
    for what in dict.fromkeys(cell.what for cell in cells):
        lines += [f"## {what[0].upper()}{what[1:]}\n", "| at | then | test |", "|---|---|---|"]
        lines += [
            f"| {cell.at} | {cell.then} | `{cell.test}` |" for cell in cells if cell.what == what
        ]
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page(all_cells()), encoding="utf-8")
