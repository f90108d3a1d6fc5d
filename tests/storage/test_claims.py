"""The one claim of every family."""

from uuid import uuid4

import pytest

from oncefence.domain.claim import ENGINE_CAPABILITY, ClaimEnd, ClaimVerdict
from oncefence.domain.effect import Outcome
from oncefence.domain.errors import FenceLost
from oncefence.domain.fence import Fence
from oncefence.domain.ids import LeaseToken
from oncefence.domain.limits import Limits
from oncefence.storage.claims import NotStarted
from oncefence.storage.phases.claim_work import ClaimedWork
from tests.storage.lifecycle_rows import CLAIM
from tests.storage.racing import all_at_once
from tests.storage.test_lease_clock import while_the_lease_runs_out
from tests.storage.unnamed_family import (
    WHOLE_LEASE,
    an_item,
    ask_to_cancel,
    claim,
    end,
    held,
    renew,
    verdict,
)
from tests.support.world import World, seconds

pytestmark = pytest.mark.asyncio(loop_scope="module")


class TestAClaim:
    async def test_takes_the_next_epoch_under_a_token_of_its_own(self, world: World) -> None:
        """The two halves of the fence that every later write has to name (C49)."""
        work, token, owner = await an_item(world), LeaseToken(uuid4()), uuid4()
        before = await world.now()

        answer = await claim(world, work, token=token, owner=owner)

        assert isinstance(answer, ClaimedWork)
        assert answer.fence == Fence(org=world.org, work=work, token=token, epoch=1)
        row = await world.item(work)
        assert (row.state, row.lease_token, row.lease_owner) == ("processing", token, owner)
        assert (row.ownership_epoch, row.attempt, row.claims_lost) == (1, 0, 0)
        assert row.lease_until >= before + WHOLE_LEASE

    async def test_is_found_again_by_its_own_token(self, world: World) -> None:
        """The claimant whose COMMIT got no answer finds its claim and no second one (C172)."""
        work, token = await an_item(world), LeaseToken(uuid4())
        first = await claim(world, work, token=token)

        assert await claim(world, work, token=token) == first

    async def test_is_one_however_many_want_it(self, world: World) -> None:
        """Whoever is late is told until when (C49)."""
        work = await an_item(world)

        answers = await all_at_once(
            world.database,
            [claim(world, work) for _ in range(6)],
            "SELECT FROM oncefence.work_items WHERE org_id = $1 FOR UPDATE",
            world.org,
        )

        assert sum(isinstance(answer, ClaimedWork) for answer in answers) == 1
        until = (await world.item(work)).lease_until
        assert {
            (answer.verdict, answer.until) for answer in answers if isinstance(answer, NotStarted)
        } == {(ClaimVerdict.IN_FLIGHT, until)}

    async def test_waits_until_it_is_due_by_the_time_that_the_caller_gives(
        self, world: World
    ) -> None:
        """Workflow time may run ahead of the server's, or behind it (C201)."""
        work = await an_item(world)
        due = (await world.item(work)).run_after

        early = await claim(world, work, as_of=due - seconds(0.001))

        assert isinstance(early, NotStarted)
        assert (early.verdict, early.until) == (ClaimVerdict.NOT_DUE, due)
        assert await verdict(world, work, as_of=due) == "claimed"

    async def test_of_what_has_ended_is_refused(self, world: World) -> None:
        """A terminal item never runs again (C48)."""
        fence = await held(world)
        await end(world, fence)

        assert await verdict(world, fence.work) == "finished"

    async def test_needs_an_engine_that_can_run_it(self, world: World) -> None:
        """An older process leaves alone what it would run wrongly (C59)."""
        work = await an_item(world, capability=ENGINE_CAPABILITY + 1)

        assert await verdict(world, work) == "needs_newer_engine"
        assert (await world.item(work)).state == "pending"


class TestALostClaim:
    async def test_is_reclaimed_when_its_lease_is_over_and_not_before(self, world: World) -> None:
        """One that lives is not disturbed, and one that died holds nothing up (C50)."""
        fence = await held(world)
        assert await verdict(world, fence.work) == "in_flight"
        await world.expire_lease(fence.work)

        answer = await claim(world, fence.work)

        assert isinstance(answer, ClaimedWork)
        assert answer.fence.epoch == fence.epoch + 1
        row = await world.item(fence.work)
        assert (row.via, row.claims_lost, row.attempt) == ("reclaim", 1, 0)

    async def test_is_judged_when_the_row_is_held(self, world: World) -> None:
        """A lease that ended during the wait for the row is over (C204)."""
        fence = await held(world)
        await world.sql(
            "UPDATE oncefence.work_items SET lease_until = clock_timestamp() + interval '1 second'"
            " WHERE org_id = :org AND work_id = :work",
            work=fence.work,
        )

        answer = await while_the_lease_runs_out(world, fence.work, claim(world, fence.work))

        assert isinstance(answer, ClaimedWork)

    async def test_writes_nothing_any_more(self, world: World) -> None:
        """Whoever was taken for dead and lives learns it at its next write (C54)."""
        fence = await held(world)
        await world.expire_lease(fence.work)
        assert await verdict(world, fence.work) == "claimed"
        before = await world.item(fence.work)

        with pytest.raises(FenceLost):
            await renew(world, fence)
        with pytest.raises(FenceLost):
            await end(world, fence)

        assert await world.item(fence.work) == before

    async def test_past_the_ceiling_is_poison(self, world: World) -> None:
        """What kills whoever takes it is not given to the next one (C56)."""
        limits = Limits(claims_lost_max=2)
        fence = await held(world)
        await world.expire_lease(fence.work)
        assert await verdict(world, fence.work, limits=limits) == "claimed"
        await world.expire_lease(fence.work)

        answer = await claim(world, fence.work, limits=limits)

        assert isinstance(answer, NotStarted)
        assert (answer.verdict, answer.failure_class) == (ClaimVerdict.POISONED, "poison")
        row = await world.item(fence.work)
        assert (row.state, row.via, row.failure_class) == ("dead", "give_up", "poison")

    async def test_that_was_to_be_cancelled_is_cancelled_in_its_place(self, world: World) -> None:
        """Its claimant did not live to acknowledge, and nobody runs it again (C55)."""
        fence = await held(world)
        await ask_to_cancel(world, fence.work)
        assert await verdict(world, fence.work) == "in_flight"
        await world.expire_lease(fence.work)

        assert await verdict(world, fence.work) == "cancelled"
        row = await world.item(fence.work)
        assert (row.state, row.via) == ("cancelled", "acknowledge_cancel")


@pytest.mark.parametrize("lane", ["source", "target"])
class TestALane:
    async def test_lets_the_earlier_one_go_first(self, world: World, lane: str) -> None:
        """While it waits, is held and waits again; each lane by itself (C223)."""
        first = await an_item(world, **{lane: ("a-lane", 1)})
        second = await an_item(world, **{lane: ("a-lane", 2)})

        assert await verdict(world, second) == "lane_blocked"
        answer = await claim(world, first)
        assert isinstance(answer, ClaimedWork)
        assert await verdict(world, second) == "lane_blocked"
        await end(world, answer.fence, ClaimEnd.DEFER, wait_seconds=1.0)
        assert await verdict(world, second) == "lane_blocked"
        again = await claim(world, first)
        assert isinstance(again, ClaimedWork)
        await end(world, again.fence)
        assert await verdict(world, second) == "claimed"

    async def test_of_another_key_or_none_is_free(self, world: World, lane: str) -> None:
        """Lanes are narrow: what stands in one holds up no other (C227)."""
        await an_item(world, **{lane: ("a-lane", 1)})

        assert await verdict(world, await an_item(world, **{lane: ("b-lane", 2)})) == "claimed"
        assert await verdict(world, await an_item(world)) == "claimed"

    async def test_is_held_by_a_doubt_against_items_of_no_command(
        self, world: World, lane: str
    ) -> None:
        """Whatever comes behind an effect of unknown outcome waits for its word (C223)."""
        _, started, _ = await world.an_unknown_command()
        attempt = await world.attempt(started.attempt)
        work = await an_item(world, **{lane: (getattr(attempt, f"{lane}_lane"), 99)})

        assert await verdict(world, work) == "lane_blocked"

    async def test_is_held_by_an_open_attempt_against_items_of_no_command(
        self, world: World, lane: str
    ) -> None:
        """What is being sent may apply at any moment (C223)."""
        accepted, started = await world.a_running_command()
        attempt = await world.attempt(started.attempt)
        work = await an_item(world, **{lane: (getattr(attempt, f"{lane}_lane"), 99)})

        assert await verdict(world, work) == "lane_blocked"
        await world.settle(started, Outcome.ACCEPTED)
        assert await verdict(world, work) == "claimed"
        assert await world.states(accepted) == ("succeeded", "succeeded")


async def test_a_target_lane_that_is_held_out_of_turn_is_blocked(world: World) -> None:
    """No predicate can close the gap before the index: it is an answer and no error (C222)."""
    first = await an_item(world, target=("a-lane", 1))
    second = await an_item(world, target=("a-lane", 2))
    await world.sql(
        f"UPDATE oncefence.work_items SET state = 'processing', via = 'claim', {CLAIM}"
        " WHERE org_id = :org AND work_id = :work",
        work=second,
    )

    assert await verdict(world, first) == "lane_blocked"
    assert (await world.item(first)).state == "pending"
