"""Reading what is due and stands still, for the sweep."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncEngine

from oncefence.domain.ids import OrgId, WorkId
from oncefence.domain.limits import Limits
from oncefence.storage.admission_window import (
    IS_NUDGED,
    LIVE,
    MAY_BE_CLAIMED,
    open_items,
    window_values,
)
from oncefence.storage.engine import one_statement, run_phase
from oncefence.storage.work_items import EFFECT_FAMILIES

# From class to class along the index, then into each that has something due, for as many as its
# window has room. So neither a backlog of one class nor finished work costs the others anything,
# and of each class the first comes before the second of any.
DUE = text(
    f"""
    WITH RECURSIVE classes AS (
        (SELECT w.org_id, w.queue_class FROM oncefence.work_items AS w
          WHERE w.queue_class >= '' AND w.state IN {LIVE}
          ORDER BY w.org_id, w.queue_class LIMIT 1)
         UNION ALL
        SELECT following.* FROM classes AS c CROSS JOIN LATERAL (
            SELECT w.org_id, w.queue_class FROM oncefence.work_items AS w
             WHERE w.queue_class >= '' AND w.state IN {LIVE}
               AND (w.org_id, w.queue_class) > (c.org_id, c.queue_class)
             ORDER BY w.org_id, w.queue_class LIMIT 1) AS following
    ), waiting AS (
        SELECT found.* FROM classes AS c
         CROSS JOIN LATERAL (
            SELECT 1 FROM oncefence.work_items AS w
             WHERE w.org_id = c.org_id AND w.queue_class = c.queue_class
               AND w.state IN ('pending', 'retry')
               AND w.run_after <= statement_timestamp() - CAST(:grace AS interval)
             LIMIT 1) AS something
         CROSS JOIN LATERAL (
            SELECT {open_items("c.org_id", "c.queue_class")} AS items) AS open
         CROSS JOIN LATERAL (
            SELECT w.org_id, w.work_id,
                   row_number() OVER (ORDER BY w.run_after, w.work_id) AS place
              FROM oncefence.work_items AS w
              LEFT JOIN oncefence.work_nudges AS n
                ON n.org_id = w.org_id AND n.work_id = w.work_id
             WHERE w.org_id = c.org_id AND w.queue_class = c.queue_class
               AND w.state IN ('pending', 'retry')
               AND w.run_after <= statement_timestamp() - CAST(:grace AS interval)
               AND ({IS_NUDGED}) IS NOT TRUE AND {MAY_BE_CLAIMED}
             ORDER BY w.run_after, w.work_id
             LIMIT greatest(0, :window - open.items)) AS found
         UNION ALL
        -- Held by nobody who lives: they have their place, and come first.
        SELECT w.org_id, w.work_id, 0
          FROM oncefence.work_items AS w
          LEFT JOIN oncefence.work_nudges AS n ON n.org_id = w.org_id AND n.work_id = w.work_id
         WHERE w.state = 'processing' AND w.lease_until <= statement_timestamp()
           AND ({IS_NUDGED}) IS NOT TRUE
           -- An attempt is settled as lost, and an item given up or cancelled, whatever holds the
           -- next claim back.
           AND (w.family IN {EFFECT_FAMILIES} OR w.cancel_requested_at IS NOT NULL
                OR w.claims_lost + 1 >= :claims_lost_max OR ({MAY_BE_CLAIMED}))
    )
    SELECT w.org_id, w.work_id, w.family, w.deadline_ms, w.run_after, w.ownership_epoch,
           CASE WHEN n.run_after = w.run_after AND n.ownership_epoch = w.ownership_epoch
                THEN n.nudges ELSE 0 END AS nudges
      FROM waiting AS f
      JOIN oncefence.work_items AS w ON w.org_id = f.org_id AND w.work_id = f.work_id
      LEFT JOIN oncefence.work_nudges AS n ON n.org_id = w.org_id AND n.work_id = w.work_id
     ORDER BY f.place, w.run_after, w.work_id
     LIMIT :page
       FOR UPDATE OF w SKIP LOCKED
    """  # noqa: S608  # only constants are joined in
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkRef:
    """All that a workflow needs to know of an item; identifiers and times only."""

    org: OrgId
    work: WorkId
    family: str
    deadline_ms: int
    run_after: datetime
    is_ahead: bool = False
    """Whoever made it knows by their own time that it is not due yet; no clock was asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DueWork:
    """A due item, and how often it was nudged before at its present due time and epoch."""

    ref: WorkRef
    ownership_epoch: int
    nudges: int


def lookup_ref(
    org: OrgId, work: UUID | None, deadline_ms: int, due: datetime | None, *, as_of: datetime
) -> WorkRef | None:
    """The lookup item that a phase made at `as_of`, or None where it made none."""
    if work is None or due is None:
        return None
    return WorkRef(
        org=org,
        work=WorkId(work),
        family="effect.lookup",
        deadline_ms=deadline_ms,
        run_after=due,
        is_ahead=due > as_of,
    )


def ref_of(row: Row[Any]) -> WorkRef:
    """The item of a row that has these five columns."""
    return WorkRef(
        org=OrgId(row.org_id),
        work=WorkId(row.work_id),
        family=row.family,
        deadline_ms=row.deadline_ms,
        run_after=row.run_after,
    )


def due_work_of(row: Row[Any]) -> DueWork:
    """The item of a row that has its epoch and its nudges too."""
    return DueWork(ref=ref_of(row), ownership_epoch=row.ownership_epoch, nudges=row.nudges)


async def find_due_work(engine: AsyncEngine, *, page: int, limits: Limits) -> list[DueWork]:
    """
    Items that are due and one grace past it, by the database's clock; a page of them.

    Of each class only what its window has room for, and nothing that a claim would refuse
    (C389). An item that was nudged before at the same due time comes back after 2, 4, ..
    60 minutes (C390): what a nudge did not move, a second one at once would not move either.
    """

    values = window_values(limits) | {
        "grace": timedelta(seconds=limits.sweep_grace_scaled_seconds),
        "page": page,
        "claims_lost_max": limits.claims_lost_max,
    }

    async def transaction() -> list[DueWork]:
        async with one_statement(engine).connect() as connection:
            return [due_work_of(row) for row in (await connection.execute(DUE, values)).all()]

    return await run_phase("find_due_work", transaction)
