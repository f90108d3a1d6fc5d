"""`python -m tests.bench`, by which `./dev bench` measures."""

import argparse
import atexit
import json
import logging
import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from oncefence.domain.errors import ConfigurationRefused
from tests.bench import floor
from tests.bench.sides import NotDone


def main(words: list[str]) -> int:
    """Run one benchmark; 0 where there are figures."""
    options = _read(words)
    say = Console(stderr=True, soft_wrap=True).print
    logging.basicConfig(level=logging.WARNING)
    try:
        report = floor.run(
            floor.Plan(seconds=options.seconds, in_flight=options.in_flight),
            say,
        )
    except (ConfigurationRefused, NotDone) as error:
        say(f"bench: {error}", style="red", markup=False)
        return 1
    if options.json is not None:
        options.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    _show(report)
    return 0


def _read(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./dev bench", description="Measures, in pairs.")
    verbs = parser.add_subparsers(dest="benchmark", required=True, metavar="floor")
    bench = verbs.add_parser("floor", help="an effect against one bare HTTP activity")
    bench.add_argument("--json", type=_target, metavar="FILE", help="write the figures there too")
    bench.add_argument(
        "--seconds",
        type=_positive(float),
        default=20.0,
        metavar="N",
        help="how long each of the four sides is measured, in slices (20)",
    )
    bench.add_argument(
        "--in-flight",
        type=_positive(int),
        default=16,
        metavar="N",
        help="how many are under way at once (16)",
    )
    return parser.parse_args(words)


def _target(word: str) -> Path:
    path = Path(word).absolute()
    if not path.parent.is_dir():
        # Said now and not after the minutes that the figures take.
        raise argparse.ArgumentTypeError(f"there is no folder {path.parent}; make it first")
    return path


def _positive(kind: type[float]) -> Any:  # argparse calls it by whatever type it has
    def read(word: str) -> float:
        value = kind(word)
        if not 0 < value < 86_400:
            raise argparse.ArgumentTypeError(f"{word} is not above 0")
        return value

    read.__name__ = "number"
    return read


def _show(report: dict[str, Any]) -> None:
    console = Console(width=100)
    table = Table("case", "ours /s", "floor /s", "ratio", "by round", "by CPU", "p50 ms", "p95 ms")
    for case in report["cases"]:
        latency = report["latency"][case["name"]]
        ours, floors = latency["ours"], latency["floor"]
        spread = report["ratio_by_round"][case["name"]]
        table.add_row(
            case["name"],
            f"{case['ours']:.1f}",
            f"{case['floor']:.1f}",
            f"{case['ratio']:.2f}",
            f"{spread['least']:.2f}-{spread['most']:.2f}",
            f"{spread['by_cpu']:.2f}",
            f"{ours['p50']:.0f} ({floors['p50']:.0f})",
            f"{ours['p95']:.0f} ({floors['p95']:.0f})",
        )
    console.print(table)
    parts = Table("where the time of one effect goes, local form, alone", "ms", "share")
    for part in report["where_the_time_goes"]:
        parts.add_row(part["part"], f"{part['ms']:.2f}", f"{part['share']:.0%}")
    console.print(parts)
    processes = list(report["cpu_ms_each"]["local"])
    spent = Table("CPU ms for each", *processes, "all")
    for side, by_process in report["cpu_ms_each"].items():
        cells = [*(by_process[process] for process in processes), sum(by_process.values())]
        spent.add_row(side, *(f"{cell:.1f}" for cell in cells))
    console.print(spent)


if __name__ == "__main__":
    # A process that used the Temporal SDK may crash while the interpreter ends, unless the
    # SDK's threads are given a moment.
    atexit.register(time.sleep, 0.3)
    sys.exit(main(sys.argv[1:]))
