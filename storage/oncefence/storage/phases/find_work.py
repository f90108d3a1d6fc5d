"""Reading what is due: for the sweep, and the successors that a finished item makes room for."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncEngine

from oncefence.domain.ids import OrgId, WorkId
from oncefence.domain.limits import Limits
from oncefence.storage.engine import one_statement, run_phase

# Heads of both lanes only, and nothing behind an attempt in doubt: the sweep nudges nothing
# that `start_attempt` would refuse.
_IS_FREE = """
       NOT EXISTS (SELECT FROM oncefence.work_items AS o
                    WHERE o.org_id = w.org_id AND o.state IN ('pending', 'processing', 'retry')
                      AND o.source_lane = w.source_lane
                      AND o.source_sequence < w.source_sequence)
   AND NOT EXISTS (SELECT FROM oncefence.work_items AS o
                    WHERE o.org_id = w.org_id AND o.state IN ('pending', 'processing', 'retry')
                      AND o.target_lane = w.target_lane
                      AND o.target_sequence < w.target_sequence)
   AND NOT EXISTS (SELECT FROM oncefence.effect_attempts AS a
                    WHERE a.org_id = w.org_id AND a.command_id <> w.command_id
                      AND (a.source_lane = w.source_lane OR a.target_lane = w.target_lane)
                      AND (a.outcome IS NULL OR (a.may_have_applied AND a.disposition IS NULL)))
"""
DUE = text(
    f"""
    SELECT w.org_id, w.work_id, w.family, w.deadline_ms, w.run_after, w.ownership_epoch,
           CASE WHEN n.run_after = w.run_after AND n.ownership_epoch = w.ownership_epoch
                THEN n.nudges ELSE 0 END AS nudges
      FROM oncefence.work_items AS w
      LEFT JOIN oncefence.work_nudges AS n ON n.org_id = w.org_id AND n.work_id = w.work_id
     WHERE ((w.state IN ('pending', 'retry') AND w.run_after <= :due AND {_IS_FREE})
            OR (w.state = 'processing' AND w.lease_until <= clock_timestamp()))
       AND (n.work_id IS NULL OR n.next_nudge_at <= :now
            OR (n.run_after, n.ownership_epoch)
               IS DISTINCT FROM (w.run_after, w.ownership_epoch))
     ORDER BY w.run_after, w.work_id
     LIMIT :page
       FOR UPDATE OF w SKIP LOCKED
    """  # noqa: S608  # only the constant above is joined in
)
SUCCESSORS = text(
    """
    SELECT DISTINCT n.org_id, n.work_id, n.family, n.deadline_ms, n.run_after
      FROM oncefence.work_items AS w
      CROSS JOIN LATERAL (
        (SELECT s.* FROM oncefence.work_items AS s
          WHERE s.org_id = w.org_id AND s.source_lane = w.source_lane
            AND s.state IN ('pending', 'retry') ORDER BY s.source_sequence LIMIT 1)
        UNION
        (SELECT t.* FROM oncefence.work_items AS t
          WHERE t.org_id = w.org_id AND t.target_lane = w.target_lane
            AND t.state IN ('pending', 'retry') ORDER BY t.target_sequence LIMIT 1)
      ) AS n
     WHERE w.org_id = :org AND n.work_id <> w.work_id
       -- An array, so that each item is found by its key: an attempt names its dispatch item.
       AND w.work_id = ANY (ARRAY(
             SELECT CAST(:work AS uuid)
              UNION
             SELECT a.work_id FROM oncefence.work_items AS c
               JOIN oncefence.effect_attempts AS a
                 ON a.org_id = c.org_id AND a.command_id = c.command_id
              WHERE c.org_id = :org AND c.work_id = :work))
    """
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkRef:
    """All that a workflow needs to know of an item; identifiers and times only."""

    org: OrgId
    work: WorkId
    family: str
    deadline_ms: int
    run_after: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class DueWork:
    """An overdue item, and how often it was nudged at its present due time and epoch."""

    ref: WorkRef
    ownership_epoch: int
    nudges: int


def lookup_ref(
    org: OrgId, work: UUID | None, deadline_ms: int, due: datetime | None
) -> WorkRef | None:
    """The lookup item that a phase made, or None where it made none."""
    if work is None or due is None:
        return None
    return WorkRef(
        org=org,
        work=WorkId(work),
        family="effect.lookup",
        deadline_ms=deadline_ms,
        run_after=due,
    )


async def find_due_work(engine: AsyncEngine, *, page: int, limits: Limits) -> list[DueWork]:
    """
    Items that are due and one grace past it, by the database's clock; a page of them.

    An item that was nudged before at the same due time comes back after 2, 4, .. 60 minutes
    (C390): what a nudge did not move, a second one at once would not move either.
    """

    async def transaction() -> list[DueWork]:
        async with engine.begin() as connection:
            now = (await connection.execute(text("SELECT clock_timestamp()"))).scalar_one()
            grace = timedelta(seconds=limits.sweep_grace_scaled_seconds)
            rows = await connection.execute(DUE, {"due": now - grace, "now": now, "page": page})
            return [
                DueWork(ref=_ref(row), ownership_epoch=row.ownership_epoch, nudges=row.nudges)
                for row in rows.all()
            ]

    return await run_phase("find_due_work", transaction)


async def find_successors(engine: AsyncEngine, org: OrgId, work: WorkId) -> list[WorkRef]:
    """
    The heads of the lanes that the command of `work` stood in.

    Read after COMMIT, in a statement of its own: inside the settling transaction it would miss
    an item that is being accepted at the same moment.
    """

    async def transaction() -> list[WorkRef]:
        async with one_statement(engine).connect() as connection:
            rows = await connection.execute(SUCCESSORS, {"org": org, "work": work})
            return [_ref(row) for row in rows.all()]

    return await run_phase("find_successors", transaction)


def _ref(row: Row[Any]) -> WorkRef:
    return WorkRef(
        org=OrgId(row.org_id),
        work=WorkId(row.work_id),
        family=row.family,
        deadline_ms=row.deadline_ms,
        run_after=row.run_after,
    )
