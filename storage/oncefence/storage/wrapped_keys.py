"""
Stored data keys that can be wrapped anew where they are, as whoever does it sees each kind.

Writes no table itself: the statement of each kind is in the module that owns the table. The keys
of binding generations are none of these, because their tokens name the wrapping key.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Column, Row, Table, bindparam, select
from sqlalchemy.sql import Select, Update


@dataclass(frozen=True, slots=True, kw_only=True)
class WrappedKeys:
    """
    One kind.

    `held` locks and reads at most `batch` rows that are under another key than `current`, passing
    over those that somebody else holds. `rewrap` writes one row, named `of_<column>` by the
    columns of `identity`, with `wrapped_key` and `key_id`. `place` is what the key is bound to.
    """

    table: str
    identity: tuple[str, ...]
    held: Select[Any]
    rewrap: Update
    place: Callable[[Row[Any]], tuple[object, ...]]


def under_other_keys(table: Table, *identity: Column[Any]) -> Select[Any]:
    """The `held` of a kind."""
    return (
        select(*identity, table.c.wrapped_key, table.c.key_id)
        .where(table.c.wrapped_key.is_not(None), table.c.key_id != bindparam("current"))
        .limit(bindparam("batch"))
        # Whoever only refers to the row is not held up, nor waited for.
        .with_for_update(skip_locked=True, key_share=True)
    )
