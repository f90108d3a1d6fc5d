"""Beginning a planned replay: nothing of the plan has moved, and its start is on record (C405)."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from oncefence.domain.errors import ActRefused, VersionMoved
from oncefence.domain.ids import OrgId
from oncefence.domain.limits import Limits
from oncefence.domain.operator import Act
from oncefence.domain.replay import ReplayVerdict
from oncefence.storage import audit
from oncefence.storage.dead_letters import DeadLetterFilter
from oncefence.storage.engine import run_phase
from oncefence.storage.phases.plan_replay import EPOCH, ReplayPlan, read_plan

SUBJECT_KIND: Final = "replay_plan"

BEGUN = text(
    "SELECT EXISTS (SELECT FROM oncefence.audit WHERE org_id = :org AND act = :act"
    " AND subject_kind = :kind AND subject_id = :plan)"
)


async def begin_replay(
    engine: AsyncEngine,
    org: OrgId,
    which: DeadLetterFilter,
    digest: str,
    *,
    note: str,
    actor: str,
    limits: Limits,
) -> ReplayPlan:
    """
    The plan of this digest, to be applied: nothing of it has moved, and its start is on record.

    A plan whose start is on record is begun again where all that moved since are its own
    replays; so what a crash left undone can be finished by the same words.

    Raises:
        ActRefused: The text is no digest of a plan.
        VersionMoved: Something that the plan speaks of has moved.
    """
    planned_at = _planned_at(digest)

    async def transaction() -> ReplayPlan:
        async with engine.begin() as connection:
            plan = await read_plan(connection, org, which, limits, planned_at)
            if plan.digest != digest:
                begun = await connection.execute(
                    BEGUN, {"org": org, "act": Act.REPLAY, "kind": SUBJECT_KIND, "plan": digest}
                )
                as_planned = _before_its_own_replays(plan)
                if not begun.scalar_one() or as_planned.digest != digest:
                    # The right words are only had by looking: they are not told here.
                    raise VersionMoved(subject="the plan", expected=digest, found="another one")
                plan = as_planned
            await audit.add(
                connection,
                org,
                actor=actor,
                act=Act.REPLAY,
                subject_kind=SUBJECT_KIND,
                subject_id=digest,
                note=note,
                expected_version=digest,
            )
            return plan

    return await run_phase("begin_replay", transaction)


def _before_its_own_replays(plan: ReplayPlan) -> ReplayPlan:
    """The plan with each item that was replayed since as it stood: only a safe one can be."""
    lines = [
        replace(line, verdict=ReplayVerdict.SAFE_TO_REPLAY)
        if line.replayed_at is not None and line.replayed_at > plan.planned_at
        else line
        for line in plan.lines
    ]
    return replace(plan, lines=lines)


def _planned_at(digest: str) -> datetime:
    micros, dash, of_all = digest.partition("-")
    if not (dash and of_all and micros.isdecimal() and len(micros) <= 17):
        raise ActRefused(
            act="replay",
            subject=f"plan {digest!r}",
            verdict="no_plan",
            remedy="give the digest exactly as the plan shows it",
        )
    return EPOCH + timedelta(microseconds=int(micros))
