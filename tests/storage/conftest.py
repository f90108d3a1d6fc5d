"""
One database a module and one org a test: rows of other tests are there, and never in the way.

    store   the module's database
    world   a world of the test's own in it
"""

from collections.abc import AsyncIterator

import pytest_asyncio

from oncefence.app.local_postgres import LocalPostgres
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
