"""
One database a module and one org a test: rows of other tests are there, and never in the way.

    store   the module's database
    world   a world of the test's own in it
    known   rows of every table, by the names that the cases of the guards use
    roles   a connection as the application and one as the owner
"""

from collections.abc import AsyncIterator

import asyncpg
import pytest_asyncio

from oncefence.app.local_postgres import LocalPostgres
from tests.storage.guard_facts import facts
from tests.support import servers
from tests.support.servers import Database
from tests.support.world import World


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def store(postgres: LocalPostgres) -> AsyncIterator[Database]:
    async with servers.fresh_database(postgres) as fresh:
        yield fresh


@pytest_asyncio.fixture(loop_scope="module")
async def world(store: Database) -> World:
    return await World.make(store)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def other_world(store: Database) -> World:
    world = await World.make(store)
    _, _, lookup = await world.an_unknown_command("lead-1")
    await world.start_looking(lookup)
    return world


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def known(store: Database, other_world: World) -> dict[str, str]:
    return await facts(await World.make(store), other_world)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def roles(store: Database) -> AsyncIterator[dict[str, asyncpg.Connection]]:
    application = await asyncpg.connect(store.app_url)
    owner = await asyncpg.connect(store.migrator_url)
    await owner.execute("SET ROLE oncefence_owner")
    yield {"application": application, "owner": owner}
    await application.close()
    await owner.close()
