"""Erasing staged bytes for which no handoff came."""

from sqlalchemy.ext.asyncio import AsyncEngine

from oncefence.storage import staged_payloads
from oncefence.storage.engine import run_phase


async def erase_staged(engine: AsyncEngine) -> int:
    """Null the data keys of payloads staged more than seven days ago; says of how many."""

    async def transaction() -> int:
        async with engine.begin() as connection:
            return await staged_payloads.erase_old(connection)

    return await run_phase("erase_staged", transaction)
