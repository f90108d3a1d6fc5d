"""
`./dev bench floor`: an effect against the same workflow with one bare HTTP activity.

Ours and the floor take turns, slice by slice, in one run: a machine that is slow for a minute is
slow for both, so that their ratio says more than either figure.
"""

import asyncio
import math
import os
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

from temporalio.api.enums.v1 import EventType

from tests.bench.history import COMMANDS_MAX
from tests.bench.measuring import Tally, measure_latency, measure_rate, percentile
from tests.bench.parts import bare_laps, effect_laps
from tests.bench.sides import Side
from tests.bench.stage import Servers, Stage, servers, stage

SLICE_SECONDS: Final = 2.5
WARM_UP_SECONDS: Final = 1.5
LATENCIES_MIN: Final = 10

# name, ours, the floor; the three that a reader compares.
CASES: Final = (
    ("local", "local", "bare"),
    ("regular", "regular", "bare"),
    ("local_eager_floor", "local", "bare_eager"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How long, how many at once, how many one at a time."""

    seconds: float
    in_flight: int

    @property
    def rounds(self) -> int:
        return max(math.ceil(self.seconds / SLICE_SECONDS), 1)

    @property
    def history(self) -> int:
        """How many settled commands there are before; a run that only has to end needs few."""
        return min(COMMANDS_MAX, round(50 * self.seconds))

    @property
    def latencies(self) -> int:
        return max(round(2 * self.seconds), LATENCIES_MIN)


def run(plan: Plan, say: Callable[[str], None]) -> dict[str, Any]:
    """
    Measure, and give the report.

    Raises:
        NotDone: What was measured is not what should be: there are no figures.
    """
    say("Starting PostgreSQL, Temporal and a provider ...")
    with servers() as running:
        return asyncio.run(_run(plan, running, say))


async def _run(plan: Plan, running: Servers, say: Callable[[str], None]) -> dict[str, Any]:
    async with stage(running, in_flight=plan.in_flight, history=plan.history) as set_up:
        sides: dict[str, Side] = {
            "local": set_up.local,
            "bare": set_up.bare,
            "regular": set_up.regular,
            "bare_eager": set_up.bare_eager,
        }
        tallies = {name: Tally() for name in sides}
        say(f"Warming up; then {plan.rounds} rounds, {plan.in_flight} in flight ...")
        await _rates(sides, {name: Tally() for name in sides}, plan, running, WARM_UP_SECONDS)
        for turn in range(plan.rounds):
            # Back and forth: whoever goes first in one round goes last in the next.
            order = sides if turn % 2 == 0 else dict(reversed(sides.items()))
            await _rates(order, tallies, plan, running, plan.seconds / plan.rounds)
        say("One at a time ...")
        for _ in range(plan.latencies):
            for name, side in sides.items():
                await measure_latency(side, tallies[name])
        report = _report(plan, tallies) | await _where(set_up, sides, plan)
        await set_up.refuse_what_went_wrong()
        return report


async def _rates(
    sides: Mapping[str, Side],
    tallies: Mapping[str, Tally],
    plan: Plan,
    running: Servers,
    seconds: float,
) -> None:
    for name, side in sides.items():
        await measure_rate(
            side,
            tallies[name],
            seconds=seconds,
            in_flight=plan.in_flight,
            processes=running.processes,
        )


def _report(plan: Plan, tallies: Mapping[str, Tally]) -> dict[str, Any]:
    cases, latency, spread = [], {}, {}
    for name, ours, floor in CASES:
        mine, theirs = tallies[ours], tallies[floor]
        by_round = [a / b for a, b in zip(mine.rates, theirs.rates, strict=True)]
        cases.append(
            {
                "name": name,
                "ours": round(mine.per_second, 2),
                "floor": round(theirs.per_second, 2),
                "ratio": round(mine.per_second / theirs.per_second, 3),
            }
        )
        spread[name] = {
            "least": round(min(by_round), 3),
            "median": round(median(by_round), 3),
            "most": round(max(by_round), 3),
            "by_cpu": round(sum(theirs.cpu_ms().values()) / sum(mine.cpu_ms().values()), 3),
        }
        latency[name] = {
            who: {
                "p50": round(percentile(tally.latencies_ms, 0.50), 2),
                "p95": round(percentile(tally.latencies_ms, 0.95), 2),
            }
            for who, tally in (("ours", mine), ("floor", theirs))
        }
    return {
        "benchmark": "floor",
        "unit": "effects per second, end to end",
        "cases": cases,
        "latency": latency,
        "ratio_by_round": spread,
        "cpu_ms_each": {name: tally.cpu_ms() for name, tally in tallies.items()},
        "run": {
            "seconds_each": plan.seconds,
            "rounds": plan.rounds,
            "in_flight": plan.in_flight,
            "one_at_a_time": plan.latencies,
            "cpus": os.cpu_count(),
            "load_average": [round(each, 2) for each in os.getloadavg()],
            "python": platform.python_version(),
        },
    }


async def _where(set_up: Stage, sides: Mapping[str, Side], plan: Plan) -> dict[str, Any]:
    ours = {
        name: await effect_laps(sides[name], set_up.store, tries=plan.latencies)
        for name in ("local", "regular")
    }
    floor = {
        name: await bare_laps(sides[name], tries=plan.latencies) for name in ("bare", "bare_eager")
    }
    return {
        "where_the_time_goes": ours["local"].parts(),
        "where_the_time_goes_elsewhere": {
            name: laps.parts() for name, laps in (ours | floor).items() if name != "local"
        },
        "sql_statements_each": ours["local"].statements_each,
        "history_events_each": {name: await _events_of(side) for name, side in sides.items()},
    }


async def _events_of(side: Side) -> list[str]:
    handle = await side.once()
    return [
        EventType.Name(event.event_type).removeprefix("EVENT_TYPE_").lower()
        async for event in handle.fetch_history_events()
    ]
