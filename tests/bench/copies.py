"""
Many rows like those of one command, written by the database itself in one statement a table.

One settled command and one that waits are made through the phases; the owner then copies their
rows under other ids, with the triggers out of the way. Nothing of a copy is ever sent.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

import asyncpg

# The tables that a claim reads or writes and that grow with what was done, parents first, and
# how each finds the row that is copied.
TABLES: Final = (
    "commands",
    "executions",
    "execution_keys",
    "sealed_payloads",
    "work_items",
    "effect_attempts",
)
# Whose ids are replaced wherever they stand, so that every copy is a command of its own.
_IDS: Final = ("command_id", "execution_id", "work_id", "attempt_id")
_TOKENS: Final = ("lease_token", "settled_token", "left_by")
_LANES: Final = ("source_lane", "target_lane")


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A command whose rows are copied, and what marks the ids of its copies."""

    org: str
    command: UUID
    execution: UUID
    mark: str

    def id_of(self, column: str, number: str = "g") -> str:
        """The id of a copy in SQL: spread over the whole index, as derived ids are."""
        return f"md5('{self.mark}:{column}:' || {number})::uuid"


async def copy(connection: asyncpg.Connection, model: Model, count: int) -> None:
    """Write `count` commands like the model, of its org and with lanes of their own."""
    for table in TABLES:
        by = "command_id" if table in ("commands", "work_items", "effect_attempts") else None
        key = model.command if by else model.execution
        columns = await _columns(connection, table)
        values = _values(columns, _replaced(model))
        await connection.execute(
            f"INSERT INTO oncefence.{table} ({', '.join(columns)})"
            f" SELECT {', '.join(values)} FROM oncefence.{table} AS m,"
            f" generate_series(1, $3::bigint) AS g"
            f" WHERE m.org_id = $1 AND m.{by or 'execution_id'} = $2",
            model.org,
            key,
            count,
            timeout=3600,
        )


async def copy_as_other_family(
    connection: asyncpg.Connection, model: Model, count: int, family: str
) -> None:
    """Write `count` items like the model's, of a family that has no command and no lane."""
    columns = await _columns(connection, "work_items")
    nothing = ("command_id", "execution_id", "source_lane", "source_sequence")
    replaced = {
        **_replaced(model),
        **dict.fromkeys((*nothing, "target_lane", "target_sequence"), "NULL"),
        "work_id": model.id_of(family),
        "family": f"'{family}'",
        "definition": f"'{family}'",
    }
    await connection.execute(
        f"INSERT INTO oncefence.work_items ({', '.join(columns)})"
        f" SELECT {', '.join(_values(columns, replaced))} FROM oncefence.work_items AS m,"
        " generate_series(1, $3::bigint) AS g WHERE m.org_id = $1 AND m.command_id = $2",
        model.org,
        model.command,
        count,
    )


def _replaced(model: Model) -> Mapping[str, str]:
    tokens = {
        name: f"CASE WHEN m.{name} IS NOT NULL THEN {model.id_of('token')} END" for name in _TOKENS
    }
    lanes = {name: f"'{model.mark}:{name}:' || g" for name in _LANES}
    return {
        **{name: model.id_of(name) for name in _IDS},
        **tokens,
        **lanes,
        "handoff_key": f"'{model.mark}:' || g",
        "outbox_id": f"'{model.mark}:' || g",
        "subject": f"'{model.mark}:' || g",
        "subject_id": f"({model.id_of('command_id')})::text",
    }


def _values(columns: Sequence[str], replaced: Mapping[str, str]) -> list[str]:
    return [replaced.get(column, f"m.{column}") for column in columns]


async def _columns(connection: asyncpg.Connection, table: str) -> list[str]:
    rows = await connection.fetch(
        "SELECT attname FROM pg_attribute WHERE attrelid = $1::regclass AND attnum > 0"
        " AND NOT attisdropped AND attgenerated = '' ORDER BY attnum",
        f"oncefence.{table}",
    )
    return [row["attname"] for row in rows]
