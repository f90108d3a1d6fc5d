"""Asking whether an item that was just made may be told to Temporal, or waits in SQL (C393)."""

from dataclasses import dataclass
from enum import StrEnum

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from oncefence.domain.ids import OrgId, WorkId
from oncefence.domain.limits import Limits
from oncefence.storage.admission_window import LIVE, MAY_BE_CLAIMED, open_items, window_values
from oncefence.storage.driver_connection import driver_connection
from oncefence.storage.engine import run_phase

# Asked after acceptance has committed: so each of many that come at once counts itself and all
# that were before it, and no more than a window of them finds that it is among the first.
ROOM = text(
    f"""
    SELECT w.queue_class,
           CASE WHEN NOT ({MAY_BE_CLAIMED}) THEN 'held_back'
                WHEN (SELECT count(*) FROM (
                          SELECT 1 FROM oncefence.work_items AS l
                           WHERE l.org_id = w.org_id AND l.queue_class = w.queue_class
                             AND l.state IN {LIVE} LIMIT :window + 1) AS l) <= :window
                THEN 'among_first'
                WHEN {open_items("of.org_id", "of.queue_class")} < :window THEN 'in_turn'
                ELSE 'none' END AS room
      FROM oncefence.work_items AS w
     CROSS JOIN LATERAL (SELECT w.org_id, w.queue_class) AS of
     WHERE w.org_id = :org AND w.work_id = :work AND w.state IN {LIVE}
    """  # noqa: S608  # only constants are joined in
)


class Room(StrEnum):
    """What becomes of a new item."""

    AMONG_FIRST = "among_first"
    """It is of the first that the class has: its workflow starts at once."""

    IN_TURN = "in_turn"
    """Others wait too, and the window has room: whoever is next starts."""

    NONE = "none"
    """The window is full, and the end of one item starts the next."""

    HELD_BACK = "held_back"
    """A lane, a pause or an older engine holds it, and whoever lifts that starts it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoomFound:
    """The verdict, and the class that it is about."""

    room: Room
    queue_class: str


async def find_room(
    engine: AsyncEngine, org: OrgId, work: WorkId, *, limits: Limits
) -> RoomFound | None:
    """What becomes of an item that was just made; None where nothing is left to be done for it."""
    values = window_values(limits) | {"org": org, "work": work}

    async def transaction() -> RoomFound | None:
        async with driver_connection(engine) as connection:
            for row in await connection.all(ROOM, values):
                return RoomFound(room=Room(row.room), queue_class=row.queue_class)
            return None

    return await run_phase("find_room", transaction)
