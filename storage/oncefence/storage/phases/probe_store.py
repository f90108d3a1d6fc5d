"""Asking the database whether it answers, and nothing else."""

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from oncefence.storage.engine import one_statement, run_phase

PROBE = text("SELECT 1")


async def probe_store(engine: AsyncEngine) -> None:
    """
    Return when the database has answered.

    Raises:
        StoreUnavailable: It did not.
    """

    async def transaction() -> None:
        async with one_statement(engine).connect() as connection:
            await connection.execute(PROBE)

    await run_phase("probe_store", transaction)
