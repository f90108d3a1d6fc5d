"""Naming the fault that a test strikes with, for the matrix in `docs/fault-matrix.md`."""

from collections.abc import Callable
from typing import TypeVar

_Test = TypeVar("_Test", bound=Callable[..., object])


def fault(what: str, *, at: str, then: str) -> Callable[[_Test], _Test]:
    """
    Mark a test as one cell of the fault matrix.

    `what` goes wrong, `at` which step, and what holds `then`. The three are read from the source
    (`tests/golden/fault_matrix.py`), so each is one string literal.
    """
    if not (what and at and then):
        raise ValueError("a cell of the fault matrix names its fault, its step and what holds")

    def marked(test: _Test) -> _Test:
        return test

    return marked
