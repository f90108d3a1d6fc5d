"""The one place where an error becomes a message and an exit code."""

from typing import NoReturn

import pytest

from oncefence.app.cli import main
from oncefence.catalog import loader
from oncefence.catalog.errors import CatalogError, Problem
from oncefence.domain.errors import FenceLost, OncefenceError, ScopeRefused, StoreUnavailable

SECRET = "pat-very-secret"


def ends_with(
    error: BaseException, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[int, str]:
    """Exit code and standard error of a verb that raises `error`."""

    def fail(*_: object) -> NoReturn:
        raise error

    monkeypatch.setattr(loader, "check", fail)
    code = main(["catalog", "check", "anything"])
    out, err = capsys.readouterr()
    assert out == ""
    return code, err


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ScopeRefused(), "this credential's work scope does not cover the handoff key"),
        (FenceLost(verb="settle"), "settle: the lease is no longer ours; nothing was written"),
        (
            StoreUnavailable(verb="adopt_link", reason="TimeoutError"),
            (
                "adopt_link: the database did not answer (TimeoutError). What was asked may be done"
                " or not: see that PostgreSQL runs, and run the same command again"
            ),
        ),
    ],
)
def test_each_family_is_one_line(
    error: OncefenceError,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Refused, lost or unknown: said once, and without a traceback (C12)."""
    assert ends_with(error, monkeypatch, capsys) == (1, f"oncefence: {message}\n")


def test_every_problem_of_a_catalog_has_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All of them in one run (C562)."""
    problems = [Problem(file="a.toml", key=key, reason="is wrong") for key in ("x", "y\x1b[2J")]

    code, err = ends_with(CatalogError(problems), monkeypatch, capsys)

    assert code == 2
    assert err.splitlines() == [
        "oncefence: a.toml: x: is wrong",
        "oncefence: a.toml: y\\x1b[2J: is wrong",
    ]


def test_a_fault_of_the_program_is_told_by_place(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Enough to find it, and not the message, which may hold what a statement was given."""
    code, err = ends_with(ValueError(SECRET), monkeypatch, capsys)

    assert code == 70
    assert err.startswith("oncefence: a fault of the program: ValueError at ")
    assert "test_cli_program.py" in err
    assert SECRET not in err
    assert len(err.splitlines()) == 1


def test_ctrl_c_is_no_fault(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A shell expects 130."""
    assert ends_with(KeyboardInterrupt(), monkeypatch, capsys) == (130, "")
