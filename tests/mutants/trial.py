"""Trying a mutant: a copy of the tree, one change, the tests that must see it, and the verdict."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from tests.mutants.mutant import CODE_FOLDERS, Mutant

# Against a test that waits for ever in broken code; the slowest unbroken run takes a fraction.
TRIAL_SECONDS_MAX = 300.0
BASELINE_SECONDS_MAX = 900.0
_GOODBYE_SECONDS = 30.0

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


class Runs:
    """The runs of pytest under way, so that an interruption ends each of them in good order."""

    def __init__(self) -> None:
        self._processes: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()
        self.is_stopped = False

    def pytest(
        self, tree: Path, targets: Sequence[str], *options: str, seconds_max: float
    ) -> Outcomes:
        """What the targets come to in the tree, whose own code is imported."""
        report, log = tree / "outcomes.json", tree / "output.txt"
        with log.open("wb") as output:
            process = self._start(tree, [*options, "--outcomes", str(report), *targets], output)
            try:
                process.wait(seconds_max)
            except subprocess.TimeoutExpired:
                return Outcomes(trouble=f"not over after {seconds_max:.0f} s")
            finally:
                _end(process)
                with self._lock:
                    self._processes.discard(process)
        if not report.is_file():
            words = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
            return Outcomes(trouble=words[-1] if words else f"exit code {process.returncode}")
        found = json.loads(report.read_text(encoding="utf-8"))
        return Outcomes(
            passed=frozenset(found["passed"]),
            failed=tuple(found["failed"]),
            errors=tuple(found["errors"]),
        )

    def stop(self) -> None:
        """No further run begins; those under way are asked to clean up and go."""
        with self._lock:
            self.is_stopped = True
            for process in self._processes:
                process.send_signal(signal.SIGINT)

    def _start(
        self, tree: Path, arguments: Sequence[str], output: object
    ) -> "subprocess.Popen[bytes]":
        paths = [tree / folder for folder in CODE_FOLDERS]
        with self._lock:
            if self.is_stopped:
                raise KeyboardInterrupt
            process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "pytest", "-q", "--tb=short"),
                    *("-p", "no:cacheprovider", "-p", "tests.mutants.own_tree"),
                    *arguments,
                ],
                cwd=tree,
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(map(str, [*paths, tree])),
                    # Fixed examples: a verdict that chance has a hand in is none.
                    "CI": "1",
                },
                stdin=subprocess.DEVNULL,
                stdout=output,  # type: ignore[arg-type]  # an open file
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            self._processes.add(process)
        return process

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
    if trial.killed_by is None or trial.killed_by in baseline.passed:
        return trial
    return Trial(
        mutant=trial.mutant,
        verdict=Verdict.INVALID,
        killed_by=None,
        reason=f"{trial.killed_by} does not pass where nothing is changed",
        seconds=trial.seconds,
    )


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Let a run that goes on end its servers, and then whatever is left of it."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(_GOODBYE_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
