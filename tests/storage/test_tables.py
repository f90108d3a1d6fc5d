"""The Python twins of what the database holds: tables, derived ids, names of refusals."""

import asyncpg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import MetaData
from sqlalchemy.engine import Connection

from oncefence.domain.ids import derived_id
from oncefence.storage.engine import SCHEMA_REVISION, constraint_name, sqlstate
from oncefence.storage.tables import SCHEMA, metadata
from tests.support.servers import Database, migrate_once
from tests.support.world import World

pytestmark = pytest.mark.asyncio(loop_scope="module")


def reflect(connection: Connection) -> MetaData:
    found = MetaData(schema=SCHEMA)
    found.reflect(connection)
    return found


async def test_the_tables_are_as_python_sees_them(store: Database) -> None:
    """The DDL is written by hand, so a column that only one side has would be found late."""
    async with store.app_engine.connect() as connection:
        there = await connection.run_sync(reflect)
    dialect = store.app_engine.dialect
    columns, expected = (
        {
            table.name: [(each.name, each.type.compile(dialect=dialect)) for each in table.columns]
            for table in tables.sorted_tables
            if table.name != "alembic_version"
        }
        for tables in (there, metadata)
    )

    assert len(columns) > 20
    assert columns == expected


@given(parts=st.lists(st.text(st.characters(exclude_characters="\x00", codec="utf-8")), min_size=1))
@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_a_derived_id_is_the_same_in_sql(store: Database, parts: list[str]) -> None:
    """A phase in SQL and one in Python must arrive at the same row (C151)."""
    connection = await asyncpg.connect(store.app_url)
    try:
        found = await connection.fetchval(
            "SELECT oncefence.derived_id($1)", ":".join(map(str, parts))
        )
    finally:
        await connection.close()

    assert found == derived_id(*parts)


async def test_a_refusal_names_its_rule(world: World) -> None:
    """Errors are mapped by SQLSTATE and constraint, never by the words of a message (C184)."""
    accepted = await world.accept_command()
    with pytest.raises(Exception) as refused:  # its parts are what counts
        await world.sql(
            "INSERT INTO oncefence.executions (org_id, execution_id, command_id, status, via)"
            " VALUES (:org, gen_random_uuid(), :command, 'accepted', 'create')",
            command=accepted.command,
        )

    assert sqlstate(refused.value) == "23505"
    assert constraint_name(refused.value) == "one_execution_per_command"
    assert str(accepted.command) not in str(refused.value).split("DETAIL")[0]


async def test_a_migrated_database_is_migrated_again_without_a_change(store: Database) -> None:
    """Every deploy runs it, and most of them find nothing to do."""

    class Server:
        migrator_url = store.migrator_url

    assert await migrate_once(Server()) == SCHEMA_REVISION  # type: ignore[arg-type]
