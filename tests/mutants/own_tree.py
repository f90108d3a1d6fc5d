"""
A plugin of pytest for one run in a copy: the code is the copy's, and each outcome is written down.

The environment's install of the project leads to the tree that was copied. A run that imported a
single module from there would judge code that is not changed.
"""

import importlib
import json
from pathlib import Path

import pytest

# One module of each portion of the namespace.
PORTIONS = (
    "oncefence.domain.fence",
    "oncefence.catalog.freeze",
    "oncefence.app.config",
    "oncefence.simulator.ledger",
    "oncefence.storage.engine",
    "oncefence.activities.attempt",
    "oncefence.workflows.work_item",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--outcomes", type=Path, help="where to write what each test came to")


def pytest_configure(config: pytest.Config) -> None:
    for name in PORTIONS:
        file = Path(str(importlib.import_module(name).__file__))
        if not file.is_relative_to(config.rootpath):
            raise pytest.UsageError(f"{name} is {file}, and that is not inside {config.rootpath}")
    config.pluginmanager.register(Outcomes(config.getoption("--outcomes")))


class Outcomes:
    """Which tests passed, which failed, and what went wrong before or after one."""

    def __init__(self, target: Path) -> None:
        self._target = target
        self._passed: list[str] = []
        self._failed: list[str] = []
        self._errors: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            # Before its call a test has said nothing: that is its fixtures' trouble.
            (self._failed if report.when == "call" else self._errors).append(report.nodeid)
        elif report.when == "call" and report.passed:
            self._passed.append(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._errors.append(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        found = {"passed": self._passed, "failed": self._failed, "errors": self._errors}
        self._target.write_text(json.dumps(found), encoding="utf-8")
