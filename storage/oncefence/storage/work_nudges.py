"""Sole writer of `work_nudges`: when the sweep may nudge an item again."""

from datetime import datetime, timedelta

from sqlalchemy import Interval, bindparam, func
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from oncefence.domain.ids import OrgId, WorkId
from oncefence.storage.tables import work_nudges

_NEW = insert(work_nudges).values(
    next_nudge_at=func.clock_timestamp() + bindparam("wait", type_=Interval)
)
NOTE = _NEW.on_conflict_do_update(
    index_elements=["org_id", "work_id"],
    set_={
        "run_after": _NEW.excluded.run_after,
        "ownership_epoch": _NEW.excluded.ownership_epoch,
        "nudges": _NEW.excluded.nudges,
        "next_nudge_at": _NEW.excluded.next_nudge_at,
    },
)


async def note(
    connection: AsyncConnection,
    *,
    org: OrgId,
    work: WorkId,
    run_after: datetime,
    ownership_epoch: int,
    nudges: int,
    wait: timedelta,
) -> None:
    """Note the `nudges`-th nudge of the item at this due time and epoch."""
    await connection.execute(
        NOTE,
        {
            "org_id": org,
            "work_id": work,
            "run_after": run_after,
            "ownership_epoch": ownership_epoch,
            "nudges": nudges,
            "wait": wait,
        },
    )
