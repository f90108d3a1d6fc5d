"""
What the field cases run on.

    store      the module's database
    simulator  a provider in a process of its own, whose ledger counts the requests
"""

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from oncefence.app.local_postgres import LocalPostgres
from tests.providers.simulated import Simulated, simulator_at
from tests.support import servers
from tests.support.servers import Database


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def store(postgres: LocalPostgres) -> AsyncIterator[Database]:
    async with servers.fresh_database(postgres) as fresh:
        servers.bear_with_ill_orgs(postgres, fresh.name)
        yield fresh


@pytest.fixture(scope="module")
def simulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Simulated]:
    with simulator_at(tmp_path_factory.mktemp("simulator") / "ledger.jsonl") as running:
        yield running
