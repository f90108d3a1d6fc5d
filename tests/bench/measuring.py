"""Rates and latencies of one side, and what each process spent on it."""

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Final

import psutil

from tests.bench.sides import Side

# Before the window opens: everything is in flight by then, and the first wave is not counted.
RAMP_SECONDS: Final = 0.5


@dataclass(slots=True, kw_only=True)
class Tally:
    """What a side came to over all slices."""

    done: int = 0
    seconds: float = 0.0
    rates: list[float] = field(default_factory=list)
    latencies_ms: list[float] = field(default_factory=list)
    cpu_seconds: dict[str, float] = field(default_factory=dict)
    cpu_done: int = 0

    @property
    def per_second(self) -> float:
        return self.done / self.seconds

    def cpu_ms(self) -> dict[str, float]:
        """CPU time for one, by process."""
        return {
            name: round(1000 * seconds / self.cpu_done, 2)
            for name, seconds in self.cpu_seconds.items()
        }


async def measure_rate(
    side: Side, tally: Tally, *, seconds: float, in_flight: int, processes: Mapping[str, int]
) -> None:
    """
    Keep `in_flight` of them under way for a slice, and count those that end inside the window.

    The window stays open until one wave of them has ended in it, however slow the machine. What
    is under way when it closes runs to its end, uncounted, so that the next slice begins on a
    quiet machine.
    """
    ends: list[float] = []
    opens_at = perf_counter() + RAMP_SECONDS
    closes_at = opens_at + seconds

    async def again_and_again() -> None:
        while perf_counter() < closes_at or sum(end >= opens_at for end in ends) < in_flight:
            await side.once()
            ends.append(perf_counter())

    before = cpu_seconds(processes)
    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(in_flight):
                group.create_task(again_and_again())
    except ExceptionGroup as errors:
        # They fail together, and for one reason.
        raise errors.exceptions[0] from None
    after = cpu_seconds(processes)

    inside = sorted(end for end in ends if end >= opens_at)
    closed_at = max(closes_at, inside[in_flight - 1])
    counted = sum(end <= closed_at for end in inside)
    tally.done += counted
    tally.seconds += closed_at - opens_at
    tally.rates.append(counted / (closed_at - opens_at))
    tally.cpu_done += len(ends)
    for name, spent in after.items():
        tally.cpu_seconds[name] = tally.cpu_seconds.get(name, 0.0) + spent - before[name]


async def measure_latency(side: Side, tally: Tally) -> None:
    """One, alone, from the beginning until its end is known."""
    began = perf_counter()
    await side.once()
    tally.latencies_ms.append(1000 * (perf_counter() - began))


def cpu_seconds(processes: Mapping[str, int]) -> dict[str, float]:
    """What each process and its children have used so far."""
    return {name: _cpu_of(pid) for name, pid in processes.items()}


def _cpu_of(pid: int) -> float:
    process = psutil.Process(pid)
    own = process.cpu_times()
    if process == psutil.Process():
        # Its children are the other processes that are asked about.
        return own.user + own.system
    total = own.user + own.system + own.children_user + own.children_system
    for child in process.children(recursive=True):
        try:
            times = child.cpu_times()
        except psutil.NoSuchProcess:
            continue  # it is in its parent's account by now
        total += times.user + times.system
    return total


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of all does not exceed."""
    ordered = sorted(values)
    return ordered[max(math.ceil(share * len(ordered)) - 1, 0)]
