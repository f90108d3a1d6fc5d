"""Many items at once, inserted by the owner under every guard, and nobody is told of them."""

from datetime import timedelta

import asyncpg

from oncefence.domain.ids import WorkId
from oncefence.storage.phases.find_work import WorkRef
from tests.support.world import World

FAMILY = "event.apply"
"""A family without a command: its items go through the one claim, as those of all others do."""

PILE_UP = """
    INSERT INTO oncefence.work_items AS w (org_id, work_id, family, subject_kind, subject_id,
        installation, view_id, view_digest, view_revision, definition, provider, binding_id,
        queue_class, deadline_ms, source_lane, source_sequence, target_lane, target_sequence,
        state, via, run_after)
    SELECT v.org_id, gen_random_uuid(), $2, 'record', 'record-' || n, v.installation, v.view_id,
           v.digest, v.revision, $5, 'hubspot', b.binding_id, $3, 8000,
           coalesce($6, gen_random_uuid()::text), $8 + n, coalesce($7, gen_random_uuid()::text),
           $8 + n, 'pending', 'create',
           date_trunc('milliseconds', clock_timestamp())
               - $9::interval + n * interval '1 microsecond'
      FROM generate_series(1, $4::integer) AS n,
           (SELECT * FROM oncefence.binding_views AS v WHERE v.org_id = $1 LIMIT 1) AS v,
           (SELECT * FROM oncefence.principal_bindings AS b WHERE b.org_id = $1 LIMIT 1) AS b
    RETURNING w.work_id, w.run_after, w.deadline_ms
"""


async def pile_up(
    world: World,
    count: int,
    *,
    queue_class: str = "records",
    definition: str = "record.applied",
    source: str | None = None,
    target: str | None = None,
    after_place: int = 0,
    age: timedelta = timedelta(0),
) -> list[WorkRef]:
    """
    `count` items that are due since `age`, in the order in which they are.

    Each has lanes of its own, unless all are to stand in that source or target, `after_place`.
    """
    connection = await asyncpg.connect(world.database.migrator_url)
    try:
        await connection.execute("SET ROLE oncefence_owner")
        rows = await connection.fetch(
            PILE_UP,
            world.org,
            FAMILY,
            queue_class,
            count,
            definition,
            source,
            target,
            after_place,
            age,
        )
        # As autovacuum does within the minute: until then the planner takes the table for empty.
        await connection.execute("ANALYZE oncefence.work_items")
    finally:
        await connection.close()
    refs = [
        WorkRef(
            org=world.org,
            work=WorkId(row["work_id"]),
            family=FAMILY,
            deadline_ms=row["deadline_ms"],
            run_after=row["run_after"],
        )
        for row in rows
    ]
    return sorted(refs, key=lambda ref: (ref.run_after, ref.work))
