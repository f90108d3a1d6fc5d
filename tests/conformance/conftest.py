"""
What the suite runs on: one database a module, one org a test, and each family in turn.

    store   the module's database
    world   a world of the test's own in it
    family  every family, one after the other
"""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from oncefence.app.local_postgres import LocalPostgres
from tests.conformance.family import FAMILIES, Family
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


@pytest.fixture(params=FAMILIES, ids=lambda family: family.name)
def family(request: pytest.FixtureRequest) -> Family:
    each: Family = request.param
    return each
