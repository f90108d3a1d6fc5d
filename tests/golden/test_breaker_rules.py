"""The moves and the numbers of breakers are the same in Python and in SQL."""

from dataclasses import asdict

from sqlalchemy import text

from oncefence.domain.breaker import BREAKER, RULES
from oncefence.storage.tables import breaker_rules
from tests.support.servers import Database


async def test_the_moves_are_the_same_in_python_and_sql(database: Database) -> None:
    """The database refuses by its own copy, so a difference is a hole or a wall (C304)."""
    python = [
        {name: getattr(row, name) for name in ("source", "target", "trigger", "actor", "guard")}
        for row in BREAKER.transitions
    ]
    async with database.app_engine.connect() as connection:
        found = await connection.execute(
            text(
                "SELECT source, target, trigger, actor, guard FROM oncefence.lifecycle_transitions"
                " WHERE lifecycle = :name"
            ),
            {"name": BREAKER.name},
        )
        sql = [dict(row) for row in found.mappings()]

    assert len(python) > 0
    assert sorted(sql, key=str) == sorted(python, key=str)
    assert {row["guard"] for row in python} == set(BREAKER.guards)


async def test_the_numbers_are_the_same_in_python_and_sql(database: Database) -> None:
    """The functions judge by the row, and people read the domain (C304)."""
    async with database.app_engine.connect() as connection:
        (row,) = (await connection.execute(breaker_rules.select())).mappings().all()

    assert dict(row) == {"singleton": True, **asdict(RULES)}
