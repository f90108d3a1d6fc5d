"""Keeping what the starter of an attempt learnt after somebody settled it as lost."""

import json
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from oncefence.domain import ids
from oncefence.domain.effect import Disposition, Outcome
from oncefence.domain.errors import FenceLost
from oncefence.domain.evidence import Consequence, EvidenceKind, consequence
from oncefence.domain.fence import Fence
from oncefence.domain.ids import AttemptId, ExecutionId, WorkId
from oncefence.storage import (
    attempt_evidence,
    contradictions,
    effect_attempts,
    executions,
    work_items,
)
from oncefence.storage.engine import run_phase
from oncefence.storage.phases.find_work import WorkRef, lookup_ref
from oncefence.storage.phases.settle_attempt import AttemptEnd

LOOKUP_ITEM = text(
    "SELECT work_id FROM oncefence.work_items WHERE org_id = :org AND command_id = :command"
    " AND family = 'effect.lookup' AND state IN ('pending', 'retry', 'processing')"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """What the evidence did; `wake` is a lookup item that is due now because of it."""

    consequence: Consequence
    wake: WorkRef | None


async def record_evidence(
    engine: AsyncEngine, fence: Fence, attempt: AttemptId, end: AttemptEnd, *, as_of: datetime
) -> Recorded:
    """
    Keep a late answer, or the late word that nothing was sent; told again is the same (C106).

    Raises:
        FenceLost: The caller does not hold the token that started this attempt.
    """
    is_unsent = end.outcome is Outcome.RETRYABLE_PRE_DISPATCH
    kind = EvidenceKind.UNSENT if is_unsent else EvidenceKind.ANSWER
    evidence = ids.evidence_id(
        attempt,
        kind.value,
        json.dumps([end.outcome, end.response_status, dict(end.receipt)], sort_keys=True),
    )

    async def transaction() -> Recorded:
        async with engine.begin() as connection:
            lookup = None
            # Items before attempts before executions: the one lock order of all phases.
            await work_items.lock(connection, fence.org, fence.work)
            unlocked = (
                await connection.execute(
                    text(
                        "SELECT command_id FROM oncefence.effect_attempts"
                        " WHERE org_id = :org AND attempt_id = :attempt"
                    ),
                    {"org": fence.org, "attempt": attempt},
                )
            ).one_or_none()
            if unlocked is None:
                raise FenceLost(verb="record evidence")
            found = (
                await connection.execute(
                    LOOKUP_ITEM, {"org": fence.org, "command": unlocked.command_id}
                )
            ).scalar_one_or_none()
            if found is not None:
                lookup = await work_items.lock(connection, fence.org, WorkId(found))
            row = await effect_attempts.lock(connection, fence.org, attempt)
            if row is None or row.lease_token != fence.token:
                raise FenceLost(verb="record evidence")
            execution = await executions.lock(connection, fence.org, ExecutionId(row.execution_id))
            follows = consequence(
                kind,
                end.outcome,
                may_have_applied=end.may_have_applied,
                execution_status=execution.status,
                disposition=row.disposition,
            )
            is_new = await attempt_evidence.add(
                connection,
                {
                    "org_id": fence.org,
                    "evidence_id": evidence,
                    "attempt_id": attempt,
                    "kind": kind.value,
                    "start_token": fence.token,
                    "outcome": end.outcome.value,
                    "may_have_applied": end.may_have_applied,
                    "response_status": end.response_status,
                    "provider_receipt": dict(end.receipt),
                    "phases": dict(end.phases),
                    "execution_status": execution.status,
                    "verdict": follows.value,
                },
            )
            if not is_new:
                return Recorded(consequence=Consequence.KEPT, wake=None)
            if follows is Consequence.LOOKUP_NOW and lookup is not None:
                await work_items.bring_forward(connection, fence.org, WorkId(lookup.work_id), as_of)
                return Recorded(
                    consequence=follows,
                    wake=lookup_ref(
                        fence.org, lookup.work_id, lookup.deadline_ms, as_of, as_of=as_of
                    ),
                )
            if follows is Consequence.CONTRADICTION:
                await contradictions.add(
                    connection,
                    fence.org,
                    evidence,
                    ExecutionId(row.execution_id),
                    execution.status,
                )
            elif follows is Consequence.CONFIRMS:
                await effect_attempts.dispose(
                    connection, row, Disposition.NO_EFFECT_PROOF, evidence
                )
            return Recorded(consequence=follows, wake=None)

    return await run_phase("record_evidence", transaction)
