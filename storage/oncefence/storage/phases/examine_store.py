"""Reading what `doctor` judges: who we are, how durable a COMMIT is, the clock, the sealed keys."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncEngine

from oncefence.storage.engine import one_statement, run_phase

CLOCK = text("SELECT clock_timestamp()")
FACTS = text(
    "SELECT current_user AS role, current_setting('server_version') AS server_version,"
    " current_setting('fsync') AS fsync, current_setting('full_page_writes') AS full_page_writes,"
    " current_setting('synchronous_commit') AS synchronous_commit,"
    " (SELECT version_num FROM oncefence.alembic_version) AS schema_version,"
    " (SELECT is_development FROM oncefence.deployment) AS is_development"
)
# Each org's key, and one of each other kind for each key of the ring: enough to know whether the
# ring opens what is stored, without opening everything.
WRAPPED = text(
    """
    SELECT 'org' AS kind, ARRAY[k.org_id] AS place, k.wrapped_key, k.key_id
      FROM oncefence.org_keys AS k
    UNION ALL
    (SELECT DISTINCT ON (g.key_id) 'generation',
            ARRAY[g.org_id, g.binding_id::text, g.generation_id::text], g.wrapped_key, g.key_id
       FROM oncefence.binding_generations AS g WHERE g.wrapped_key IS NOT NULL)
    UNION ALL
    (SELECT DISTINCT ON (x.key_id) 'execution', ARRAY[x.org_id, x.execution_id::text],
            x.wrapped_key, x.key_id
       FROM oncefence.execution_keys AS x WHERE x.wrapped_key IS NOT NULL)
    UNION ALL
    (SELECT DISTINCT ON (s.key_id) 'staged',
            ARRAY[s.org_id, encode(s.payload_address, 'hex')], s.wrapped_key, s.key_id
       FROM oncefence.staged_payloads AS s WHERE s.wrapped_key IS NOT NULL)
    UNION ALL
    (SELECT DISTINCT ON (a.key_id) 'provider_app', ARRAY[a.org_id, a.app_id::text],
            a.wrapped_key, a.key_id
       FROM oncefence.provider_apps AS a)
    """
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreFacts:
    """What the server says of itself."""

    role: str
    server_version: str
    fsync: str
    full_page_writes: str
    synchronous_commit: str
    schema_version: str
    is_development: bool


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class WrappedKey:
    """A stored data key, as it is wrapped, with the place that it was wrapped for."""

    kind: str
    place: tuple[str, ...]
    wrapped: bytes
    key_id: str


async def read_facts(engine: AsyncEngine) -> StoreFacts:
    """Role, versions and settings of the store."""
    row = (await _rows(engine, "read_facts", FACTS))[0]
    return StoreFacts(**row._mapping)  # noqa: SLF001  # a public name of SQLAlchemy's Row


async def read_clock(engine: AsyncEngine) -> datetime:
    """What time it is for the database."""
    return (await _rows(engine, "read_clock", CLOCK))[0][0]  # type: ignore[no-any-return]  # a timestamptz is a datetime


async def read_wrapped_keys(engine: AsyncEngine) -> list[WrappedKey]:
    """Stored data keys of every kind and every key of the ring that wraps one."""
    return [
        WrappedKey(
            kind=row.kind, place=tuple(row.place), wrapped=row.wrapped_key, key_id=row.key_id
        )
        for row in await _rows(engine, "read_wrapped_keys", WRAPPED)
    ]


async def _rows(engine: AsyncEngine, verb: str, statement: Any) -> Sequence[Row[Any]]:
    async def transaction() -> Sequence[Row[Any]]:
        async with one_statement(engine).connect() as connection:
            return (await connection.execute(statement)).all()

    return await run_phase(verb, transaction)
