"""Both lifecycles and the settlement table are the same in the contract, in Python and in SQL."""

import json
from pathlib import Path
from typing import Any

import pytest

from oncefence.domain.breaker import BREAKER
from oncefence.domain.execution import EXECUTION
from oncefence.domain.lifecycle import Lifecycle
from oncefence.domain.settlement import rows
from oncefence.domain.work_item import WORK_ITEM
from oncefence.storage.tables import settlement_rules
from tests.support.servers import Database

CONTRACT: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "data" / "transitions.json").read_text(encoding="utf-8")
)


def key_and_actor(rows: Any) -> set[tuple[str, str, str, str]]:
    return {(row["source"], row["target"], row["trigger"], row["actor"]) for row in rows}


@pytest.mark.parametrize("lifecycle", [EXECUTION, WORK_ITEM], ids=lambda each: each.name)
async def test_the_moves_are_the_same_in_contract_python_and_sql(
    database: Database, lifecycle: Lifecycle
) -> None:
    """The database refuses by its own copy, so a difference is a hole or a wall (C45, C62)."""
    contract = CONTRACT[lifecycle.name]["transitions"]
    python = [
        {name: getattr(row, name) for name in ("source", "target", "trigger", "actor", "guard")}
        for row in lifecycle.transitions
    ]
    async with database.app_engine.connect() as connection:
        found = await connection.exec_driver_sql(
            "SELECT source, target, trigger, actor, guard FROM oncefence.lifecycle_transitions"
            f" WHERE lifecycle = '{lifecycle.name}'"
        )
        sql = [dict(row) for row in found.mappings()]

    assert len(sql) == len(python) == len(contract)
    assert key_and_actor(contract) == key_and_actor(python)
    assert sorted(sql, key=str) == sorted(python, key=str)


async def test_no_other_lifecycle_is_in_the_table(database: Database) -> None:
    """A row under a misspelt name would be a rule that nothing reads."""
    async with database.app_engine.connect() as connection:
        found = await connection.exec_driver_sql(
            "SELECT DISTINCT lifecycle FROM oncefence.lifecycle_transitions"
        )
        names = set(found.scalars())

    assert names == {EXECUTION.name, WORK_ITEM.name, BREAKER.name}


async def test_the_settlement_table_is_the_same_in_python_and_sql(database: Database) -> None:
    """The settling function reads its own copy of what an outcome does (C82)."""
    python = {
        (
            outcome.value,
            situation.at_ceiling,
            situation.may_have_applied,
            situation.replay_open,
            row.item_state,
            row.item_trigger,
            row.execution_status,
            row.execution_trigger,
            row.failure_class,
            row.lookup_due.value,
        )
        for outcome, situation, row in rows()
    }
    async with database.app_engine.connect() as connection:
        sql = {tuple(row) for row in await connection.execute(settlement_rules.select())}

    assert len(sql) == 40
    assert sql == python
