"""Settling a lookup: its row, and either the end of the investigation or the next wait."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from oncefence.domain import ids
from oncefence.domain.breaker import Sign
from oncefence.domain.effect import Disposition
from oncefence.domain.errors import FenceLost
from oncefence.domain.fence import Fence
from oncefence.domain.ids import AttemptId, CommandId, EvidenceId, ExecutionId, OrgId
from oncefence.domain.limits import Limits
from oncefence.domain.lookup import Conclusion, Grade, Verdict, conclude
from oncefence.domain.settlement import FailureClass
from oncefence.storage import (
    effect_attempts,
    executions,
    lookups,
    quota_counts,
    remote_links,
    work_items,
)
from oncefence.storage.engine import run_phase
from oncefence.storage.read_admission import note_read, note_refused

COMPLETE = text("SELECT oncefence.add_completion(:org, :execution)")
PROOF = text(
    "SELECT evidence_id FROM oncefence.attempt_evidence"
    " WHERE org_id = :org AND attempt_id = :attempt AND kind = 'unsent' LIMIT 1"
)
# Word is written under the lock of the lookup item, so it came either before the claim, which
# then read it, or after.
OVERTAKEN = text(
    "SELECT EXISTS (SELECT FROM oncefence.attempt_evidence"
    " WHERE org_id = :org AND attempt_id = :attempt AND verdict = 'lookup_now'"
    " AND recorded_at > :claimed_at)"
)
HEAR_FIRST = Conclusion(
    execution_status=None,
    execution_trigger=None,
    disposition=None,
    next_wait_seconds=0.0,
    spends_try=False,
)
"""The starter spoke during the lookup: the next one, due at once, settles by that word (C274)."""

TAKEN = Conclusion(
    execution_status="needs_attention",
    execution_trigger="investigation_exhausted",
    disposition=None,
    next_wait_seconds=None,
    spends_try=True,
)
"""What was created is a record that another link stands for: a person says whose it is (C28)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupEnd:
    """What one lookup found; safe to store and to show."""

    verdict: Verdict
    reading: str
    grade: Grade
    response_status: int | None
    receipt: Mapping[str, str]
    phases: Mapping[str, Any]
    created_id: str | None = None
    """The provider's id of the record that a create made."""

    sign: Sign | None = None
    """What the read says of the provider's health; None where it says nothing of it (C307)."""

    told: Mapping[str, Any] | None = None
    """What the answer says of the provider's quota (C302)."""

    refused_version: int | None = None
    """The version of the token that the provider answered 401 to (C293)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupSettled:
    """Where the execution stands now; `next_due` is set while the investigation goes on."""

    execution_status: str
    next_due: datetime | None


async def settle_lookup(
    engine: AsyncEngine,
    fence: Fence,
    end: LookupEnd,
    *,
    is_sensitive: bool,
    as_of: datetime,
    limits: Limits,
) -> LookupSettled:
    """
    Write the lookup and do what its verdict does (C268 to C272); again is the same.

    Raises:
        FenceLost: The claim was lost; somebody else looks, or somebody else settled it.
    """

    async def transaction() -> LookupSettled:
        async with engine.begin() as connection:
            item = await work_items.lock(connection, fence.org, fence.work)
            if (
                item is None
                or item.state != "processing"
                or item.lease_token != fence.token
                or item.ownership_epoch != fence.epoch
            ):
                return await _settled_before(connection, fence)
            doubts = await effect_attempts.lock_doubts(
                connection, fence.org, CommandId(item.command_id)
            )
            execution = await executions.lock(connection, fence.org, ExecutionId(item.execution_id))
            spent = await lookups.tries_spent(connection, fence.org, fence.work)
            overtaken = await connection.execute(
                OVERTAKEN,
                {"org": fence.org, "attempt": item.attempt_id, "claimed_at": item.changed_at},
            )
            # What is proven of one attempt alone says nothing about another one in doubt.
            is_about_all = len(doubts) <= 1 or end.verdict not in (Verdict.UNSENT, Verdict.REFUSED)
            does = conclude(
                end.verdict if is_about_all else Verdict.INCONCLUSIVE,
                tries_before=spent,
                is_sensitive=is_sensitive,
            )
            if overtaken.scalar_one():
                does = HEAR_FIRST
            await lookups.add(
                connection,
                {
                    "org_id": fence.org,
                    "lookup_id": ids.lookup_id(fence.work, fence.epoch),
                    "execution_id": item.execution_id,
                    "attempt_id": item.attempt_id,
                    "work_id": fence.work,
                    "ownership_epoch": fence.epoch,
                    "try_": spent + 1 if does.spends_try else None,
                    "reading": end.reading,
                    "verdict": end.verdict.value,
                    "grade": end.grade.value,
                    "response_status": end.response_status,
                    "provider_receipt": dict(end.receipt),
                    "phases": dict(end.phases),
                },
            )
            does = await _close_slot(connection, item, does, end.created_id)
            if end.refused_version is not None:
                await note_refused(
                    connection,
                    fence.org,
                    fence.work,
                    CommandId(item.command_id),
                    version=end.refused_version,
                )
            if end.told is not None:
                await quota_counts.tell(connection, fence.org, CommandId(item.command_id), end.told)
            if end.sign is not None:
                # Breakers are locked after links. It began when it was claimed.
                await note_read(
                    connection,
                    fence.org,
                    CommandId(item.command_id),
                    end.sign,
                    began_at=item.changed_at,
                )
            if does.execution_status is None:
                assert does.next_wait_seconds is not None, "an open investigation waits"
                due = as_of + timedelta(seconds=does.next_wait_seconds * limits.time_scale)
                await work_items.leave(
                    connection,
                    fence,
                    target="retry",
                    trigger="defer",
                    due=due,
                    summary=end.reading,
                )
                return LookupSettled(execution_status=execution.status, next_due=due)
            if does.disposition is not None:
                await _dispose(connection, doubts, AttemptId(item.attempt_id), does.disposition)
            await work_items.leave(
                connection, fence, target="succeeded", trigger="finish", summary=end.reading
            )
            assert does.execution_trigger is not None, "a settling verdict has its trigger"
            await executions.move(
                connection,
                execution,
                target=does.execution_status,
                trigger=does.execution_trigger,
                failure_class=_failure_class(does, end),
                settled_by="investigator",
                evidence_grade=end.grade.value,
            )
            await connection.execute(COMPLETE, {"org": fence.org, "execution": item.execution_id})
            return LookupSettled(execution_status=does.execution_status, next_due=None)

    return await run_phase("settle_lookup", transaction)


async def _close_slot(
    connection: AsyncConnection, item: Row[Any], does: Conclusion, created_id: str | None
) -> Conclusion:
    """
    End the slot of a create along with it; of any other command there is none.

    Under the lock of the execution, which every end of a slot holds. Where the record is another
    link's, the conclusion is another one.
    """
    org = OrgId(item.org_id)
    slot = await remote_links.slot_of(connection, org, CommandId(item.command_id))
    if slot is None:
        return does
    if does.execution_status == "failed":
        await remote_links.give_back_slot(connection, org, slot)
    if does.execution_status == "succeeded" and not await remote_links.fill_slot(
        connection, org, slot, created_id
    ):
        return TAKEN
    return does


def _failure_class(does: Conclusion, end: LookupEnd) -> str | None:
    if does is TAKEN:
        return FailureClass.IDENTITY_TAKEN
    return None if does.execution_status == "succeeded" else f"lookup_{end.verdict.value}"


async def _dispose(
    connection: AsyncConnection,
    doubts: Sequence[Row[Any]],
    looked_up: AttemptId,
    disposition: Disposition,
) -> None:
    """Whatever takes an execution out of unknown disposes each of its attempts in doubt."""
    for attempt in doubts:
        if attempt.disposition is not None:
            continue
        proof = None
        if disposition is Disposition.NO_EFFECT_PROOF:
            found = await connection.execute(PROOF, {"org": attempt.org_id, "attempt": looked_up})
            proof = EvidenceId(found.scalar_one())
        await effect_attempts.dispose(connection, attempt, disposition, proof)


async def _settled_before(connection: AsyncConnection, fence: Fence) -> LookupSettled:
    """The answer to an earlier COMMIT of this very lookup was lost, or the claim was."""
    row = (
        await connection.execute(
            text(
                "SELECT e.status, w.state, w.run_after FROM oncefence.lookups AS l"
                " JOIN oncefence.executions AS e"
                "   ON e.org_id = l.org_id AND e.execution_id = l.execution_id"
                " JOIN oncefence.work_items AS w"
                "   ON w.org_id = l.org_id AND w.work_id = l.work_id"
                " WHERE l.org_id = :org AND l.lookup_id = :lookup"
            ),
            {"org": fence.org, "lookup": ids.lookup_id(fence.work, fence.epoch)},
        )
    ).one_or_none()
    if row is None:
        raise FenceLost(verb="settle lookup")
    return LookupSettled(
        execution_status=row.status, next_due=row.run_after if row.state == "retry" else None
    )
