"""Who may run the program on a database, and what everybody else is told."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from oncefence.app.local_postgres import LocalPostgres
from oncefence.domain.errors import ConfigurationRefused, StoreUnavailable
from oncefence.storage.engine import make_engine, refuse_wrong_role, run_phase
from oncefence.storage.phases.check_store import check_store
from oncefence.storage.phases.migrate_schema import migrate
from tests.support.servers import Database, fresh_database

pytestmark = pytest.mark.asyncio(loop_scope="module")

MEMBER = "tests_member"


async def as_superuser(store: Database, *statements: str) -> None:
    connection = await asyncpg.connect(store.admin_url)
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()


async def refusal(url: str) -> str:
    engine = make_engine(url)
    try:
        with pytest.raises(ConfigurationRefused) as refused:
            await check_store(engine, time_scale=1.0)
    finally:
        await engine.dispose()
    return str(refused.value)


@asynccontextmanager
async def role(store: Database, *grants: str) -> AsyncIterator[str]:
    """A role of the tests with the grants, and a URL for it."""
    await as_superuser(
        store,
        f"CREATE ROLE {MEMBER} LOGIN PASSWORD 'member'",
        f"GRANT CONNECT ON DATABASE {store.name} TO {MEMBER}",
        *grants,
    )
    address = store.app_url.rsplit("@", 1)[1]
    try:
        yield f"postgresql://{MEMBER}:member@{address}"
    finally:
        await as_superuser(store, f"DROP OWNED BY {MEMBER}", f"DROP ROLE {MEMBER}")


class TestAProcess:
    async def test_runs_as_the_application_role(self, store: Database) -> None:
        """The one role that the guards were tried against."""
        async with store.app_engine.connect() as connection:
            await refuse_wrong_role(connection)
        await check_store(store.app_engine, time_scale=1.0)

    async def test_refuses_to_run_as_a_superuser(self, store: Database) -> None:
        """It could switch every guard off (C186)."""
        said = await refusal(store.admin_url)

        assert "is a superuser or the owner" in said
        assert "Use the role oncefence_app" in said

    async def test_refuses_to_run_as_the_migrator(self, store: Database) -> None:
        """It may act as the owner, so it is one (C186)."""
        said = await refusal(store.migrator_url)

        assert "'oncefence_migrator'" in said
        assert "Use the role oncefence_app" in said

    @pytest.mark.parametrize(
        "grants",
        [
            f"GRANT oncefence_owner TO {MEMBER}",
            f"GRANT oncefence_migrator TO {MEMBER}",
            f"ALTER ROLE {MEMBER} SUPERUSER",
        ],
    )
    async def test_refuses_to_run_as_a_member_of_the_owner(
        self, store: Database, grants: str
    ) -> None:
        """One step away from the owner is still the owner, even at two removes (C186)."""
        async with role(store, grants) as url:
            said = await refusal(url)

        assert f"'{MEMBER}'" in said
        assert "could switch the guards off" in said

    async def test_refuses_to_run_as_the_owner_of_the_schema(self, store: Database) -> None:
        """Whatever its name: who owns the schema or a table owns the guards."""
        async with role(store) as url:
            await as_superuser(store, f"ALTER TABLE oncefence.audit OWNER TO {MEMBER}")
            try:
                said = await refusal(url)
            finally:
                await as_superuser(store, "ALTER TABLE oncefence.audit OWNER TO oncefence_owner")

        assert "could switch the guards off" in said

    async def test_refuses_a_database_without_the_schema(
        self, store: Database, postgres: LocalPostgres
    ) -> None:
        """A new database: one message that says what to run (C12)."""
        await as_superuser(store, "CREATE DATABASE tests_empty")
        try:
            said = await refusal(store.app_url.rsplit("/", 1)[0] + "/tests_empty")
        finally:
            await as_superuser(store, "DROP DATABASE tests_empty")

        assert "has no oncefence schema" in said
        assert "Run `oncefence migrate`" in said

    async def test_refuses_a_database_of_another_version(self, postgres: LocalPostgres) -> None:
        """New code on an old schema, or the reverse, must not write a row (C12)."""
        async with fresh_database(postgres) as other:
            await as_superuser(other, "UPDATE oncefence.alembic_version SET version_num = '0000'")
            said = await refusal(other.app_url)

        assert "is at version 0000" in said
        assert "Run `oncefence migrate`" in said

    async def test_scales_time_only_where_the_database_was_made_for_it(
        self, postgres: LocalPostgres
    ) -> None:
        """A shortened lookup ladder on real work would decide too early (C209)."""
        async with fresh_database(postgres) as other:
            await check_store(other.app_engine, time_scale=0.5)
            await as_superuser(other, "UPDATE oncefence.deployment SET is_development = false")
            with pytest.raises(ConfigurationRefused) as refused:
                await check_store(other.app_engine, time_scale=0.5)
            await check_store(other.app_engine, time_scale=1.0)

        assert "ONCEFENCE_TIME_SCALE" in str(refused.value)


class TestTheWayToTheDatabase:
    async def test_that_leads_nowhere_is_one_message(self, store: Database) -> None:
        """Nobody listens there: start it or correct the URL (C12)."""
        said = await refusal("postgresql://oncefence_app:x@127.0.0.1:1/nowhere")

        assert "no PostgreSQL answers there" in said
        assert "x@" not in said

    @pytest.mark.parametrize("wrong", ["password", "database"])
    async def test_with_wrong_names_is_one_message(self, store: Database, wrong: str) -> None:
        """It answers and refuses: the URL is at fault, and its password is not shown."""
        front, address = store.app_url.rsplit("@", 1)
        url = (
            f"{front.rsplit(':', 1)[0]}:wrong-password@{address}"
            if wrong == "password"
            else store.app_url.rsplit("/", 1)[0] + "/nowhere"
        )

        said = await refusal(url)

        assert "refuses this user, password or database name" in said
        assert "wrong-password" not in said

    @pytest.mark.parametrize("url", ["", "sqlite:///x", "http://host/db", "not a url"])
    async def test_must_be_a_url_of_postgresql(self, url: str) -> None:
        """Said before anything is tried, naming the setting."""
        with pytest.raises(ConfigurationRefused) as refused:
            make_engine(url)

        assert str(refused.value).startswith("ONCEFENCE_DATABASE_URL: ")

    async def test_that_breaks_leaves_it_unknown_whether_it_was_written(
        self, store: Database
    ) -> None:
        """Silence is no answer: whoever wrote must read again (C171, C173)."""
        engine = make_engine("postgresql://oncefence_app:x@127.0.0.1:1/nowhere")

        async def transaction() -> None:
            async with engine.begin():
                raise AssertionError("nothing answers there")

        with pytest.raises(StoreUnavailable) as silent:
            await run_phase("write", transaction)

        assert silent.value.verb == "write"
        await engine.dispose()


class TestMigrating:
    async def test_needs_the_migrator(self, store: Database) -> None:
        """The application role cannot make or change a table (C186)."""
        with pytest.raises(ConfigurationRefused) as refused:
            await migrate(store.app_engine, is_development=True)

        assert "may not act as oncefence_owner" in str(refused.value)
        assert "Use the role oncefence_migrator" in str(refused.value)

    async def test_needs_what_an_administrator_makes_once(self, store: Database) -> None:
        """Roles and schema come first; the message names the SQL that makes them (C12)."""
        await as_superuser(store, "CREATE DATABASE tests_bare")
        engine = make_engine(store.migrator_url.rsplit("/", 1)[0] + "/tests_bare")
        try:
            with pytest.raises(ConfigurationRefused) as refused:
                await migrate(engine, is_development=True)
        finally:
            await engine.dispose()
            await as_superuser(store, "DROP DATABASE tests_bare")

        assert "migrate --print-roles" in str(refused.value)
