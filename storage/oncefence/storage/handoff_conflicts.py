"""Sole writer of `handoff_conflicts`: repeats of a key that say something else."""

from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from oncefence.domain.handoff import EffectHandoffKey
from oncefence.domain.ids import OutboxId, derived_id
from oncefence.storage.tables import handoff_conflicts

ADD = insert(handoff_conflicts).on_conflict_do_nothing()


async def add(
    connection: AsyncConnection,
    key: EffectHandoffKey,
    *,
    field: str,
    verb: str,
    outbox: OutboxId,
    address: bytes,
) -> None:
    """Keep the conflict; the same repeat told again is the same row."""
    await connection.execute(
        ADD,
        {
            "org_id": key.scope.org,
            "conflict_id": derived_id("conflict", key, verb, field, outbox, address.hex()),
            "handoff_key": str(key),
            "field": field,
            "verb": verb,
            "offered_outbox_id": outbox,
            "offered_payload_address": address,
        },
    )
