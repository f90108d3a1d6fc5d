"""`python -m tests.bench`, by which `./dev bench` measures."""

import argparse
import atexit
import json
import logging
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from oncefence.domain.errors import ConfigurationRefused
from tests.bench import claim, floor, memory, quota
from tests.bench.sides import NotDone


def main(words: list[str]) -> int:
    """Run one benchmark; 0 where there are figures."""
    options = _read(words)
    say = Console(stderr=True, soft_wrap=True).print
    logging.basicConfig(level=logging.WARNING)
    try:
        report = _measured(options, say)
    except (ConfigurationRefused, NotDone) as error:
        say(f"bench: {error}", style="red", markup=False)
        return 1
    if options.json is not None:
        options.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    if options.benchmark == "floor":
        _show(report)
        return 0
    _show_figures(report)
    for fault in report["faults"]:
        say(f"bench: {fault}", style="red", markup=False)
    return 1 if report["faults"] else 0


def _measured(options: argparse.Namespace, say: Callable[[str], None]) -> dict[str, Any]:
    match options.benchmark:
        case "claim":
            return claim.run(
                claim.Plan(rows=options.rows, short=options.short, each_round=options.claims),
                say,
            )
        case "memory":
            return memory.run(
                memory.Plan(effects=options.effects, in_flight=options.in_flight), say
            )
        case "quota":
            return quota.run(
                quota.Plan(seconds=options.seconds, workers=options.workers, limit=options.limit),
                say,
            )
        case _:
            return floor.run(floor.Plan(seconds=options.seconds, in_flight=options.in_flight), say)


def _read(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./dev bench", description="Measures, in pairs.")
    verbs = parser.add_subparsers(
        dest="benchmark", required=True, metavar="floor|claim|memory|quota"
    )
    bench = _verb(verbs, "floor", "an effect against one bare HTTP activity")
    bench.add_argument(
        "--seconds",
        type=_positive(float),
        default=20.0,
        metavar="N",
        help="how long each of the four sides is measured, in slices (20)",
    )
    _takes_in_flight(bench)
    bench = _verb(verbs, "claim", "a claim over a long history against a short one")
    bench.add_argument(
        "--rows",
        type=_positive(int, claim.LONG),
        default=claim.LONG,
        metavar="N",
        help="settled commands in the long history (1000000)",
    )
    bench.add_argument(
        "--short",
        type=_positive(int, claim.LONG),
        default=claim.SHORT,
        metavar="N",
        help="and in the short one (10000)",
    )
    bench.add_argument(
        "--claims",
        type=_positive(int),
        default=claim.EACH_ROUND,
        metavar="N",
        help="claims over each in one of the seven rounds (100)",
    )
    bench = _verb(verbs, "memory", "a worker after many effects against after few")
    bench.add_argument(
        "--effects",
        type=_positive(int, claim.LONG),
        default=memory.EFFECTS,
        metavar="N",
        help="how many in all; held against a tenth of them (20000)",
    )
    _takes_in_flight(bench)
    bench = _verb(verbs, "quota", "several workers under one limit of a provider")
    bench.add_argument(
        "--seconds", type=_positive(float), default=20.0, metavar="N", help="how long (20)"
    )
    bench.add_argument(
        "--workers", type=_positive(int, 16), default=4, metavar="N", help="processes (4)"
    )
    bench.add_argument(
        "--limit",
        type=_positive(int, 1_000),
        default=50,
        metavar="N",
        help="requests a second (50)",
    )
    return parser.parse_args(words)


def _verb(verbs: Any, name: str, about: str) -> argparse.ArgumentParser:  # argparse's is private
    bench: argparse.ArgumentParser = verbs.add_parser(name, help=about)
    bench.add_argument("--json", type=_target, metavar="FILE", help="write the figures there too")
    return bench


def _takes_in_flight(bench: argparse.ArgumentParser) -> None:
    bench.add_argument(
        "--in-flight",
        type=_positive(int),
        default=16,
        metavar="N",
        help="how many are under way at once (16)",
    )


def _target(word: str) -> Path:
    path = Path(word).absolute()
    if not path.parent.is_dir():
        # Said now and not after the minutes that the figures take.
        raise argparse.ArgumentTypeError(f"there is no folder {path.parent}; make it first")
    return path


def _positive(kind: type[float], most: float = 86_400) -> Any:  # argparse takes any type
    def read(word: str) -> float:
        value = kind(word)
        if not 0 < value <= most:
            raise argparse.ArgumentTypeError(f"{word} is not above 0 and at most {most}")
        return value

    read.__name__ = "number"
    return read


def _show_figures(report: dict[str, Any]) -> None:
    """The table of a report that holds a figure against a bound."""
    console = Console(width=112)
    if report["benchmark"] == "memory":
        table = Table("effects", "MiB")
        for sample in report["samples"]:
            table.add_row(f"{sample['effects']:,}", f"{sample['mib']:.1f}")
        console.print(table)
        console.print(f"ratio {report['ratio']:.3f}, at most {report['ratio_max']}")
        return
    if report["benchmark"] == "quota":
        table = Table("reserved", "most in a second", "limit", "used", "refused")
        table.add_row(
            str(report["reserved"]),
            str(report["most_reserved_in_a_second"]),
            str(report["limit_per_second"]),
            f"{report['used_share']:.1%}",
            str(report["provider"]["refused"]),
        )
        console.print(table)
        return
    table = Table(
        "one claim", "pages", "of rows", "ways down", "first minute", "ms", "ratio", "by CPU"
    )
    for kind, figures in report["kinds"].items():
        for side in claim.SIDES:
            table.add_row(
                f"{kind}, {report['run']['rows'][side]:,} rows",
                f"{figures['pages'][side]:.0f}",
                f"{figures['pages_of_rows'][side]:.0f}",
                f"{figures['ways_down_indexes'][side]:.0f}",
                f"{figures['first_minute_pages'][side]:.0f}",
                f"{figures['ms'][side]:.2f}",
                f"{figures['time_ratio']:.3f}" if side == "long" else "",
                f"{figures['server_cpu_ratio']:.3f}" if side == "long" else "",
            )
    console.print(table)


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
