"""
Sole writer of `work_items`, but for the SQL of the hot phases.

Every write names the lease token and the ownership epoch that authorise it, or finds under the
row lock that nobody holds the row.
"""

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import Row, bindparam, func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from oncefence.domain.errors import FenceLost
from oncefence.domain.fence import Fence
from oncefence.domain.ids import LeaseToken, OrgId, WorkId
from oncefence.domain.work_item import WORK_ITEM
from oncefence.storage.tables import work_items

_THIS = (
    work_items.c.org_id == bindparam("of_org"),
    work_items.c.work_id == bindparam("of_work"),
)
_FENCED = (
    *_THIS,
    work_items.c.state == "processing",
    work_items.c.lease_token == bindparam("of_token"),
    work_items.c.ownership_epoch == bindparam("of_epoch"),
)
_NO_LEASE = {"lease_owner": None, "lease_token": None, "lease_until": None}

LOCK = select(work_items).where(*_THIS).with_for_update()
# A second statement after the lock: in LOCK itself the clock is read before the wait for it.
LEASE_LIVE = select(work_items.c.lease_until > func.clock_timestamp()).where(*_THIS)
CLAIM = (
    update(work_items)
    .where(*_THIS, work_items.c.state.in_(WORK_ITEM.sources("processing", "claim")))
    .values(
        state="processing",
        via="claim",
        lease_owner=bindparam("owner"),
        lease_token=bindparam("token"),
        lease_until=func.clock_timestamp() + bindparam("lease"),
        ownership_epoch=work_items.c.ownership_epoch + 1,
        changed_at=func.clock_timestamp(),
    )
    .returning(work_items.c.ownership_epoch)
)
RECLAIM = (
    update(work_items)
    .where(*_THIS, work_items.c.state == "processing")
    .values(
        via="reclaim",
        lease_owner=bindparam("owner"),
        lease_token=bindparam("token"),
        lease_until=func.clock_timestamp() + bindparam("lease"),
        ownership_epoch=work_items.c.ownership_epoch + 1,
        claims_lost=work_items.c.claims_lost + 1,
        changed_at=func.clock_timestamp(),
    )
    .returning(work_items.c.ownership_epoch)
)
LEAVE = (
    update(work_items)
    .where(*_FENCED)
    .values(
        state=bindparam("target"),
        via=bindparam("trigger"),
        run_after=func.coalesce(bindparam("due"), work_items.c.run_after),
        failure_class=bindparam("why"),
        summary=bindparam("told"),
        changed_at=func.clock_timestamp(),
        **_NO_LEASE,
    )
)
BRING_FORWARD = (
    update(work_items)
    .where(
        *_THIS,
        work_items.c.state.in_(("pending", "retry")),
        work_items.c.run_after > bindparam("due"),
    )
    .values(run_after=bindparam("due"))
)


async def lock(connection: AsyncConnection, org: OrgId, work: WorkId) -> Row[Any] | None:
    """The row, locked until COMMIT; None where there is none."""
    return (await connection.execute(LOCK, {"of_org": org, "of_work": work})).one_or_none()


async def is_lease_live(connection: AsyncConnection, org: OrgId, work: WorkId) -> bool:
    """Whether the locked row's lease has not ended by the database's own clock."""
    live = (await connection.execute(LEASE_LIVE, {"of_org": org, "of_work": work})).scalar_one()
    return bool(live)


async def claim(
    connection: AsyncConnection,
    row: Row[Any],
    *,
    owner: UUID,
    token: LeaseToken,
    lease: timedelta,
    is_reclaim: bool,
) -> Fence:
    """Make the locked `row` the caller's under the next epoch and a token of its own."""
    epoch = (
        await connection.execute(
            RECLAIM if is_reclaim else CLAIM,
            {
                "of_org": row.org_id,
                "of_work": row.work_id,
                "owner": owner,
                "token": token,
                "lease": lease,
            },
        )
    ).scalar_one()
    return Fence(org=row.org_id, work=row.work_id, token=token, epoch=epoch)


async def leave(
    connection: AsyncConnection,
    fence: Fence,
    *,
    target: str,
    trigger: str,
    due: datetime | None = None,
    failure_class: str | None = None,
    summary: str | None = None,
) -> None:
    """
    Move a claimed item to `target` by `trigger`.

    Raises:
        InvalidTransition: The lifecycle has no such move.
        FenceLost: The lease or the epoch is no longer the caller's. Nothing was written.
    """
    WORK_ITEM.check("processing", target, trigger)
    # The WHERE names the claimant as well as the state: a reclaimed row is also `processing`,
    # and a stale claimant must not end somebody else's claim.
    result = await connection.execute(
        LEAVE,
        {
            "of_org": fence.org,
            "of_work": fence.work,
            "of_token": fence.token,
            "of_epoch": fence.epoch,
            "target": target,
            "trigger": trigger,
            "due": due,
            "why": failure_class,
            "told": summary,
        },
    )
    if result.rowcount != 1:
        raise FenceLost(verb=trigger)


async def bring_forward(
    connection: AsyncConnection, org: OrgId, work: WorkId, due: datetime
) -> bool:
    """Make a waiting item due at `due` where it is due later; says whether it moved."""
    result = await connection.execute(BRING_FORWARD, {"of_org": org, "of_work": work, "due": due})
    return bool(result.rowcount)
