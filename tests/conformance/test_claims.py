"""Who holds an item, for every family: one, until its lease is over, and only when it may run."""

from datetime import timedelta
from uuid import uuid4

import asyncpg
import pytest

from oncefence.domain.claim import ENGINE_CAPABILITY, ClaimVerdict
from oncefence.domain.ids import LeaseToken, WorkId
from oncefence.domain.limits import Limits
from oncefence.storage.claims import NotStarted
from oncefence.storage.phases.renew_work import renew_work
from tests.conformance.family import Family, Held, claim
from tests.storage.racing import all_at_once
from tests.support.world import World

pytestmark = pytest.mark.asyncio(loop_scope="module")

HOLD = "SELECT FROM oncefence.work_items WHERE org_id = $1 AND work_id = $2 FOR UPDATE"
CLAIMANTS = 8


async def put_off(world: World, work: WorkId, by: timedelta) -> None:
    await world.sql(
        "UPDATE oncefence.work_items SET run_after = clock_timestamp() + :by"
        " WHERE org_id = :org AND work_id = :work",
        work=work,
        by=by,
    )


async def require(world: World, work: WorkId, capability: int) -> None:
    """What an item is never changes, so this goes behind the guard."""
    connection = await asyncpg.connect(world.database.admin_url)
    try:
        async with connection.transaction():
            await connection.execute("SET LOCAL session_replication_role = replica")
            await connection.execute(
                "UPDATE oncefence.work_items SET engine_capability = $3"
                " WHERE org_id = $1 AND work_id = $2",
                world.org,
                work,
                capability,
            )
    finally:
        await connection.close()


def verdict_of(found: Held | NotStarted) -> ClaimVerdict:
    assert isinstance(found, NotStarted), found
    return found.verdict


class TestAClaim:
    async def test_is_won_by_one_of_many(self, world: World, family: Family) -> None:
        """All stand before the item's row, and one gets it (C49, C509)."""
        work = await family.pending(world)

        ends = await all_at_once(
            world.database,
            [family.try_to_claim(world, work) for _ in range(CLAIMANTS)],
            HOLD,
            world.org,
            work,
        )

        assert sum(isinstance(end, Held) for end in ends) == 1
        lost = [verdict_of(end) for end in ends if not isinstance(end, Held)]  # type: ignore[arg-type]  # an error fails there
        assert lost == [ClaimVerdict.IN_FLIGHT] * (CLAIMANTS - 1)
        assert (await world.item(work)).ownership_epoch == 1

    async def test_is_found_again_by_its_token(self, world: World, family: Family) -> None:
        """The answer to its COMMIT was lost, and asking again takes nothing twice (C172)."""
        work = await family.pending(world)
        token = LeaseToken(uuid4())
        first = await family.try_to_claim(world, work, token=token)

        again = await family.try_to_claim(world, work, token=token)

        assert isinstance(first, Held)
        assert isinstance(again, Held)
        assert first.fence == again.fence

    async def test_names_its_holder_and_the_next_epoch(self, world: World, family: Family) -> None:
        """Whoever has the token and the epoch may write, and nobody else (C49)."""
        work = await family.pending(world)

        held = await claim(family, world, work)

        row = await world.item(work)
        assert (row.state, row.lease_token, row.ownership_epoch) == (
            "processing",
            held.fence.token,
            1,
        )
        assert row.lease_until > await world.now()


class TestADueTime:
    async def test_is_kept(self, world: World, family: Family) -> None:
        """Before it nobody claims the item, at it everybody may (C513)."""
        work = await family.pending(world)
        await put_off(world, work, timedelta(hours=3))
        run_after = (await world.item(work)).run_after

        early = await family.try_to_claim(world, work, as_of=run_after - timedelta(milliseconds=1))
        late = await family.try_to_claim(world, work, as_of=run_after)

        assert isinstance(early, NotStarted)
        assert (early.verdict, early.until) == (ClaimVerdict.NOT_DUE, run_after)
        assert isinstance(late, Held)

    async def test_of_a_deferred_item_lies_ahead(self, world: World, family: Family) -> None:
        """Whoever puts it back says until when (C53, C513)."""
        work = await family.pending(world)
        await family.defer(world, await claim(family, world, work))

        row = await world.item(work)
        now = await family.try_to_claim(world, work, as_of=await world.now())

        assert row.state == "retry"
        assert row.lease_token is None
        assert verdict_of(now) is ClaimVerdict.NOT_DUE


class TestAnOlderEngine:
    async def test_leaves_newer_work_alone(self, world: World, family: Family) -> None:
        """In a rolling deploy nobody takes what it cannot run (C59)."""
        work = await family.pending(world)
        await require(world, work, ENGINE_CAPABILITY + 1)
        before = await world.item(work)

        found = await family.try_to_claim(world, work)

        assert verdict_of(found) is ClaimVerdict.NEEDS_NEWER_ENGINE
        assert await world.item(work) == before
        await require(world, work, ENGINE_CAPABILITY)
        assert isinstance(await family.try_to_claim(world, work), Held)


class TestALease:
    async def test_keeps_others_out_while_it_lasts(self, world: World, family: Family) -> None:
        """However long the claimant is silent (C50)."""
        work = await family.pending(world)
        held = await claim(family, world, work)

        found = await family.try_to_claim(world, work)

        assert isinstance(found, NotStarted)
        row = await world.item(work)
        assert (found.verdict, found.until) == (ClaimVerdict.IN_FLIGHT, row.lease_until)
        assert row.lease_token == held.fence.token

    async def test_that_is_over_lets_the_next_one_in(self, world: World, family: Family) -> None:
        """Under a new token, the next epoch and one more lost claim (C50, C51, C512)."""
        work = await family.pending(world)
        gone = await family.abandon(world, work)
        attempts_before = (await world.item(work)).attempt

        held = await claim(family, world, work)

        row = await world.item(work)
        assert (row.via, row.ownership_epoch, row.claims_lost) == ("reclaim", gone.epoch + 1, 1)
        assert held.fence.token != gone.token
        assert row.attempt - attempts_before == (1 if family.name == "effect.dispatch" else 0)

    async def test_is_renewed_by_its_holder(self, world: World, family: Family) -> None:
        """A renewal moves its end and nothing else, and never to an earlier time (C53)."""
        work = await family.pending(world)
        held = await claim(family, world, work)
        before = await world.item(work)

        renewed = await renew_work(
            world.engine, held.fence, deadline_ms=3_600_000, limits=world.limits
        )
        again = await renew_work(world.engine, held.fence, deadline_ms=1, limits=world.limits)

        row = await world.item(work)
        assert before.lease_until + timedelta(minutes=30) < renewed.lease_until
        assert again.lease_until == renewed.lease_until == row.lease_until
        unmoved = dict(row._mapping) | {"lease_until": before.lease_until}
        assert unmoved == dict(before._mapping)

    async def test_that_is_over_is_still_renewed_while_nobody_took_the_item(
        self, world: World, family: Family
    ) -> None:
        """The end of a lease only permits a claim (C50, C53)."""
        work = await family.pending(world)
        held = await claim(family, world, work)
        await world.expire_lease(work)

        await renew_work(world.engine, held.fence, deadline_ms=1_000, limits=world.limits)

        assert verdict_of(await family.try_to_claim(world, work)) is ClaimVerdict.IN_FLIGHT


class TestLostClaims:
    async def test_past_their_ceiling_are_poison(self, world: World, family: Family) -> None:
        """What kills each of its claimants is given up, having had no effect (C51, C56)."""
        world.limits = Limits(claims_lost_max=3)
        work = await family.pending(world)
        for _ in range(3):
            assert (await world.item(work)).state in ("pending", "processing")
            await family.abandon(world, work)
        attempts_before = (await world.item(work)).attempt

        found = await family.try_to_claim(world, work)

        assert isinstance(found, NotStarted)
        row = await world.item(work)
        assert found.failure_class == "poison"
        assert (row.state, row.failure_class, row.claims_lost) == ("dead", "poison", 3)
        assert (row.attempt, row.lease_token) == (attempts_before, None)
        assert verdict_of(await family.try_to_claim(world, work)) is ClaimVerdict.FINISHED
