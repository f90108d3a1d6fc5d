"""Counting which wrapping key each kind of stored data key is under."""

from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from oncefence.storage.engine import one_statement, run_phase

USE = text(
    """
    SELECT u.kind, u.key_id, count(*) AS keys, count(*) FILTER (WHERE u.waits) AS waiting
      FROM (
        SELECT 'org_keys' AS kind, k.key_id, false AS waits FROM oncefence.org_keys AS k
        UNION ALL
        SELECT 'provider_apps', p.key_id, false FROM oncefence.provider_apps AS p
        UNION ALL
        SELECT 'authorization_requests', r.key_id, true
          FROM oncefence.authorization_requests AS r
         WHERE r.wrapped_key IS NOT NULL AND r.expires_at > clock_timestamp()
        UNION ALL
        SELECT 'binding_generations', g.key_id,
               a.open_refresh IS NOT NULL OR a.state IS NOT DISTINCT FROM 'refresh_unknown'
          FROM oncefence.binding_generations AS g
          LEFT JOIN oncefence.authorization_grants AS a
            ON a.org_id = g.org_id AND a.generation_id = g.generation_id
         WHERE g.wrapped_key IS NOT NULL
        UNION ALL
        SELECT 'staged_payloads', s.key_id, false
          FROM oncefence.staged_payloads AS s WHERE s.wrapped_key IS NOT NULL
        UNION ALL
        SELECT 'execution_keys', x.key_id, false
          FROM oncefence.execution_keys AS x WHERE x.wrapped_key IS NOT NULL
      ) AS u
     GROUP BY u.kind, u.key_id
     ORDER BY u.kind, u.key_id
    """
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyUse:
    """How many data keys of a table are under one wrapping key."""

    table: str
    key_id: str
    keys: int
    waiting: int
    """
    Of these, how many cannot be wrapped anew now: generations while the answer of a renewal may
    still come, and requests for authorisation, which live for an hour at most.
    """


async def read_key_use(engine: AsyncEngine) -> list[KeyUse]:
    """Every wrapping key that something is under, by table; erased data keys are under none."""

    async def transaction() -> list[KeyUse]:
        async with one_statement(engine).connect() as connection:
            return [
                KeyUse(table=row.kind, key_id=row.key_id, keys=row.keys, waiting=row.waiting)
                for row in await connection.execute(USE)
            ]

    return await run_phase("read_key_use", transaction)
