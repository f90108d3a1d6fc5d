"""Sole writer of `org_keys`: the one key of each org, wrapped."""

from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy import bindparam, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from oncefence.storage.tables import org_keys
from oncefence.storage.wrapped_keys import WrappedKeys, under_other_keys

ADD = insert(org_keys).on_conflict_do_nothing()
UNDER_OTHER_KEYS = under_other_keys(org_keys, org_keys.c.org_id)
REWRAP = (
    update(org_keys)
    .where(org_keys.c.org_id == bindparam("of_org_id"))
    .values(wrapped_key=bindparam("wrapped_key"), key_id=bindparam("key_id"))
)

WRAPPED: Final = WrappedKeys(
    table="org_keys",
    identity=("org_id",),
    held=UNDER_OTHER_KEYS,
    rewrap=REWRAP,
    place=lambda row: ("org", row.org_id),
)


async def add(connection: AsyncConnection, values: Mapping[str, Any]) -> None:
    """Add one row; one that is there already stays as it is."""
    await connection.execute(ADD, values)
