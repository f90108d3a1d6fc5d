"""
The whole way of a command, once with every fault of the provider, in both forms of the attempt.

All commands run at once, in one world per provider; each test judges one of them. What happened
at the provider is read from the provider's own ledger.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio
from temporalio.client import Client

from oncefence.app.local_postgres import LocalPostgres
from oncefence.app.local_temporal import LocalTemporal
from oncefence.simulator.faults import Fault
from oncefence.simulator.ledger import Kind, Ledger
from oncefence.storage.phases.audit_invariants import audit_invariants
from tests.providers.simulated import simulator_at
from tests.support import servers
from tests.support.other_provider import OtherProvider, Trouble, other_provider
from tests.support.servers import Database
from tests.support.station import (
    FAST,
    Form,
    Provider,
    ProviderWorld,
    make_station,
    new_queue,
    simulated_provider,
    working,
)
from tests.support.world import Accepted

pytestmark = pytest.mark.asyncio(loop_scope="module")

ACCEPTED, REJECTED = "ACCEPTED", "REJECTED"
UNKNOWN, SAFE_RETRY = "OUTCOME_UNKNOWN", "REPLAY_SAFE_RETRY"
NOT_SENT = "RETRYABLE_PRE_DISPATCH"


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """How a command ended. `outcomes` leaves out repetitions of one outcome in a row."""

    status: str
    outcomes: tuple[str, ...]
    changes: int
    grade: str | None = None
    failure: str | None = None
    disposition: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A story and, by attempt, the requests to change something that the provider read."""

    story: Story
    sent: Mapping[str, int]
    """How often each attempt reached the provider, by the attempt's outcome and ordinal."""


DONE = Story(status="succeeded", outcomes=(ACCEPTED,), changes=1, grade="receipt")
FOUND = Story(
    status="succeeded", outcomes=(UNKNOWN,), changes=1, grade="state", disposition="applied"
)
NOT_THERE = Story(
    status="failed",
    outcomes=(UNKNOWN,),
    changes=0,
    grade="none",
    failure="lookup_not_found",
    disposition="not_found",
)
LEFT_FOR_A_PERSON = Story(
    status="needs_attention",
    outcomes=(UNKNOWN,),
    changes=1,
    grade="none",
    failure="lookup_inconclusive",
)
TURNED_DOWN = Story(status="failed", outcomes=(REJECTED,), changes=0, failure="rejected")
CAME_AGAIN = Story(status="succeeded", outcomes=(SAFE_RETRY, ACCEPTED), changes=1, grade="receipt")
WAITED = Story(status="succeeded", outcomes=(NOT_SENT, ACCEPTED), changes=1, grade="receipt")

SIMULATED: Mapping[Fault | None, Story] = {
    None: DONE,
    Fault.REFUSE: WAITED,
    Fault.RESET_BEFORE_READ: NOT_THERE,
    Fault.RESET_MID_READ: NOT_THERE,
    Fault.RESET_BEFORE_ANSWER: NOT_THERE,
    Fault.RESET_AFTER_COMMIT: FOUND,
    Fault.LOST_ANSWER: FOUND,
    Fault.LATE_ANSWER: FOUND,
    Fault.NO_EFFECT_HANG: NOT_THERE,
    Fault.RATE_LIMIT_429: CAME_AGAIN,
    Fault.SERVER_ERROR_BEFORE_COMMIT: NOT_THERE,
    Fault.SERVER_ERROR_AFTER_COMMIT: FOUND,
    Fault.CUT_BODY: FOUND,
    Fault.WRONG_ID: FOUND,
    Fault.DRIP: FOUND,
    Fault.GARBLED: FOUND,
    Fault.REJECT_400: TURNED_DOWN,
    # The pack does not say that a 401 leaves the record as it was, so it is looked up.
    Fault.UNAUTHORIZED_401: NOT_THERE,
    Fault.OVERWRITTEN: LEFT_FOR_A_PERSON,
}
OTHER: Mapping[Trouble | None, Story] = {
    None: DONE,
    Trouble.LOST_ANSWER: FOUND,
    Trouble.NO_EFFECT_HANG: NOT_THERE,
    Trouble.REFUSED: TURNED_DOWN,
    Trouble.TOO_MANY: CAME_AGAIN,
    Trouble.STAYS_UNKNOWN: LEFT_FOR_A_PERSON,
}

Key = tuple[str, Form]
Run = Callable[[Key, Provider, Callable[[str], Awaitable[None]]], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Commands:
    """The commands that ran, each with the world that it ran in."""

    database: Database
    by_key: Mapping[Key, tuple[ProviderWorld, Accepted]]

    async def told(self, key: Key, changes: int, requests: Mapping[str, int]) -> Told:
        """What became of one command; changes and requests are the provider's own count."""
        world, accepted = self.by_key[key]
        execution, attempts = await world.execution(accepted), await world.attempts(accepted)
        outcomes = tuple(attempt.outcome for attempt in attempts)
        known = {str(attempt.attempt_id) for attempt in attempts}
        assert set(requests) <= known, "nothing but a marked attempt ever reaches the provider"
        return Told(
            story=Story(
                status=execution.status,
                outcomes=tuple(
                    outcome
                    for before, outcome in zip((None, *outcomes), outcomes, strict=False)
                    if outcome != before
                ),
                changes=changes,
                grade=execution.evidence_grade,
                failure=execution.failure_class,
                disposition=attempts[-1].disposition,
            ),
            sent={
                f"{attempt.outcome} {attempt.ordinal}": requests.get(str(attempt.attempt_id), 0)
                for attempt in attempts
            },
        )


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def database(postgres: LocalPostgres) -> AsyncIterator[Database]:
    async with servers.fresh_database(postgres) as fresh:
        yield fresh


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(temporal_server: LocalTemporal) -> Client:
    return await servers.connect(temporal_server)


async def run_all(
    database: Database,
    client: Client,
    worlds: list[tuple[ProviderWorld, list[str], Callable[[str, str], None]]],
) -> Commands:
    """One command for each name in each world and form, all at once, to their ends."""
    by_key: dict[Key, tuple[ProviderWorld, Accepted]] = {}
    async with AsyncExitStack() as stack:
        told = []
        for world, names, arrange in worlds:
            station = await stack.enter_async_context(
                working(make_station(world, client, new_queue()))
            )
            for name in names:
                for form in Form:
                    subject = f"{name}-{form}"
                    accepted = await world.accept_in(form, subject, title=f"Head of {subject}")
                    await asyncio.to_thread(arrange, name, world.remote_ids[subject])
                    by_key[name, form] = world, accepted
                    told.append(station.announce(accepted))
        await asyncio.gather(*told)
        for world, _, _ in worlds:
            mine = [accepted for owner, accepted in by_key.values() if owner is world]
            await world.settled(*mine, within_s=60)
    return Commands(database=database, by_key=by_key)


class Ledgers:
    """What the simulators wrote down; read from their files after the run."""

    def __init__(self, *paths: Path) -> None:
        self._ledgers = [Ledger(rows=()) for _ in paths]
        self._paths = paths

    def changes(self, accepted: Accepted) -> int:
        """How many changes were applied for the command."""
        return sum(
            len(ledger.changes_by_command().get(str(accepted.command), []))
            for ledger in self._read()
        )

    def requests(self, accepted: Accepted) -> Counter[str]:
        """How many PATCH requests came from each attempt, those left unread included."""
        return Counter(
            row.attempt or ""
            for ledger in self._read()
            for row in ledger.rows
            if row.command == str(accepted.command)
            and row.method == "PATCH"
            and (row.kind is Kind.READ or row.fault == Fault.RESET_BEFORE_READ)
        )

    def _read(self) -> list[Ledger]:
        from oncefence.simulator.ledger import read_ledger

        return [read_ledger(path) for path in self._paths]
