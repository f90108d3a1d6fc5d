"""
A database of an earlier version, with work in it, brought to the version of now.

Its rows are those that today's phases write, without the columns that were not there yet: what
the migration fills is then held against what the phases wrote themselves.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, text

from oncefence.app.local_postgres import LocalPostgres
from oncefence.domain.effect import Outcome
from oncefence.storage.engine import SCHEMA_REVISION, make_engine
from oncefence.storage.phases.migrate_schema import migrate
from oncefence.storage.phases.publish_view import publish_view
from oncefence.storage.phases.start_attempt import Started
from oncefence.storage.phases.start_lookup import LookupStarted
from tests.support.servers import Database
from tests.support.world import INSTALLATION, Accepted, World, example_view

pytestmark = pytest.mark.asyncio(loop_scope="module")

BEFORE = "0001"
CAPABILITY_BEFORE = 1
CAPABILITIES = {BEFORE: CAPABILITY_BEFORE, "0002": 2, "0003": 3}
"""What the engine of each earlier version can run."""

RULES = ("lifecycle_transitions", "settlement_rules", "alembic_version", "deployment")

Rows = dict[str, list[dict[str, Any]]]


def upgrade(connection: Connection, version: str) -> None:
    """What `migrate` does, up to an earlier version."""
    config = Config()
    config.set_main_option(
        "script_location", str(Path(str(files("oncefence.storage"))) / "migrations")
    )
    config.attributes["connection"] = connection
    connection.execute(text("SET LOCAL ROLE oncefence_owner"))
    connection.execute(text("SET LOCAL search_path TO oncefence"))
    command.upgrade(config, version)
    connection.execute(text("INSERT INTO oncefence.deployment (is_development) VALUES (true)"))


@asynccontextmanager
async def database_of_before(
    server: LocalPostgres, like: Database, version: str = BEFORE
) -> AsyncIterator[Database]:
    """A database at an earlier version, beside `like` on its server."""
    name = f"{like.name}_before"

    def of(url: str) -> str:
        return url.rsplit("/", 1)[0] + "/" + name

    server.psql(f"CREATE DATABASE {name} OWNER oncefence_migrator", database="postgres")
    server.psql(
        "CREATE SCHEMA oncefence AUTHORIZATION oncefence_owner;"
        "GRANT USAGE ON SCHEMA oncefence TO oncefence_app, oncefence_migrator;",
        database=name,
    )
    database = replace(
        like,
        name=name,
        app_url=of(like.app_url),
        migrator_url=of(like.migrator_url),
        admin_url=of(like.admin_url),
        app_engine=make_engine(of(like.app_url)),
        migrator_engine=make_engine(of(like.migrator_url)),
    )
    try:
        async with database.migrator_engine.begin() as connection:
            await connection.run_sync(upgrade, version)
        yield database
    finally:
        await database.app_engine.dispose()
        await database.migrator_engine.dispose()
        server.psql(f"DROP DATABASE {name} WITH (FORCE)", database="postgres")


async def rows_of(database: Database) -> Rows:
    """Every row of every table as JSON, in one order."""
    connection = await asyncpg.connect(database.admin_url)
    try:
        tables = await connection.fetch(
            "SELECT relname FROM pg_class WHERE relkind = 'r'"
            " AND relnamespace = 'oncefence'::regnamespace ORDER BY 1"
        )
        return {
            table["relname"]: [
                json.loads(row["line"])
                for row in await connection.fetch(
                    f"SELECT to_jsonb(t)::text AS line FROM oncefence.{table['relname']} AS t"
                    " ORDER BY 1"
                )
            ]
            for table in tables
        }
    finally:
        await connection.close()


async def put(database: Database, rows: Rows) -> None:
    """The rows, as far as the tables of this version have their columns."""
    connection = await asyncpg.connect(database.admin_url)
    try:
        async with connection.transaction():
            await connection.execute("SET LOCAL session_replication_role = replica")
            for table, lines in rows.items():
                known = await connection.fetchval(
                    "SELECT to_regclass('oncefence.' || $1) IS NOT NULL", table
                )
                if not known or table in RULES:
                    continue
                for line in lines:
                    await connection.execute(
                        f"INSERT INTO oncefence.{table} OVERRIDING SYSTEM VALUE"
                        f" SELECT (jsonb_populate_record(NULL::oncefence.{table}, $1)).*",
                        json.dumps(line),
                    )
            await connection.execute(
                "SELECT setval(pg_get_serial_sequence('oncefence.audit', 'audit_id'),"
                " (SELECT max(audit_id) FROM oncefence.audit))"
            )
    finally:
        await connection.close()


async def work_in_every_state(store: Database) -> tuple[World, Accepted]:
    """Started, retried, ended, lost, looked up and given up, and one that was just accepted."""
    world = await World.make(store)
    waiting = await world.accept_command("lead-accepted")
    await world.a_running_command("lead-running")
    await world.settle(
        await world.start(await world.accept_command("lead-retry")), Outcome.RETRYABLE_PRE_DISPATCH
    )
    await world.settle(await world.start(await world.accept_command("lead-done")), Outcome.ACCEPTED)
    await world.settle(await world.start(await world.accept_command("lead-dead")), Outcome.REJECTED)
    await world.an_unknown_command("lead-lost")
    _, _, lookup = await world.an_unknown_command("lead-looked-up")
    await world.start_looking(lookup)
    await world.a_command_for_a_person("lead-person")
    await world.reject(await world.offer("lead-rejected"))
    return world, waiting


def by_key(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(json.dumps(row, sort_keys=True) for row in rows)


@pytest.mark.parametrize("version", CAPABILITIES)
async def test_keeps_and_fills_every_row(
    store: Database, postgres: LocalPostgres, version: str
) -> None:
    """What was accepted before a deploy is done after it, and nothing of it was lost (C8)."""
    world, waiting = await work_in_every_state(store)
    await work_in_every_state(store)
    expected = await rows_of(store)
    for item in expected["work_items"]:
        # What nobody could say then: that it needs more than there was.
        item |= {"engine_capability": CAPABILITIES[version]}
        if version == BEFORE:
            # Nor which claim left it.
            item |= {"left_by": None}
    for accepted in expected["commands"]:
        # Nor what it uses of the provider's quota.
        accepted |= {"quota": [], "lookup_quota": []}
    async with database_of_before(postgres, store, version) as old:
        await put(old, expected)
        assert "quota" not in (await rows_of(old))["commands"][0]

        assert await migrate(old.migrator_engine, is_development=True) == SCHEMA_REVISION

        migrated, again = await rows_of(old), await rows_of(old)
        for now, then in zip(
            migrated["view_activations"], expected["view_activations"], strict=True
        ):
            if version < "0003":
                # Nobody activated anything then: what was newest is what was in use (C561).
                assert now["activated_by"] == "migration"
                then |= {each: now[each] for each in ("activated_by", "activated_at", "note")}
        for rows in (migrated, expected):
            # That a token was added by hand is known; when it got its grant is when it did.
            for grant in rows["authorization_grants"]:
                del grant["changed_at"]
        assert {row["state"] for row in migrated["work_items"]} == {
            "pending",
            "processing",
            "retry",
            "succeeded",
            "dead",
        }
        assert len(migrated["audit_heads"]) == len({row["org_id"] for row in migrated["audit"]})
        for table in migrated.keys() - set(RULES):
            assert by_key(migrated[table]) == by_key(expected[table]), table
        assert {table: migrated[table] for table in RULES[:2]} == {
            table: expected[table] for table in RULES[:2]
        }

        assert await migrate(old.migrator_engine, is_development=True) == SCHEMA_REVISION
        assert await rows_of(old) == again

        await goes_on(world, waiting, old)


async def test_makes_the_newest_revision_the_current_one(
    store: Database, postgres: LocalPostgres
) -> None:
    """It is the one that was in use, and each knows the one that it follows (C561)."""
    world = await World.make(store)
    for view in (example_view(is_sensitive=True), example_view()):
        await publish_view(
            store.app_engine, world.org, INSTALLATION, view, actor="tests", activate=True
        )
    expected = await rows_of(store)
    async with database_of_before(postgres, store) as old:
        await put(old, expected)
        await migrate(old.migrator_engine, is_development=True)

        migrated = await rows_of(old)

        assert by_key(migrated["binding_views"]) == by_key(expected["binding_views"])
        (activation,) = [row for row in migrated["view_activations"] if row["org_id"] == world.org]
        (newest,) = [
            row
            for row in migrated["binding_views"]
            if (row["org_id"], row["revision"]) == (world.org, 3)
        ]
        assert (activation["view_id"], activation["ordinal"]) == (newest["view_id"], 1)
        assert activation["replaces"] is None


async def goes_on(world: World, waiting: Accepted, old: Database) -> None:
    """The world's work is claimed, and its audit goes on with its chain."""
    after = World(
        database=old,
        org=world.org,
        ring=world.ring,
        caller=world.caller,
        credential=world.credential,
        binding=world.binding,
        limits=world.limits,
    )
    after.links.update(world.links)
    assert isinstance(await after.try_to_start(waiting), Started)
    lookup = await after.sql(
        "SELECT work_id FROM oncefence.work_items WHERE org_id = :org"
        " AND family = 'effect.lookup' AND state = 'pending' AND claims_lost = 0"
    )
    assert isinstance(await after.try_to_look(lookup[0].work_id), LookupStarted)
    await after.link("lead-new")
    rows = await after.sql(
        "SELECT a.sequence, a.digest = oncefence.audit_digest(a) AS is_so,"
        "       a.previous = coalesce(lag(a.digest) OVER (ORDER BY a.sequence), '') AS follows"
        "  FROM oncefence.audit AS a WHERE a.org_id = :org ORDER BY a.sequence"
    )
    assert [row.sequence for row in rows] == list(range(1, len(rows) + 1))
    assert all(row.is_so and row.follows for row in rows)


async def test_a_door_of_the_version_before_may_still_accept(world: World) -> None:
    """While a deployment rolls, its items get what it does not know of (C59, C432)."""
    accepted = await world.accept_command()
    new, of_now = await world.sql(
        "WITH added AS ("
        " INSERT INTO oncefence.work_items (org_id, work_id, family, subject_kind, subject_id,"
        "   command_id, execution_id, installation, view_id, view_digest, queue_class,"
        "   deadline_ms, state, via, run_after)"
        " SELECT org_id, gen_random_uuid(), 'before', subject_kind, subject_id, command_id,"
        "   execution_id, installation, view_id, view_digest, queue_class, deadline_ms,"
        "   'pending', 'create', run_after"
        "   FROM oncefence.work_items WHERE org_id = :org AND work_id = :work"
        " RETURNING definition, view_revision, provider, binding_id, engine_capability)"
        " SELECT * FROM added UNION ALL"
        " SELECT definition, view_revision, provider, binding_id, engine_capability"
        "   FROM oncefence.work_items WHERE org_id = :org AND work_id = :work",
        work=accepted.work,
    )
    assert tuple(new) == tuple(of_now)
    assert new.engine_capability > CAPABILITY_BEFORE
