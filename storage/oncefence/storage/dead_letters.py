"""
Which items are dead letters: derived from the facts, so that one leaves without being edited.

An item is one where it ended dead, or was cancelled with a failure class, unless its execution
has come to a good end or was cancelled since, or the item was replayed (C400).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Row, TextClause, text
from sqlalchemy.ext.asyncio import AsyncConnection

from oncefence.domain.ids import OrgId

ENDED_BADLY: Final = """
      FROM oncefence.work_items AS w
      LEFT JOIN oncefence.executions AS e
        ON e.org_id = w.org_id AND e.execution_id = w.execution_id
      LEFT JOIN oncefence.work_items AS r
        ON r.org_id = w.org_id AND r.replays_work_id = w.work_id
     WHERE (w.state = 'dead' OR (w.state = 'cancelled' AND w.failure_class IS NOT NULL))
"""
"""Items `w` that ended without success, each with its execution `e` and its replay `r`, if any."""

LEFT_OVER: Final = """
       r.work_id IS NULL AND (e.status IS NULL OR e.status NOT IN ('succeeded', 'cancelled'))
"""
"""Which of them are dead letters now."""

# What narrows is joined in only where it is asked for: a condition that may be off, or an org that
# may be any, keeps the planner from the index that has the rows in their order.
_SELECT: Final = f"""
    SELECT w.org_id, w.work_id, w.family, w.definition, w.provider, w.state, w.via,
           w.failure_class, w.summary, w.attempt, w.claims_lost, w.command_id, w.execution_id,
           w.replays_work_id, w.made_at, w.changed_at, oncefence.work_version(w) AS version,
           e.status AS execution_status
{ENDED_BADLY}
"""  # only the constant above is joined in
_CONDITIONS: Final[Mapping[str, str]] = {
    "org": "w.org_id = :org",
    "orgs": "w.org_id = ANY (:orgs)",
    "work": "w.work_id = :work",
    "family": "w.family = :family",
    "provider": "w.provider = :provider",
    "definition": "w.definition = :definition",
    "failure_class": "w.failure_class = :failure_class",
    "after_at": "(w.changed_at, w.work_id) < (:after_at, :after_work)",
    # The moment of a plan: what ended later is not part of it, and what was replayed later still
    # is, so that a plan can be read again after a part of it was applied.
    "ended_until": f"w.changed_at <= :ended_until AND (r.made_at > :ended_until OR ({LEFT_OVER}))",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterFilter:
    """Which dead letters; what is None does not narrow."""

    work: UUID | None = None
    family: str | None = None
    provider: str | None = None
    definition: str | None = None
    failure_class: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Where the next page begins: behind this row."""

    at: datetime
    work: UUID


async def dead_letters_of(
    connection: AsyncConnection,
    org: OrgId | Sequence[OrgId] | None,
    which: DeadLetterFilter,
    *,
    limit: int,
    after: Position | None = None,
    ended_until: datetime | None = None,
) -> Sequence[Row[Any]]:
    """The dead letters of an org, of several, or of all; those that ended last come first."""
    given = {
        "org": org if isinstance(org, str) else None,
        "orgs": None if org is None or isinstance(org, str) else list(org),
        "work": which.work,
        "family": which.family,
        "provider": which.provider,
        "definition": which.definition,
        "failure_class": which.failure_class,
        "after_at": None if after is None else after.at,
        "ended_until": ended_until,
    }
    narrowed = {name: value for name, value in given.items() if value is not None}
    values = narrowed | {"limit": limit} | ({} if after is None else {"after_work": after.work})
    return (await connection.execute(_statement(tuple(narrowed)), values)).all()


@cache
def _statement(narrowed_by: tuple[str, ...]) -> TextClause:
    conditions = [_CONDITIONS[name] for name in narrowed_by]
    if "ended_until" not in narrowed_by:
        conditions.append(LEFT_OVER)
    return text(
        f"{_SELECT} AND {' AND '.join(conditions)}"
        " ORDER BY w.changed_at DESC, w.work_id DESC LIMIT :limit"
    )
