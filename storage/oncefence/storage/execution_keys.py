"""Wraps `execution_keys` anew; whoever accepts a command makes them, in SQL (`accept_handoff`)."""

from typing import Final

from sqlalchemy import bindparam, update

from oncefence.storage.tables import execution_keys
from oncefence.storage.wrapped_keys import WrappedKeys, under_other_keys

UNDER_OTHER_KEYS = under_other_keys(
    execution_keys, execution_keys.c.org_id, execution_keys.c.execution_id
)
REWRAP = (
    update(execution_keys)
    .where(
        execution_keys.c.org_id == bindparam("of_org_id"),
        execution_keys.c.execution_id == bindparam("of_execution_id"),
    )
    .values(wrapped_key=bindparam("wrapped_key"), key_id=bindparam("key_id"))
)

WRAPPED: Final = WrappedKeys(
    table="execution_keys",
    identity=("org_id", "execution_id"),
    held=UNDER_OTHER_KEYS,
    rewrap=REWRAP,
    place=lambda row: ("execution", row.org_id, row.execution_id),
)
