"""The database of one Runtime on the server of the tests: its own name, role and grants."""

import itertools
import os
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import asyncpg

from oncefence.app.local_postgres import LocalPostgres
from tests.runtime.crm import TABLES

_numbers = itertools.count(1)

Rows = dict[str, list[str]]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RuntimeDatabase:
    """Where it is, who may use it, and how the tests look into it past everybody."""

    name: str
    role: str
    url: str
    admin_url: str
    server_url: str

    async def rows(self, query: str, *values: object) -> list[dict[str, Any]]:
        """What stands there."""
        return await fetch(self.admin_url, query, *values)

    async def row(self, query: str, *values: object) -> dict[str, Any]:
        """The one row that stands there."""
        (found,) = await self.rows(query, *values)
        return found

    async def lead(self, lead: str) -> dict[str, Any]:
        """The lead as the Runtime has it."""
        return await self.row("SELECT * FROM crm.leads WHERE lead_id = $1", lead)

    async def entry(self, outbox_id: str) -> dict[str, Any]:
        """The entry of the outbox."""
        return await self.row("SELECT * FROM crm.outbox WHERE outbox_id = $1", outbox_id)

    async def empty(self) -> None:
        """Nothing stands there."""
        await self.rows("TRUNCATE crm.leads, crm.outbox, crm.inbox")


async def fetch(url: str, query: str, *values: object) -> list[dict[str, Any]]:
    """One statement on a connection of its own."""
    connection = await asyncpg.connect(url)
    try:
        return [dict(row) for row in await connection.fetch(query, *values)]
    finally:
        await connection.close()


@asynccontextmanager
async def closed(server_url: str, name: str) -> AsyncIterator[None]:
    """Nobody gets into the database, and whoever was in is out, until the block ends."""
    await fetch(server_url, f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
    try:
        await fetch(
            server_url,
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = $1",
            name,
        )
        yield
    finally:
        await fetch(server_url, f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")


async def all_rows(url: str, schema: str) -> Rows:
    """Every row of every table of a schema, with the transaction that wrote it last."""
    connection = await asyncpg.connect(url)
    try:
        found: Rows = {}
        for table in await connection.fetch(
            "SELECT tablename FROM pg_tables WHERE schemaname = $1", schema
        ):
            name = table["tablename"]
            found[name] = [
                row[0]
                for row in await connection.fetch(
                    f"SELECT concat(t.xmin, ' ', t) FROM {schema}.{name} AS t ORDER BY 1"
                )
            ]
        return found
    finally:
        await connection.close()


@asynccontextmanager
async def runtime_database(server: LocalPostgres) -> AsyncIterator[RuntimeDatabase]:
    """A database that only its own role may use, with the Runtime's tables; gone afterwards."""
    name = role = f"crm{os.getpid()}_{next(_numbers)}"
    password = secrets.token_hex(16)
    server_url = server.admin_url.rsplit("/", 1)[0] + "/postgres"
    url = server.url(role, password, name)
    await fetch(server_url, f"CREATE ROLE {role} LOGIN PASSWORD '{password}'")
    try:
        await fetch(server_url, f"CREATE DATABASE {name} OWNER {role}")
        try:
            await fetch(server_url, f"REVOKE ALL ON DATABASE {name} FROM PUBLIC")
            connection = await asyncpg.connect(url)
            try:
                await connection.execute(TABLES)
            finally:
                await connection.close()
            yield RuntimeDatabase(
                name=name,
                role=role,
                url=url,
                admin_url=server.admin_url.rsplit("/", 1)[0] + "/" + name,
                server_url=server_url,
            )
        finally:
            await fetch(server_url, f"DROP DATABASE {name} WITH (FORCE)")
    finally:
        await fetch(server_url, f"DROP ROLE {role}")
