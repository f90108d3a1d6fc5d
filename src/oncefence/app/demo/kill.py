"""
Killing the worker from outside, at a moment when it cannot know what its sends came to.

The moment is seen in SQL and in the provider's own ledger, and counted there as well.
"""

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import UUID

from oncefence.app.processes import ChildProcess
from oncefence.domain.ids import OrgId
from oncefence.simulator.ledger import Ledger, read_ledger
from oncefence.storage.engine import Store
from oncefence.storage.phases.read_progress import Progress, read_progress

_POLL_SECONDS: Final = 0.05
# Sends that were about to be answered are let finish, so that the run tells the same each time;
# shorter than a send deadline, after which nothing is in flight any more.
_SETTLE_SECONDS: Final = 3.0
_SOME_SECONDS: Final = 7.0
_QUIET_SECONDS: Final = 0.4
_WAIT_SECONDS_MAX: Final = 25.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Flight:
    """A started, unsettled attempt whose request the provider has read and not answered."""

    attempt: UUID
    command: UUID
    is_applied: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """One SIGKILL, and what was in flight when it fell."""

    flights: tuple[Flight, ...]

    @property
    def applied(self) -> int:
        return sum(flight.is_applied for flight in self.flights)


def in_flight(progress: Progress, ledger: Ledger) -> tuple[Flight, ...]:
    """What SQL and the ledger together show to be in flight."""
    exchanges = {
        exchange.attempt: exchange
        for exchange in ledger.exchanges()
        if exchange.method == "PATCH" and exchange.is_complete and exchange.is_open
    }
    return tuple(
        Flight(attempt=attempt, command=command, is_applied=exchange.is_applied)
        for attempt, command in progress.open_attempts.items()
        if (exchange := exchanges.get(str(attempt))) is not None
    )


async def kill_in_flight(
    worker: ChildProcess,
    store: Store,
    org: OrgId,
    ledger_file: Path,
    held: Collection[UUID],
    *,
    is_over: Callable[[Progress], bool],
) -> Kill | None:
    """
    Kill the worker once all of `held` are in flight; None where no such moment came.

    Where only some of them ever are, those will do, and in the end any send in flight. Where
    nothing is left to come, nothing is waited for.
    """
    clock = asyncio.get_running_loop().time
    give_up_at = clock() + _WAIT_SECONDS_MAX
    some_since = all_since = quiet_since = None
    before: frozenset[UUID] = frozenset()
    while True:
        progress = await read_progress(store, org)
        flights = in_flight(progress, read_ledger(ledger_file))
        flying = frozenset(flight.attempt for flight in flights)
        now = clock()
        if flying and (now > give_up_at or is_over(progress)):
            break
        if now > give_up_at or (is_over(progress) and not progress.open_attempts):
            return None
        seen = {flight.command for flight in flights} & set(held)
        some_since = (some_since or now) if seen else None
        all_since = (all_since or now) if seen and seen == set(held) else None
        is_quiet = flying == before and len(flying) == len(progress.open_attempts)
        quiet_since = (quiet_since or now) if is_quiet and all_since is not None else None
        if (
            _lasts(some_since, now, _SOME_SECONDS)
            or _lasts(all_since, now, _SETTLE_SECONDS)
            or _lasts(quiet_since, now, _QUIET_SECONDS)
        ):
            break
        before = flying
        await asyncio.sleep(_POLL_SECONDS)
    worker.kill()
    return await _counted(store, org, ledger_file, flights)


def _lasts(since: float | None, now: float, seconds: float) -> bool:
    return since is not None and now - since > seconds


async def _counted(
    store: Store, org: OrgId, ledger_file: Path, flights: tuple[Flight, ...]
) -> Kill:
    """
    What was in flight at the kill: open just before it, and unsettled and unanswered after it.

    The worker is dead, so nothing of this can change any more.
    """
    progress = await read_progress(store, org)
    exchanges = {exchange.attempt: exchange for exchange in read_ledger(ledger_file).exchanges()}
    return Kill(
        flights=tuple(
            Flight(
                attempt=flight.attempt,
                command=flight.command,
                is_applied=exchanges[str(flight.attempt)].is_applied,
            )
            for flight in flights
            if flight.attempt in progress.open_attempts
            and not exchanges[str(flight.attempt)].is_answered
        )
    )
