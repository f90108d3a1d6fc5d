"""
The dispatch mark: claim, locks, checks and the start of an attempt, in one transaction.

From the moment this commits, nobody but the holder of its token may send, and nobody who finds
the mark later ever does.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncEngine

from oncefence.catalog.freeze import FrozenRequest
from oncefence.domain.fence import Fence
from oncefence.domain.ids import (
    AttemptId,
    BindingGenerationId,
    CommandId,
    ExecutionId,
    LeaseToken,
    OrgId,
    ViewId,
    WorkId,
)
from oncefence.domain.limits import Limits
from oncefence.domain.redaction import Secret
from oncefence.storage.engine import one_statement, run_phase
from oncefence.storage.frozen import open_request
from oncefence.storage.phases.find_work import WorkRef, lookup_ref
from oncefence.storage.sealing import DataKey, KeyRing

ENGINE_CAPABILITY = 1
"""What this version of the engine can run; an item may ask for more and then waits for it."""

START = text(
    "SELECT * FROM oncefence.start_attempt_v1(:org, :work, :as_of, :owner, :token,"
    " :lease_margin, :claims_lost_max, :engine_capability, :may_start)"
)


class StartVerdict(StrEnum):
    """Why nothing was started."""

    NO_SUCH_ITEM = "no_such_item"
    FINISHED = "finished"
    NOT_DUE = "not_due"
    IN_FLIGHT = "in_flight"
    """Somebody holds it; `until` is the end of the lease, in real time."""

    ATTEMPT_LOST = "attempt_lost"
    """An attempt is open and its lease has ended: it is to be settled as lost."""

    NOT_MARKED = "not_marked"
    """Asked only whether the caller's own mark stands, and it does not."""

    LANE_BLOCKED = "lane_blocked"
    NEEDS_NEWER_ENGINE = "needs_newer_engine"
    CANNOT_PROCEED = "cannot_proceed"
    """What the command relies on is gone; both lifecycles were ended in this transaction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotStarted:
    """Nothing was marked and nothing may be sent."""

    verdict: StartVerdict
    until: datetime | None
    failure_class: str | None = None
    execution_status: str | None = None
    lookup: WorkRef | None = None
    """The lookup item that was made in this transaction, if one was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A marked attempt: what its starter, and it alone, may now send once."""

    fence: Fence
    attempt: AttemptId
    ordinal: int
    command: CommandId
    execution: ExecutionId
    view: ViewId
    operation: str
    provider: str
    base_url: str
    is_local: bool
    remote_id: str
    deadline_ms: int
    lease_until: datetime
    idempotency_key: str | None
    sealed: Row[Any] = field(repr=False)
    """The sealed request and token. They are opened after the mark, by `unseal`: a key that is
    missing then leaves a marked attempt that sent nothing, and its starter says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsealed:
    """What is sent, in the clear, and the key under which its answer is kept."""

    request: FrozenRequest
    token: Secret
    answer_key: DataKey


async def start_attempt(
    engine: AsyncEngine,
    org: OrgId,
    work: WorkId,
    *,
    as_of: datetime,
    owner: UUID,
    token: LeaseToken,
    limits: Limits,
    may_start: bool = True,
) -> Started | NotStarted:
    """
    Mark the next attempt of a dispatch item as started, or say why not (C146).

    The same `token` again, after a lost answer, finds the mark that it made; with `may_start`
    false it does nothing else.

    Raises:
        StoreUnavailable: Ask again with the same token: the mark may stand.
    """

    async def transaction() -> Row[Any]:
        async with one_statement(engine).connect() as connection:
            found = await connection.execute(
                START,
                {
                    "org": org,
                    "work": work,
                    "as_of": as_of,
                    "owner": owner,
                    "token": token,
                    "lease_margin": timedelta(seconds=limits.lease_margin_scaled_seconds),
                    "claims_lost_max": limits.claims_lost_max,
                    "engine_capability": ENGINE_CAPABILITY,
                    "may_start": may_start,
                },
            )
            return found.one()

    row = await run_phase("start_attempt", transaction)
    if row.verdict != "started":
        return NotStarted(
            verdict=StartVerdict(row.verdict),
            until=row.until,
            failure_class=row.failure_class,
            execution_status=row.execution_status,
            lookup=lookup_ref(org, row.lookup_work_id, row.lookup_deadline_ms, row.until),
        )
    return Started(
        fence=Fence(org=org, work=work, token=token, epoch=row.epoch),
        attempt=AttemptId(row.attempt_id),
        ordinal=row.ordinal,
        command=CommandId(row.command_id),
        execution=ExecutionId(row.execution_id),
        view=ViewId(row.view_id),
        operation=row.operation,
        provider=row.provider,
        base_url=row.base_url,
        is_local=row.is_local,
        remote_id=row.remote_id,
        deadline_ms=row.deadline_ms,
        lease_until=row.until,
        idempotency_key=row.idempotency_key,
        sealed=row,
    )


def unseal(ring: KeyRing, started: Started) -> Unsealed:
    """
    The frozen request and the token of a started attempt.

    Raises:
        ConfigurationRefused: The key ring is not the one that they were sealed with.
    """
    row, org = started.sealed, started.fence.org
    key = ring.unwrap(
        row.request_wrapped_key, row.request_key_id, "execution", org, row.execution_id
    )
    return Unsealed(
        request=open_request(key, row.request_ciphertext, "request", org, row.execution_id, 1),
        token=open_token(ring, org, row),
        answer_key=key,
    )


def open_token(ring: KeyRing, org: OrgId, row: Row[Any]) -> Secret:
    """The access token of the generation and version that `row` names."""
    generation = BindingGenerationId(row.generation_id)
    key = ring.unwrap(
        row.token_wrapped_key, row.token_key_id, "generation", org, row.binding_id, generation
    )
    return Secret(
        key.open(
            row.token_ciphertext,
            "access_token",
            org,
            row.binding_id,
            generation,
            row.token_version,
        ).decode()
    )
