"""Putting on record that a handoff key was used again with another meaning."""

from sqlalchemy.ext.asyncio import AsyncEngine

from oncefence.domain.errors import HandoffConflict
from oncefence.domain.handoff import EffectHandoffKey
from oncefence.domain.ids import OutboxId
from oncefence.storage import handoff_conflicts
from oncefence.storage.driver_connection import AnyRow
from oncefence.storage.engine import run_phase


async def refuse_conflict(
    engine: AsyncEngine,
    key: EffectHandoffKey,
    row: AnyRow,
    *,
    verb: str,
    outbox: OutboxId,
    address: bytes,
) -> None:
    """
    Compare a repeat with the admission that stands, and keep the conflict where they differ.

    Raises:
        HandoffConflict: They differ. The admission and its command are as they were.
    """
    field = None
    if row.payload_address != address:
        field = "payload digest"
    elif row.outbox_id != outbox:
        field = "outbox id"
    if field is None:
        return

    async def transaction() -> None:
        async with engine.begin() as connection:
            await handoff_conflicts.add(
                connection, key, field=field, verb=verb, outbox=outbox, address=address
            )

    await run_phase("record_conflict", transaction)
    raise HandoffConflict(field=field)
