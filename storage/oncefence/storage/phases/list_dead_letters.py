"""Listing the dead-letter queue, which nobody writes: it is what the facts leave over (C400)."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row
from sqlalchemy.ext.asyncio import AsyncEngine

from oncefence.domain.ids import OrgId
from oncefence.storage.dead_letters import DeadLetterFilter, Position, dead_letters_of
from oncefence.storage.engine import one_statement, run_phase


async def list_dead_letters(
    engine: AsyncEngine,
    orgs: Sequence[OrgId] | None,
    which: DeadLetterFilter,
    *,
    limit: int,
    after: Position | None = None,
) -> Sequence[Row[Any]]:
    """A page of dead letters of these orgs, or of all; the next one begins behind the last row."""

    async def transaction() -> Sequence[Row[Any]]:
        async with one_statement(engine).connect() as connection:
            org = orgs[0] if orgs is not None and len(orgs) == 1 else orgs
            return await dead_letters_of(connection, org, which, limit=limit, after=after)

    return await run_phase("list_dead_letters", transaction)
