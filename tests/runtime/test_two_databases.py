"""Two databases and nothing between them but the doors: neither side touches the other's."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from oncefence.app.local_postgres import DATABASE, LocalPostgres
from tests.runtime.crm import Crm
from tests.runtime.deployment import Oncefence
from tests.runtime.doors import Way, open_http, open_way
from tests.runtime.own_database import RuntimeDatabase, all_rows, closed, fetch
from tests.support.servers import Database

pytestmark = pytest.mark.asyncio(loop_scope="module")

DENIED = asyncpg.InsufficientPrivilegeError  # SQLSTATE 42501
ROLES = ("oncefence_app", "oncefence_migrator", "oncefence_owner")
LOGINS = ("oncefence_app", "oncefence_migrator")


def into(url: str, database: str) -> str:
    return url.rsplit("/", 1)[0] + "/" + database


def login_of(role: str, store: Database) -> str:
    """The URL under which the role comes; the owner comes as the migrator that may act as it."""
    return store.app_url if role == "oncefence_app" else store.migrator_url


@asynccontextmanager
async def let_in(admin_url: str, role: str, schema: str) -> AsyncIterator[None]:
    """Somebody's mistake: the role may connect and look into the schema."""
    name = admin_url.rsplit("/", 1)[1]
    await fetch(admin_url, f"GRANT CONNECT ON DATABASE {name} TO {role}")
    await fetch(admin_url, f"GRANT USAGE ON SCHEMA {schema} TO {role}")
    try:
        yield
    finally:
        await fetch(admin_url, f"REVOKE USAGE ON SCHEMA {schema} FROM {role}")
        await fetch(admin_url, f"REVOKE CONNECT ON DATABASE {name} FROM {role}")


async def what_is_not_denied(url: str, role: str, schema: str, tables: list[str]) -> list[str]:
    """The statements on these tables that somebody else's role is not refused."""
    let_through = []
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(f"SET ROLE {role}")
        for table in tables:
            column = await first_column(connection, schema, table)
            for statement in (
                f"SELECT FROM {schema}.{table}",
                f"INSERT INTO {schema}.{table} DEFAULT VALUES",
                f"UPDATE {schema}.{table} SET {column} = NULL",
                f"DELETE FROM {schema}.{table}",
                f"TRUNCATE {schema}.{table}",
                f"DROP TABLE {schema}.{table}",
            ):
                try:
                    await connection.execute(statement)
                except DENIED:
                    continue
                let_through.append(statement)
        try:
            await connection.execute(f"CREATE TABLE {schema}.of_another ()")
        except DENIED:
            return let_through
        return [*let_through, "CREATE TABLE"]
    finally:
        await connection.close()


async def first_column(connection: asyncpg.Connection, schema: str, table: str) -> str:
    """A column that can be named; the catalogue is everybody's to read."""
    return str(
        await connection.fetchval(
            "SELECT attname FROM pg_attribute WHERE attrelid = (SELECT c.oid FROM pg_class AS c"
            " JOIN pg_namespace AS n ON n.oid = c.relnamespace"
            " WHERE n.nspname = $1 AND c.relname = $2) AND attnum > 0 ORDER BY attnum LIMIT 1",
            schema,
            table,
        )
    )


class TestARoleOfOncefence:
    @pytest.mark.parametrize("role", LOGINS)
    async def test_cannot_connect_to_the_database_of_a_runtime(
        self, database: RuntimeDatabase, store: Database, role: str
    ) -> None:
        """The door of the database is shut before any table is asked for (C23)."""
        with pytest.raises(DENIED, match="permission denied for database"):
            await asyncpg.connect(into(login_of(role, store), database.name))

    async def test_that_owns_the_tables_cannot_log_in_at_all(
        self, database: RuntimeDatabase
    ) -> None:
        """Nor could it connect if somebody let it log in (C186)."""
        seen = await database.row(
            "SELECT rolcanlogin, rolsuper, has_database_privilege(rolname, $2, 'CONNECT') AS may"
            " FROM pg_roles WHERE rolname = $1",
            "oncefence_owner",
            database.name,
        )

        assert seen == {"rolcanlogin": False, "rolsuper": False, "may": False}

    @pytest.mark.parametrize("role", ROLES)
    async def test_that_was_let_in_by_mistake_can_neither_read_nor_write_a_table(
        self, database: RuntimeDatabase, store: Database, role: str
    ) -> None:
        """A second wall behind the first: each statement on each table is refused (42501)."""
        login = role if role in LOGINS else "oncefence_migrator"
        tables = ["leads", "outbox", "inbox"]
        before = await all_rows(database.admin_url, "crm")
        async with (
            let_in(database.admin_url, login, "crm"),
            let_in(database.admin_url, "oncefence_owner", "crm"),
        ):
            url = into(login_of(role, store), database.name)
            assert await what_is_not_denied(url, role, "crm", tables) == []

        assert sorted(before) == sorted(tables)
        assert await all_rows(database.admin_url, "crm") == before


class TestTheRoleOfARuntime:
    @pytest.mark.parametrize("place", ["a copy for tests", "as roles.sql made it"])
    async def test_cannot_connect_to_the_database_of_oncefence(
        self, database: RuntimeDatabase, store: Database, postgres: LocalPostgres, place: str
    ) -> None:
        """A Runtime on the same server is a stranger to it."""
        name = store.name if place == "a copy for tests" else DATABASE

        with pytest.raises(DENIED, match="permission denied for database"):
            await asyncpg.connect(into(database.url, name))

    async def test_that_was_let_in_by_mistake_can_neither_read_nor_write_a_table(
        self, database: RuntimeDatabase, store: Database
    ) -> None:
        """Every table of oncefence, by every kind of statement (42501)."""
        before = await all_rows(store.admin_url, "oncefence")
        async with let_in(store.admin_url, database.role, "oncefence"):
            url = into(database.url, store.name)
            found = await what_is_not_denied(url, database.role, "oncefence", sorted(before))

        assert found == []
        assert len(before) > 20
        assert await all_rows(store.admin_url, "oncefence") == before


class TestAnEffect:
    async def test_is_done_without_a_touch_of_the_tables_of_its_runtime(
        self, crm: Crm, oncefence: Oncefence, database: RuntimeDatabase
    ) -> None:
        """From acceptance to settlement, not one row there is written anew (C23)."""
        outbox_id = await crm.retitle("lead-1", "Director")
        async with oncefence.running() as address, open_way(Way.TEMPORAL, address) as door:
            await crm.hand_over(door)
            before = await all_rows(database.admin_url, "crm")
            command = (await database.entry(outbox_id))["command_id"]
            assert await oncefence.settled(command) == "succeeded"

        assert await all_rows(database.admin_url, "crm") == before

    async def test_is_taken_home_without_a_touch_of_the_tables_of_oncefence(
        self, crm: Crm, oncefence: Oncefence, database: RuntimeDatabase, store: Database
    ) -> None:
        """What the Runtime writes for itself, and what it asks, leaves no trace over here."""
        outbox_id = await crm.retitle("lead-1", "Director")
        async with oncefence.running() as address, open_http(address) as door:
            await crm.hand_over(door)
            await oncefence.settled((await database.entry(outbox_id))["command_id"])
        before = await all_rows(store.admin_url, "oncefence")

        async with oncefence.doors_alone() as address, open_http(address) as door:
            taken = await crm.take_results(door)
            cleared = await crm.clear()
            await crm.retitle("lead-1", "President")

        assert (len(taken), cleared) == (1, [outbox_id])
        assert await all_rows(store.admin_url, "oncefence") == before


class TestADatabaseThatIsAway:
    async def test_is_the_runtimes_and_the_work_goes_on_and_settles(
        self, crm: Crm, oncefence: Oncefence, database: RuntimeDatabase
    ) -> None:
        """Nothing is read from over there: all that the effect needs was handed over."""
        outbox_id = await crm.retitle("lead-1", "Director")
        async with oncefence.doors_alone() as address, open_http(address) as door:
            await crm.hand_over(door)
        command = (await database.entry(outbox_id))["command_id"]

        async with closed(database.server_url, database.name):
            with pytest.raises(asyncpg.PostgresError, match="not currently accepting"):
                await crm.retitle("lead-1", "President")
            # These processes have never seen the other database open.
            async with oncefence.running() as address:
                status = await oncefence.settled(command)
                async with open_http(address) as door:
                    with pytest.raises(asyncpg.PostgresError, match="not currently accepting"):
                        await crm.take_results(door)
        async with oncefence.doors_alone() as address, open_http(address) as door:
            taken = await crm.take_results(door)

        assert (status, oncefence.changes(command)) == ("succeeded", 1)
        assert len(taken) == 1
        assert (await database.lead("lead-1"))["pushed_title"] == "Director"

    async def test_is_oncefences_and_the_outbox_waits(
        self, crm: Crm, oncefence: Oncefence, database: RuntimeDatabase, store: Database
    ) -> None:
        """The doors are there and cannot answer: no receipt, so nothing is let go of (C138)."""
        async with oncefence.running() as address:
            outbox_id = await crm.retitle("lead-1", "Director")
            async with open_http(address) as door:
                async with closed(database.server_url, store.name):
                    assert await crm.hand_over(door) == []
                    assert await crm.retitle("lead-1", "President")
                    waiting = await database.entry(outbox_id)
                handed_over = await crm.hand_over(door)
                commands = [(await database.entry(each))["command_id"] for each in handed_over]
                settled = [await oncefence.settled(each) for each in commands]

        assert (waiting["admission"], waiting["refused"]) == (None, None)
        assert (handed_over[0], settled) == (outbox_id, ["succeeded"] * 2)
        assert [oncefence.changes(each) for each in commands] == [1, 1]
