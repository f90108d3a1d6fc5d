"""Settling as lost: an attempt whose starter is gone becomes unknown, and is never sent again."""

from datetime import datetime
from typing import Any

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from oncefence.domain.fence import Fence
from oncefence.domain.ids import ExecutionId, LeaseToken, OrgId, WorkId
from oncefence.domain.settlement import LOST_ATTEMPT
from oncefence.storage import effect_attempts, executions, work_items
from oncefence.storage.engine import run_phase
from oncefence.storage.phases.find_work import WorkRef, lookup_ref

ADD_LOOKUP = text("SELECT oncefence.add_lookup_item(:org, :work, :attempt, :due)")


async def settle_lost_attempt(
    engine: AsyncEngine, org: OrgId, work: WorkId, *, as_of: datetime
) -> WorkRef | None:
    """
    Where an attempt is open and its lease has ended, settle it as unknown; else do nothing.

    Gives the lookup item that is due now, or None where somebody else came first.

    No claim is needed: the token and the epoch are those that are found under the row lock.
    """

    async def transaction() -> WorkRef | None:
        async with engine.begin() as connection:
            item = await work_items.lock(connection, org, work)
            if item is None or item.state != "processing":
                return None
            if await work_items.is_lease_live(connection, org, work):
                return None
            attempt = await effect_attempts.lock_open(connection, org, work)
            if attempt is None:
                return None
            return await settle_locked(connection, item, attempt, as_of)

    return await run_phase("settle_lost_attempt", transaction)


async def settle_locked(
    connection: AsyncConnection, item: Row[Any], attempt: Row[Any], as_of: datetime
) -> WorkRef:
    """The locked item and its locked open attempt settled as lost; gives the lookup item."""
    org, work = OrgId(item.org_id), WorkId(item.work_id)
    execution = await executions.lock(connection, org, ExecutionId(attempt.execution_id))
    fence = Fence(
        org=org,
        work=work,
        token=LeaseToken(item.lease_token),
        epoch=item.ownership_epoch,
    )
    failure = str(LOST_ATTEMPT.failure_class)
    await effect_attempts.settle_as_lost(connection, attempt)
    await work_items.leave(
        connection,
        fence,
        target=LOST_ATTEMPT.item_state,
        trigger=LOST_ATTEMPT.item_trigger,
        failure_class=failure,
    )
    await executions.move(
        connection,
        execution,
        target=LOST_ATTEMPT.execution_status,
        trigger=LOST_ATTEMPT.execution_trigger,
        failure_class=failure,
    )
    added = await connection.execute(
        ADD_LOOKUP,
        {"org": org, "work": work, "attempt": attempt.attempt_id, "due": as_of},
    )
    # A statement of its own: the one that added it cannot see it.
    lookup = await work_items.lock(connection, org, WorkId(added.scalar_one()))
    assert lookup is not None, "the item was added in this transaction"
    ref = lookup_ref(org, lookup.work_id, lookup.deadline_ms, as_of, as_of=as_of)
    assert ref is not None, "it has an id and is due"
    return ref
