"""Making due what a breaker held that a person has closed."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncEngine

from oncefence.domain.breaker import BreakerKey
from oncefence.domain.ids import OrgId
from oncefence.storage import work_items
from oncefence.storage.engine import run_phase

BATCH = 500
# An item that this breaker put off is due exactly when `put_off` made it so; what waits for
# another reason waits on. Whoever runs one right now finds the breaker closed.
HELD = text(
    """
    SELECT w.org_id, w.work_id, w.queue_class,
           date_trunc('milliseconds', clock_timestamp()) AS now
      FROM oncefence.breakers AS b
      JOIN oncefence.work_items AS w
        ON w.run_after = date_trunc('milliseconds', b.until) + interval '1 millisecond'
       AND w.provider = b.provider
       AND CASE WHEN b.binding_id IS NULL
                THEN w.queue_class IN (b.endpoint_class, 'lookup:' || b.endpoint_class)
                ELSE w.org_id = b.org_id AND w.binding_id = b.binding_id END
     WHERE b.org_id = :org AND b.key = :key AND b.state = 'closed'
       AND w.state IN ('pending', 'retry') AND w.run_after > clock_timestamp()
     ORDER BY w.org_id, w.work_id
     LIMIT :batch
       FOR UPDATE OF w SKIP LOCKED
    """
)


async def bring_forward(engine: AsyncEngine, key: BreakerKey) -> Sequence[tuple[OrgId, str]]:
    """
    Make due now what the closed breaker held, in batches; says of which classes it was.

    Asked again it finds the rest. What is not brought forward comes by itself at its time.
    """
    classes: dict[tuple[OrgId, str], None] = {}

    async def batch() -> Sequence[Row[Any]]:
        async with engine.begin() as connection:
            rows = (
                await connection.execute(HELD, {"org": key.org, "key": key.row_key, "batch": BATCH})
            ).all()
            for row in rows:
                await work_items.bring_forward(connection, row.org_id, row.work_id, row.now)
            return rows

    while rows := await run_phase("bring_forward", batch):
        classes.update(
            ((OrgId(row.org_id), row.queue_class), None)
            for row in rows
            if row.queue_class is not None
        )
    return list(classes)
