"""
`./dev bench memory`: whether a worker that has done much holds more than one that has done little.

One process with doors, worker and whoever hands over, as `./dev bench floor` has it. Whatever a
process keeps for each effect shows as growth; what it keeps for each contact, plan or connection
is there after the first tenth.
"""

import asyncio
import gc
import platform
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import psutil

from tests.bench.history import COMMANDS_MAX
from tests.bench.sides import NotDone, Side
from tests.bench.stage import Servers, servers, stage

EFFECTS: Final = 20_000
RATIO_MAX: Final = 1.2
_TENTHS: Final = 10
_MIB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How many effects in all, of which the first tenth is what the rest is held against."""

    effects: int = EFFECTS
    in_flight: int = 16


def run(plan: Plan, say: Callable[[str], None]) -> dict[str, Any]:
    """
    Measure, and give the report; whether it is as it must be stands in its `faults`.

    Raises:
        NotDone: An effect did not end as it must: there are no figures.
    """
    say("Starting PostgreSQL, Temporal and a provider ...")
    with servers() as running:
        return asyncio.run(_run(plan, running, say))


async def _run(plan: Plan, running: Servers, say: Callable[[str], None]) -> dict[str, Any]:
    samples = []
    async with stage(
        running, in_flight=plan.in_flight, history=min(COMMANDS_MAX, plan.effects)
    ) as set_up:
        for tenth in range(1, _TENTHS + 1):
            await _do(set_up.local, plan.effects // _TENTHS, plan.in_flight)
            held = _resident()
            samples.append({"effects": tenth * (plan.effects // _TENTHS), "mib": round(held, 1)})
            say(f"{samples[-1]['effects']:,} effects: {held:.1f} MiB")
        await set_up.refuse_what_went_wrong()
    return report_of(plan, samples)


async def _do(side: Side, count: int, in_flight: int) -> None:
    left = iter(range(count))

    async def again_and_again() -> None:
        for _ in left:
            # On a machine that is too busy for a workflow task in time, the run that ended the
            # effect may not be the one that tells. What SQL and the provider say is asked below.
            with suppress(NotDone):
                await side.once()

    async with asyncio.TaskGroup() as group:
        for _ in range(in_flight):
            group.create_task(again_and_again())


def _resident() -> float:
    # What only waits to be collected is nothing that is held.
    gc.collect()
    return float(psutil.Process().memory_info().rss) / _MIB


def report_of(plan: Plan, samples: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """The report on what was held after each tenth."""
    first, last = samples[0]["mib"], samples[-1]["mib"]
    ratio = round(last / first, 3)
    faults = []
    if ratio > RATIO_MAX:
        faults.append(
            f"after {plan.effects:,} effects the worker holds {ratio} times what it held after "
            f"{samples[0]['effects']:,}; at most {RATIO_MAX} is right"
        )
    return {
        "benchmark": "memory",
        "unit": "MiB resident of the process with doors, worker and driver, after a collection",
        "ratio": ratio,
        "ratio_max": RATIO_MAX,
        "samples": list(samples),
        "faults": faults,
        "run": {
            "effects": plan.effects,
            "in_flight": plan.in_flight,
            "python": platform.python_version(),
        },
    }
