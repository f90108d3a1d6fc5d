"""Acceptance by the lanes that an operation declares: one, two or none."""

import pytest

from oncefence.catalog.lanes import Lanes
from oncefence.domain.effect import Outcome
from oncefence.storage.phases.audit_invariants import audit_invariants
from oncefence.storage.phases.find_room import Room, find_room
from oncefence.storage.phases.publish_view import publish_view
from tests.support.servers import Database
from tests.support.world import INSTALLATION, OPERATION, World, example_view

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def world_with(store: Database, lanes: Lanes) -> World:
    """A world whose operation declares these lanes."""
    world = await World.make(store)
    view = example_view()
    operation = view.operation(OPERATION).model_copy(update={"lanes": lanes})
    view = view.model_copy(update={"operations": {OPERATION: operation}})
    await publish_view(world.engine, world.org, INSTALLATION, view, actor="tests", activate=True)
    return world


@pytest.mark.parametrize("source", ["subject", "none"])
@pytest.mark.parametrize("target", ["link", "none"])
async def test_an_item_stands_in_the_lanes_that_are_declared(
    store: Database, source: str, target: str
) -> None:
    """Each lane gives a place, and what is in none has none (C220, C226)."""
    lanes = Lanes.model_validate({"source": source, "target": target})
    world = await world_with(store, lanes)
    first = await world.accept_command()
    second = await world.accept_command(title="second")

    items = [await world.item(each.work) for each in (first, second)]
    drawn = await world.count("lanes")

    assert [item.source_lane is None for item in items] == [source == "none"] * 2
    assert [item.target_lane is None for item in items] == [target == "none"] * 2
    places = [(item.source_sequence, item.target_sequence) for item in items]
    assert places == [
        (1 if source != "none" else None, 1 if target != "none" else None),
        (2 if source != "none" else None, 2 if target != "none" else None),
    ]
    assert drawn == (source != "none") + (target != "none")


async def test_what_is_in_no_lane_waits_for_nobody(store: Database) -> None:
    """Two on one record run at once, and a doubt about one holds up no other (C223)."""
    world = await world_with(store, Lanes(source="none", target="none"))
    first = await world.accept_command()
    second = await world.accept_command(title="second")
    one, other = await world.start(first), await world.start(second)
    await world.settle(one, Outcome.OUTCOME_UNKNOWN)
    third = await world.accept_command(title="third")

    found = await find_room(world.engine, world.org, third.work, limits=world.limits)
    await world.settle(other, Outcome.ACCEPTED)
    await world.settle(await world.start(third), Outcome.ACCEPTED)

    assert found is not None
    assert found.room is Room.AMONG_FIRST
    assert await world.states(third) == ("succeeded", "succeeded")
    assert (await audit_invariants(world.engine)).violations == 0


async def test_one_lane_of_two_keeps_its_order(store: Database) -> None:
    """Without the lane of the source the lane of the target holds as before (C222)."""
    world = await world_with(store, Lanes(source="none", target="link"))
    await world.accept_command()
    behind = await world.accept_command(title="behind")

    found = await find_room(world.engine, world.org, behind.work, limits=world.limits)

    assert found is not None
    assert found.room is Room.HELD_BACK
