"""
The driver's own connection, for the phases of one statement that every effect goes through.

SQLAlchemy's pool lends it, and makes and drops it; but the statement goes to the driver as it is,
and is its own transaction. What SQLAlchemy does around a statement costs this process several
times what the driver does.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import lru_cache
from typing import Any, TypeAlias

import asyncpg
from sqlalchemy import Row, TextClause
from sqlalchemy.engine.interfaces import Dialect
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.pool import PoolProxiedConnection
from sqlalchemy.util import greenlet_spawn

from oncefence.storage.engine import is_store_away


class DriverRow(asyncpg.Record):  # type: ignore[misc]  # asyncpg carries no type information
    """A row whose columns are attributes too, as SQLAlchemy's are."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


AnyRow: TypeAlias = Row[Any] | DriverRow
"""A row of either making, for whoever reads its columns and nothing else."""


class DriverConnection:
    """One connection, for one statement."""

    def __init__(self, driver: Any, dialect: Dialect) -> None:
        # Any: the pool does not know what driver it lends.
        self._driver = driver
        self._dialect = dialect

    async def all(self, statement: TextClause, values: Mapping[str, object]) -> list[DriverRow]:
        """All rows of `statement`, whose `:names` stand for `values`."""
        sql, names = _for_driver(statement, self._dialect)
        rows: list[DriverRow] = await self._driver.fetch(
            sql, *[values[name] for name in names], record_class=DriverRow
        )
        return rows

    async def one(self, statement: TextClause, values: Mapping[str, object]) -> DriverRow:
        """The one row that `statement` always has."""
        (row,) = await self.all(statement, values)
        return row


@asynccontextmanager
async def driver_connection(engine: AsyncEngine) -> AsyncIterator[DriverConnection]:
    """
    A connection that is in no transaction: the one statement sent over it is durable when it ends.

    Raises:
        asyncpg.PostgresError: PostgreSQL's answer, as the driver gives it. `sqlstate`,
            `constraint_name` and `is_store_away` read it like SQLAlchemy's.
    """
    lent = await _lend(engine)
    try:
        yield DriverConnection(lent.driver_connection, engine.dialect)
    except BaseException as error:
        if not isinstance(error, asyncpg.PostgresError) or is_store_away(error):
            # Cut short, so nobody can say what the connection is still busy with.
            lent.invalidate()
        raise
    finally:
        # The pool may have to close it, and does that only in here.
        await greenlet_spawn(lent.close)


async def _lend(engine: AsyncEngine) -> PoolProxiedConnection:
    while True:
        try:
            lent = await engine.raw_connection()
        except engine.dialect.loaded_dbapi.Error as error:
            # The dialect's own error; only SQLAlchemy's connection would make a known one of it.
            raise error.__cause__ or error from None
        driver: Any = lent.driver_connection
        # A server that went away has left dead ones behind. And inside a transaction that
        # somebody left open nothing would be durable: such a one must not be used.
        if not driver.is_closed() and not driver.is_in_transaction():
            return lent
        lent.invalidate()


@lru_cache(maxsize=64)
def _for_driver(statement: TextClause, dialect: Dialect) -> tuple[str, Sequence[str]]:
    compiled = statement.compile(dialect=dialect)
    return str(compiled), tuple(compiled.positiontup or ())
