"""Reading the pauses, and what each of them holds: the named queue of what is paused."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from oncefence.domain.ids import OrgId, PauseId
from oncefence.domain.operator import EVERY_ORG
from oncefence.storage.engine import one_statement, run_phase
from oncefence.storage.phases.pause_work import Pause, pause_of

# An item that two pauses hold is in both queues: either alone would hold it.
PAUSES = text(
    """
    SELECT p.*, h.items, h.oldest_due_at
      FROM oncefence.pauses AS p
     CROSS JOIN LATERAL (
        SELECT count(*) AS items, min(w.run_after) AS oldest_due_at
          FROM oncefence.work_items AS w
         WHERE p.resumed_at IS NULL AND w.queue_class >= '' AND w.state IN ('pending', 'retry')
           AND (p.org_id = '*' OR w.org_id = p.org_id)
           AND (CAST(:of_all AS boolean) OR w.org_id = ANY (CAST(:orgs AS text[])))
           AND oncefence.is_paused_by(w, p)) AS h
     WHERE (CAST(:of_all AS boolean) OR p.org_id = '*' OR p.org_id = ANY (CAST(:orgs AS text[])))
       AND (CAST(:with_ended AS boolean) OR p.resumed_at IS NULL)
     ORDER BY p.resumed_at DESC NULLS FIRST, p.paused_at DESC, p.pause_id
     LIMIT :limit
    """
)
CLASSES = text(
    """
    SELECT DISTINCT w.org_id, w.queue_class
      FROM oncefence.pauses AS p
      JOIN oncefence.work_items AS w ON (p.org_id = '*' OR w.org_id = p.org_id)
     WHERE p.org_id = :org AND p.pause_id = :pause
       AND w.queue_class >= '' AND w.state IN ('pending', 'retry')
       AND oncefence.is_paused_by(w, p)
     ORDER BY w.org_id, w.queue_class
    """
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedPause:
    """A pause with how many items it holds, of the orgs that were asked about."""

    pause: Pause
    items: int
    oldest_due_at: datetime | None


async def list_pauses(
    engine: AsyncEngine, orgs: Collection[OrgId], *, with_ended: bool = False, limit: int = 200
) -> Sequence[ListedPause]:
    """
    The pauses that hold something of these orgs back, newest first; ended ones where asked for.

    A pause of every org is shown to all whom it holds, and counts what is theirs alone (C8).
    """
    values = {
        "of_all": EVERY_ORG in orgs,
        "orgs": sorted(orgs),
        "with_ended": with_ended,
        "limit": limit,
    }

    async def transaction() -> Sequence[ListedPause]:
        async with one_statement(engine).connect() as connection:
            return [
                ListedPause(pause=pause_of(row), items=row.items, oldest_due_at=row.oldest_due_at)
                for row in (await connection.execute(PAUSES, values)).all()
            ]

    return await run_phase("list_pauses", transaction)


async def find_held_classes(
    engine: AsyncEngine, org: OrgId, pause: PauseId
) -> Sequence[tuple[OrgId, str]]:
    """The classes that have items of the pause's scope; asked after the pause has ended."""

    async def transaction() -> Sequence[tuple[OrgId, str]]:
        async with one_statement(engine).connect() as connection:
            found = await connection.execute(CLASSES, {"org": org, "pause": pause})
            return [(OrgId(row.org_id), row.queue_class) for row in found.all()]

    return await run_phase("find_held_classes", transaction)
