"""Settling: outcome, WorkItem, Execution, completion and lookup item, in one transaction."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from oncefence.domain.breaker import Sign
from oncefence.domain.effect import Outcome
from oncefence.domain.errors import FenceLost
from oncefence.domain.fence import Fence
from oncefence.domain.ids import AttemptId
from oncefence.domain.limits import Limits
from oncefence.storage.driver_connection import DriverRow, driver_connection
from oncefence.storage.engine import run_phase
from oncefence.storage.phases.find_work import WorkRef, lookup_ref

SETTLE = text(
    "SELECT * FROM oncefence.settle_attempt_v3(:org, :work, :attempt, :token, :epoch, :outcome,"
    " :may_have_applied, :failure_class, :status, CAST(:receipt AS jsonb),"
    " CAST(:phases AS jsonb), :answer, :as_of, :run_after, :attempts_max, :first_lookup_at,"
    " :created_id, CAST(:told AS jsonb), :sign, :credential_refused)"
)


CREATED_ID: Final = "remote_id"
"""Under this name the receipt of a create has the id of its record, so that it is in evidence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptEnd:
    """How an attempt ended, as its starter saw it. Nothing in it is secret but the answer."""

    outcome: Outcome
    may_have_applied: bool
    failure_class: str | None
    response_status: int | None
    receipt: Mapping[str, str]
    phases: Mapping[str, Any]
    sealed_answer: bytes | None
    retry_after_seconds: float
    created_id: str | None = None
    """The provider's id of the record that a create made."""

    told: Mapping[str, Any] | None = None
    """What the answer says of the provider's quota (C302), as `correct_quota` reads it."""

    sign: Sign | None = None
    """What it says of the provider's health; None where it says nothing of it (C304)."""

    is_credential_refused: bool = False
    """A 401: the token's version is suspect (C293)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """Where both lifecycles stand now, and what is due next."""

    outcome: Outcome
    """Of the attempt. UNKNOWN where its starter saw ACCEPTED, and the record that it created is
    one that another link stands for."""

    item_state: str
    execution_status: str
    failure_class: str | None
    lookup: WorkRef | None
    next_due: datetime | None


async def settle_attempt(
    engine: AsyncEngine,
    fence: Fence,
    attempt: AttemptId,
    end: AttemptEnd,
    *,
    as_of: datetime,
    limits: Limits,
) -> Settled:
    """
    Settle the attempt by the claim that started it; again is the same (C81, C146).

    Raises:
        FenceLost: Somebody settled it as lost meanwhile. The answer belongs in the evidence.
        StoreUnavailable: Ask again: it may be settled.
    """

    async def transaction() -> DriverRow:
        async with driver_connection(engine) as connection:
            return await connection.one(
                SETTLE,
                {
                    "org": fence.org,
                    "work": fence.work,
                    "attempt": attempt,
                    "token": fence.token,
                    "epoch": fence.epoch,
                    "outcome": end.outcome.value,
                    "may_have_applied": end.may_have_applied,
                    "failure_class": end.failure_class,
                    "status": end.response_status,
                    "receipt": json.dumps(dict(end.receipt)),
                    "phases": json.dumps(dict(end.phases)),
                    "answer": end.sealed_answer,
                    "as_of": as_of,
                    "run_after": as_of
                    + timedelta(
                        seconds=max(end.retry_after_seconds, limits.retry_spacing_scaled_seconds)
                    ),
                    "attempts_max": limits.attempts_max,
                    "first_lookup_at": as_of + timedelta(seconds=limits.first_lookup_seconds),
                    "created_id": end.created_id,
                    "told": None if end.told is None else json.dumps(dict(end.told)),
                    "sign": end.sign,
                    "credential_refused": end.is_credential_refused,
                },
            )

    row = await run_phase("settle_attempt", transaction)
    if row.verdict == "fence_lost":
        raise FenceLost(verb="settle")
    return Settled(
        outcome=Outcome(row.outcome),
        item_state=row.item_state,
        execution_status=row.execution_status,
        failure_class=row.failure_class,
        lookup=lookup_ref(
            fence.org, row.lookup_work_id, row.lookup_deadline_ms, row.next_due, as_of=as_of
        ),
        next_due=row.next_due,
    )
