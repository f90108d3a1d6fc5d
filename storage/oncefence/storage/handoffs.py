"""Sole writer of `handoffs`, but for the SQL of acceptance: the one admission of each key."""

from datetime import timedelta
from typing import Any

from sqlalchemy import Row, bindparam, func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from oncefence.domain.handoff import Admission, EffectHandoffKey
from oncefence.domain.ids import OutboxId
from oncefence.storage.tables import handoffs

FIND = select(handoffs).where(
    handoffs.c.handoff_key == bindparam("of_key"), handoffs.c.org_id == bindparam("of_org")
)
REJECT = (
    insert(handoffs)
    .values(
        handoff_key=bindparam("key"),
        org_id=bindparam("org"),
        installation=bindparam("of_installation"),
        capability=bindparam("of_capability"),
        work_binding_digest=bindparam("digest"),
        admission=Admission.HANDOFF_REJECTED.value,
        outbox_id=bindparam("outbox"),
        payload_address=bindparam("address"),
        reason=bindparam("why"),
        retained_until=func.clock_timestamp() + bindparam("kept_for"),
    )
    .on_conflict_do_nothing()
    .returning(handoffs.c.handoff_key)
)


async def find(connection: AsyncConnection, key: EffectHandoffKey) -> Row[Any] | None:
    """The admission of `key` in its own org; None is *undecided* and proves nothing."""
    return (
        await connection.execute(FIND, {"of_key": str(key), "of_org": key.scope.org})
    ).one_or_none()


async def reject(
    connection: AsyncConnection,
    key: EffectHandoffKey,
    *,
    outbox: OutboxId,
    address: bytes,
    reason: str,
    kept_for: timedelta,
) -> bool:
    """Write the rejection where the key has no admission yet; says whether it was written."""
    written = (
        await connection.execute(
            REJECT,
            {
                "key": str(key),
                "org": key.scope.org,
                "of_installation": key.scope.installation,
                "of_capability": key.scope.capability,
                "digest": key.scope.work_binding_digest,
                "outbox": outbox,
                "address": address,
                "why": reason,
                "kept_for": kept_for,
            },
        )
    ).scalar_one_or_none()
    return written is not None
