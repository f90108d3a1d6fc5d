"""
What the tests of tokens run on.

    store   the module's database
    server  an authorisation server of the test's own, and its API
"""

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from oncefence.app.local_postgres import LocalPostgres
from tests.support import servers
from tests.support.oauth_server import OAuthServer, oauth_server
from tests.support.servers import Database


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def store(postgres: LocalPostgres) -> AsyncIterator[Database]:
    async with servers.fresh_database(postgres) as fresh:
        yield fresh


@pytest.fixture
def server() -> Iterator[OAuthServer]:
    with oauth_server() as running:
        yield running
