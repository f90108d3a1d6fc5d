"""
The herd: workers are killed and frozen while commands keep coming, and nothing is done twice.

    ./dev herd                                  four workers, a minute, one killed every 3 s
    ./dev herd --seconds 12 --seed 7            shorter, with these dice
"""

import argparse
import atexit
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from oncefence.app.demo.folders import named_folder
from oncefence.app.stack import stopping_in_good_order
from oncefence.domain.errors import ConfigurationRefused
from tests.herd.run import NotReady, Plan, run_herd

_BROKEN, _BAD_INPUT, _INTERRUPTED = 1, 2, 130
_ROWS_SHOWN = 20


def main(words: Sequence[str] | None = None) -> int:
    """0 when the promise held, 1 when not, 2 on bad input."""
    # The SDK's threads can crash an interpreter that is taken away under them.
    atexit.register(time.sleep, 0.3)
    given = _read(words)
    plan = Plan(
        seconds=given.seconds,
        workers=given.workers,
        kill_every=given.kill_every,
        freeze_every=given.freeze_every,
        seed=int.from_bytes(os.urandom(4)) if given.seed is None else given.seed,
    )
    folder = _fresh_folder() if given.keep is None else named_folder(given.keep)
    began_at = time.monotonic()

    def tell(step: str) -> None:
        _say(f"{time.monotonic() - began_at:6.1f} s  {step}")

    try:
        with stopping_in_good_order():
            report = run_herd(folder, plan, tell)
    except (ConfigurationRefused, NotReady) as error:
        _say(f"herd: {error}; the logs are in {folder}")
        return _BROKEN
    except KeyboardInterrupt:
        _say(f"herd: interrupted; everything is stopped, and what there is of it is in {folder}")
        return _INTERRUPTED
    figures = report.as_json()
    if given.json is not None:
        given.json.write_text(json.dumps(figures, indent=2, default=str) + "\n", encoding="utf-8")
    for row in report.verdict.rows[:_ROWS_SHOWN]:
        _say(json.dumps(row, default=str))
    for name, value in figures.items():
        if not isinstance(value, list):
            _say(f"{name:20} {value}")
    if not report.holds:
        _say(f"the promise did not hold; everything is in {folder}, and --seed {plan.seed} again")
        return _BROKEN
    if given.keep is None:
        shutil.rmtree(folder, ignore_errors=True)  # what stays of it is temporary anyway
    _say("the promise held")
    return 0


def _fresh_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="oncefence-herd-"))
    # Where root started it, PostgreSQL runs as somebody else.
    folder.chmod(0o755)
    return folder


def _read(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="./dev herd", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seconds", type=_above(0, float), default=60.0, metavar="N")
    parser.add_argument("--workers", type=_above(0, int), default=4, metavar="N")
    parser.add_argument("--kill-every", type=_above(0, float), default=3.0, metavar="SECONDS")
    parser.add_argument("--freeze-every", type=_above(0, float), default=7.0, metavar="SECONDS")
    parser.add_argument("--seed", type=int, metavar="S", help="of the dice; else a new one")
    parser.add_argument(
        "--keep", type=Path, metavar="DIR", help="where its data stays; else only after a failure"
    )
    parser.add_argument("--json", type=_target, metavar="FILE", help="write the figures there too")
    return parser.parse_args(words)


def _above(least: float, kind: Callable[[str], float]) -> Callable[[str], float]:
    def read(text: str) -> float:
        try:
            number = kind(text)
        except ValueError:
            number = least
        if not least < number < float("inf"):
            raise argparse.ArgumentTypeError(f"{text!r} is not a number above {least:g}")
        return number

    return read


def _target(text: str) -> Path:
    path = Path(text)
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise argparse.ArgumentTypeError(
            f"{text} cannot be written; name a file in a folder that is there"
        )
    return path


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main())
