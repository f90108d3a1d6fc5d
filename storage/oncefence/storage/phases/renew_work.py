"""Renewing a claim: its holder needs longer, and learns whether it is still wanted."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy.ext.asyncio import AsyncEngine

from oncefence.domain.fence import Fence
from oncefence.domain.limits import Limits
from oncefence.storage import work_items
from oncefence.storage.engine import run_phase


@dataclass(frozen=True, slots=True, kw_only=True)
class Renewed:
    """The claim's new end, and whether somebody asked for the item to be cancelled."""

    lease_until: datetime
    is_cancel_requested: bool


async def renew_work(
    engine: AsyncEngine, fence: Fence, *, deadline_ms: int, limits: Limits
) -> Renewed:
    """
    Give the claim another `deadline_ms` and the lease's margin, from now (C53).

    A claim whose lease has ended is renewed as long as nobody took the item: the end of a lease
    only permits a claim.

    Raises:
        FenceLost: Somebody else holds the item, or it has ended. The caller stops.
        StoreUnavailable: Ask again: renewing twice is renewing once.
    """
    lease = timedelta(seconds=deadline_ms / 1000 + limits.lease_margin_scaled_seconds)

    async def transaction() -> Renewed:
        async with engine.begin() as connection:
            row = await work_items.renew(connection, fence, lease=lease)
            return Renewed(
                lease_until=row.lease_until,
                is_cancel_requested=row.cancel_requested_at is not None,
            )

    return await run_phase("renew_work", transaction)
