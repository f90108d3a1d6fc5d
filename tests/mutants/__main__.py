"""
The mutants: each rule broken alone in a copy of the tree, and the tests that must notice it.

    ./dev mutants                             all of them; exit 0 when every one was killed
    ./dev mutants --only settle-by-state-only one, or several by their names
"""

import argparse
import json
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import TypeVar

from tests.mutants.mutant import ROOT, Mutant, chosen, load, refuse_flaws
from tests.mutants.trial import Outcomes, Trial, Verdict, Worker, confirmed, copy_tree

T = TypeVar("T")

_NOT_ALL_KILLED, _BAD_INPUT, _INTERRUPTED = 1, 2, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 0 when every mutant was killed, 1 when not, 2 on bad input."""
    parser = _parser()
    given = parser.parse_args(arguments)
    try:
        mutants = chosen(load(), given.only)
        refuse_flaws(mutants)
    except ValueError as reason:
        parser.print_usage(sys.stderr)
        sys.stderr.write(f"mutants: {reason}\n")
        return _BAD_INPUT
    # Whoever ends this in good order gets its servers ended too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    began = time.monotonic()
    try:
        trials, baseline = _try_all(mutants, given.jobs)
    except KeyboardInterrupt:
        return _INTERRUPTED
    figures = _figures(trials, baseline, time.monotonic() - began)
    if given.json is not None:
        given.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    _conclude(figures, trials)
    return 0 if figures["killed"] == figures["mutants"] else _NOT_ALL_KILLED


def _try_all(mutants: Sequence[Mutant], jobs: int) -> tuple[Sequence[Trial], Outcomes]:
    workers = [Worker() for _ in range(jobs)]
    free: SimpleQueue[Worker] = SimpleQueue()
    for worker in workers:
        free.put(worker)

    def by_a_worker(run: Callable[[Worker], T]) -> T:
        worker = free.get()
        try:
            return run(worker)
        finally:
            free.put(worker)

    with tempfile.TemporaryDirectory(prefix="oncefence-mutants-") as folder:
        # What is edited while this runs changes no verdict: all copies are made of this one.
        source, unchanged = Path(folder) / "source", Path(folder) / "unchanged"
        copy_tree(ROOT, source)
        copy_tree(source, unchanged)
        pool = ThreadPoolExecutor(jobs)
        try:
            without = pool.submit(by_a_worker, lambda worker: worker.baseline(unchanged, mutants))
            trying = [
                pool.submit(
                    by_a_worker, partial(_try_one, mutant, source, Path(folder) / mutant.name)
                )
                for mutant in mutants
            ]
            for number, done in enumerate(as_completed(trying), 1):
                _tell(done.result(), number, len(mutants))
            baseline = without.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for worker in workers:
                worker.stop()
            raise
        finally:
            pool.shutdown()
            for worker in workers:
                worker.close()
        return [confirmed(each.result(), baseline) for each in trying], baseline


def _try_one(mutant: Mutant, source: Path, tree: Path, worker: Worker) -> Trial:
    return worker.try_mutant(mutant, source, tree)


def _figures(trials: Sequence[Trial], baseline: Outcomes, seconds: float) -> dict[str, object]:
    count = Counter(trial.verdict for trial in trials)
    return {
        "mutants": len(trials),
        "killed": count[Verdict.KILLED],
        "survivors": count[Verdict.SURVIVED],
        "invalid": count[Verdict.INVALID],
        "seconds": round(seconds, 1),
        "survivor_names": _names(trials, Verdict.SURVIVED),
        "invalid_names": _names(trials, Verdict.INVALID),
        "failing_without_a_mutant": [*baseline.failed, *baseline.errors],
        "mutant_rows": [trial.row() for trial in trials],
    }


def _names(trials: Sequence[Trial], verdict: Verdict) -> list[str]:
    return [trial.mutant.name for trial in trials if trial.verdict is verdict]


def _tell(trial: Trial, number: int, total: int) -> None:
    by = trial.killed_by or trial.reason or "by none of its tests"
    _say(f"{number:3}/{total} {trial.verdict:9} {trial.mutant.name:46} {by}")


def _conclude(figures: dict[str, object], trials: Sequence[Trial]) -> None:
    for trial in trials:
        if trial.verdict is not Verdict.KILLED:
            clauses = ", ".join(trial.mutant.clauses)
            _say(f"{trial.verdict}: {trial.mutant.name} ({clauses}) {trial.reason or ''}".rstrip())
    for name in ("mutants", "killed", "survivors", "invalid", "seconds"):
        _say(f"{name:10} {figures[name]}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="./dev mutants", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these mutants alone")
    parser.add_argument(
        "--jobs",
        type=int,
        choices=range(1, 65),
        default=2,
        metavar="N",
        help="so many at a time (2); each has servers of its own",
    )
    return parser


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main())
