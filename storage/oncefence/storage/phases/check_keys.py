"""What a process checks once beside its store: that its ring has every key that is in use."""

from typing import Final

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from oncefence.storage.engine import one_statement, run_phase
from oncefence.storage.key_wrapping import lacking
from oncefence.storage.sealing import KeyRing

# Of executions there are as many as there ever were: from key to key along the index, and not
# from row to row.
IN_USE: Final = text(
    """
    WITH RECURSIVE of_executions (key_id) AS (
        SELECT min(x.key_id) FROM oncefence.execution_keys AS x WHERE x.wrapped_key IS NOT NULL
        UNION ALL
        SELECT (SELECT min(x.key_id) FROM oncefence.execution_keys AS x
                 WHERE x.wrapped_key IS NOT NULL AND x.key_id > last.key_id)
          FROM of_executions AS last WHERE last.key_id IS NOT NULL
    )
    SELECT e.key_id FROM of_executions AS e WHERE e.key_id IS NOT NULL
    UNION SELECT k.key_id FROM oncefence.org_keys AS k
    UNION SELECT g.key_id FROM oncefence.binding_generations AS g WHERE g.wrapped_key IS NOT NULL
    UNION SELECT a.key_id FROM oncefence.provider_apps AS a
    UNION SELECT r.key_id FROM oncefence.authorization_requests AS r
           WHERE r.wrapped_key IS NOT NULL AND r.expires_at > clock_timestamp()
    UNION SELECT s.key_id FROM oncefence.staged_payloads AS s WHERE s.wrapped_key IS NOT NULL
    ORDER BY 1
    """
)


async def check_keys(engine: AsyncEngine, ring: KeyRing) -> None:
    """
    Refuse to run with a ring that could not open all that is stored (C297).

    Raises:
        ConfigurationRefused: It lacks a key; the message names it and says what to do.
    """

    async def transaction() -> list[str]:
        async with one_statement(engine).connect() as connection:
            return list((await connection.execute(IN_USE)).scalars())

    in_use = await run_phase("check_keys", transaction)
    lacks = [key_id for key_id in in_use if key_id not in ring.key_ids]
    if lacks:
        raise lacking(*lacks)
