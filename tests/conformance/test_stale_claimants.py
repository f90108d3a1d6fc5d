"""
Whoever lost its claim writes nothing: each verb by itself, for every family (C53, C54, C510).

Replacing a token and reserving quota are verbs of later capabilities; README.md says of which.
"""

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import pytest_asyncio

from oncefence.domain.claim import ClaimEnd, WorkEnd
from oncefence.domain.errors import FenceLost
from oncefence.storage.claims import NotStarted
from oncefence.storage.phases.renew_work import renew_work
from oncefence.storage.phases.settle_work import settle_work
from tests.conformance.family import Family, Held, claim
from tests.support.world import World

pytestmark = pytest.mark.asyncio(loop_scope="module")

Verb = Callable[[World, Held], Awaitable[object]]


@pytest_asyncio.fixture(loop_scope="module")
async def stale(world: World, family: Family) -> AsyncIterator[Held]:
    """A claimant that was taken for dead; after the test, nothing of the org has changed."""
    held = await claim(family, world, await family.pending(world))
    await family.lose(world, held)
    before = await everything(world)
    yield held
    assert await everything(world) == before


async def everything(world: World) -> list[object]:
    """All that a claimant could write in."""
    tables = ("work_items", "executions", "effect_attempts", "lookups", "completions")
    return [
        await world.sql(
            f"SELECT t::text FROM oncefence.{table} AS t WHERE org_id = :org ORDER BY 1"
        )
        for table in tables
    ]


async def end_by(world: World, held: Held, end: WorkEnd) -> None:
    await settle_work(world.engine, held.fence, end, as_of=await world.now(), limits=world.limits)


async def test_a_renewal_is_refused(world: World, family: Family, stale: Held) -> None:
    """Or two would hold the item."""
    with pytest.raises(FenceLost):
        await renew_work(world.engine, stale.fence, deadline_ms=1_000, limits=world.limits)


async def test_finishing_is_refused(world: World, family: Family, stale: Held) -> None:
    """Or an item would be done that somebody else is doing; no completion is made either."""
    with pytest.raises(FenceLost):
        await family.finish(world, stale)


async def test_skipping_is_refused(world: World, family: Family, stale: Held) -> None:
    """That there was nothing to do is said by whoever holds it."""
    with pytest.raises(FenceLost):
        await end_by(world, stale, WorkEnd(end=ClaimEnd.SKIP))


async def test_deferring_is_refused(world: World, family: Family, stale: Held) -> None:
    """Or the item would be claimed a third time while a second one runs it."""
    with pytest.raises(FenceLost):
        await family.defer(world, stale)


async def test_retrying_is_refused(world: World, family: Family, stale: Held) -> None:
    """A failure of a claim that is over counts for nothing."""
    with pytest.raises(FenceLost):
        await family.retry(world, stale)


async def test_giving_up_is_refused(world: World, family: Family, stale: Held) -> None:
    """Or an item would be dead that somebody else is doing."""
    with pytest.raises(FenceLost):
        await family.give_up(world, stale)


async def test_acknowledging_a_cancel_is_refused(world: World, family: Family, stale: Held) -> None:
    """Whoever holds it may have sent something by now (C55)."""
    with pytest.raises(FenceLost):
        await end_by(world, stale, WorkEnd(end=ClaimEnd.ACKNOWLEDGE_CANCEL))


async def test_a_later_attempt_is_refused(world: World, family: Family, stale: Held) -> None:
    """Its token claims nothing any more, and so nothing is prepared or marked under it."""
    found = await family.try_to_claim(world, stale.fence.work, token=stale.fence.token)

    assert isinstance(found, NotStarted)
