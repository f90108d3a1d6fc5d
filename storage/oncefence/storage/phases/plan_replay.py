"""Planning a replay of many: a verdict for each item, and one digest over all of them (C405)."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from oncefence.domain.ids import OrgId, WorkId
from oncefence.domain.limits import Limits
from oncefence.storage.dead_letters import DeadLetterFilter, dead_letters_of
from oncefence.storage.engine import run_phase
from oncefence.storage.replay_facts import PlanLine, plan_lines

ITEMS_MAX: Final = 500
"""So many items a plan may hold; the rest is for the next plan."""

NOW = text("SELECT clock_timestamp()")
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayPlan:
    """What a replay of these items would do, as it stood at `planned_at`."""

    org: OrgId
    planned_at: datetime
    lines: Sequence[PlanLine]
    has_more: bool
    """More items match than a plan may hold."""

    @property
    def digest(self) -> str:
        """Names this very plan: when it was made, and what it says of every item."""
        said = [self.org, self.planned_at.isoformat()]
        said += [
            f"{line.work}|{line.version}|{line.verdict}|{line.current_digest}"
            f"|{line.current_generation}|{line.current_link_version}"
            for line in self.lines
        ]
        of_all = hashlib.sha256("\n".join(said).encode()).hexdigest()
        return f"{(self.planned_at - EPOCH) // timedelta(microseconds=1)}-{of_all[:32]}"

    @property
    def provider_calls(self) -> int:
        """How many calls applying it begins with."""
        return sum(line.provider_calls for line in self.lines)


async def plan_replay(
    engine: AsyncEngine, org: OrgId, which: DeadLetterFilter, limits: Limits
) -> ReplayPlan:
    """What applying a replay to these dead letters would do now; nothing is written."""

    async def transaction() -> ReplayPlan:
        async with engine.begin() as connection:
            planned_at = (await connection.execute(NOW)).scalar_one()
            return await read_plan(connection, org, which, limits, planned_at)

    return await run_phase("plan_replay", transaction)


async def read_plan(
    connection: AsyncConnection,
    org: OrgId,
    which: DeadLetterFilter,
    limits: Limits,
    planned_at: datetime,
) -> ReplayPlan:
    """The plan as of `planned_at`, inside a transaction of the caller."""
    found = await dead_letters_of(
        connection, org, which, ended_until=planned_at, limit=ITEMS_MAX + 1
    )
    works = [WorkId(row.work_id) for row in found]
    return ReplayPlan(
        org=org,
        planned_at=planned_at,
        lines=await plan_lines(connection, org, works[:ITEMS_MAX], limits),
        has_more=len(works) > ITEMS_MAX,
    )
