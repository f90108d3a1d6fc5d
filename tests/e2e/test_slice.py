"""
The whole way of a command, once with every fault of the provider, in both forms of the attempt.

All commands run at once, each with an account of its own: what one of them meets holds back no
other. Each test judges one of them. What happened at the provider is read from the provider's own
ledger.
"""

import asyncio
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, product

import pytest
import pytest_asyncio
from temporalio.client import Client

from oncefence.app.local_postgres import LocalPostgres
from oncefence.app.local_temporal import LocalTemporal
from oncefence.domain.redaction import Secret
from oncefence.simulator.faults import Fault
from oncefence.simulator.ledger import Kind, Ledger
from oncefence.storage.phases.audit_invariants import audit_invariants
from oncefence.storage.phases.rebind_principal import rebind_principal
from oncefence.storage.sealing import KeyRing
from tests.providers.simulated import simulator_at
from tests.support import servers
from tests.support.dialect import Form, Provider, simulated_provider
from tests.support.other_provider import OtherProvider, Trouble, other_provider
from tests.support.servers import Database
from tests.support.station import (
    FAST,
    ProviderWorld,
    Station,
    make_station,
    new_queue,
    until,
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
REFUSED_ACCOUNT = Story(
    status="needs_attention",
    outcomes=(UNKNOWN,),
    changes=0,
    grade="none",
    failure="lookup_unusable",
)
TURNED_DOWN = Story(status="failed", outcomes=(REJECTED,), changes=0, failure="rejected")
CAME_AGAIN = Story(status="succeeded", outcomes=(SAFE_RETRY, ACCEPTED), changes=1, grade="receipt")
WAITED = Story(status="succeeded", outcomes=(NOT_SENT, ACCEPTED), changes=1, grade="receipt")

PLAIN = "plain"
SIMULATED: Mapping[str, Story] = {
    PLAIN: DONE,
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
    # The pack does not say that a 401 leaves the record as it was. Until somebody hands over
    # another token nothing is sent, and that token may not speak for the command (C282).
    Fault.UNAUTHORIZED_401: REFUSED_ACCOUNT,
    Fault.OVERWRITTEN: LEFT_FOR_A_PERSON,
}
RULES: Mapping[str, Mapping[str, object]] = {
    fault: {"fault": fault, "retry_after": 1}
    if fault is Fault.RATE_LIMIT_429
    else {"fault": fault, "delay_s": 0.1}
    if fault is Fault.DRIP
    else {"fault": fault}
    for fault in Fault
}
OTHER: Mapping[str, Story] = {
    PLAIN: DONE,
    Trouble.LOST_ANSWER: FOUND,
    Trouble.NO_EFFECT_HANG: NOT_THERE,
    Trouble.REFUSED: TURNED_DOWN,
    Trouble.TOO_MANY: CAME_AGAIN,
    Trouble.STAYS_UNKNOWN: LEFT_FOR_A_PERSON,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """One command, its world, and what the provider's own list says of it."""

    world: ProviderWorld
    accepted: Accepted
    changes: int
    requests: Mapping[str, int]
    """How many requests to change something the provider read, by attempt."""

    async def story(self) -> Story:
        """How the command ended."""
        execution = await self.world.execution(self.accepted)
        attempts = await self.world.attempts(self.accepted)
        return Story(
            status=execution.status,
            outcomes=tuple(outcome for outcome, _ in groupby(row.outcome for row in attempts)),
            changes=self.changes,
            grade=execution.evidence_grade,
            failure=execution.failure_class,
            disposition=attempts[-1].disposition,
        )

    async def check_requests(self) -> None:
        """Each attempt that may have left was read once, each that did not never."""
        expected = {
            str(attempt.attempt_id): 1
            for attempt in await self.world.attempts(self.accepted)
            if attempt.outcome != NOT_SENT
        }
        assert self.requests == expected


Key = tuple[str, Form]
Arrange = Callable[[str, str], object]
"""Given the name of a trouble and the record that it is for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A provider, the troubles of the commands for it, and how they are arranged."""

    provider: Provider
    names: Sequence[str]
    arrange: Arrange


async def run_all(
    database: Database, client: Client, parts: Sequence[Part], just_before: Callable[[], object]
) -> list[dict[Key, tuple[ProviderWorld, Accepted]]]:
    """One command for each name and form, all at once, to their ends."""
    ring = KeyRing({"test-key": secrets.token_bytes(32)})
    ran: list[dict[Key, tuple[ProviderWorld, Accepted]]] = []
    for part in parts:
        mine: dict[Key, tuple[ProviderWorld, Accepted]] = {}
        for name, form in product(part.names, Form):
            world = await ProviderWorld.on(database, part.provider, ring=ring)
            subject = f"{name}-{form}"
            accepted = await world.accept_in(form, subject, title=f"Head of {subject}")
            await asyncio.to_thread(part.arrange, name, world.remote_ids[subject])
            mine[name, form] = world, accepted
        ran.append(mine)
    commands = [(name, *pair) for mine in ran for (name, _), pair in mine.items()]
    station = make_station(commands[0][1], client, new_queue())
    async with working(station):
        await asyncio.to_thread(just_before)
        await asyncio.gather(
            *(replace(station, world=world).announce(each) for _, world, each in commands)
        )
        for name, world, accepted in commands:
            if name == Fault.UNAUTHORIZED_401:
                await hand_over_a_token(replace(station, world=world), accepted)
        for _, world, accepted in commands:
            await world.settled(accepted, within_s=60)
    return ran


async def hand_over_a_token(station: Station, accepted: Accepted) -> None:
    """Once the account of the command is parked by its refusal, a person hands over a token."""
    world = station.world

    async def is_parked() -> bool:
        grants = await world.sql(
            "SELECT state FROM oncefence.authorization_grants WHERE org_id = :org"
        )
        return [row.state for row in grants] == ["needs_reauthorization"]

    await until(is_parked, within_s=60, what="an account that waits for a person")
    await rebind_principal(
        world.engine,
        world.ring,
        world.org,
        world.view.principal,
        subject=None,
        pack_grant=None,
        token=Secret(world.provider.dialect.token),
        expected_version="1.current",
        actor="tests",
        note="the one before was refused",
        is_same_account=True,
    )
    lookup = await world.lookup_work(accepted)
    assert lookup is not None, "nobody knows what the refused request did"
    await station.wake(lookup)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """Every command of the run, by name of its trouble and form of its attempt."""

    database: Database
    simulated: Mapping[Key, Sent]
    other: Mapping[Key, Sent]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ran(
    postgres: LocalPostgres,
    temporal_server: LocalTemporal,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[Ran]:
    folder = tmp_path_factory.mktemp("ledgers")
    async with servers.fresh_database(postgres) as database:
        servers.bear_with_ill_orgs(postgres, database.name)
        client = await servers.connect(temporal_server)
        with (
            simulator_at(folder / "open.jsonl") as simulator,
            simulator_at(folder / "closed.jsonl") as closed,
            other_provider() as other,
        ):
            turned_away, shipped, others = await run_all(
                database,
                client,
                [
                    Part(
                        provider=simulated_provider(closed),
                        names=[Fault.REFUSE],
                        arrange=lambda *_: None,
                    ),
                    Part(
                        provider=simulated_provider(simulator),
                        names=[name for name in SIMULATED if name != Fault.REFUSE],
                        arrange=lambda name, contact: (
                            name == PLAIN or simulator.script(contact=contact, **RULES[name])
                        ),
                    ),
                    Part(
                        provider=other.as_provider(),
                        names=list(OTHER),
                        arrange=other.trouble,
                    ),
                ],
                # Nobody knows at accept who comes, so the port closes for both forms at once.
                just_before=lambda: closed.script(fault="refuse", refuse_for_s=3.0),
            )
            ledgers = simulator.ledger, closed.ledger
        yield Ran(
            database=database,
            simulated={
                key: seen_by_simulator(ledger, *pair)
                for ledger, mine in zip(ledgers, (shipped, turned_away), strict=True)
                for key, pair in mine.items()
            },
            other={key: seen_by_other(other, *pair) for key, pair in others.items()},
        )


def seen_by_simulator(ledger: Ledger, world: ProviderWorld, accepted: Accepted) -> Sent:
    """What the ledger says of a command."""
    command = str(accepted.command)
    return Sent(
        world=world,
        accepted=accepted,
        changes=len(ledger.changes_by_command().get(command, [])),
        requests=Counter(
            row.attempt or ""
            for row in ledger.rows
            if row.command == command
            and row.method == "PATCH"
            and (row.kind is Kind.READ or row.fault == Fault.RESET_BEFORE_READ)
        ),
    )


def seen_by_other(provider: OtherProvider, world: ProviderWorld, accepted: Accepted) -> Sent:
    """What the other provider's list says of a command."""
    puts = [put for put in provider.puts if put.command == str(accepted.command)]
    return Sent(
        world=world,
        accepted=accepted,
        changes=sum(put.is_applied for put in puts),
        requests=Counter(put.attempt or "" for put in puts),
    )


class TestOneCommand:
    """One accepted command and one provider that breaks."""

    @pytest.mark.parametrize("form", Form)
    @pytest.mark.parametrize("fault", SIMULATED)
    async def test_becomes_at_most_one_change_with_the_shipped_pack(
        self, ran: Ran, fault: str, form: Form
    ) -> None:
        """Whatever breaks, nothing is done twice and the end is what is known (C246, C268)."""
        sent = ran.simulated[fault, form]

        assert await sent.story() == SIMULATED[fault]
        await sent.check_requests()

    @pytest.mark.parametrize("form", Form)
    @pytest.mark.parametrize("trouble", OTHER)
    async def test_becomes_at_most_one_change_with_a_pack_of_another_kind(
        self, ran: Ran, trouble: str, form: Form
    ) -> None:
        """A provider that shares nothing with the first needs a pack and no Python (C33, C560)."""
        sent = ran.other[trouble, form]

        assert await sent.story() == OTHER[trouble]
        await sent.check_requests()


class TestTheWholeRun:
    """All those commands together."""

    async def test_breaks_no_rule_of_the_promise(self, ran: Ran) -> None:
        """The tables of a run with every fault hold what they promise."""
        audit = await audit_invariants(
            ran.database.app_engine, time_scale=FAST.time_scale, with_standings=True
        )

        broken = {each.rule.name: each.rows for each in audit.invariants if each.count}
        assert broken == {}
        assert audit.commands == len(ran.simulated) + len(ran.other)
        assert [each for each in audit.standings if not each.is_final and not each.listed_in] == []

    async def test_has_no_fault_left_out(self, ran: Ran) -> None:
        """A fault that the simulator learns is a fault that this run shows."""
        assert set(SIMULATED) == {PLAIN, *Fault}
        assert set(OTHER) == {PLAIN, *Trouble}
