"""Reading whom the end of an item makes room for."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from oncefence.domain.ids import OrgId, WorkId
from oncefence.domain.limits import Limits
from oncefence.storage.admission_window import LIVE, MAY_BE_CLAIMED, window_values
from oncefence.storage.driver_connection import driver_connection
from oncefence.storage.engine import run_phase
from oncefence.storage.phases.find_work import WorkRef, ref_of

SUCCESSORS = text(
    f"""
    -- The item itself, and the dispatch item of the attempt that it was about.
    WITH ended AS (
        SELECT w.* FROM oncefence.work_items AS w
         WHERE w.org_id = :org AND w.work_id = ANY (ARRAY(
             -- An array, so that each is found by its key.
             SELECT CAST(:work AS uuid)
              UNION
             SELECT a.work_id FROM oncefence.work_items AS c
               JOIN oncefence.effect_attempts AS a
                 ON a.org_id = c.org_id AND a.command_id = c.command_id
              WHERE c.org_id = :org AND c.work_id = :work))
    ), heads AS (
        SELECT s.work_id FROM ended AS e CROSS JOIN LATERAL (
            SELECT w.work_id FROM oncefence.work_items AS w
             WHERE w.org_id = e.org_id AND w.source_lane = e.source_lane
               AND w.state IN ('pending', 'retry') ORDER BY w.source_sequence LIMIT 1) AS s
         UNION
        SELECT t.work_id FROM ended AS e CROSS JOIN LATERAL (
            SELECT w.work_id FROM oncefence.work_items AS w
             WHERE w.org_id = e.org_id AND w.target_lane = e.target_lane
               AND w.state IN ('pending', 'retry') ORDER BY w.target_sequence LIMIT 1) AS t
    ), following AS (
        SELECT w.org_id, w.work_id, w.family, w.deadline_ms, w.run_after, w.queue_class
          FROM heads AS h
          JOIN oncefence.work_items AS w ON w.org_id = :org AND w.work_id = h.work_id
         WHERE w.work_id NOT IN (SELECT e.work_id FROM ended AS e) AND {MAY_BE_CLAIMED}
    ), classes AS (
        SELECT c.queue_class,
               (SELECT count(*) FROM (
                    SELECT 1 FROM oncefence.work_items AS w
                     WHERE w.org_id = :org AND w.queue_class = c.queue_class
                       AND w.state IN {LIVE} LIMIT :window) AS l) >= :window
               -- Several that end at once each see too few alive for a backlog. Whoever was
               -- noted when it was opened stood in one, and looks for the next all the same.
               OR bool_or(c.was_noted) AS is_full
          FROM (SELECT e.queue_class, EXISTS (
                       SELECT FROM oncefence.work_nudges AS n
                        WHERE n.org_id = :org AND n.work_id = e.work_id) AS was_noted
                  FROM ended AS e
                 UNION ALL SELECT f.queue_class, false FROM following AS f) AS c
         GROUP BY c.queue_class
    )
    SELECT c.queue_class, c.is_full, f.org_id, f.work_id, f.family, f.deadline_ms, f.run_after
      FROM classes AS c LEFT JOIN following AS f ON f.queue_class = c.queue_class
     ORDER BY f.run_after, f.work_id
    """  # noqa: S608  # only constants are joined in
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Successors:
    """Whom to wake at once, and the queue classes whose window says who is next."""

    refs: Sequence[WorkRef]
    full: Sequence[str]


async def find_successors(
    engine: AsyncEngine, org: OrgId, work: WorkId, *, limits: Limits
) -> Successors:
    """
    Who may run now that `work` has ended: the heads of its command's lanes, or whoever is next.

    Heads alone that a claim would take: what is behind another lane or a pause is woken by
    whoever lifts that. Where a window or more of the class is alive, or the item itself was
    opened by the window, somebody may wait in SQL alone, and the window's own order decides
    (C393).

    Read after COMMIT, in a statement of its own: inside the settling transaction it would miss
    an item that is being accepted at the same moment.
    """

    values = window_values(limits) | {"org": org, "work": work}

    async def transaction() -> Successors:
        async with driver_connection(engine) as connection:
            rows = await connection.all(SUCCESSORS, values)
            return Successors(
                refs=[ref_of(row) for row in rows if row.work_id is not None and not row.is_full],
                full=sorted({row.queue_class for row in rows if row.is_full}),
            )

    return await run_phase("find_successors", transaction)
