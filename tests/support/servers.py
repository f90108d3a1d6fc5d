"""
Real servers for the tests: one PostgreSQL and one Temporal a session, one database a test.

Fakes stand for providers, never for the store.
"""

import asyncio
import itertools
import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import asyncpg
from sqlalchemy.ext.asyncio import AsyncEngine
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.testing import TimeSkipper

from oncefence.app.local_postgres import LocalPostgres
from oncefence.app.local_temporal import NAMESPACE, LocalTemporal
from oncefence.storage.engine import make_engine
from oncefence.storage.phases.migrate_schema import migrate

TEMPLATE = "oncefence_template"
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Database:
    """A migrated database of one test, and engines on it as each role."""

    name: str
    app_url: str
    migrator_url: str
    admin_url: str
    app_engine: AsyncEngine
    migrator_engine: AsyncEngine


@contextmanager
def own_folder() -> Iterator[Path]:
    # Not pytest's: that one is closed to the user as whom root runs PostgreSQL.
    with tempfile.TemporaryDirectory(prefix="oncefence-test-") as folder:
        yield Path(folder)


@contextmanager
def postgres_with_template() -> Iterator[LocalPostgres]:
    """A server whose `oncefence_template` is migrated; nothing in it survives a power cut."""
    settings = {"fsync": "off", "full_page_writes": "off", "max_connections": "400"}
    with own_folder() as folder, LocalPostgres(folder, settings=settings) as server:
        # In a thread of its own: whether this one has a loop is pytest's business.
        with ThreadPoolExecutor(1) as thread:
            thread.submit(asyncio.run, migrate_once(server)).result()
        server.psql(f"CREATE DATABASE {TEMPLATE} TEMPLATE oncefence;", database="postgres")
        yield server


async def migrate_once(server: LocalPostgres) -> str:
    """Bring a server's own database to the newest version."""
    engine = make_engine(server.migrator_url)
    try:
        return await migrate(engine, is_development=True)
    finally:
        await engine.dispose()


@asynccontextmanager
async def fresh_database(server: LocalPostgres) -> AsyncIterator[Database]:
    """A copy of the template with engines; gone afterwards, whatever is still connected."""
    name = f"t{os.getpid()}_{next(_numbers)}"
    admin = await asyncpg.connect(_of(server.admin_url, "postgres"))
    try:
        await admin.execute(f"CREATE DATABASE {name} TEMPLATE {TEMPLATE}")
        # A copy does not take over who may connect; these are the grants of roles.sql.
        await admin.execute(f"REVOKE ALL ON DATABASE {name} FROM PUBLIC")
        await admin.execute(
            f"GRANT CONNECT ON DATABASE {name} TO oncefence_migrator, oncefence_app"
        )
        app_url, migrator_url = _of(server.app_url, name), _of(server.migrator_url, name)
        database = Database(
            name=name,
            app_url=app_url,
            migrator_url=migrator_url,
            admin_url=_of(server.admin_url, name),
            app_engine=make_engine(app_url),
            migrator_engine=make_engine(migrator_url),
        )
        try:
            yield database
        finally:
            await database.app_engine.dispose()
            await database.migrator_engine.dispose()
            await admin.execute(f"DROP DATABASE {name} WITH (FORCE)")
    finally:
        await admin.close()


def bear_with_ill_orgs(server: LocalPostgres, database: str) -> None:
    """
    Have no number of failing orgs open a provider's breaker in this database.

    Where each test is an org of its own at one provider, and most of them fail on purpose, the
    provider would be taken for dark, and rightly so.
    """
    server.psql("UPDATE oncefence.breaker_rules SET orgs_min = 1000000;", database=database)


@contextmanager
def temporal() -> Iterator[LocalTemporal]:
    """A development server on which a client may ask for a clock that skips."""
    config = {"frontend.WorkflowTimeSkippingEnabled": "true"}
    with own_folder() as folder, LocalTemporal(folder, dynamic_config=config) as server:
        yield server


async def connect(server: LocalTemporal) -> Client:
    """A client as the program makes one; its workflows run in real time."""
    return await Client.connect(
        server.address, namespace=NAMESPACE, data_converter=pydantic_data_converter
    )


async def skipping(server: LocalTemporal) -> TimeSkipper:
    """What starts workflows whose clock skips (by its `.client`) and moves it on."""
    return TimeSkipper(await connect(server))


def _of(url: str, database: str) -> str:
    return url.rsplit("/", 1)[0] + "/" + database
