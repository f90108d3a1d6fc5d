"""
What cuts the wire here was written by somebody else.

`./dev mitmproxy` makes its environment and runs these tests; where there is none, they are not
collected.
"""

from collections.abc import AsyncIterator

import pytest_asyncio

from oncefence.app.local_postgres import LocalPostgres
from tests.mitmproxy.mitmdump import MITMDUMP
from tests.support import servers
from tests.support.servers import Database

collect_ignore_glob = [] if MITMDUMP.exists() else ["test_*.py"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def store(postgres: LocalPostgres) -> AsyncIterator[Database]:
    async with servers.fresh_database(postgres) as fresh:
        servers.bear_with_ill_orgs(postgres, fresh.name)
        yield fresh
