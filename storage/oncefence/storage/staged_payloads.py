"""Sole writer of `staged_payloads`: bytes put ahead of their handoff, each under its own key."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from sqlalchemy import ColumnElement, Interval, bindparam, case, func, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from oncefence.storage.tables import staged_payloads
from oncefence.storage.wrapped_keys import WrappedKeys, under_other_keys

KEPT_FOR: Final = timedelta(days=7)

_NEW = insert(staged_payloads)


def _kept(present: ColumnElement[Any], offered: ColumnElement[Any]) -> ColumnElement[Any]:
    return case((staged_payloads.c.wrapped_key.is_(None), offered), else_=present)


# Erased bytes are put anew; bytes that are there are only kept longer, so that a repeat of the
# put is safe to rely on until its handoff comes.
STAGE = _NEW.on_conflict_do_update(
    index_elements=["org_id", "payload_address"],
    set_={
        "wrapped_key": func.coalesce(staged_payloads.c.wrapped_key, _NEW.excluded.wrapped_key),
        "key_id": _kept(staged_payloads.c.key_id, _NEW.excluded.key_id),
        "ciphertext": _kept(staged_payloads.c.ciphertext, _NEW.excluded.ciphertext),
        "staged_at": func.clock_timestamp(),
    },
)
ERASE = (
    update(staged_payloads)
    .where(
        staged_payloads.c.wrapped_key.is_not(None),
        staged_payloads.c.staged_at
        < func.clock_timestamp() - bindparam("kept_for", type_=Interval),
    )
    .values(wrapped_key=None)
)
UNDER_OTHER_KEYS = under_other_keys(
    staged_payloads, staged_payloads.c.org_id, staged_payloads.c.payload_address
)
REWRAP = (
    update(staged_payloads)
    .where(
        staged_payloads.c.org_id == bindparam("of_org_id"),
        staged_payloads.c.payload_address == bindparam("of_payload_address"),
    )
    .values(wrapped_key=bindparam("wrapped_key"), key_id=bindparam("key_id"))
)

WRAPPED: Final = WrappedKeys(
    table="staged_payloads",
    identity=("org_id", "payload_address"),
    held=UNDER_OTHER_KEYS,
    rewrap=REWRAP,
    place=lambda row: ("staged", row.org_id, bytes(row.payload_address).hex()),
)


async def stage(connection: AsyncConnection, values: Mapping[str, Any]) -> None:
    """Stage the bytes; those that are staged already stay, and stay longer."""
    await connection.execute(STAGE, values)


async def erase_old(connection: AsyncConnection) -> int:
    """Null the keys of bytes that no handoff came for; says of how many."""
    return (await connection.execute(ERASE, {"kept_for": KEPT_FOR})).rowcount
