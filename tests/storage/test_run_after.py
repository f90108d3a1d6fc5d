"""RunAfter: the distance between two runs of an item is in its row, whoever comes."""

from datetime import datetime
from uuid import uuid4

import asyncpg
import pytest

from oncefence.domain.claim import ClaimEnd, ClaimVerdict, WorkEnd
from oncefence.domain.effect import Outcome
from oncefence.domain.ids import LeaseToken
from oncefence.domain.limits import Limits
from oncefence.storage.claims import NotStarted
from oncefence.storage.phases.claim_work import ClaimedWork, claim_work
from oncefence.storage.phases.find_work import WorkRef
from oncefence.storage.phases.settle_work import WorkSettled, settle_work
from oncefence.storage.phases.start_attempt import Started
from tests.support.backlog import pile_up
from tests.support.world import World, an_end, seconds

pytestmark = pytest.mark.asyncio(loop_scope="module")

SPACING = Limits().retry_spacing_seconds


async def claiming(world: World, ref: WorkRef, as_of: datetime) -> ClaimedWork | NotStarted:
    """What a process of its own is told at that moment."""
    return await claim_work(
        world.engine,
        ref.org,
        ref.work,
        family=ref.family,
        as_of=as_of,
        owner=uuid4(),
        token=LeaseToken(uuid4()),
        limits=world.limits,
    )


async def failing(world: World, ref: WorkRef, end: WorkEnd, as_of: datetime) -> WorkSettled:
    """The item claimed at `as_of` and ended then."""
    held = await claiming(world, ref, as_of)
    assert isinstance(held, ClaimedWork), held
    return await settle_work(world.engine, held.fence, end, as_of=as_of, limits=world.limits)


class TestTheRow:
    @pytest.mark.parametrize("asked", [0.0, 0.3, 1.0, 2.5, 3600.0])
    async def test_keeps_the_distance_of_a_failed_send(self, world: World, asked: float) -> None:
        """Never under the least spacing, and never before the provider's own wish (C250)."""
        accepted, started = await world.a_running_command()
        as_of = await world.now()
        await world.settle(
            started,
            an_end(Outcome.RETRYABLE_PRE_DISPATCH, retry_after_seconds=asked),
            as_of=as_of,
        )

        item = await world.item(accepted.work)
        assert item.run_after == as_of + seconds(max(asked, SPACING))

    async def test_refuses_every_process_until_then(self, world: World) -> None:
        """A process that never heard of the failure reads of it there."""
        accepted, started = await world.a_running_command()
        as_of = await world.now()
        await world.settle(
            started, an_end(Outcome.RETRYABLE_PRE_DISPATCH, retry_after_seconds=7), as_of=as_of
        )
        early = [
            await world.try_to_start(accepted, as_of=as_of + seconds(after))
            for after in (0, 1, 6.999)
        ]

        found = await world.try_to_start(accepted, as_of=as_of + seconds(7))

        assert [(each.verdict, each.until) for each in early if isinstance(each, NotStarted)] == [
            (ClaimVerdict.NOT_DUE, as_of + seconds(7))
        ] * 3
        assert isinstance(found, Started)

    async def test_keeps_the_distance_of_every_family(self, world: World) -> None:
        """A handler that fails at once does not run again at once."""
        (ref,) = await pile_up(world, 1)
        as_of = await world.now()
        settled = await failing(
            world, ref, WorkEnd(end=ClaimEnd.RETRY, wait_seconds=0, failure_class="x"), as_of
        )
        early = await claiming(world, ref, as_of + seconds(SPACING / 2))

        assert settled.next_due == as_of + seconds(SPACING)
        assert isinstance(early, NotStarted)
        assert early.verdict is ClaimVerdict.NOT_DUE
        assert isinstance(await claiming(world, ref, as_of + seconds(SPACING)), ClaimedWork)

    async def test_is_given_the_whole_window_by_the_kernels_own_wait(self, world: World) -> None:
        """A herd that failed together is spread over the window, down to the spacing (C480)."""
        herd = await pile_up(world, 60)
        as_of = await world.now()
        waits = []
        for ref in herd:
            moment = as_of
            for _ in range(4):
                settled = await failing(
                    world, ref, WorkEnd(end=ClaimEnd.RETRY, failure_class="x"), moment
                )
                assert settled.next_due is not None
                wait, moment = (settled.next_due - moment).total_seconds(), settled.next_due
            waits.append(wait)

        # The fourth failure waits up to 16 s. That a quarter of it is missed by all of sixty
        # has a chance of 3 in 100,000,000.
        assert all(SPACING <= wait <= 16 for wait in waits)
        assert {int(wait // 4) for wait in waits} >= {0, 1, 2, 3}

    async def test_can_not_be_deferred_to_an_earlier_time(self, world: World) -> None:
        """Whoever holds an item may put it off, and by its end never brings it forward."""
        (ref,) = await pile_up(world, 1)
        held = await claiming(world, ref, await world.now())
        assert isinstance(held, ClaimedWork)
        connection = await asyncpg.connect(world.database.app_url)
        try:
            with pytest.raises(asyncpg.PostgresError) as refused:
                await connection.execute(
                    "UPDATE oncefence.work_items SET state = 'retry', via = 'defer',"
                    " lease_owner = NULL, lease_token = NULL, lease_until = NULL,"
                    " run_after = run_after - interval '1 second'"
                    " WHERE org_id = $1 AND work_id = $2",
                    world.org,
                    ref.work,
                )
        finally:
            await connection.close()

        assert refused.value.sqlstate == "OF009"
