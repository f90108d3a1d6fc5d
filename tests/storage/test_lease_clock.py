"""
A lease is judged when the row is held, by a clock that goes on while one waits for it.

A statement's own time, or its transaction's, stands still during the wait: by that clock a lease
that has ended meanwhile would be live, and a lease that is given would be short.
"""

import asyncio
from collections.abc import Awaitable, Coroutine
from typing import Any

import asyncpg
import pytest

from oncefence.domain.claim import ClaimVerdict
from oncefence.domain.ids import WorkId
from oncefence.storage.claims import NotStarted
from oncefence.storage.phases.start_attempt import Started
from oncefence.storage.phases.start_lookup import LookupStarted
from tests.storage.lifecycle_rows import move_item
from tests.storage.racing import waiting
from tests.support.world import World, seconds

pytestmark = pytest.mark.asyncio(loop_scope="module")

# Long enough for what waits to have begun before it ends, also on a busy machine.
SHORT = "interval '1 second'"
PATIENCE_SECONDS = 20.0


async def shorten(world: World, work: WorkId) -> None:
    await world.sql(
        f"UPDATE oncefence.work_items SET lease_until = clock_timestamp() + {SHORT}"
        " WHERE org_id = :org AND work_id = :work",
        work=work,
    )


async def while_the_lease_runs_out(
    world: World, work: WorkId, phase: Coroutine[Any, Any, object]
) -> object:
    """What a phase comes to that begins under a live lease and gets the row after its end."""
    return await _while_locked(
        world,
        work,
        phase,
        "SELECT lease_until < clock_timestamp() FROM oncefence.work_items"
        " WHERE org_id = $1 AND work_id = $2",
    )


async def while_a_moment_passes(
    world: World, work: WorkId, phase: Coroutine[Any, Any, object]
) -> object:
    """What a phase comes to that waits for the row for half a second."""
    began = await world.now()
    return await _while_locked(
        world,
        work,
        phase,
        f"SELECT clock_timestamp() > '{began}'::timestamptz + interval '0.5 s'"
        " FROM oncefence.work_items WHERE org_id = $1 AND work_id = $2",
    )


async def _while_locked(
    world: World, work: WorkId, phase: Coroutine[Any, Any, object], is_time: str
) -> object:
    holder = await asyncpg.connect(world.database.app_url)
    try:
        async with holder.transaction():
            await holder.execute(
                "SELECT FROM oncefence.work_items WHERE org_id = $1 AND work_id = $2 FOR UPDATE",
                world.org,
                work,
            )
            running: Awaitable[object] = asyncio.create_task(phase)
            await waiting(world.database, 1)
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not await holder.fetchval(is_time, world.org, work):
                    await asyncio.sleep(0.02)
    finally:
        await holder.close()
    return await running


class TestALeaseThatEndsWhileOneWaits:
    async def test_of_an_open_attempt_is_over_for_the_mark(self, world: World) -> None:
        """The attempt is lost by then, and called so (C164, C204)."""
        accepted, _ = await world.a_running_command()
        await shorten(world, accepted.work)

        answer = await while_the_lease_runs_out(world, accepted.work, world.try_to_start(accepted))

        assert isinstance(answer, NotStarted)
        assert answer.verdict is ClaimVerdict.ATTEMPT_LOST

    async def test_of_an_open_attempt_is_over_for_who_settles_it(self, world: World) -> None:
        """Item, attempt and their guards all go by the same clock (C164, C204)."""
        accepted, _ = await world.a_running_command()
        await shorten(world, accepted.work)

        lookup = await while_the_lease_runs_out(
            world, accepted.work, world.settle_as_lost(accepted.work)
        )

        assert lookup is not None
        assert await world.states(accepted) == ("dead", "unknown")

    async def test_of_a_claim_without_a_mark_is_over_for_the_mark(self, world: World) -> None:
        """Nobody holds it any more, and it is reclaimed (C50, C204)."""
        accepted = await world.accept_command()
        await world.transaction(move_item("processing", "claim"), work=accepted.work)
        await shorten(world, accepted.work)

        answer = await while_the_lease_runs_out(world, accepted.work, world.try_to_start(accepted))

        assert isinstance(answer, Started)
        assert (await world.item(accepted.work)).claims_lost == 1

    async def test_of_a_lookup_is_over_for_the_next_one(self, world: World) -> None:
        """A read may be made again as soon as nobody holds it (C50, C204)."""
        _, _, lookup_work = await world.an_unknown_command()
        await world.start_looking(lookup_work)
        await shorten(world, lookup_work)

        answer = await while_the_lease_runs_out(world, lookup_work, world.try_to_look(lookup_work))

        assert isinstance(answer, LookupStarted)


class TestALeaseThatIsGivenAfterAWait:
    async def test_for_an_attempt_is_a_whole_one(self, world: World) -> None:
        """It begins with the mark, however long the mark had to wait (C204, C206)."""
        accepted = await world.accept_command()
        began = await world.now()

        started = await while_a_moment_passes(world, accepted.work, world.try_to_start(accepted))

        assert isinstance(started, Started)
        waited_until = began + seconds(0.5)
        attempt = await world.attempt(started.attempt)
        assert attempt.started_at > waited_until
        assert started.lease_until > waited_until + seconds(started.deadline_ms / 1000 + 60)

    async def test_for_a_lookup_is_a_whole_one(self, world: World) -> None:
        """Likewise: a claim that waited is not over sooner (C204, C205)."""
        _, _, lookup_work = await world.an_unknown_command()
        began = await world.now()

        looking = await while_a_moment_passes(world, lookup_work, world.try_to_look(lookup_work))

        assert isinstance(looking, LookupStarted)
        whole = seconds(looking.deadline_ms / 1000 + 60)
        assert (await world.item(lookup_work)).lease_until > began + seconds(0.5) + whole
