"""Sole writer of `work_nudges`: when an item may be nudged again, and so whether it is open."""

from datetime import datetime, timedelta

from sqlalchemy import Interval, bindparam, func, update
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

FORGET = (
    update(work_nudges)
    .where(
        work_nudges.c.org_id == bindparam("of_org"),
        work_nudges.c.work_id == bindparam("of_work"),
        work_nudges.c.next_nudge_at > func.clock_timestamp(),
    )
    .values(next_nudge_at=func.clock_timestamp())
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


async def forget(connection: AsyncConnection, org: OrgId, work: WorkId) -> bool:
    """Have the last nudge count no longer, as if its time were over; says whether it did count."""
    result = await connection.execute(FORGET, {"of_org": org, "of_work": work})
    return bool(result.rowcount)
