"""
Races in large numbers on real connections: whoever comes when, there is one fact and one winner.

Every racer stands before one lock in the server until all of them are there. The owner of a family
is no row yet, so what moves under a claim here are the binding generation and the link.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable
from dataclasses import replace
from datetime import timedelta
from uuid import uuid4

import asyncpg
import pytest
import pytest_asyncio
from sqlalchemy import text

from oncefence.domain.claim import ENGINE_CAPABILITY, ClaimVerdict
from oncefence.domain.command import Receipt
from oncefence.domain.effect import Outcome
from oncefence.domain.errors import HandoffAlreadyRejected
from oncefence.domain.handoff import Admission, EffectHandoffKey
from oncefence.domain.ids import LeaseToken, WorkId
from oncefence.domain.limits import Limits
from oncefence.storage.claims import NotStarted
from oncefence.storage.engine import constraint_name
from oncefence.storage.phases.audit_invariants import audit_invariants
from oncefence.storage.phases.settle_attempt import Settled
from oncefence.storage.phases.start_attempt import Started
from tests.storage.arena import (
    HOLD_ITEMS,
    Arena,
    Verb,
    a_fresh_key_for,
    accept,
    arena_on,
    asking,
    batches,
    claiming,
    fresh_item,
    in_the_way,
    in_turns,
    reclaimed_item,
    reject,
    retried_item,
    standing,
    two_of,
    works,
)
from tests.storage.lifecycle_rows import move_item
from tests.storage.racing import barrier, waiting
from tests.support.servers import Database
from tests.support.world import Accepted, World

pytestmark = pytest.mark.asyncio(loop_scope="module")

DICE = random.Random(20_771)

PAIRS = 2_000
PAIRS_AT_ONCE = 25
PAIRS_UNHEARD = 100
SUBJECTS = 25
ITEMS = 200
ITEMS_AT_ONCE = 2
ITEMS_UNHEARD = 5
RACERS = 20
LANES = 15
LATER = timedelta(hours=1)
"""By then every item is due."""

CLAIM = (
    "SELECT verdict FROM oncefence.start_attempt_v2($1, $2, clock_timestamp() + interval '1 hour',"
    f" gen_random_uuid(), $3, interval '1 minute', 5, {ENGINE_CAPABILITY}, 32, true)"
)
RETIRE = "UPDATE oncefence.binding_generations SET state = 'retired' WHERE org_id = :org"
MOVE = "UPDATE oncefence.remote_links SET version = version + 1 WHERE org_id = :org"
CHANGES = {
    "the account is reconnected": (RETIRE, "binding_generation_stale"),
    "the link moves": (MOVE, "link_changed"),
    "the link is suspended": (
        MOVE.replace(" WHERE", ", state = 'suspended' WHERE"),
        "link_changed",
    ),
    "the link is retired": (MOVE.replace(" WHERE", ", state = 'retired' WHERE"), "link_changed"),
}


@pytest_asyncio.fixture(loop_scope="module")
async def arena(store: Database) -> AsyncIterator[Arena]:
    async with arena_on(store) as ready:
        yield ready


class TestAdmission:
    """Acceptance and rejection of one key."""

    async def test_two_thousand_races_come_to_one_fact_each(self, arena: Arena) -> None:
        """Both sides win often, and everybody is told what stands (C124, C133, C170, C171)."""
        world = arena.world
        offers = [await world.offer(f"lead-{number}") for number in range(SUBJECTS)]
        handovers = [a_fresh_key_for(offers[number % SUBJECTS]) for number in range(PAIRS)]
        told: dict[EffectHandoffKey, dict[Verb, object]] = {}
        unheard = {handover.key for handover in handovers[:: PAIRS // PAIRS_UNHEARD]}

        for batch in batches(handovers, PAIRS_AT_ONCE):
            # Whoever is first in line has the better chance, so that is divided evenly.
            lines = [DICE.sample((accept, reject), 2) for _ in batch]
            waves = [
                [
                    asking(arena, line[wave], handover, loses_answer=handover.key in unheard)
                    for line, handover in zip(lines, batch, strict=True)
                ]
                for wave in (0, 1)
            ]
            ends = await arena.race(*waves, held=in_the_way(batch))
            for line, handover, *pair in zip(lines, batch, *ends, strict=True):
                told[handover.key] = dict(zip(line, pair, strict=True))

        admitted = await world.sql(
            "SELECT h.handoff_key, h.admission, h.command_id, c.command_id AS made"
            " FROM oncefence.handoffs AS h"
            " LEFT JOIN oncefence.commands AS c USING (org_id, handoff_key) WHERE org_id = :org"
        )
        assert len(admitted) == len(told) == PAIRS
        for row in admitted:
            key = EffectHandoffKey.parse(row.handoff_key)
            accepted, rejected = told[key][accept], told[key][reject]
            assert isinstance(rejected, Receipt), rejected
            assert rejected.admission == row.admission
            assert (row.command_id, row.made) == (rejected.command, rejected.command)
            if row.admission == Admission.COMMAND_ACCEPTED:
                assert isinstance(accepted, Receipt), accepted
                assert replace(accepted, is_new=False, due=None, deadline_ms=None) == replace(
                    rejected, is_new=False
                )
                news = accepted.is_new + rejected.is_new
            else:
                assert isinstance(accepted, HandoffAlreadyRejected), accepted
                news = int(rejected.is_new)
            assert news == (key not in unheard), key
        wins = sum(row.admission == Admission.COMMAND_ACCEPTED for row in admitted)
        assert PAIRS / 10 <= wins <= PAIRS * 9 / 10
        assert arena.line.swallowed == 2 * PAIRS_UNHEARD
        for table in ("commands", "executions", "work_items"):
            assert await world.count(table) == wins, table
        assert await world.count("sealed_payloads") == wins * 2
        assert (await audit_invariants(arena.wide)).violations == 0


class TestClaim:
    """Twenty claimants of one item."""

    async def test_four_thousand_claims_have_one_winner_an_item(self, arena: Arena) -> None:
        """One mark, one token and the next epoch, on fresh, retried and lost items (C49, C160)."""
        world = arena.world
        world.limits = Limits(claims_lost_max=9)
        for number in range(ITEMS):
            await world.link(f"lead-{number}")
        kinds = (fresh_item, retried_item, reclaimed_item)
        items = await in_turns(
            [kinds[number % len(kinds)](world, f"lead-{number}") for number in range(ITEMS)]
        )
        unheard = items[:: ITEMS // ITEMS_UNHEARD]
        before = await standing(world)
        as_of = await world.now() + LATER
        won: dict[WorkId, tuple[LeaseToken, Started]] = {}

        for batch in batches(items, ITEMS_AT_ONCE):
            claims = [(accepted, LeaseToken(uuid4())) for accepted in batch for _ in range(RACERS)]
            DICE.shuffle(claims)
            (ends,) = await arena.race(
                [
                    claiming(arena, accepted, token, as_of=as_of, loses_answer=accepted in unheard)
                    for accepted, token in claims
                ],
                held=(HOLD_ITEMS, world.org, [accepted.work for accepted in batch]),
            )
            for accepted in batch:
                of_item = [
                    (token, end)
                    for (claimed, token), end in zip(claims, ends, strict=True)
                    if claimed is accepted
                ]
                (winner,) = [each for each in of_item if isinstance(each[1], Started)]
                won[accepted.work] = winner
                losers = [end for _, end in of_item if not isinstance(end, Started)]
                assert len(losers) == RACERS - 1
                assert {
                    (end.verdict, end.until) if isinstance(end, NotStarted) else end
                    for end in losers
                } == {(ClaimVerdict.IN_FLIGHT, winner[1].lease_until)}

        for work, now in (await standing(world)).items():
            was, (token, started) = before[work], won[work]
            assert now.ownership_epoch == started.fence.epoch == was.ownership_epoch + 1
            assert now.lease_token == started.fence.token == token
            assert (now.attempt, now.attempts) == (was.attempt + 1, was.attempts + 1)
            assert now.held_by == [token]
        assert len(won) == ITEMS
        assert arena.line.swallowed == ITEMS_UNHEARD * RACERS
        assert (await audit_invariants(arena.wide)).violations == 0


class TestLane:
    """Two commands of one record."""

    async def test_two_claims_in_one_target_lane_have_one_winner(self, arena: Arena) -> None:
        """The one that was accepted first goes first, whoever asks first (C221, C222)."""
        world = arena.world
        pairs = [await two_of(world, f"lead-{number}") for number in range(LANES)]
        as_of = await world.now() + LATER
        racers = [
            claiming(arena, accepted, LeaseToken(uuid4()), as_of=as_of)
            for pair in pairs
            for accepted in pair
        ]

        (ends,) = await arena.race(racers, held=(HOLD_ITEMS, world.org, works(pairs)))

        for first, second in batches(ends, 2):
            assert isinstance(first, Started), first
            assert isinstance(second, NotStarted), second
            assert second.verdict is ClaimVerdict.LANE_BLOCKED

    @pytest.mark.parametrize(
        "outcome", [Outcome.ACCEPTED, Outcome.RETRYABLE_PRE_DISPATCH, Outcome.OUTCOME_UNKNOWN]
    )
    async def test_the_second_never_starts_beside_the_first(
        self, arena: Arena, outcome: Outcome
    ) -> None:
        """A lane that is being given up is free or held, and never half (C223, C224)."""
        world = arena.world
        pairs = [await two_of(world, f"lead-{number}") for number in range(LANES)]
        open_ones = [await world.start(first) for first, _ in pairs]
        as_of = await world.now() + LATER
        racers: list[Awaitable[object]] = []
        for started, (_, second) in zip(open_ones, pairs, strict=True):
            racers += [
                world.settle(started, outcome),
                claiming(arena, second, LeaseToken(uuid4()), as_of=as_of),
            ]

        (ends,) = await arena.race(racers, held=(HOLD_ITEMS, world.org, works(pairs)))

        passed_on = 0
        for (settled, claimed), started in zip(batches(ends, 2), open_ones, strict=True):
            assert isinstance(settled, Settled), settled
            if isinstance(claimed, Started):
                passed_on += 1
                ended = (await world.attempt(started.attempt)).settled_at
                assert (await world.attempt(claimed.attempt)).started_at >= ended
            else:
                assert isinstance(claimed, NotStarted), claimed
                assert claimed.verdict is ClaimVerdict.LANE_BLOCKED
        if outcome is not Outcome.ACCEPTED:
            assert passed_on == 0

    async def test_the_database_alone_lets_one_claim_through(self, arena: Arena) -> None:
        """Two claims that see each other unclaimed would both pass a predicate (C222)."""
        world = arena.world
        pairs = [await two_of(world, f"lead-{number}") for number in range(LANES)]
        racers = [
            world.transaction(move_item("processing", "claim"), work=accepted.work)
            for pair in pairs
            for accepted in pair
        ]

        (ends,) = await arena.race(racers, held=(HOLD_ITEMS, world.org, works(pairs)))

        for pair in batches(ends, 2):
            (refused,) = [end for end in pair if end is not None]
            assert isinstance(refused, Exception)
            assert constraint_name(refused) == "one_processing_per_target_lane"


class TestMovingGround:
    """What a claim relies on changes while the claim is under way."""

    @pytest.mark.parametrize("change", CHANGES)
    @pytest.mark.parametrize("is_kept", [True, False])
    async def test_waits_for_a_claim_that_has_not_committed(
        self, world: World, change: str, is_kept: bool
    ) -> None:
        """Whoever changes it counts afterwards, and then misses no send (C168)."""
        statement, failure = CHANGES[change]
        accepted, token = await world.accept_command(), LeaseToken(uuid4())
        connection = await asyncpg.connect(world.database.app_url)
        try:
            claim = connection.transaction()
            await claim.start()
            verdict = await connection.fetchval(CLAIM, world.org, accepted.work, token)
            changing = asyncio.create_task(changed_and_counted(world, statement))
            await waiting(world.database, 1)
            await (claim.commit() if is_kept else claim.rollback())

            assert verdict == "started"
            assert await changing == int(is_kept)
        finally:
            await connection.close()
        if is_kept:
            started = await world.start(accepted, token=token)
            await world.settle(started, Outcome.RETRYABLE_PRE_DISPATCH)
        await is_refused(world, accepted, failure, attempts=int(is_kept))

    @pytest.mark.parametrize(
        ("pause", "change"),
        [
            *(("executions", change) for change in CHANGES),
            ("remote_links", "the account is reconnected"),
        ],
    )
    async def test_is_seen_by_a_claim_that_was_held_open(
        self, world: World, pause: str, change: str
    ) -> None:
        """The claim had its item before the change, and decides after it (C141, C164, C168)."""
        statement, failure = CHANGES[change]
        accepted = await world.accept_command()
        async with barrier(
            world.database,
            f"SELECT FROM oncefence.{pause} WHERE org_id = $1 FOR UPDATE",
            world.org,
            commits=False,
        ):
            claim = asyncio.create_task(world.try_to_start(accepted))
            await waiting(world.database, 1)
            await world.sql(statement)

        await is_refused(world, accepted, failure, answer=await claim)

    async def test_counts_every_send_of_a_generation_when_it_retires_it(self, arena: Arena) -> None:
        """Claims come before and after it, and none of them in the middle of it (C6, C168)."""
        world = arena.world
        before, after = [
            [await world.accept_command(f"{when}-{number}") for number in range(LANES)]
            for when in ("before", "after")
        ]
        async with barrier(
            world.database,
            "SELECT FROM oncefence.binding_generations WHERE org_id = $1 FOR UPDATE",
            world.org,
            commits=False,
        ):
            early = [asyncio.create_task(world.try_to_start(accepted)) for accepted in before]
            await waiting(world.database, LANES)
            mover = asyncio.create_task(changed_and_counted(world, RETIRE))
            await waiting(world.database, LANES + 1)
            late = [asyncio.create_task(world.try_to_start(accepted)) for accepted in after]
            await waiting(world.database, 2 * LANES + 1)

        counted = await mover
        ends = await asyncio.gather(*early, *late)

        sent = [end for end in ends if isinstance(end, Started)]
        refused = [end.failure_class for end in ends if isinstance(end, NotStarted)]
        assert len(sent) == counted == await world.count("effect_attempts")
        assert refused == ["binding_generation_stale"] * (2 * LANES - counted)
        assert (await audit_invariants(world.engine)).violations == 0


async def changed_and_counted(world: World, statement: str) -> int:
    """How many attempts there are when the change is made, counted before it is committed."""
    async with world.engine.begin() as connection:
        await connection.execute(text(statement), {"org": world.org})
        count = text("SELECT count(*) FROM oncefence.effect_attempts WHERE org_id = :org")
        return int((await connection.execute(count, {"org": world.org})).scalar_one())


async def is_refused(
    world: World,
    accepted: Accepted,
    failure: str,
    *,
    answer: Started | NotStarted | None = None,
    attempts: int = 0,
) -> None:
    """The claim sent nothing, both lifecycles ended, and they stay ended."""
    answer = answer or await world.try_to_start(accepted)
    assert isinstance(answer, NotStarted)
    assert (answer.verdict, answer.failure_class) == (ClaimVerdict.CANNOT_PROCEED, failure)
    assert await world.states(accepted) == ("cancelled", "failed")
    assert len(await world.of_command("effect_attempts", accepted)) == attempts
    again = await world.try_to_start(accepted)
    assert isinstance(again, NotStarted)
    assert again.verdict is ClaimVerdict.FINISHED
