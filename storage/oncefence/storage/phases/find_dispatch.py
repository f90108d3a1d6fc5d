"""Finding the dispatch item that an accepted handoff still waits for."""

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from oncefence.domain.ids import OrgId, WorkId
from oncefence.storage.engine import one_statement, run_phase
from oncefence.storage.phases.find_work import WorkRef

FIND = text(
    "SELECT org_id, work_id, family, deadline_ms, run_after FROM oncefence.work_items"
    " WHERE org_id = :org AND work_id = :work AND state IN ('pending', 'processing', 'retry')"
)


async def find_live_dispatch(engine: AsyncEngine, org: OrgId, work: WorkId) -> WorkRef | None:
    """The item, as long as something remains to be done for it; otherwise None."""

    async def transaction() -> WorkRef | None:
        async with one_statement(engine).connect() as connection:
            row = (await connection.execute(FIND, {"org": org, "work": work})).one_or_none()
        if row is None:
            return None
        return WorkRef(
            org=OrgId(row.org_id),
            work=WorkId(row.work_id),
            family=row.family,
            deadline_ms=row.deadline_ms,
            run_after=row.run_after,
        )

    return await run_phase("find_live_dispatch", transaction)
