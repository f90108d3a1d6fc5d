"""
The dispatch mark: claim, locks, checks and the start of an attempt, in one transaction.

From the moment this commits, nobody but the holder of its token may send, and nobody who finds
the mark later ever does.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from oncefence.catalog.freeze import FrozenRequest
from oncefence.domain.claim import ENGINE_CAPABILITY, ClaimVerdict
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
from oncefence.storage.claims import NotStarted
from oncefence.storage.driver_connection import AnyRow, DriverRow, driver_connection
from oncefence.storage.engine import run_phase
from oncefence.storage.frozen import open_request
from oncefence.storage.phases.find_work import lookup_ref
from oncefence.storage.pinned_access import open_token
from oncefence.storage.sealing import DataKey, KeyRing

START = text(
    "SELECT * FROM oncefence.start_attempt_v3(:org, :work, :as_of, :owner, :token,"
    " :lease_margin, :claims_lost_max, :engine_capability, :ramp_claims_max, :may_start)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A marked attempt: what its starter, and it alone, may now send once."""

    fence: Fence
    attempt: AttemptId
    ordinal: int
    command: CommandId
    execution: ExecutionId
    view: ViewId
    view_digest: str
    operation: str
    provider: str
    base_url: str
    is_local: bool
    remote_id: str | None
    """None for a create: the answer names the record."""

    deadline_ms: int
    lease_until: datetime
    idempotency_key: str | None
    sealed: AnyRow = field(repr=False)
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

    async def transaction() -> DriverRow:
        async with driver_connection(engine) as connection:
            return await connection.one(
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
                    "ramp_claims_max": limits.admission_window,
                    "may_start": may_start,
                },
            )

    row = await run_phase("start_attempt", transaction)
    if row.verdict != "started":
        return NotStarted(
            verdict=ClaimVerdict(row.verdict),
            until=row.until,
            failure_class=row.failure_class,
            execution_status=row.execution_status,
            lookup=lookup_ref(
                org, row.lookup_work_id, row.lookup_deadline_ms, row.until, as_of=as_of
            ),
        )
    return Started(
        fence=Fence(org=org, work=work, token=token, epoch=row.epoch),
        attempt=AttemptId(row.attempt_id),
        ordinal=row.ordinal,
        command=CommandId(row.command_id),
        execution=ExecutionId(row.execution_id),
        view=ViewId(row.view_id),
        view_digest=row.view_digest,
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
