"""Trying a mutant: a copy of the tree, one change, the tests that must see it, and the verdict."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from tests.mutants.mutant import ROOT, Mutant

# Against a test that waits for ever in broken code; the slowest unbroken run takes a fraction.
TRIAL_SECONDS_MAX = 300.0
BASELINE_SECONDS_MAX = 900.0

_LEFT_BEHIND = shutil.ignore_patterns(".*", "__pycache__")


class Verdict(StrEnum):
    """What became of a mutant."""

    KILLED = "killed"
    SURVIVED = "survived"
    INVALID = "invalid"
    """No test failed by itself: the code does not import, a fixture broke, or time ran out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcomes:
    """What one run of pytest came to; `trouble` tells why it came to nothing."""

    passed: frozenset[str] = frozenset()
    failed: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    trouble: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """The verdict on one mutant, with the test that killed it or the reason why it is invalid."""

    mutant: Mutant
    verdict: Verdict
    killed_by: str | None
    reason: str | None
    seconds: float

    def row(self) -> dict[str, object]:
        """The trial as the report has it."""
        return {
            "name": self.mutant.name,
            "clauses": list(self.mutant.clauses),
            "file": self.mutant.file,
            "verdict": self.verdict.value,
            "killed_by": self.killed_by,
            "reason": self.reason,
            "seconds": round(self.seconds, 1),
        }


def copy_tree(source: Path, target: Path) -> None:
    """The project's own files: no environment, no history, no results, nothing hidden."""
    shutil.copytree(source, target, ignore=_LEFT_BEHIND, symlinks=True)


class Worker:
    """A process that runs pytest in copies of the tree, one after another."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tests.mutants.worker"],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            # An interruption reaches it through `stop`, when nothing new is asked of it.
            start_new_session=True,
        )

    def pytest(
        self, tree: Path, targets: Sequence[str], *options: str, seconds_max: float
    ) -> Outcomes:
        """What the targets come to in the tree, whose own code is imported."""
        report = tree / "outcomes.json"
        order = {
            "tree": str(tree),
            "targets": list(targets),
            "options": [*options, "--outcomes", str(report)],
            "seconds_max": seconds_max,
        }
        assert self._process.stdin is not None, "it was made with one"
        assert self._process.stdout is not None, "it was made with one"
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise ChildProcessError("a worker of the mutants ended; its last words are above")
        if (trouble := json.loads(answer)["trouble"]) is not None:
            return Outcomes(trouble=trouble)
        if not report.is_file():
            words = (tree / "output.txt").read_text("utf-8", errors="replace").strip()
            return Outcomes(trouble=(words or "it said nothing").splitlines()[-1])
        found = json.loads(report.read_text(encoding="utf-8"))
        return Outcomes(
            passed=frozenset(found["passed"]),
            failed=tuple(found["failed"]),
            errors=tuple(found["errors"]),
        )

    def baseline(self, tree: Path, mutants: Sequence[Mutant]) -> Outcomes:
        """What all tests of these mutants come to where nothing is changed."""
        targets = dict.fromkeys(target for mutant in mutants for target in mutant.tests)
        return self.pytest(tree, tuple(targets), seconds_max=BASELINE_SECONDS_MAX)

    def try_mutant(self, mutant: Mutant, source: Path, tree: Path) -> Trial:
        """The verdict on the mutant, applied alone to a copy of `source` at `tree`."""
        began = time.monotonic()
        copy_tree(source, tree)
        path = tree / mutant.file
        path.write_text(mutant.applied_to(path.read_text("utf-8")), encoding="utf-8")
        found = self.pytest(tree, mutant.tests, "-x", seconds_max=TRIAL_SECONDS_MAX)
        verdict, killed_by, reason = judged(found)
        shutil.rmtree(tree)
        return Trial(
            mutant=mutant,
            verdict=verdict,
            killed_by=killed_by,
            reason=reason,
            seconds=time.monotonic() - began,
        )

    def stop(self) -> None:
        """It ends at once, and in good order what it has started."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)

    def close(self) -> None:
        """It is gone, with its server."""
        assert self._process.stdin is not None, "it was made with one"
        self._process.stdin.close()
        self._process.wait()


def judged(found: Outcomes) -> tuple[Verdict, str | None, str | None]:
    """The verdict that outcomes stand for, with the killing test, or with what went wrong."""
    if found.trouble is not None:
        return Verdict.INVALID, None, found.trouble
    if found.failed:
        return Verdict.KILLED, found.failed[0], None
    if found.errors:
        return Verdict.INVALID, None, f"an error and no failure in {found.errors[0]}"
    if not found.passed:
        return Verdict.INVALID, None, "no test was run"
    return Verdict.SURVIVED, None, None


def confirmed(trial: Trial, baseline: Outcomes) -> Trial:
    """The same trial, but that a test which fails anyway has killed nothing."""
    if trial.killed_by is None:
        return trial
    test = _function(trial.killed_by)
    passed, failed = map(_function, baseline.passed), map(_function, baseline.failed)
    if test in set(passed) - set(failed):
        return trial
    return Trial(
        mutant=trial.mutant,
        verdict=Verdict.INVALID,
        killed_by=None,
        reason=f"{trial.killed_by} does not pass where nothing is changed",
        seconds=trial.seconds,
    )


def _function(test: str) -> str:
    # A parameter may be made by the code that was changed, and is then called otherwise.
    return test.partition("[")[0]
