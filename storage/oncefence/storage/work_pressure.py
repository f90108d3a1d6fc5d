"""
Sole writer of `work_pressure` and `pressure_revisions`: depth and age of what waits (C26).

A reading and never a queue: whoever claims or schedules asks the items themselves.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from oncefence.domain.errors import VersionMoved
from oncefence.storage.dead_letters import ENDED_BADLY, LEFT_OVER

VIEW: Final = "work_pressure"
"""The name of the one read model there is, as operators call it."""

# Whoever rebuilds or drops is alone with it; nobody else ever asks for this lock.
_TURN = text("SELECT pg_advisory_xact_lock(hashtextextended('oncefence.' || :view, 0))")
_STANDING = text(
    "SELECT revision, is_dropped FROM oncefence.pressure_revisions WHERE view_name = :view"
)
# One statement, so that revision, rows and the snapshot that they name are of one reading. Live
# items are found by one partial index and dead letters by another, so that what it costs does not
# grow with what ended well.
_FILL = text(
    f"""
    WITH source AS MATERIALIZED (
      SELECT pg_current_snapshot()::text AS snapshot, statement_timestamp() AS at
    ), revised AS (
      INSERT INTO oncefence.pressure_revisions AS r
             (view_name, revision, source_snapshot, source_time, is_dropped)
      SELECT :view, 1, s.snapshot, s.at, false FROM source AS s
      ON CONFLICT (view_name) DO UPDATE
         SET revision = r.revision + 1, source_snapshot = excluded.source_snapshot,
             source_time = excluded.source_time, is_dropped = false
      RETURNING r.revision, r.source_snapshot, r.source_time
    ), waiting AS (
      SELECT w.org_id, w.family, w.provider, w.state, w.run_after, w.made_at
        FROM oncefence.work_items AS w
       WHERE w.queue_class >= '' AND w.state IN ('pending', 'processing', 'retry')
       UNION ALL
      SELECT w.org_id, w.family, w.provider, w.state, w.run_after, w.made_at
        FROM oncefence.work_items AS w
       WHERE w.state IN ('awaiting_legacy_outcome', 'legacy_outcome_unknown')
       UNION ALL
      SELECT w.org_id, w.family, w.provider, w.state, w.run_after, w.made_at
      {ENDED_BADLY} AND {LEFT_OVER}
    ), filled AS (
      INSERT INTO oncefence.work_pressure AS p
             (org_id, family, provider, state, revision, depth, due, oldest_due_at, oldest_made_at)
      SELECT w.org_id, w.family, coalesce(w.provider, ''), w.state, r.revision, count(*),
             count(*) FILTER (WHERE w.state IN ('pending', 'processing', 'retry')
                                AND w.run_after <= r.source_time),
             min(w.run_after) FILTER (WHERE w.state IN ('pending', 'processing', 'retry')
                                        AND w.run_after <= r.source_time),
             min(w.made_at)
        FROM waiting AS w CROSS JOIN revised AS r
       GROUP BY w.org_id, w.family, coalesce(w.provider, ''), w.state, r.revision
      ON CONFLICT (org_id, family, provider, state) DO UPDATE
         SET revision = excluded.revision, depth = excluded.depth, due = excluded.due,
             oldest_due_at = excluded.oldest_due_at, oldest_made_at = excluded.oldest_made_at
      RETURNING p.revision
    )
    SELECT r.revision, r.source_snapshot, r.source_time, (SELECT count(*) FROM filled) AS rows
      FROM revised AS r
    """  # noqa: S608  # only constants are joined in
)
_DROP = text(
    """
    INSERT INTO oncefence.pressure_revisions AS r
           (view_name, revision, source_snapshot, source_time, is_dropped)
    VALUES (:view, 1, pg_current_snapshot()::text, statement_timestamp(), true)
    ON CONFLICT (view_name) DO UPDATE
       SET revision = r.revision + 1, source_snapshot = excluded.source_snapshot,
           source_time = excluded.source_time, is_dropped = true
    RETURNING r.revision
    """
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """A revision, and the snapshot of the items that its rows were counted in."""

    revision: int
    source_snapshot: str
    source_time: datetime
    rows: int


async def take_turn(connection: AsyncConnection) -> tuple[int, bool]:
    """The revision that stands (0 before the first) and whether it is dropped, until COMMIT."""
    await connection.execute(_TURN, {"view": VIEW})
    # A statement of its own after the lock, so that it reads what the last holder wrote.
    row = (await connection.execute(_STANDING, {"view": VIEW})).one_or_none()
    return (0, False) if row is None else (row.revision, row.is_dropped)


def refuse_moved(found: int, expected: str) -> None:
    """
    Hold the revision that stands against the one that an operator saw.

    Raises:
        VersionMoved: It has been rebuilt or dropped since.
    """
    if expected != str(found):
        raise VersionMoved(subject=f"view {VIEW}", expected=expected, found=str(found))


async def fill(connection: AsyncConnection) -> Built:
    """The next revision, counted anew; rows of older revisions count for nothing from now on."""
    row = (await connection.execute(_FILL, {"view": VIEW})).one()
    return Built(
        revision=row.revision,
        source_snapshot=row.source_snapshot,
        source_time=row.source_time,
        rows=row.rows,
    )


async def drop(connection: AsyncConnection) -> int:
    """The next revision, of no rows: there is no reading until it is filled again."""
    return int((await connection.execute(_DROP, {"view": VIEW})).scalar_one())
