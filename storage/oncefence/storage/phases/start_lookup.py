"""Claiming a lookup item, with all that the read needs."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from oncefence.catalog.freeze import FrozenRequest
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
from oncefence.domain.redaction import Secret
from oncefence.storage import executions, lookups, work_items
from oncefence.storage.attempt_evidence import OF_ATTEMPT
from oncefence.storage.engine import run_phase
from oncefence.storage.frozen import open_request
from oncefence.storage.phases.start_attempt import NotStarted, StartVerdict, open_token
from oncefence.storage.sealing import KeyRing

CONTEXT = text(
    """
    SELECT a.started_at, a.started_as_of, c.command_id, c.view_id, c.operation, c.provider,
           c.remote_id, c.is_sensitive, c.binding_id, c.generation_id, b.base_url, b.is_local,
           g.state AS generation_state,
           g.wrapped_key AS token_wrapped_key, g.key_id AS token_key_id, g.token_version,
           t.ciphertext AS token_ciphertext, k.wrapped_key, k.key_id, s.ciphertext
      FROM oncefence.effect_attempts AS a
      JOIN oncefence.commands AS c ON c.org_id = a.org_id AND c.command_id = a.command_id
      JOIN oncefence.principal_bindings AS b
        ON b.org_id = a.org_id AND b.binding_id = c.binding_id
      JOIN oncefence.binding_generations AS g
        ON g.org_id = a.org_id AND g.generation_id = c.generation_id
      LEFT JOIN oncefence.token_versions AS t ON t.org_id = g.org_id
        AND t.generation_id = g.generation_id AND t.version = g.token_version
      JOIN oncefence.execution_keys AS k
        ON k.org_id = a.org_id AND k.execution_id = a.execution_id
      JOIN oncefence.sealed_payloads AS s ON s.org_id = k.org_id
       AND s.execution_id = k.execution_id AND s.kind = 'request' AND s.ordinal = 1
     WHERE a.org_id = :org AND a.attempt_id = :attempt
    """
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LateWord:
    """What the attempt's own starter said after it was settled as lost."""

    kind: str
    outcome: str
    response_status: int | None
    receipt: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupStarted:
    """
    A claimed lookup.

    `token` is None where the pinned generation is gone, so that there is no usable lookup.
    `marked_at` is the database's time of the mark, `started_as_of` the same moment in due time.
    """

    fence: Fence
    execution: ExecutionId
    attempt: AttemptId
    command: CommandId
    view: ViewId
    operation: str
    provider: str
    base_url: str
    is_local: bool
    remote_id: str
    is_sensitive: bool
    marked_at: datetime
    started_as_of: datetime
    deadline_ms: int
    request: FrozenRequest
    token: Secret | None
    tries_spent: int
    late_words: tuple[LateWord, ...]


async def start_lookup(
    engine: AsyncEngine,
    ring: KeyRing,
    org: OrgId,
    work: WorkId,
    *,
    as_of: datetime,
    owner: UUID,
    token: LeaseToken,
    limits: Limits,
) -> LookupStarted | NotStarted:
    """
    Claim the lookup item, or say why not.

    A lookup that lost its claimant may simply be made again: it is a read. Past the ceiling of
    lost claims the item dies and its execution goes to a person.
    """

    async def transaction() -> LookupStarted | NotStarted:
        async with engine.begin() as connection:
            item = await work_items.lock(connection, org, work)
            refusal = await _refusal(connection, item, org, work, as_of)
            if refusal is not None:
                return refusal
            assert item is not None, "a missing item is a refusal"
            is_reclaim = item.state == "processing"
            if is_reclaim and item.claims_lost + 1 >= limits.claims_lost_max:
                return await _give_up(connection, item)
            fence = await work_items.claim(
                connection,
                item,
                owner=owner,
                token=token,
                lease=timedelta(
                    seconds=item.deadline_ms / 1000 + limits.lease_margin_scaled_seconds
                ),
                is_reclaim=is_reclaim,
            )
            row = (
                await connection.execute(CONTEXT, {"org": org, "attempt": item.attempt_id})
            ).one()
            words = await connection.execute(
                OF_ATTEMPT, {"of_org": org, "of_attempt": item.attempt_id}
            )
            return _started(
                ring,
                fence,
                item,
                row,
                tries_spent=await lookups.tries_spent(connection, org, work),
                late_words=tuple(_late_word(word) for word in words.all()),
            )

    return await run_phase("start_lookup", transaction)


async def _refusal(
    connection: AsyncConnection,
    item: Row[Any] | None,
    org: OrgId,
    work: WorkId,
    as_of: datetime,
) -> NotStarted | None:
    if item is None:
        return NotStarted(verdict=StartVerdict.NO_SUCH_ITEM, until=None)
    if item.state == "processing":
        if await work_items.is_lease_live(connection, org, work):
            return NotStarted(verdict=StartVerdict.IN_FLIGHT, until=item.lease_until)
        return None
    if item.state not in ("pending", "retry"):
        return NotStarted(verdict=StartVerdict.FINISHED, until=None)
    if item.run_after > as_of:
        return NotStarted(verdict=StartVerdict.NOT_DUE, until=item.run_after)
    return None


async def _give_up(connection: AsyncConnection, item: Row[Any]) -> NotStarted:
    execution = await executions.lock(
        connection, OrgId(item.org_id), ExecutionId(item.execution_id)
    )
    found = Fence(
        org=OrgId(item.org_id),
        work=WorkId(item.work_id),
        token=LeaseToken(item.lease_token),
        epoch=item.ownership_epoch,
    )
    await work_items.leave(
        connection, found, target="dead", trigger="give_up", failure_class="poison"
    )
    await executions.move(
        connection,
        execution,
        target="needs_attention",
        trigger="investigation_exhausted",
        failure_class="poison",
    )
    return NotStarted(
        verdict=StartVerdict.CANNOT_PROCEED,
        until=None,
        failure_class="poison",
        execution_status="needs_attention",
    )


def _late_word(row: Row[Any]) -> LateWord:
    return LateWord(
        kind=row.kind,
        outcome=row.outcome,
        response_status=row.response_status,
        receipt=row.provider_receipt or {},
    )


def _started(
    ring: KeyRing,
    fence: Fence,
    item: Row[Any],
    row: Row[Any],
    *,
    tries_spent: int,
    late_words: tuple[LateWord, ...],
) -> LookupStarted:
    execution = ExecutionId(item.execution_id)
    key = ring.unwrap(row.wrapped_key, row.key_id, "execution", fence.org, execution)
    is_usable = row.generation_state == "current" and row.token_wrapped_key is not None
    return LookupStarted(
        fence=fence,
        execution=execution,
        attempt=AttemptId(item.attempt_id),
        command=CommandId(row.command_id),
        view=ViewId(row.view_id),
        operation=row.operation,
        provider=row.provider,
        base_url=row.base_url,
        is_local=row.is_local,
        remote_id=row.remote_id,
        is_sensitive=row.is_sensitive,
        marked_at=row.started_at,
        started_as_of=row.started_as_of,
        deadline_ms=item.deadline_ms,
        request=open_request(key, row.ciphertext, "request", fence.org, execution, 1),
        token=open_token(ring, fence.org, row) if is_usable else None,
        tries_spent=tries_spent,
        late_words=late_words,
    )
