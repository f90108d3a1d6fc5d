"""Reading the whole promise in one snapshot: what breaks it, and what waits for a person."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from oncefence.storage.engine import run_phase
from oncefence.storage.invariants import INVARIANTS, QUEUES, STANDINGS, Rule

ROWS_MAX: Final = 200
"""How many rows of one rule are read; all of them are counted."""

LOOKUP_BLOCKED_AFTER: Final = timedelta(hours=24)

# One snapshot: between two statements a healthy command moves, and would look broken.
SNAPSHOT = text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
HAS_COMMANDS = text("SELECT count(*) FROM oncefence.commands")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one rule found. `count` is of all rows, `rows` are the first of them."""

    rule: Rule
    count: int
    rows: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where one accepted command stands. `status` is None where its execution is missing."""

    org: str
    handoff_key: str
    command: UUID
    status: str | None
    settled_by: str | None
    failure_class: str | None
    was_unknown: bool
    is_final: bool
    listed_in: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """Every rule with what it found, and every accepted command, all of one moment."""

    invariants: Sequence[Finding]
    queues: Sequence[Finding]
    standings: Sequence[Standing]
    commands: int

    @property
    def violations(self) -> int:
        """How many rows break a rule."""
        return sum(finding.count for finding in self.invariants)


async def audit_invariants(
    engine: AsyncEngine, *, time_scale: float = 1.0, with_standings: bool = False
) -> Audit:
    """Judge the tables by every rule. Nothing is written, and nothing waits for it."""
    values = {"lookup_blocked_after": LOOKUP_BLOCKED_AFTER * time_scale}

    async def transaction() -> Audit:
        async with engine.begin() as connection:
            await connection.execute(SNAPSHOT)
            return Audit(
                invariants=[await _find(connection, rule, values) for rule in INVARIANTS],
                queues=[await _find(connection, rule, values) for rule in QUEUES],
                standings=await _standings(connection, values) if with_standings else (),
                commands=int((await connection.execute(HAS_COMMANDS)).scalar_one()),
            )

    return await run_phase("audit_invariants", transaction)


async def _find(connection: AsyncConnection, rule: Rule, values: Mapping[str, Any]) -> Finding:
    statement = text(
        f"SELECT q.*, count(*) OVER () AS all_rows FROM ({rule.query}) AS q LIMIT :rows_max"  # noqa: S608  # our own text
    )
    given = {"rows_max": ROWS_MAX} | _values_of(rule.query, values)
    rows = [dict(row) for row in (await connection.execute(statement, given)).mappings()]
    count = int(rows[0]["all_rows"]) if rows else 0
    for row in rows:
        del row["all_rows"]
    return Finding(rule=rule, count=count, rows=rows)


async def _standings(connection: AsyncConnection, values: Mapping[str, Any]) -> list[Standing]:
    listed: dict[tuple[str, UUID], set[str]] = {}
    for queue in QUEUES:
        every = text(f"SELECT DISTINCT q.org_id, q.command_id FROM ({queue.query}) AS q")  # noqa: S608  # our own text
        for row in await connection.execute(every, _values_of(queue.query, values)):
            listed.setdefault((row.org_id, row.command_id), set()).add(queue.name)
    return [
        Standing(
            org=row.org_id,
            handoff_key=row.handoff_key,
            command=row.command_id,
            status=row.status,
            settled_by=row.settled_by,
            failure_class=row.failure_class,
            was_unknown=row.was_unknown,
            is_final=bool(row.is_final),
            listed_in=frozenset(listed.get((row.org_id, row.command_id), ())),
        )
        for row in await connection.execute(text(STANDINGS))
    ]


def _values_of(query: str, values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if f":{name}" in query}
