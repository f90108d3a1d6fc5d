"""Wrapping a batch of stored data keys anew under the ring's current key (C297)."""

from typing import Final

from sqlalchemy.ext.asyncio import AsyncEngine

from oncefence.domain.operator import EVERY_ORG
from oncefence.storage import audit, execution_keys, org_keys, provider_apps, staged_payloads
from oncefence.storage.engine import run_phase
from oncefence.storage.sealing import KeyRing
from oncefence.storage.wrapped_keys import WrappedKeys

ACT: Final = "keys.rewrap"
BATCH_ROWS: Final = 500
"""A transaction of this many is over in well under a second, and a kill loses no more."""

KINDS: Final[tuple[WrappedKeys, ...]] = (
    org_keys.WRAPPED,
    provider_apps.WRAPPED,
    staged_payloads.WRAPPED,
    execution_keys.WRAPPED,
)


async def rewrap_keys(
    engine: AsyncEngine, ring: KeyRing, kind: WrappedKeys, *, actor: str, rows_max: int = BATCH_ROWS
) -> int:
    """
    Wrap at most `rows_max` keys of a kind anew, with their audit row; says how many.

    None means that none is left that nobody holds just then. What is sealed under the data keys
    is not touched. Again after a lost answer does the rest.

    Raises:
        ConfigurationRefused: The ring lacks the key that one is under. Nothing was written.
    """
    current = ring.current_id

    async def transaction() -> int:
        async with engine.begin() as connection:
            asked = {"current": current, "batch": rows_max}
            held = (await connection.execute(kind.held, asked)).all()
            if not held:
                return 0
            rows = []
            for row in held:
                wrapped, key_id = ring.rewrap(row.wrapped_key, row.key_id, *kind.place(row))
                named = {f"of_{name}": getattr(row, name) for name in kind.identity}
                rows.append(named | {"wrapped_key": wrapped, "key_id": key_id})
            await connection.execute(kind.rewrap, rows)
            await audit.add(
                connection,
                EVERY_ORG,
                actor=actor,
                act=ACT,
                subject_kind="key",
                subject_id=current,
                note=f"{len(rows)} of {kind.table}",
            )
            return len(rows)

    return await run_phase("rewrap_keys", transaction)
