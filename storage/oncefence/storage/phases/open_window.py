"""Opening the next items of a class, in its order, as far as its window has room (C393)."""

from typing import Any

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from oncefence.domain.ids import OrgId
from oncefence.domain.limits import Limits
from oncefence.storage.admission_window import (
    IS_NUDGED,
    MAY_BE_CLAIMED,
    open_items,
    window_values,
)
from oncefence.storage.engine import run_phase
from oncefence.storage.phases.find_work import DueWork, due_work_of
from oncefence.storage.phases.note_nudges import note_nudge

# One at a time for each class: two that count at once would give one place twice. What is counted
# and chosen is read by later statements, which see what the one before has noted.
LOCK = text(
    "SELECT pg_advisory_xact_lock(hashtextextended(concat_ws(':', 'window', CAST(:org AS text),"
    " CAST(:queue_class AS text)), 0))"
)
COUNT = text(
    f"""
    SELECT {open_items(":org", ":queue_class")} AS open_items, edge.run_after, edge.work_id
      FROM (VALUES (1)) AS one
      LEFT JOIN LATERAL (
        SELECT w.run_after, w.work_id FROM oncefence.work_items AS w
         WHERE w.org_id = :org AND w.queue_class = :queue_class
           AND w.state IN ('pending', 'retry') AND w.run_after <= statement_timestamp()
         ORDER BY w.run_after, w.work_id OFFSET :looked_at LIMIT 1) AS edge ON true
    """  # noqa: S608  # only constants are joined in
)
CHOOSE = text(
    f"""
    SELECT w.org_id, w.work_id, w.family, w.deadline_ms, w.run_after, w.ownership_epoch,
           CASE WHEN n.run_after = w.run_after AND n.ownership_epoch = w.ownership_epoch
                THEN n.nudges ELSE 0 END AS nudges
      FROM oncefence.work_items AS w
      LEFT JOIN oncefence.work_nudges AS n ON n.org_id = w.org_id AND n.work_id = w.work_id
     WHERE w.org_id = :org AND w.queue_class = :queue_class
       AND w.state IN ('pending', 'retry') AND w.run_after <= statement_timestamp()
       AND (CAST(:edge_run_after AS timestamptz) IS NULL
            OR (w.run_after, w.work_id) < (:edge_run_after, CAST(:edge_work AS uuid)))
       AND ({IS_NUDGED}) IS NOT TRUE AND {MAY_BE_CLAIMED}
     ORDER BY w.run_after, w.work_id
     LIMIT :room
    """  # noqa: S608  # only constants are joined in
)


async def open_window(
    engine: AsyncEngine, org: OrgId, queue_class: str, *, limits: Limits
) -> list[DueWork]:
    """
    The items that are to be woken now, by due time and id, noted as nudged; maybe none.

    What is noted and then not woken, since the process died, keeps its place until the note is
    too old to count, and is opened again then.
    """
    values: dict[str, object] = window_values(limits) | {"org": org, "queue_class": queue_class}

    async def transaction() -> list[DueWork]:
        async with engine.begin() as connection:
            await connection.execute(LOCK, values)
            counted = (await connection.execute(COUNT, values)).one()
            room = limits.admission_window - counted.open_items
            chosen = await _choose(connection, values, room, counted)
            if not chosen and not counted.open_items and counted.run_after is not None:
                # All that was looked at is blocked or paused, and nobody who runs would open
                # the next: the whole class is looked at, once for a window of items.
                chosen = await _choose(connection, values, room, None)
            for item in chosen:
                await note_nudge(connection, item, limits=limits)
            return chosen

    return await run_phase("open_window", transaction)


async def _choose(
    connection: AsyncConnection, values: dict[str, object], room: int, edge: Row[Any] | None
) -> list[DueWork]:
    if room <= 0:
        return []
    found = await connection.execute(
        CHOOSE,
        values
        | {
            "room": room,
            "edge_run_after": None if edge is None else edge.run_after,
            "edge_work": None if edge is None else edge.work_id,
        },
    )
    return [due_work_of(row) for row in found.all()]
