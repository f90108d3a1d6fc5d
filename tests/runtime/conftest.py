"""
Two deployments that share nothing but the server which holds both databases.

    store      oncefence's database, one a module
    oncefence  an org on it with a provider; its processes run when a test says so
    database   the Runtime's database, one a module and emptied after each test
    crm        a process of the Runtime
"""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from temporalio.client import Client

from oncefence.app.local_postgres import LocalPostgres
from oncefence.app.local_temporal import LocalTemporal
from tests.providers.simulated import Simulated, simulator_at
from tests.runtime.crm import Crm
from tests.runtime.deployment import Oncefence
from tests.runtime.own_database import RuntimeDatabase, runtime_database
from tests.support import servers
from tests.support.servers import Database


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def store(postgres: LocalPostgres) -> AsyncIterator[Database]:
    async with servers.fresh_database(postgres) as fresh:
        yield fresh


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(temporal_server: LocalTemporal) -> Client:
    return await servers.connect(temporal_server)


@pytest.fixture(scope="session")
def simulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Simulated]:
    with simulator_at(tmp_path_factory.mktemp("simulator") / "ledger.jsonl") as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def oncefence(
    store: Database,
    simulator: Simulated,
    client: Client,
    temporal_server: LocalTemporal,
    tmp_path: Path,
) -> Oncefence:
    return await Oncefence.make(store, simulator, client, temporal_server.address, tmp_path)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def own_database(postgres: LocalPostgres) -> AsyncIterator[RuntimeDatabase]:
    async with runtime_database(postgres) as fresh:
        yield fresh


@pytest_asyncio.fixture(loop_scope="module")
async def database(own_database: RuntimeDatabase) -> AsyncIterator[RuntimeDatabase]:
    yield own_database
    await own_database.empty()


@pytest_asyncio.fixture(loop_scope="module")
async def crm(database: RuntimeDatabase, oncefence: Oncefence) -> Crm:
    """With one lead, which is linked to a record of the provider."""
    made = Crm(database.url)
    await made.add_lead("lead-1", "Engineer")
    await oncefence.world.link("lead-1")
    return made
