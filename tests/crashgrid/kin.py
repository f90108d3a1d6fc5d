"""A family of its own in a cell: its item is added, claimed, renewed, deferred and finished."""

import asyncio
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from oncefence.activities.work import WorkActivity
from oncefence.domain.claim import ClaimEnd, WorkEnd
from oncefence.domain.ids import OrgId, ViewId
from oncefence.storage.phases.add_work import NewWork
from oncefence.storage.phases.claim_work import ClaimedWork

FAMILY: Final = "grid.kin"
DEADLINE_MS: Final = 100
"""With the grid's margin a lease of a fifth of a second."""

# Longer than a third of the lease, so that the claim is renewed; and shorter than its end.
_WORK_SECONDS: Final = 0.12

_VIEW = text("SELECT view_id FROM oncefence.binding_views WHERE org_id = :org")
STATE = text(
    "SELECT state, run_after, lease_until, claims_lost, clock_timestamp() AS now"
    " FROM oncefence.work_items WHERE org_id = :org AND work_id = :work"
)


class Kin:
    """Defers the first claim of an item and finishes a later one, and takes its time for both."""

    family = FAMILY

    async def run(self, work: ClaimedWork) -> WorkEnd:
        """Work for a while."""
        await asyncio.sleep(_WORK_SECONDS)
        if work.fence.epoch == 1:
            return WorkEnd(end=ClaimEnd.DEFER, wait_seconds=0.0, summary="once more")
        return WorkEnd(end=ClaimEnd.FINISH, summary="done")


async def new_item(engine: AsyncEngine, org: str) -> NewWork:
    """The one item of the cell."""
    async with engine.connect() as connection:
        view = (await connection.execute(_VIEW, {"org": org})).scalar_one()
    return NewWork(
        org=OrgId(org),
        family=FAMILY,
        subject_kind="cell",
        subject_id=org,
        view=ViewId(view),
        definition=FAMILY,
        queue_class=FAMILY,
        deadline_ms=DEADLINE_MS,
        source_lane="source:cell",
        target_lane="target:cell",
    )


def seconds_until(moment: datetime | None) -> float:
    """How long until then, at least nothing."""
    return max((moment - datetime.now(UTC)).total_seconds(), 0.0) if moment is not None else 0.0


def handlers_of(context: Any) -> WorkActivity:
    """The run of the family, as a worker registers it."""
    return WorkActivity(context, [Kin()])
