"""Cancelling what somebody holds: its claimant says that nothing was sent, or it goes on (C55)."""

import pytest

from oncefence.domain.claim import ClaimEnd, ClaimVerdict, WorkEnd
from oncefence.domain.ids import WorkId
from oncefence.storage.claims import NotStarted
from oncefence.storage.phases.renew_work import renew_work
from tests.conformance.family import Dispatch, Family, Held, OfAHandler, claim
from tests.support.world import World

pytestmark = pytest.mark.asyncio(loop_scope="module")

HANDLER = OfAHandler()


async def ask_to_cancel(world: World, work: WorkId) -> None:
    await world.sql(
        "UPDATE oncefence.work_items SET cancel_requested_at = clock_timestamp()"
        " WHERE org_id = :org AND work_id = :work AND state = 'processing'",
        work=work,
    )


async def a_cancelled_claim(world: World, *, lane: str | None = None) -> Held:
    """A held item whose cancellation was asked for."""
    held = await claim(HANDLER, world, await HANDLER.pending(world, lane=lane))
    await ask_to_cancel(world, held.fence.work)
    return held


async def test_the_holder_learns_of_it_by_its_renewal(world: World, family: Family) -> None:
    """So nobody has to be told; the lease goes on until it has answered."""
    held = await claim(family, world, await family.pending(world))
    renewal = {"deadline_ms": 1_000, "limits": world.limits}
    assert not (await renew_work(world.engine, held.fence, **renewal)).is_cancel_requested

    await ask_to_cancel(world, held.fence.work)

    assert (await renew_work(world.engine, held.fence, **renewal)).is_cancel_requested


async def test_acknowledged_it_ends_item_and_lease_at_once(world: World) -> None:
    """The lane is free in the same transaction (C224, C515)."""
    held = await a_cancelled_claim(world, lane="target:x")
    behind = await HANDLER.pending(world, lane="target:x")

    await HANDLER.settle(world, held, WorkEnd(end=ClaimEnd.ACKNOWLEDGE_CANCEL))

    row = await world.item(held.fence.work)
    assert (row.state, row.via) == ("cancelled", "acknowledge_cancel")
    assert (row.lease_token, row.lease_owner, row.lease_until) == (None, None, None)
    assert isinstance(await HANDLER.try_to_claim(world, behind), Held)


@pytest.mark.parametrize(
    "end",
    [
        WorkEnd(end=ClaimEnd.DEFER, wait_seconds=60),
        WorkEnd(end=ClaimEnd.RETRY, failure_class="by_the_suite"),
    ],
    ids=lambda end: end.end,
)
async def test_what_would_wait_for_another_run_ends_instead(world: World, end: WorkEnd) -> None:
    """Or a handler that comes back soon would never hear of it (C515)."""
    held = await a_cancelled_claim(world)

    await HANDLER.settle(world, held, end)

    assert (await world.item(held.fence.work)).state == "cancelled"


async def test_what_is_done_by_then_is_done(world: World) -> None:
    """Whoever asked came too late (C55)."""
    held = await a_cancelled_claim(world)

    await HANDLER.finish(world, held)

    assert (await world.item(held.fence.work)).state == "succeeded"


async def test_of_a_dead_holder_is_acknowledged_by_the_next(world: World) -> None:
    """With the end of its lease at the latest the lane is free (C224, C515)."""
    held = await a_cancelled_claim(world, lane="source:x")
    behind = await HANDLER.pending(world, lane="source:x")
    await world.expire_lease(held.fence.work)

    found = await HANDLER.try_to_claim(world, held.fence.work)

    assert isinstance(found, NotStarted)
    assert found.verdict is ClaimVerdict.CANCELLED
    row = await world.item(held.fence.work)
    assert (row.state, row.lease_token, row.claims_lost) == ("cancelled", None, 1)
    assert isinstance(await HANDLER.try_to_claim(world, behind), Held)


@pytest.mark.parametrize(
    ("is_lost", "item", "execution"),
    [(False, "succeeded", "succeeded"), (True, "dead", "unknown")],
    ids=["answered", "lost"],
)
async def test_what_may_be_sent_is_never_cancelled(
    world: World, is_lost: bool, item: str, execution: str
) -> None:
    """An attempt that is open has its outcome, or is unknown (C55, C515)."""
    family = Dispatch()
    accepted = await world.accept_command()
    held = await claim(family, world, accepted.work)
    await ask_to_cancel(world, accepted.work)

    await (family.lose(world, held) if is_lost else family.finish(world, held))

    assert await world.states(accepted) == (item, execution)
