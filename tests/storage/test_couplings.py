"""
What is coupled is judged at COMMIT, by the rows as they are then and by no version before them.

The guards of a coupling go by the version of the row that they were called for, and read the row
itself only where that version does not fit.
"""

from collections.abc import Sequence
from string import Template
from uuid import uuid4

import asyncpg
import pytest

from oncefence.storage.phases.claim_work import ClaimedWork
from oncefence.storage.phases.start_attempt import Started
from tests.storage.guard_answers import refusal_at_commit
from tests.storage.guard_statements import change, claim, item, leave, move, open_attempt
from tests.storage.racing import all_at_once
from tests.storage.unnamed_family import an_item
from tests.storage.unnamed_family import claim as claim_of_another_family
from tests.support.world import Accepted, World

pytestmark = pytest.mark.asyncio(loop_scope="module")

BEGIN = move("execution", "running", "begin_delivery", ", attempt = 1")
GO_BACK = move("execution", "retrying", "prepare_safe_retry")
SETTLE = change(
    "effect_attempts",
    "settled_at = clock_timestamp(), settled_as = 'starter', settled_token = lease_token,"
    " settled_epoch = ownership_epoch, outcome = 'RETRYABLE_PRE_DISPATCH',"
    " may_have_applied = false",
    item("work"),
)
OPENED = (claim("work"), open_attempt("work"), BEGIN)
ENDED = (SETTLE, leave("work", "retry", "defer"), GO_BACK)


def of(world: World, accepted: Accepted, statements: Sequence[str]) -> list[str]:
    """The statements, about this command."""
    known = {
        "org": world.org,
        "work": str(accepted.work),
        "execution": str(accepted.execution),
        "new": str(uuid4()),
    }
    return [Template(statement).substitute(known) for statement in statements]


class TestOneTransaction:
    async def test_may_open_an_attempt_and_end_it(
        self, world: World, roles: dict[str, asyncpg.Connection]
    ) -> None:
        """On the way no version of its rows fits the others as they end (C183)."""
        accepted = await world.accept_command()

        async with roles["application"].transaction():
            for statement in of(world, accepted, (*OPENED, *ENDED)):
                await roles["application"].execute(statement)

        assert await world.states(accepted) == ("retry", "retrying")

    async def test_may_leave_an_item_and_claim_it_again_for_an_attempt(
        self, world: World, roles: dict[str, asyncpg.Connection]
    ) -> None:
        """The version that waited is past when the attempt is open (C183)."""
        accepted = await world.accept_command()
        before = (claim("work"), leave("work", "retry", "defer"))

        async with roles["application"].transaction():
            for statement in of(world, accepted, (*before, *OPENED)):
                await roles["application"].execute(statement)

        assert await world.states(accepted) == ("processing", "running")

    @pytest.mark.parametrize("role", ["application", "owner"])
    @pytest.mark.parametrize(("left_out", "code"), [(SETTLE, "OF031"), (GO_BACK, "OF030")])
    async def test_is_refused_for_its_last_versions(
        self,
        world: World,
        roles: dict[str, asyncpg.Connection],
        left_out: str,
        code: str,
        role: str,
    ) -> None:
        """That an earlier version fitted is no excuse (C100, C183)."""
        accepted = await world.accept_command()
        kept = [each for each in (*OPENED, *ENDED) if each != left_out]

        error = await refusal_at_commit(roles[role], *of(world, accepted, kept))

        assert error.sqlstate == code


class TestARowThatMovedWhileAClaimWaited:
    async def test_is_marked_where_it_is_now(self, world: World) -> None:
        """The place of a row is taken with its lock, not before (C164)."""
        accepted = await world.accept_command()

        (answer,) = await all_at_once(
            world.database,
            [world.try_to_start(accepted)],
            "UPDATE oncefence.work_items SET run_after = run_after - interval '1 second'"
            " WHERE org_id = $1",
            world.org,
            commits=True,
        )

        assert isinstance(answer, Started), answer
        assert await world.states(accepted) == ("processing", "running")

    async def test_is_marked_with_its_execution(self, world: World) -> None:
        """Likewise of the execution (C164)."""
        accepted = await world.accept_command()

        (answer,) = await all_at_once(
            world.database,
            [world.try_to_start(accepted)],
            "UPDATE oncefence.executions SET status = status WHERE org_id = $1",
            world.org,
            commits=True,
        )

        assert isinstance(answer, Started), answer
        assert await world.states(accepted) == ("processing", "running")

    async def test_is_claimed_where_it_is_now(self, world: World) -> None:
        """Likewise for every other family (C164)."""
        work = await an_item(world)

        (answer,) = await all_at_once(
            world.database,
            [claim_of_another_family(world, work)],
            "UPDATE oncefence.work_items SET run_after = run_after - interval '1 second'"
            " WHERE org_id = $1",
            world.org,
            commits=True,
        )

        assert isinstance(answer, ClaimedWork), answer
        assert (await world.item(work)).state == "processing"
