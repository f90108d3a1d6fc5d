"""Claiming a lookup item, with all that the read needs."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from oncefence.domain.claim import ClaimVerdict
from oncefence.domain.effect import Outcome
from oncefence.domain.evidence import EvidenceKind
from oncefence.domain.fence import Fence
from oncefence.domain.ids import (
    AttemptId,
    CommandId,
    ExecutionId,
    LeaseToken,
    OrgId,
    ViewId,
    WorkId,
)
from oncefence.domain.limits import Limits
from oncefence.storage import executions, lookups, quota_counts, work_items
from oncefence.storage.attempt_evidence import OF_ATTEMPT
from oncefence.storage.claims import Lost, NotStarted, claim
from oncefence.storage.engine import run_phase
from oncefence.storage.pinned_access import (
    ACCESS,
    ACCESS_OF_COMMAND,
    UnsealedLookup,
    unseal_read,
)
from oncefence.storage.quota_counts import Units
from oncefence.storage.read_admission import held_back
from oncefence.storage.sealing import KeyRing

_NO_CEILING = 2**31 - 1
CONTEXT = text(
    f"""
    SELECT x.started_at, x.started_as_of, c.command_id, c.view_id, c.view_digest,
           c.operation, c.provider, c.remote_id, c.is_sensitive,
           EXISTS (SELECT FROM oncefence.effect_attempts AS o
                    WHERE o.org_id = x.org_id AND o.command_id = x.command_id
                      AND o.attempt_id <> x.attempt_id AND o.may_have_applied
                      AND o.disposition IS DISTINCT FROM 'no_effect_proof')
             AS has_other_doubts, {ACCESS}
      FROM oncefence.effect_attempts AS x
      JOIN oncefence.commands AS c ON c.org_id = x.org_id AND c.command_id = x.command_id
      {ACCESS_OF_COMMAND}
     WHERE x.org_id = :org AND x.attempt_id = :attempt
    """  # noqa: S608  # only constants are joined in
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LateWord:
    """What the attempt's own starter said after it was settled as lost."""

    kind: EvidenceKind
    outcome: Outcome
    may_have_applied: bool
    response_status: int | None
    receipt: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupStarted:
    """
    A claimed lookup.

    What it reads with is sealed still: `unseal_lookup` opens it, after late words were heard,
    because those settle it even where nothing can be opened any more.

    `marked_at` is the database's time of the mark, `started_as_of` the same moment in due time.
    """

    fence: Fence
    execution: ExecutionId
    attempt: AttemptId
    command: CommandId
    view: ViewId
    view_digest: str
    operation: str
    provider: str
    base_url: str
    is_local: bool
    remote_id: str | None
    """None for a create, whose record is what is looked for."""

    is_sensitive: bool
    marked_at: datetime
    started_as_of: datetime
    deadline_ms: int
    tries_spent: int
    late_words: tuple[LateWord, ...]
    has_other_doubts: bool
    """An earlier attempt of the command may have applied too, so words about this one alone
    settle nothing."""

    token_version: int
    sealed: Row[Any] = field(repr=False)


def unseal_lookup(ring: KeyRing, started: LookupStarted) -> UnsealedLookup | None:
    """
    What the lookup reads with; None where its content was erased or its generation is gone.

    Raises:
        ConfigurationRefused: The key ring is not the one that it was sealed with.
    """
    return unseal_read(ring, started.fence.org, started.execution, started.sealed)


async def start_lookup(
    engine: AsyncEngine,
    org: OrgId,
    work: WorkId,
    *,
    as_of: datetime,
    owner: UUID,
    token: LeaseToken,
    limits: Limits,
    may_claim: bool = True,
) -> LookupStarted | NotStarted:
    """
    Claim the lookup item, or say why not.

    A lookup that lost its claimant may simply be made again: it is a read. Past the ceiling of
    lost claims the item dies and its execution goes to a person, unless the starter of the
    attempt has spoken. The same `token` again, after a lost answer, finds its claim.
    """

    async def transaction() -> LookupStarted | NotStarted:
        async with engine.begin() as connection:
            item = await work_items.lock(connection, org, work)
            if item is None:
                return NotStarted(verdict=ClaimVerdict.NO_SUCH_ITEM, until=None)
            rows = await connection.execute(
                OF_ATTEMPT, {"of_org": org, "of_attempt": item.attempt_id}
            )
            words = tuple(_late_word(row) for row in rows.all())
            # The starter's word needs no read, and so nothing of the provider.
            units = Units()
            if may_claim and not words:
                held = await held_back(connection, item, as_of=as_of, limits=limits)
                if isinstance(held, NotStarted):
                    return held
                units = held
            found = await claim(
                connection,
                org,
                work,
                as_of=as_of,
                owner=owner,
                token=token,
                limits=limits,
                may_claim=may_claim,
                # The starter's own word settles it whatever became of those who looked.
                claims_lost_max=_NO_CEILING if words else None,
            )
            if not isinstance(found, Fence):
                await quota_counts.give_back(connection, units)
            if isinstance(found, NotStarted):
                return found
            if isinstance(found, Lost):
                return await _give_up(connection, item, found.fence)
            context = await connection.execute(CONTEXT, {"org": org, "attempt": item.attempt_id})
            return _started(
                found,
                item,
                context.one(),
                tries_spent=await lookups.tries_spent(connection, org, work),
                late_words=words,
            )

    return await run_phase("start_lookup", transaction)


async def _give_up(connection: AsyncConnection, item: Row[Any], lost: Fence) -> NotStarted:
    execution = await executions.lock(
        connection, OrgId(item.org_id), ExecutionId(item.execution_id)
    )
    await work_items.leave(
        connection,
        lost,
        target="dead",
        trigger="give_up",
        failure_class="poison",
        is_by_expiry=True,
    )
    await executions.move(
        connection,
        execution,
        target="needs_attention",
        trigger="investigation_exhausted",
        failure_class="poison",
    )
    return NotStarted(
        verdict=ClaimVerdict.CANNOT_PROCEED,
        until=None,
        failure_class="poison",
        execution_status="needs_attention",
    )


def _late_word(row: Row[Any]) -> LateWord:
    return LateWord(
        kind=EvidenceKind(row.kind),
        outcome=Outcome(row.outcome),
        may_have_applied=row.may_have_applied,
        response_status=row.response_status,
        receipt=row.provider_receipt or {},
    )


def _started(
    fence: Fence,
    item: Row[Any],
    row: Row[Any],
    *,
    tries_spent: int,
    late_words: tuple[LateWord, ...],
) -> LookupStarted:
    return LookupStarted(
        fence=fence,
        execution=ExecutionId(item.execution_id),
        attempt=AttemptId(item.attempt_id),
        command=CommandId(row.command_id),
        view=ViewId(row.view_id),
        view_digest=row.view_digest,
        operation=row.operation,
        provider=row.provider,
        base_url=row.base_url,
        is_local=row.is_local,
        remote_id=row.remote_id,
        is_sensitive=row.is_sensitive,
        marked_at=row.started_at,
        started_as_of=row.started_as_of,
        deadline_ms=item.deadline_ms,
        tries_spent=tries_spent,
        late_words=late_words,
        has_other_doubts=row.has_other_doubts,
        token_version=row.token_version,
        sealed=row,
    )
