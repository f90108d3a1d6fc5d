"""Sole writer of `work_nudges`: when the sweep may nudge an item again."""

from datetime import datetime
from typing import Any

from sqlalchemy import Row
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from oncefence.storage.tables import work_nudges

_NEW = insert(work_nudges)
NOTE = _NEW.on_conflict_do_update(
    index_elements=["org_id", "work_id"],
    set_={
        "run_after": _NEW.excluded.run_after,
        "ownership_epoch": _NEW.excluded.ownership_epoch,
        "nudges": _NEW.excluded.nudges,
        "next_nudge_at": _NEW.excluded.next_nudge_at,
    },
)


async def note(connection: AsyncConnection, row: Row[Any], *, next_nudge_at: datetime) -> None:
    """Note one more nudge of the item at its present due time and epoch."""
    await connection.execute(
        NOTE,
        {
            "org_id": row.org_id,
            "work_id": row.work_id,
            "run_after": row.run_after,
            "ownership_epoch": row.ownership_epoch,
            "nudges": row.nudges + 1,
            "next_nudge_at": next_nudge_at,
        },
    )
