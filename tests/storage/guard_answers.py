"""How the database answers a statement that breaks a rule."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest


@asynccontextmanager
async def undone(connection: asyncpg.Connection) -> AsyncIterator[None]:
    transaction = connection.transaction()
    await transaction.start()
    try:
        yield
    finally:
        await transaction.rollback()


async def refusal(connection: asyncpg.Connection, *statements: str) -> asyncpg.PostgresError:
    """How the last statement is refused; those before it must pass."""
    *before, last = statements
    async with undone(connection):
        for statement in before:
            await connection.execute(statement)
        with pytest.raises(asyncpg.PostgresError) as refused:
            await connection.execute(last)
    return refused.value


async def refusal_at_commit(
    connection: asyncpg.Connection, *statements: str
) -> asyncpg.PostgresError:
    """How COMMIT is refused after statements that all passed."""
    transaction = connection.transaction()
    await transaction.start()
    for statement in statements:
        await connection.execute(statement)
    with pytest.raises(asyncpg.PostgresError) as refused:
        await transaction.commit()
    return refused.value
