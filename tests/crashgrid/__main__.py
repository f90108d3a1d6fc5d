"""
The crash grid: every point, every fault, one crash or two, and nothing done twice or lost.

    ./dev crashgrid --singles                 each point, each fault, both forms
    ./dev crashgrid --once                    of those one for each point and each fault
    ./dev crashgrid --pairs 2000 --seed 7     two crashes each, drawn from seed and number
    ./dev crashgrid --replay 7:1234           one of those again; singles:12 is one of the others
"""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.crashgrid import grid, plan
from tests.crashgrid.cell import Cell
from tests.crashgrid.points import POINTS

_ROWS_SHOWN = 20
_VIOLATIONS, _BAD_INPUT = 1, 2


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 0 when the promise held at every point, 1 when not, 2 on bad input."""
    parser = _parser()
    given = parser.parse_args(arguments)
    try:
        cells, seed = _cells(given)
    except ValueError as reason:
        parser.print_usage(sys.stderr)
        sys.stderr.write(f"crashgrid: {reason}\n")
        return _BAD_INPUT
    if given.list:
        _say("\n".join(map(str, cells)))
        return 0
    run = grid.run(cells, slots=given.slots)
    verdict = run.verdict
    aimed = {trap.point for cell in cells for trap in cell.traps}
    # Two crashes may be such that the first leaves no way to the second.
    must_fire = frozenset(POINTS) if given.singles or given.once else frozenset()
    unfired = sorted(must_fire - verdict.points_fired)
    figures = {
        "cells": verdict.cells,
        "points": len(must_fire or aimed),
        "points_fired": len(verdict.points_fired),
        "lives": verdict.lives,
        "violations": verdict.violations,
        "unknown_rate_faultless": verdict.unknown_rate_faultless,
        "faultless_cells": verdict.faultless,
        "lookupable_unknowns": verdict.lookupable_unknowns,
        "settled_by_lookup": verdict.settled_by_lookup,
        "records_made": verdict.records_made,
        "seconds": round(run.seconds, 3),
        "cells_per_second": round(verdict.cells / run.seconds, 2),
        "seed": seed,
        "points_unfired": unfired,
        "point_names": sorted(must_fire or aimed),
        "violation_rows": list(verdict.violation_rows),
    }
    if given.json is not None:
        given.json.write_text(json.dumps(figures, indent=2, default=str) + "\n", encoding="utf-8")
    for row in verdict.violation_rows[:_ROWS_SHOWN]:
        _say(json.dumps(row, default=str, indent=1))
    for name in unfired:
        _say(f"never fired: {name}")
    for name, value in figures.items():
        if not isinstance(value, list):
            _say(f"{name:24} {value}")
    is_honest = verdict.faultless_unknowns == 0 and verdict.looks_up_enough
    if verdict.violations or unfired or not is_honest:
        _say("the promise did not hold, or was not tried at every point")
        return _VIOLATIONS
    _say("the promise held")
    return 0


def _cells(given: argparse.Namespace) -> tuple[Sequence[Cell], int | None]:
    if given.replay is not None:
        seed, _, number = given.replay.partition(":")
        try:
            if seed == "singles":
                return [plan.singles()[int(number)]], None
            return [plan.pair(int(seed), int(number))], int(seed)
        except (ValueError, IndexError):
            raise ValueError(
                f"--replay {given.replay!r} names no cell; give SEED:NUMBER or singles:NUMBER"
            ) from None
    if given.pairs is not None:
        if given.pairs < 1:
            raise ValueError("--pairs needs a number of 1 or more")
        seed = int.from_bytes(os.urandom(4)) if given.seed is None else given.seed
        return plan.pairs(seed, given.pairs), seed
    if given.seed is not None:
        raise ValueError("--seed goes with --pairs; the singles are always the same")
    if given.once:
        return plan.once(), None
    given.singles = True
    return plan.singles(), None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="./dev crashgrid", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--singles", action="store_true", help="every way of each point (default)")
    which.add_argument("--once", action="store_true", help="of those one for each point")
    which.add_argument("--pairs", type=int, metavar="N", help="this many cells of two crashes")
    which.add_argument("--replay", metavar="SEED:NUMBER", help="one cell again")
    parser.add_argument("--seed", type=int, metavar="S", help="of the pairs; else a new one")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--slots", type=int, default=grid.SLOTS, help=argparse.SUPPRESS)
    parser.add_argument("--list", action="store_true", help="only say which cells there are")
    return parser


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main())
