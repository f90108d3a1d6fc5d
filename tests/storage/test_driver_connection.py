"""The driver's own connection: durable at once, never a dead or unfinished one, no new errors."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest
import pytest_asyncio
from sqlalchemy import text
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import AsyncEngine

from oncefence.domain.errors import StoreUnavailable
from oncefence.storage.driver_connection import DriverRow, driver_connection
from oncefence.storage.engine import constraint_name, make_engine, run_phase, sqlstate
from tests.support.servers import Database

pytestmark = pytest.mark.asyncio(loop_scope="module")

BACKEND = text("SELECT pg_backend_pid() AS pid")
STALL = text("SELECT pg_sleep(:seconds)")


@pytest_asyncio.fixture(loop_scope="module")
async def engine(store: Database) -> AsyncIterator[AsyncEngine]:
    """An engine whose one connection everybody gets in turn."""
    made = make_engine(store.app_url, size=1)
    yield made
    await made.dispose()


async def backend(engine: AsyncEngine) -> int:
    async with driver_connection(engine) as connection:
        return int((await connection.one(BACKEND, {})).pid)


@asynccontextmanager
async def admin_of(store: Database) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(store.admin_url)
    try:
        yield connection
    finally:
        await connection.close()


async def terminate(store: Database, pid: int) -> None:
    """End a backend, and return when it has ended."""
    async with admin_of(store) as admin:
        await admin.execute("SELECT pg_terminate_backend($1)", pid)
        async with asyncio.timeout(10):
            while await admin.fetch("SELECT FROM pg_stat_activity WHERE pid = $1", pid):
                await asyncio.sleep(0.01)


async def stalled_on(engine: AsyncEngine, store: Database) -> tuple[int, "asyncio.Task[None]"]:
    """A backend that is busy for long, and the phase that waits for it."""
    pid = await backend(engine)

    async def stall() -> None:
        async with driver_connection(engine) as connection:
            await connection.all(STALL, {"seconds": 600.0})

    task = asyncio.create_task(run_phase("stall", stall))
    async with admin_of(store) as admin, asyncio.timeout(10):
        while not await admin.fetch(
            "SELECT FROM pg_stat_activity WHERE pid = $1 AND wait_event = 'PgSleep'", pid
        ):
            await asyncio.sleep(0.01)
    return pid, task


class TestAStatement:
    async def test_has_its_values_by_name(self, engine: AsyncEngine) -> None:
        """One name may stand in two places, and what is not asked for is not sent."""
        statement = text("SELECT CAST(:a AS int) + :b AS x, CAST(:a AS int) AS y")

        async with driver_connection(engine) as connection:
            row = await connection.one(statement, {"b": 2, "a": 1, "not_asked_for": 3})

        assert (row.x, row.y) == (3, 1)

    async def test_is_durable_when_it_ends(self, engine: AsyncEngine, store: Database) -> None:
        """Nothing is sent after it that a crash could keep from arriving (C146)."""
        async with driver_connection(engine) as connection:
            number = (await connection.one(text("SELECT pg_current_xact_id()::text AS id"), {})).id
            async with admin_of(store) as admin:
                status = await admin.fetchval("SELECT pg_xact_status($1::text::xid8)", number)

        assert status == "committed"

    async def test_with_no_row_where_one_is_due_is_an_error(self, engine: AsyncEngine) -> None:
        """A phase that always has an answer must not go on without it."""
        with pytest.raises(ValueError, match="not enough values"):
            async with driver_connection(engine) as connection:
                await connection.one(text("SELECT 1 AS x WHERE false"), {})

    async def test_gives_rows_that_know_their_columns(self, engine: AsyncEngine) -> None:
        """A column that is misspelled is an error as everywhere, and no empty value."""
        async with driver_connection(engine) as connection:
            row = await connection.one(BACKEND, {})

        assert isinstance(row, DriverRow)
        with pytest.raises(AttributeError, match="pidd"):
            _ = row.pidd


class TestTheConnection:
    async def test_is_kept_for_the_next(self, engine: AsyncEngine) -> None:
        """A new one for each statement would cost more than all that is saved."""
        assert await backend(engine) == await backend(engine)

    async def test_is_kept_after_a_refusal(self, engine: AsyncEngine) -> None:
        """PostgreSQL has answered, so it is as good as before."""
        before = await backend(engine)

        with pytest.raises(Exception) as refused:  # which it is, the next test says
            async with driver_connection(engine) as connection:
                await connection.all(text("SELECT 1 / 0"), {})

        assert sqlstate(refused.value) == "22012"
        assert await backend(engine) == before

    async def test_that_died_while_it_waited_is_not_lent(
        self, engine: AsyncEngine, store: Database
    ) -> None:
        """After a restart of the server nobody has to run into each of its dead connections."""
        before = await backend(engine)
        await terminate(store, before)

        assert await backend(engine) != before

    async def test_that_was_cut_short_is_not_lent_again(
        self, engine: AsyncEngine, store: Database
    ) -> None:
        """Its statement may still run, and the next one would wait for it or get its answer."""
        before, stalled = await stalled_on(engine, store)

        stalled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stalled

        assert await backend(engine) != before
        await terminate(store, before)

    async def test_in_an_open_transaction_is_not_lent(self, engine: AsyncEngine) -> None:
        """What is sent inside of it would look done and be undone by its ROLLBACK (C146)."""
        lent = await engine.raw_connection()
        await lent.driver_connection.execute("BEGIN")  # type: ignore[union-attr]  # asyncpg's
        before = lent.driver_connection.get_server_pid()  # type: ignore[union-attr]  # asyncpg's
        lent.close()

        assert await backend(engine) != before


class TestAFailure:
    async def test_of_a_rule_names_it(self, engine: AsyncEngine) -> None:
        """Errors are mapped by SQLSTATE and constraint, whichever way the statement went (C184)."""
        with pytest.raises(Exception) as refused:  # its parts are what counts
            async with driver_connection(engine) as connection:
                await connection.all(
                    text(
                        "INSERT INTO oncefence.lanes (org_id, lane_key, sequence)"
                        " VALUES (:org, 'a', 1), (:org, 'a', 1)"
                    ),
                    {"org": "of-a-failure"},
                )

        assert sqlstate(refused.value) == "23505"
        assert constraint_name(refused.value) == "lanes_pkey"

    @pytest.mark.parametrize(
        "change", [{"database": "nobody_made_it"}, {"port": 1}], ids=["refused", "unreachable"]
    )
    async def test_to_connect_is_silence(self, store: Database, change: dict[str, object]) -> None:
        """Nothing was asked, and the phase may be tried again."""
        url = make_url(store.app_url).set(**change)  # type: ignore[arg-type]  # of this file
        engine = make_engine(url.render_as_string(hide_password=False))

        with pytest.raises(StoreUnavailable):
            await run_phase("backend", lambda: backend(engine))
        await engine.dispose()

    async def test_in_the_middle_is_silence(self, engine: AsyncEngine, store: Database) -> None:
        """Whether the statement took hold is unknown, and the phase must read it again."""
        before, stalled = await stalled_on(engine, store)

        await terminate(store, before)

        with pytest.raises(StoreUnavailable):
            await stalled
        assert await backend(engine) != before
