"""Settling as lost: an attempt whose starter is gone becomes unknown, and is never sent again."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from oncefence.domain.fence import Fence
from oncefence.domain.ids import ExecutionId, LeaseToken, OrgId, WorkId
from oncefence.domain.settlement import LOST_ATTEMPT
from oncefence.storage import effect_attempts, executions, work_items
from oncefence.storage.engine import run_phase

ADD_LOOKUP = text("SELECT oncefence.add_lookup_item(:org, :work, :attempt, :due)")


@dataclass(frozen=True, slots=True, kw_only=True)
class LostAttempt:
    """What there was to settle; `lookup_work` is None where somebody else came first."""

    lookup_work: WorkId | None
    next_due: datetime | None


async def settle_lost_attempt(
    engine: AsyncEngine, org: OrgId, work: WorkId, *, as_of: datetime
) -> LostAttempt:
    """
    Where an attempt is open and its lease has ended, settle it as unknown; else do nothing.

    No claim is needed: the token and the epoch are those that are found under the row lock.
    """
    nothing = LostAttempt(lookup_work=None, next_due=None)

    async def transaction() -> LostAttempt:
        async with engine.begin() as connection:
            item = await work_items.lock(connection, org, work)
            if item is None or item.state != "processing":
                return nothing
            if await work_items.is_lease_live(connection, org, work):
                return nothing
            attempt = await effect_attempts.lock_open(connection, org, work)
            if attempt is None:
                return nothing
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
            lookup = (
                await connection.execute(
                    ADD_LOOKUP,
                    {"org": org, "work": work, "attempt": attempt.attempt_id, "due": as_of},
                )
            ).scalar_one()
            return LostAttempt(lookup_work=WorkId(lookup), next_due=as_of)

    return await run_phase("settle_lost_attempt", transaction)
