"""Real races: statements that wait in the server until all of them are there, then go at once."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from tests.support.servers import Database

_PATIENCE_SECONDS = 20.0


@asynccontextmanager
async def barrier(
    database: Database, statement: str, *values: object, commits: bool
) -> AsyncIterator[None]:
    """Hold what `statement` locks or writes; at the end it stands, or had never been."""
    connection = await asyncpg.connect(database.app_url)
    try:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute(statement, *values)
        try:
            yield
        except BaseException:
            await transaction.rollback()
            raise
        await (transaction.commit() if commits else transaction.rollback())
    finally:
        await connection.close()


async def waiting(database: Database, count: int) -> None:
    """Until `count` sessions of this database wait for a lock."""
    connection = await asyncpg.connect(database.app_url)
    try:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            while count > await connection.fetchval(
                "SELECT count(*) FROM pg_stat_activity"
                " WHERE datname = current_database() AND wait_event_type = 'Lock'"
            ):
                await asyncio.sleep(0.005)
    finally:
        await connection.close()


async def all_at_once(
    database: Database,
    racers: list[Coroutine[Any, Any, object]],
    statement: str,
    *values: object,
    commits: bool = False,
) -> list[object]:
    """What each racer came to, after all of them had stood before the same lock."""
    async with barrier(database, statement, *values, commits=commits):
        running = [asyncio.create_task(racer) for racer in racers]
        try:
            await waiting(database, len(racers))
        except TimeoutError:
            for task in running:
                task.cancel()
            raise
    return await asyncio.gather(*running, return_exceptions=True)
