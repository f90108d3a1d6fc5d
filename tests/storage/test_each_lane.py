"""
Each of an item's two lanes holds it by itself.

What the phases accept so far stands in both lanes of one record together, so that either would
hide the other. Here an item shares one lane alone with what stands before it.
"""

import asyncpg
import pytest

from oncefence.domain.effect import Outcome
from oncefence.domain.lookup import Verdict
from oncefence.storage.claims import NotStarted
from oncefence.storage.phases.find_successors import find_successors
from oncefence.storage.phases.find_work import find_due_work
from tests.support.world import Accepted, World

pytestmark = pytest.mark.asyncio(loop_scope="module")

LANES = ("source", "target")


async def stand_behind(world: World, lane: str, first: Accepted) -> Accepted:
    """A command of another record that shares one lane with `first`, at the place behind it."""
    second = await world.accept_command("lead-other")
    # No pack has such lanes yet, and what an item is never changes: rewritten behind the guard.
    connection = await asyncpg.connect(world.database.admin_url)
    try:
        async with connection.transaction():
            await connection.execute("SET LOCAL session_replication_role = replica")
            await connection.execute(
                f"UPDATE oncefence.work_items AS w SET {lane}_lane = f.{lane}_lane,"
                f" {lane}_sequence = f.{lane}_sequence + 1 FROM oncefence.work_items AS f"
                " WHERE w.org_id = $1 AND w.work_id = $2 AND f.org_id = $1 AND f.work_id = $3",
                world.org,
                second.work,
                first.work,
            )
    finally:
        await connection.close()
    return second


async def verdict(world: World, accepted: Accepted) -> str:
    answer = await world.try_to_start(accepted)
    return answer.verdict.value if isinstance(answer, NotStarted) else "started"


async def due_works(world: World) -> list[object]:
    await world.sql(
        "UPDATE oncefence.work_items SET run_after = clock_timestamp() - interval '1 hour'"
        " WHERE org_id = :org AND state IN ('pending', 'retry')"
    )
    due = await find_due_work(world.engine, page=1000, limits=world.limits)
    return [each.ref.work for each in due if each.ref.org == world.org]


@pytest.mark.parametrize("lane", LANES)
class TestTheMark:
    async def test_waits_for_who_waits_before(self, world: World, lane: str) -> None:
        """The order of acceptance is the order of the changes (C223)."""
        first = await world.accept_command("lead-1")
        second = await stand_behind(world, lane, first)

        assert await verdict(world, second) == "lane_blocked"

    async def test_waits_for_what_is_in_doubt(self, world: World, lane: str) -> None:
        """Nothing passes a change that may have happened until somebody says what it did (C223)."""
        first, _, lookup_work = await world.an_unknown_command("lead-1")
        second = await stand_behind(world, lane, first)

        assert await verdict(world, second) == "lane_blocked"
        await world.look(lookup_work, Verdict.APPLIED)
        assert await verdict(world, second) == "started"


@pytest.mark.parametrize("lane", LANES)
class TestTheSweep:
    async def test_leaves_alone_who_stands_behind(self, world: World, lane: str) -> None:
        """A nudge that `start_attempt` would refuse is no help to anybody (C389)."""
        first = await world.accept_command("lead-1")
        await stand_behind(world, lane, first)

        assert await due_works(world) == [first.work]

    async def test_leaves_alone_what_is_behind_a_doubt(self, world: World, lane: str) -> None:
        """Likewise: the lookup is due, and the item behind it is not (C389)."""
        first, _, lookup_work = await world.an_unknown_command("lead-1")
        await stand_behind(world, lane, first)

        assert await due_works(world) == [lookup_work]


@pytest.mark.parametrize("lane", LANES)
async def test_who_stands_behind_in_one_lane_is_a_successor(world: World, lane: str) -> None:
    """Whoever leaves makes room in two lanes, and wakes the next in each (C228)."""
    first = await world.accept_command("lead-1")
    second = await stand_behind(world, lane, first)
    await world.settle(await world.start(first), Outcome.ACCEPTED)

    successors = (
        await find_successors(world.engine, world.org, first.work, limits=world.limits)
    ).refs

    assert [each.work for each in successors] == [second.work]
