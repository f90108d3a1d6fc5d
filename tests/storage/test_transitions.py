"""
Both lifecycles as the database itself holds them, with the application's own checks left out.

Every move that is not listed is refused by the transition guard, before any other guard can
speak; every move that is listed commits with what has to go with it.
"""

from collections.abc import AsyncIterator
from itertools import product

import asyncpg
import pytest
import pytest_asyncio

from oncefence.domain.execution import EXECUTION
from oncefence.domain.lifecycle import Lifecycle, Transition
from oncefence.domain.work_item import WORK_ITEM
from tests.storage.lifecycle_rows import (
    ADD_LOOKUP,
    CLAIM,
    EXPIRE,
    ITEM,
    SETTLE_AS_LOST,
    Standing,
    execution_in,
    item_in,
    item_with_open_attempt,
    lookup_item_in,
    move_execution,
    move_item,
    with_execution,
)
from tests.support.servers import Database
from tests.support.world import World

pytestmark = pytest.mark.asyncio(loop_scope="module")


def refused_pairs(lifecycle: Lifecycle) -> list[tuple[str, str]]:
    return [
        (str(source), str(target))
        for source, target in product(lifecycle.states, repeat=2)
        if source != target and not lifecycle.permits(source, target)
    ]


def every_via(lifecycle: Lifecycle) -> list[str]:
    """Each trigger of the lifecycle, the word that rows are born with, and one made up."""
    return sorted({row.trigger for row in lifecycle.transitions} | {"create", "made_up"})


def named(row: Transition) -> str:
    return f"{row.source}-{row.target}-{row.trigger}"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def executions(store: Database) -> dict[str, Standing]:
    world = await World.make(store)
    return {str(status): await execution_in(world, status) for status in EXECUTION.states}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def items(store: Database) -> dict[str, list[Standing]]:
    world = await World.make(store)
    rows = {str(state): [await item_in(world, state)] for state in WORK_ITEM.states}
    rows["processing"] += [
        await item_with_open_attempt(world),
        await lookup_item_in(world, "processing"),
    ]
    rows["pending"].append(await lookup_item_in(world, "pending"))
    return rows


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def application(store: Database) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(store.app_url)
    yield connection
    await connection.close()


async def answer_to(
    connection: asyncpg.Connection, standing: Standing, statement: str
) -> str | None:
    """The SQLSTATE with which `statement` is refused; undone where it is not."""
    values = {"org": standing.world.org, **standing.keys}
    names = [name for name in values if f":{name}" in statement]
    for number, name in enumerate(names, start=1):
        statement = statement.replace(f":{name}", f"${number}")
    undo = connection.transaction()
    await undo.start()
    try:
        await connection.execute(statement, *(values[name] for name in names))
    except asyncpg.PostgresError as error:
        return error.sqlstate
    finally:
        await undo.rollback()
    return None


class TestRefusedMoves:
    @pytest.mark.parametrize(("source", "target"), refused_pairs(EXECUTION))
    async def test_of_an_execution_meet_the_transition_guard_first(
        self,
        executions: dict[str, Standing],
        application: asyncpg.Connection,
        source: str,
        target: str,
    ) -> None:
        """Whatever reason is given, and however well the row is dressed for it (C63, C177)."""
        standing = executions[source]
        naked = "UPDATE oncefence.executions SET status = '{}', via = '{}'"
        which = " WHERE org_id = :org AND execution_id = :execution"

        answers = {
            (via, statement): await answer_to(application, standing, statement)
            for via in every_via(EXECUTION)
            for statement in (naked.format(target, via) + which, move_execution(target, via))
        }

        assert (await standing.world.execution(standing.accepted)).status == source
        assert set(answers.values()) == {"OF001"}, answers

    @pytest.mark.parametrize(("source", "target"), refused_pairs(WORK_ITEM))
    async def test_of_a_work_item_meet_the_transition_guard_first(
        self,
        items: dict[str, list[Standing]],
        application: asyncpg.Connection,
        source: str,
        target: str,
    ) -> None:
        """Whatever reason is given, and however well the row is dressed for it (C46, C177)."""
        naked = "UPDATE oncefence.work_items SET state = '{}', via = '{}' "

        answers = {
            (number, via, statement): await answer_to(application, standing, statement)
            for number, standing in enumerate(items[source])
            for via in every_via(WORK_ITEM)
            for statement in (naked.format(target, via) + ITEM, move_item(target, via))
        }

        assert {(await s.world.item(s.work)).state for s in items[source]} == {source}
        assert set(answers.values()) == {"OF001"}, answers

    @pytest.mark.parametrize("row", EXECUTION.transitions, ids=named)
    async def test_a_permitted_pair_is_refused_under_another_trigger(
        self, executions: dict[str, Standing], application: asyncpg.Connection, row: Transition
    ) -> None:
        """A move is known by its reason too: the same pair for another reason is another move."""
        reasons = {
            other.trigger
            for other in EXECUTION.transitions
            if (other.source, other.target) == (row.source, row.target)
        }

        answers = {
            via: await answer_to(
                application, executions[row.source], move_execution(row.target, via)
            )
            for via in every_via(EXECUTION)
            if via not in reasons
        }

        assert set(answers.values()) == {"OF001"}, answers

    @pytest.mark.parametrize(
        "row", [row for row in WORK_ITEM.transitions if row.source != row.target], ids=named
    )
    async def test_a_permitted_pair_of_an_item_is_refused_under_another_trigger(
        self, items: dict[str, list[Standing]], application: asyncpg.Connection, row: Transition
    ) -> None:
        """A move is known by its reason too: the same pair for another reason is another move."""
        reasons = {
            other.trigger
            for other in WORK_ITEM.transitions
            if (other.source, other.target) == (row.source, row.target)
        }

        answers = {
            via: await answer_to(application, items[row.source][0], move_item(row.target, via))
            for via in every_via(WORK_ITEM)
            if via not in reasons
        }

        assert set(answers.values()) == {"OF001"}, answers

    @pytest.mark.parametrize(
        "state", [state for state in WORK_ITEM.states if state != "processing"]
    )
    async def test_only_a_claimed_item_is_reclaimed(
        self, items: dict[str, list[Standing]], application: asyncpg.Connection, state: str
    ) -> None:
        """A reclaim keeps the state, so the guard has to see it as the move that it is (C50)."""
        statement = (
            "UPDATE oncefence.work_items SET via = 'reclaim',"
            f" ownership_epoch = ownership_epoch + 1 {ITEM}"
        )

        assert await answer_to(application, items[state][0], statement) == "OF001"


class TestPermittedMoves:
    @pytest.mark.parametrize("row", EXECUTION.transitions, ids=named)
    async def test_of_an_execution_commit(self, world: World, row: Transition) -> None:
        """A guard that refused a listed move would stop the work for good (C62)."""
        standing = await execution_in(world, row.source)

        await standing.commit(
            *with_execution(row.source, row.target, row.trigger),
            move_execution(row.target, row.trigger),
        )

        after = await world.execution(standing.accepted)
        assert (after.status, after.via) == (row.target, row.trigger)

    @pytest.mark.parametrize("row", WORK_ITEM.transitions, ids=named)
    async def test_of_a_work_item_commit(self, world: World, row: Transition) -> None:
        """A guard that refused a listed move would stop the work for good (C45)."""
        before: tuple[str, ...] = ()
        after: tuple[str, ...] = ()
        if row.trigger == "attempt_lost":
            standing = await item_with_open_attempt(world)
            before = (EXPIRE, SETTLE_AS_LOST)
            after = (ADD_LOOKUP, move_execution("unknown", "attempt_lost"))
        else:
            standing = await item_in(world, row.source)
        if row.trigger == "reclaim":
            before = (EXPIRE,)

        await standing.commit(*before, move_item(row.target, row.trigger), *after)

        item = await world.item(standing.work)
        assert (item.state, item.via) == (row.target, row.trigger)

    async def test_a_reclaim_needs_the_lease_to_be_over(
        self, items: dict[str, list[Standing]], application: asyncpg.Connection
    ) -> None:
        """Two claimants at once is what the lease is there to prevent (C50)."""
        statement = f"UPDATE oncefence.work_items SET via = 'reclaim', {CLAIM} {ITEM}"

        assert await answer_to(application, items["processing"][0], statement) == "OF004"


def other_value(table: str, column: asyncpg.Record) -> str:
    """An expression of the column's type that is never the value it has."""
    name = column["column_name"]
    return {
        "text": f"coalesce({name}, '') || 'x'",
        "uuid": "gen_random_uuid()",
        "integer": f"coalesce({name}, 0) + 1",
        "bigint": f"coalesce({name}, 0) + 1",
        "timestamp with time zone": f"coalesce({name}, clock_timestamp()) + interval '1 s'",
        "jsonb": f"coalesce({name}, '{{}}') || '{{\"other\": 1}}'",
    }[column["data_type"]]


async def columns_of(connection: asyncpg.Connection, table: str) -> list[asyncpg.Record]:
    found: list[asyncpg.Record] = await connection.fetch(
        "SELECT column_name, data_type FROM information_schema.columns"
        " WHERE table_schema = 'oncefence' AND table_name = $1",
        table,
    )
    assert found, "the table is there and can be read"
    return found


class TestUpdatesThatKeepTheState:
    @pytest.mark.parametrize("status", EXECUTION.states)
    async def test_of_an_execution_change_no_column(
        self, executions: dict[str, Standing], application: asyncpg.Connection, status: str
    ) -> None:
        """What a caller was told changes by a move or not at all (C185)."""
        answers = {
            column["column_name"]: await answer_to(
                application,
                executions[status],
                f"UPDATE oncefence.executions SET {column['column_name']} ="
                f" {other_value('executions', column)}"
                " WHERE org_id = :org AND execution_id = :execution",
            )
            for column in await columns_of(application, "executions")
            if column["column_name"] != "status"
        }

        assert set(answers.values()) == {"OF003"}, answers

    @pytest.mark.parametrize("state", WORK_ITEM.states)
    async def test_of_a_work_item_change_lease_end_and_due_time_alone(
        self, items: dict[str, list[Standing]], application: asyncpg.Connection, state: str
    ) -> None:
        """
        A renewal and a new due time are all that may happen without a move, and of a claimed
        item that somebody asks for its cancellation (C55, C185).
        """
        expected: dict[str, str | None] = {"lease_until": "OF005", "run_after": None}
        if state == "processing":
            expected |= {"lease_until": None, "cancel_requested_at": None}
        elif state in WORK_ITEM.final:
            expected = {"lease_until": "OF006", "run_after": "OF006"}

        for standing in items[state]:
            answers = {
                column["column_name"]: await answer_to(
                    application,
                    standing,
                    f"UPDATE oncefence.work_items SET {column['column_name']} ="
                    f" {other_value('work_items', column)} {ITEM}",
                )
                for column in await columns_of(application, "work_items")
                if column["column_name"] != "state"
            }

            assert answers == dict.fromkeys(answers, "OF003") | expected

    async def test_a_reclaimed_row_keeps_its_epoch(
        self, world: World, application: asyncpg.Connection
    ) -> None:
        """Its `via` is that of a reclaim already, so a second one must not slip through."""
        standing = await item_in(world, "processing")
        await standing.commit(EXPIRE, move_item("processing", "reclaim"))
        statement = f"UPDATE oncefence.work_items SET {CLAIM} {ITEM}"

        assert await answer_to(application, standing, statement) == "OF004"

    async def test_a_change_of_nothing_passes(
        self, items: dict[str, list[Standing]], application: asyncpg.Connection
    ) -> None:
        """A repeat of the same write is not a change, not even of a terminal row."""
        statement = f"UPDATE oncefence.work_items SET run_after = run_after {ITEM}"

        answers = {
            state: await answer_to(application, rows[0], statement) for state, rows in items.items()
        }

        assert set(answers.values()) == {None}, answers
