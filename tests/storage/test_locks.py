"""
What each phase locks before it decides, and in which order.

A phase that does not wait where it has to is seen by what it holds behind the row that it did not
wait for: there another phase that keeps the order would meet it the wrong way round.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import asyncpg
import pytest

from oncefence.domain.effect import Outcome
from oncefence.domain.evidence import Consequence
from oncefence.domain.ids import WorkId
from oncefence.domain.lookup import Verdict
from oncefence.storage.phases.record_evidence import Recorded
from tests.storage.racing import all_at_once, waiting
from tests.support.world import Accepted, World, an_end

pytestmark = pytest.mark.asyncio(loop_scope="module")

Run = Coroutine[Any, Any, object]

ORDER = ("work_items", "effect_attempts", "executions", "remote_links", "binding_generations")
"""The part of the one lock order (C169) that these phases walk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A command, its item or lookup item as it is locked, and the phase that is about to run."""

    accepted: Accepted
    work: WorkId
    run: Callable[[], Run]


async def to_mark(world: World) -> Scene:
    accepted = await world.accept_command()
    return Scene(accepted=accepted, work=accepted.work, run=lambda: world.try_to_start(accepted))


async def to_settle(world: World) -> Scene:
    accepted, started = await world.a_running_command()
    return Scene(
        accepted=accepted,
        work=accepted.work,
        run=lambda: world.settle(started, Outcome.ACCEPTED),
    )


async def to_settle_as_lost(world: World) -> Scene:
    accepted, _ = await world.a_running_command()
    await world.expire_lease(accepted.work)
    return Scene(
        accepted=accepted, work=accepted.work, run=lambda: world.settle_as_lost(accepted.work)
    )


async def to_record_evidence(world: World) -> Scene:
    accepted, started, _ = await world.an_unknown_command()
    return Scene(
        accepted=accepted,
        work=accepted.work,
        run=lambda: world.tell(started, an_end(Outcome.ACCEPTED)),
    )


async def to_settle_a_lookup(world: World) -> Scene:
    accepted, _, lookup_work = await world.an_unknown_command()
    looking = await world.start_looking(lookup_work)
    return Scene(
        accepted=accepted,
        work=lookup_work,
        run=lambda: world.conclude(looking, Verdict.APPLIED),
    )


WAITS = [
    (to_mark, "work_items"),
    (to_mark, "executions"),
    (to_mark, "remote_links"),
    (to_mark, "binding_generations"),
    (to_settle, "work_items"),
    (to_settle, "effect_attempts"),
    (to_settle_as_lost, "work_items"),
    (to_settle_as_lost, "effect_attempts"),
    (to_record_evidence, "work_items"),
    (to_record_evidence, "effect_attempts"),
    (to_settle_a_lookup, "work_items"),
    (to_settle_a_lookup, "effect_attempts"),
]


def rows(world: World, table: str, scene: Scene) -> tuple[str, list[object]]:
    """The rows of a table that the scene is about."""
    by: dict[str, tuple[str, object]] = {
        "work_items": ("work_id", scene.work),
        "effect_attempts": ("command_id", scene.accepted.command),
        "executions": ("execution_id", scene.accepted.execution),
    }
    column, value = by.get(table, ("org_id", world.org))
    return (
        f"SELECT FROM oncefence.{table} WHERE org_id = $1 AND {column} = $2 FOR UPDATE",
        [world.org, value],
    )


class TestTheOrder:
    @pytest.mark.parametrize(("about", "table"), WAITS)
    async def test_whoever_waits_for_a_row_holds_nothing_behind_it(
        self, world: World, about: Callable[[World], Any], table: str
    ) -> None:
        """One order for all phases, and each decision under its lock (C164, C169)."""
        scene = await about(world)
        async with AsyncExitStack() as stack:
            holder = await asyncpg.connect(world.database.app_url)
            stack.push_async_callback(holder.close)
            transaction = holder.transaction()
            await transaction.start()
            statement, values = rows(world, table, scene)
            await holder.execute(statement, *values)
            running = asyncio.create_task(scene.run())
            await waiting(world.database, 1)

            held = [
                behind
                for behind in ORDER[ORDER.index(table) + 1 :]
                if not await is_free(world, *rows(world, behind, scene))
            ]

            await transaction.rollback()
        await running
        assert held == []


async def is_free(world: World, statement: str, values: list[object]) -> bool:
    """Whether nobody holds the rows."""
    asking = await asyncpg.connect(world.database.app_url)
    try:
        await asking.execute(f"{statement} NOWAIT", *values)
    except asyncpg.LockNotAvailableError:
        return False
    finally:
        await asking.close()
    return True


FOUND = (
    "UPDATE oncefence.executions SET status = 'succeeded', via = 'person_found_success',"
    " settlements = settlements + 1 WHERE org_id = $1 AND execution_id = $2"
)
DISPOSED = (
    "WITH said AS (UPDATE oncefence.effect_attempts SET disposition = 'person',"
    " disposed_at = clock_timestamp() WHERE org_id = $1 AND attempt_id = $3 RETURNING 1)"
    " UPDATE oncefence.executions SET status = 'failed', via = 'person_found_failure',"
    " settlements = settlements + 1, failure_class = 'by_hand'"
    " WHERE org_id = $1 AND execution_id = $2"
)


class TestLateEvidence:
    async def test_is_judged_by_where_the_execution_stands_when_it_is_written(
        self, world: World
    ) -> None:
        """It fits what a person has just found, and contradicts nobody (C106)."""
        accepted, started = await world.a_command_for_a_person()

        (told,) = await all_at_once(
            world.database,
            [world.tell(started, an_end(Outcome.ACCEPTED))],
            FOUND,
            world.org,
            accepted.execution,
            commits=True,
        )

        assert isinstance(told, Recorded), told
        assert told.consequence is Consequence.KEPT
        assert await world.of_command("contradictions", accepted) == []

    async def test_is_judged_by_the_disposition_that_the_attempt_has_then(
        self, world: World
    ) -> None:
        """It speaks against what a person has just found, and is listed (C106, C107)."""
        accepted, started = await world.a_command_for_a_person()

        (told,) = await all_at_once(
            world.database,
            [world.tell(started, an_end(Outcome.RETRYABLE_PRE_DISPATCH))],
            DISPOSED,
            world.org,
            accepted.execution,
            started.attempt,
            commits=True,
        )

        assert isinstance(told, Recorded), told
        assert told.consequence is Consequence.CONTRADICTION
        assert len(await world.of_command("contradictions", accepted)) == 1
