"""Order in lanes, for every family that has them and each kind of lane by itself (C220 to C228)."""

import asyncio

import pytest

from oncefence.domain.claim import ClaimVerdict
from oncefence.domain.ids import WorkId
from oncefence.storage.claims import NotStarted
from oncefence.storage.phases.find_successors import find_successors
from tests.conformance.family import FAMILIES, Family, Held, claim
from tests.storage.racing import all_at_once
from tests.support.world import World

pytestmark = pytest.mark.asyncio(loop_scope="module")

HOLD_BOTH = (
    "SELECT FROM oncefence.work_items WHERE org_id = $1 AND work_id = ANY ($2::uuid[]) FOR UPDATE"
)
LANES = [
    pytest.param(family, f"{kind}:one", id=f"{family.name}-{kind}")
    for family in FAMILIES
    for kind in family.source_or_target
]
each_lane = pytest.mark.parametrize(("family", "lane"), LANES)


async def verdict(family: Family, world: World, work: WorkId) -> str:
    found = await family.try_to_claim(world, work)
    return found.verdict.value if isinstance(found, NotStarted) else "held"


async def in_one_lane(family: Family, world: World, lane: str) -> tuple[WorkId, WorkId]:
    return await family.pending(world, lane=lane), await family.pending(world, lane=lane)


@each_lane
async def test_the_earlier_item_goes_first(world: World, family: Family, lane: str) -> None:
    """The order in which places were drawn is the order of the work (C221, C514)."""
    first, second = await in_one_lane(family, world, lane)

    assert await verdict(family, world, second) == "lane_blocked"
    await family.finish(world, await claim(family, world, first))
    assert await verdict(family, world, second) == "held"


@each_lane
async def test_an_item_that_waits_again_holds_its_place(
    world: World, family: Family, lane: str
) -> None:
    """Until it is terminal nothing passes it, however long it waits (C223, C514)."""
    first, second = await in_one_lane(family, world, lane)
    await family.defer(world, await claim(family, world, first))

    assert await verdict(family, world, second) == "lane_blocked"


@each_lane
async def test_a_claim_that_is_over_holds_the_lane(world: World, family: Family, lane: str) -> None:
    """Its claimant may be at work still; the item is reclaimed, and not passed (C222, C223)."""
    first, second = await in_one_lane(family, world, lane)
    await family.abandon(world, first)

    assert await verdict(family, world, second) == "lane_blocked"


@each_lane
async def test_a_dead_item_makes_room(world: World, family: Family, lane: str) -> None:
    """What was given up with nothing in doubt holds nobody up (C224)."""
    first, second = await in_one_lane(family, world, lane)
    await family.give_up(world, await claim(family, world, first))

    assert await verdict(family, world, second) == "held"


@each_lane
async def test_two_at_once_do_not_overlap(world: World, family: Family, lane: str) -> None:
    """Both are wanted at the same moment; the second waits for the first (C222, C514)."""
    works = await in_one_lane(family, world, lane)

    ends = await all_at_once(
        world.database,
        [family.try_to_claim(world, work) for work in works],
        HOLD_BOTH,
        world.org,
        list(works),
    )

    first, second = ends
    assert isinstance(first, Held)
    assert isinstance(second, NotStarted)
    assert second.verdict is ClaimVerdict.LANE_BLOCKED


@each_lane
async def test_places_are_drawn_in_the_order_of_commits(
    world: World, family: Family, lane: str
) -> None:
    """Many are made at once, and no place is given twice or left out (C221)."""
    before = await family.pending(world, lane=lane)
    works = await asyncio.gather(*(family.pending(world, lane=lane) for _ in range(6)))

    column = "target_sequence" if lane.startswith("target") else "source_sequence"
    places = [getattr(await world.item(work), column) for work in (before, *works)]
    assert places[0] == 1
    assert sorted(places) == list(range(1, 8))


@each_lane
async def test_whoever_leaves_is_followed_by_the_next(
    world: World, family: Family, lane: str
) -> None:
    """The next one is read after the lane is free, and nobody polls for it (C228)."""
    first, second = await in_one_lane(family, world, lane)
    await family.finish(world, await claim(family, world, first))

    found = await find_successors(world.engine, world.org, first, limits=world.limits)

    assert [each.work for each in found.refs] == [second]


async def test_an_item_in_no_lane_waits_for_nobody(world: World, family: Family) -> None:
    """Lookups, completions and notices stand in none (C227)."""
    first, second = await family.pending(world), await family.pending(world)

    assert isinstance(await family.try_to_claim(world, second), Held)
    assert isinstance(await family.try_to_claim(world, first), Held)
