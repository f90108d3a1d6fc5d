"""
Doors and a database of each module; a provider that authorises, and an org, of each test.

    door      doors that know the pack of the tests' provider
    provider  an authorisation server and its API
    office    an org that is an app there, an operator of it, and a browser
"""

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from oncefence.app.local_postgres import LocalPostgres
from tests.connecting.office import Office, an_office
from tests.support import servers
from tests.support.doors import OpenDoor, open_door
from tests.support.oauth_server import CLUBS, OAuthServer, oauth_server
from tests.support.servers import Database


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def store(postgres: LocalPostgres) -> AsyncIterator[Database]:
    async with servers.fresh_database(postgres) as fresh:
        yield fresh


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def door(
    store: Database, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[OpenDoor]:
    folder = tmp_path_factory.mktemp("door")
    async with open_door(store.app_engine, folder, pack_folders=(CLUBS.parent,)) as opened:
        yield opened


@pytest.fixture
def provider() -> Iterator[OAuthServer]:
    with oauth_server() as server:
        yield server


@pytest_asyncio.fixture(loop_scope="module")
async def office(store: Database, door: OpenDoor, provider: OAuthServer) -> Office:
    return await an_office(store, door, provider)
