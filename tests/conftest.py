"""
What every test shares: hypothesis profiles, and real servers that start when first asked for.

    postgres         one server a session; leave its own databases alone
    database         a migrated database of the test's own, with engines for both roles
    temporal_server  one server a session; give each test a task queue of its own
    temporal_client  a client of it, in real time
    time_skipping    a TimeSkipper: workflows started by its `.client` skip what they wait for
    task_queue       a name that no other test uses
"""

import os
from collections.abc import AsyncIterator, Iterator
from typing import Final
from uuid import uuid4

import pytest
from hypothesis import settings
from temporalio.client import Client
from temporalio.testing import TimeSkipper

from oncefence.app.local_postgres import LocalPostgres
from oncefence.app.local_temporal import LocalTemporal
from tests.support import servers

# A test that passes here and fails in the next run teaches nothing: in CI the examples are fixed.
settings.register_profile("here", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")


# What takes longest goes first, so that no process is left with it alone at the end.
LONG: Final = (
    # The first mostly waits and the second never does, so they go well together.
    "tests/e2e/test_demo.py",
    "tests/crashgrid/test_singles.py",
    "tests/canaries/test_canaries.py",
    "tests/e2e/test_up.py",
    "tests/bench/test_floor.py",
    "tests/e2e/test_drain.py",
    "tests/herd/test_herd.py",
    "tests/bench/test_memory.py",
    "tests/workflows/test_buttons.py",
    "tests/storage/test_races.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order the files, and leave the order inside of each as it is."""
    places = {name: place for place, name in enumerate(LONG)}
    items.sort(key=lambda item: places.get(item.nodeid.partition("::")[0], len(LONG)))


@pytest.fixture(scope="session")
def postgres() -> Iterator[LocalPostgres]:
    with servers.postgres_with_template() as server:
        yield server


@pytest.fixture
async def database(postgres: LocalPostgres) -> AsyncIterator[servers.Database]:
    async with servers.fresh_database(postgres) as fresh:
        yield fresh


@pytest.fixture(scope="session")
def temporal_server() -> Iterator[LocalTemporal]:
    with servers.temporal() as server:
        yield server


@pytest.fixture
async def temporal_client(temporal_server: LocalTemporal) -> Client:
    return await servers.connect(temporal_server)


@pytest.fixture
async def time_skipping(temporal_server: LocalTemporal) -> TimeSkipper:
    return await servers.skipping(temporal_server)


@pytest.fixture
def task_queue() -> str:
    return f"test-{uuid4()}"
