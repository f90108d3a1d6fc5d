"""
Connections: how a process reaches PostgreSQL, as whom, and what a failure means.

Transactions are opened by the phases alone; this module only says what they run on.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import Final, TypeAlias, TypeVar

import asyncpg
from sqlalchemy import text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, InterfaceError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from oncefence.domain.errors import ConfigurationRefused, StoreUnavailable

T = TypeVar("T")


Store: TypeAlias = AsyncEngine
"""What the layers above call it, who must not know what it is made of."""

SCHEMA_REVISION: Final = "0004"
"""The migration that this code is written for."""

OWNER_ROLE: Final = "oncefence_owner"

# Ours (OF) and the classes that a repeat cannot mend: data, integrity, syntax and access.
_NEVER_RETRIED = ("OF", "22", "23", "42")
_RETRIED_WHOLE = ("40001", "40P01")
_RETRIES_MAX = 5


def make_engine(
    url: str, *, setting: str = "ONCEFENCE_DATABASE_URL", size: int = 16
) -> AsyncEngine:
    """
    An engine on `url` that any libpq-style PostgreSQL URL names.

    Raises:
        ConfigurationRefused: The text is no PostgreSQL URL.
    """
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        parsed = None
    if parsed is None or not parsed.drivername.startswith(("postgresql", "postgres")):
        raise ConfigurationRefused(
            setting=setting,
            reason="this is no PostgreSQL URL",
            remedy="Give one like postgresql://user:password@host:5432/database",
        )
    return create_async_engine(
        parsed.set(drivername="postgresql+asyncpg"),
        pool_size=size,
        max_overflow=size,
        pool_pre_ping=False,
        # An error's text may travel; the values of a statement may not.
        hide_parameters=True,
        # No session state is ever set, so there is nothing to reset; the default would cost a
        # round trip each time.
        pool_reset_on_return=None,
        connect_args={
            "timeout": 10,
            "command_timeout": 60,
            "server_settings": {
                "search_path": "oncefence",
                "application_name": "oncefence",
                # No transaction waits for anything but the database. Of a process that stands
                # still inside one, others must not wait longer than this for its locks.
                "idle_in_transaction_session_timeout": "15s",
                # One that stands still between the two halves of a statement is not idle to the
                # server, so whatever a transaction does, it has an end.
                "transaction_timeout": "30s",
            },
        },
    )


@lru_cache(maxsize=32)
def one_statement(engine: AsyncEngine) -> AsyncEngine:
    """The same engine for phases of a single statement: it is its own transaction."""
    return engine.execution_options(isolation_level="AUTOCOMMIT")


def sqlstate(error: BaseException) -> str | None:
    """The SQLSTATE that PostgreSQL gave, if it answered at all."""
    original = getattr(error, "orig", error)
    state = getattr(original, "sqlstate", None) or getattr(original, "pgcode", None)
    return state if isinstance(state, str) else None


def constraint_name(error: BaseException) -> str | None:
    """The name of the constraint or index that refused, if one did."""
    cause = getattr(error, "orig", error)
    while cause is not None:
        name = getattr(cause, "constraint_name", None)
        if isinstance(name, str):
            return name
        cause = cause.__cause__
    return None


def is_store_away(error: BaseException) -> bool:
    """
    Whether the database did not answer, so that a write may or may not be durable.

    By class: our own codes and 22, 23, 42 are answers, and so are 40001 and 40P01; everything
    else (08, 53, 57P0x, broken sockets, timeouts) is silence.
    """
    if isinstance(error, PoolTimeout):
        # No connection became free: the store stalls, and nothing was asked of it.
        return True
    if isinstance(error, DBAPIError | asyncpg.PostgresError):
        state = sqlstate(error)
        if state is None:
            return True
        return not state.startswith(_NEVER_RETRIED) and state not in _RETRIED_WHOLE
    return isinstance(
        error,
        OSError
        | socket.gaierror
        | TimeoutError
        | asyncio.TimeoutError
        | InterfaceError
        | asyncpg.InterfaceError
        | asyncpg.InternalClientError,
    )


async def run_phase(verb: str, phase: Callable[[], Awaitable[T]]) -> T:
    """
    Run one transaction; repeat it whole where the database asks for that.

    Raises:
        StoreUnavailable: The database did not answer. What was written is unknown: re-read by
            business key before anything else.
    """
    for tries_left in reversed(range(_RETRIES_MAX)):
        try:
            return await phase()
        except Exception as error:
            if is_store_away(error):
                raise StoreUnavailable(verb=verb, reason=type(error).__name__) from error
            if sqlstate(error) in _RETRIED_WHOLE and tries_left:
                continue
            raise
    raise AssertionError("the last try either returns or raises")


async def refuse_wrong_role(connection: AsyncConnection) -> None:
    """
    Check that this process may not change its own guards, and that the schema fits the code.

    Raises:
        ConfigurationRefused: The role is a superuser, owns the tables, or is a member of one
            that is; or the schema is missing or of another version.
    """
    powers = (
        await connection.execute(
            text(
                "SELECT current_user AS role, coalesce(bool_or(r.rolsuper), false) AS is_super,"
                " coalesce(bool_or(r.rolname = :owner"
                "   OR r.oid IN (SELECT relowner FROM pg_class c JOIN pg_namespace n"
                "     ON n.oid = c.relnamespace WHERE n.nspname = 'oncefence')"
                "   OR r.oid IN (SELECT nspowner FROM pg_namespace WHERE nspname = 'oncefence')),"
                "   false) AS is_owner"
                " FROM pg_roles r WHERE pg_has_role(current_user, r.oid, 'MEMBER')"
            ),
            {"owner": OWNER_ROLE},
        )
    ).one()
    if powers.is_super or powers.is_owner:
        raise ConfigurationRefused(
            setting="ONCEFENCE_DATABASE_URL",
            reason=f"role {powers.role!r} is a superuser or the owner of the tables, "
            "or a member of one, and could switch the guards off",
            remedy="Use the role oncefence_app; only `oncefence migrate` runs as the migrator",
        )
    present = (
        await connection.execute(text("SELECT to_regclass('oncefence.alembic_version')"))
    ).scalar()
    revision = None
    if present is not None:
        revision = (
            await connection.execute(text("SELECT version_num FROM oncefence.alembic_version"))
        ).scalar()
    if revision != SCHEMA_REVISION:
        found = "has no oncefence schema" if revision is None else f"is at version {revision}"
        raise ConfigurationRefused(
            setting="ONCEFENCE_DATABASE_URL",
            reason=f"the database {found}, and this program needs version {SCHEMA_REVISION}",
            remedy="Run `oncefence migrate` with ONCEFENCE_MIGRATOR_URL set",
        )
