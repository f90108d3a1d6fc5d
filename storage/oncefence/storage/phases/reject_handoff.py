"""Rejection: proof that a handoff key never became, and never will become, a command."""

from datetime import timedelta

from sqlalchemy.ext.asyncio import AsyncEngine

from oncefence.domain.command import Receipt
from oncefence.domain.errors import ScopeRefused
from oncefence.domain.handoff import EffectHandoffKey
from oncefence.domain.ids import OutboxId, PayloadDigest
from oncefence.domain.limits import Limits
from oncefence.storage import handoffs
from oncefence.storage.engine import run_phase
from oncefence.storage.phases.authenticate import Caller
from oncefence.storage.phases.find_admission import find_admission, receipt_of
from oncefence.storage.phases.refuse_conflict import refuse_conflict
from oncefence.storage.phases.refuse_scope import refuse_other_scope


async def reject_handoff(
    engine: AsyncEngine,
    caller: Caller,
    key: EffectHandoffKey,
    *,
    digest: PayloadDigest,
    outbox: OutboxId,
    reason: str,
    limits: Limits,
) -> Receipt:
    """
    The rejection receipt of `key`, or the accepted one where acceptance came first.

    Idempotent after a lost answer. Raises what `accept_handoff` raises for scope and conflict.
    """
    await refuse_other_scope(engine, caller.scope, key, verb="reject")
    address = caller.org_key.address(digest)

    async def transaction() -> bool:
        async with engine.begin() as connection:
            return await handoffs.reject(
                connection,
                key,
                outbox=outbox,
                address=address,
                reason=reason,
                kept_for=timedelta(days=limits.retention_days),
            )

    is_new = await run_phase("reject_handoff", transaction)
    row = await find_admission(engine, key)
    if row is None:
        raise ScopeRefused
    await refuse_conflict(engine, key, row, verb="reject", outbox=outbox, address=address)
    return receipt_of(key, row, is_new=is_new)
