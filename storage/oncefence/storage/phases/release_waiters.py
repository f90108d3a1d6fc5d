"""Bringing forward the items that waited for somebody else's renewal."""

from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncEngine

from oncefence.domain.ids import OrgId
from oncefence.storage import work_items
from oncefence.storage.engine import run_phase
from oncefence.storage.phases.begin_refresh import RefreshBegun, due_after


async def release_waiters(
    engine: AsyncEngine, begun: RefreshBegun, *, until: datetime | None
) -> list[str]:
    """
    Whoever waits for the end of this renewal's lease is due now, or at `until`.

    Gives the queue classes that got something due. It is a hint: what it misses, for its process
    died first, is due when the lease ends.
    """

    async def transaction() -> list[str]:
        async with engine.begin() as connection:
            classes = await work_items.release(
                connection,
                OrgId(begun.fence.org),
                begun.binding,
                waits_until=due_after(begun.lease_until),
                due=until,
            )
            return [] if until is not None else classes

    return await run_phase("release_waiters", transaction)
