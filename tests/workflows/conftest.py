"""
What the tests of a module share: a database, a Temporal client, a simulator.

    store      the module's database
    client     a Temporal client in real time
    skipper    starts workflows whose clock skips what they wait for
    simulator  a provider in a process of its own
"""

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
from temporalio.client import Client
from temporalio.testing import TimeSkipper

from oncefence.app.local_postgres import LocalPostgres
from oncefence.app.local_temporal import LocalTemporal
from tests.providers.simulated import Simulated, simulator_at
from tests.support import servers
from tests.support.servers import Database


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def store(postgres: LocalPostgres) -> AsyncIterator[Database]:
    async with servers.fresh_database(postgres) as fresh:
        servers.bear_with_ill_orgs(postgres, fresh.name)
        yield fresh


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(temporal_server: LocalTemporal) -> Client:
    return await servers.connect(temporal_server)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def skipper(temporal_server: LocalTemporal) -> TimeSkipper:
    return await servers.skipping(temporal_server)


@pytest.fixture(scope="module")
def simulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Simulated]:
    with simulator_at(tmp_path_factory.mktemp("simulator") / "ledger.jsonl") as running:
        yield running
