"""One attempt and one lookup as the product makes them, without the rows that it keeps of them."""

import os
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from typing import Any, Final
from uuid import UUID, uuid4

from oncefence.activities.attempt import attempt_end
from oncefence.activities.first_look import judge_first_look
from oncefence.activities.http_once import http_once
from oncefence.activities.lookup import judge, read_record
from oncefence.activities.outgoing import trace, wire_request
from oncefence.activities.send_deadline import SendDeadline
from oncefence.activities.target import TargetPolicy
from oncefence.activities.wire_message import WireAnswer
from oncefence.app.conform.certificate import Fact
from oncefence.app.conform.subject import Subject
from oncefence.app.conform.trial import NotApplicable
from oncefence.catalog.answers import BodyReading
from oncefence.catalog.freeze import FrozenRequest
from oncefence.catalog.lookup import LookupContract
from oncefence.domain.effect import Outcome
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
from oncefence.domain.redaction import Secret
from oncefence.storage.phases.begin_first_look import FirstLookBegun
from oncefence.storage.phases.settle_attempt import AttemptEnd
from oncefence.storage.phases.settle_first_look import FirstLookEnd
from oncefence.storage.phases.settle_lookup import LookupEnd
from oncefence.storage.phases.start_attempt import Started
from oncefence.storage.phases.start_lookup import LookupStarted
from oncefence.storage.pinned_access import UnsealedLookup
from oncefence.storage.sealing import DataKey

PRODUCT: Final = f"oncefence {version('oncefence')}"
"""What checks, and its version, which is the simulator's too."""

_ORG: Final = OrgId("conform")
# Of an attempt that is in no row there is nothing to open.
_NOTHING_SEALED: Final[Any] = None
_KEY_BYTES: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where requests go, and in whose name."""

    base_url: str
    is_local: bool
    token: Secret


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A frozen request of a command: what a lookup asks about."""

    command: UUID
    remote_id: str | None
    marked_at: datetime
    request: FrozenRequest = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent(Asked):
    """An attempt that has ended."""

    end: AttemptEnd
    answer: WireAnswer
    reading: BodyReading | None = field(repr=False)

    @property
    def outcome(self) -> Outcome:
        """Its class."""
        return self.end.outcome

    def facts(self) -> dict[str, Fact]:
        """What may be told of it."""
        failure = self.end.failure_class
        return {
            "status": self.end.response_status,
            "outcome": self.end.outcome.value,
            "failure_class": None if failure is None else str(failure),
            "may_have_applied": self.end.may_have_applied,
            "phase": self.answer.phase.name.lower(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """A lookup that has ended."""

    end: LookupEnd
    request: FrozenRequest = field(repr=False)
    answer: WireAnswer

    def facts(self) -> dict[str, Fact]:
        """What may be told of it."""
        return {
            "status": self.end.response_status,
            "lookup": self.end.verdict.value,
            "reading": self.end.reading,
        }


async def send(subject: Subject, place: Place, asked: Asked, *, seconds: float) -> Sent:
    """Send the request once, and class what comes of it, by the product's own code."""
    operation = subject.operation
    command, remote_id, request = asked.command, asked.remote_id, asked.request
    attempt = AttemptId(uuid4())
    started = Started(
        fence=Fence(org=_ORG, work=WorkId(command), token=LeaseToken(uuid4()), epoch=1),
        attempt=attempt,
        ordinal=1,
        command=CommandId(command),
        execution=ExecutionId(uuid4()),
        view=ViewId(uuid4()),
        view_digest=subject.view_digest,
        operation=operation.name,
        provider=operation.provider,
        base_url=place.base_url,
        is_local=place.is_local,
        remote_id=remote_id,
        deadline_ms=round(seconds * 1000),
        lease_until=datetime.now(UTC) + timedelta(seconds=seconds),
        idempotency_key=request.idempotency_key,
        sealed=_NOTHING_SEALED,
    )
    own = trace(
        subject.view, command=command, attempt=attempt, idempotency_key=request.idempotency_key
    )
    marked_at = datetime.now(UTC)
    answer = await http_once(
        wire_request(subject.view, request, place.base_url, place.token, own),
        deadline=SendDeadline.anchor(started.deadline_ms),
        policy=TargetPolicy(is_local=place.is_local),
    )
    reading = None
    if answer.status is not None and answer.body is not None:
        reading = operation.read_answer(
            answer.status, answer.headers, answer.body, remote_id=remote_id
        )
    return Sent(
        command=command,
        remote_id=remote_id,
        marked_at=marked_at,
        request=request,
        end=attempt_end(
            operation, started, DataKey(os.urandom(_KEY_BYTES)), answer, now=datetime.now(UTC)
        ),
        answer=answer,
        reading=reading,
    )


async def look(subject: Subject, place: Place, asked: Asked, *, is_past_horizon: bool) -> Looked:
    """
    Ask what became of an attempt, and judge the answer, by the product's own code.

    Raises:
        NotApplicable: The operation has no lookup.
    """
    contract = lookup_of(subject)
    request, answer = await _read(subject, contract, place, asked)
    started = LookupStarted(
        fence=Fence(org=_ORG, work=WorkId(uuid4()), token=LeaseToken(uuid4()), epoch=1),
        execution=ExecutionId(uuid4()),
        attempt=AttemptId(uuid4()),
        command=CommandId(asked.command),
        view=ViewId(uuid4()),
        view_digest=subject.view_digest,
        operation=subject.operation.name,
        provider=subject.operation.provider,
        base_url=place.base_url,
        is_local=place.is_local,
        remote_id=asked.remote_id,
        is_sensitive=False,
        marked_at=asked.marked_at,
        started_as_of=asked.marked_at,
        deadline_ms=contract.total_deadline_ms,
        tries_spent=0,
        late_words=(),
        has_other_doubts=False,
        token_version=1,
        sealed=_NOTHING_SEALED,
    )
    written = asked.request.written
    end = judge(contract, started, written, answer, is_past_horizon=is_past_horizon)
    return Looked(end=end, request=request, answer=answer)


async def look_first(subject: Subject, place: Place, asked: Asked) -> FirstLookEnd:
    """Ask whether a record is there before it is made, by the product's own code."""
    contract = lookup_of(subject)
    _, answer = await _read(subject, contract, place, asked)
    begun = FirstLookBegun(
        org=_ORG,
        work=WorkId(uuid4()),
        epoch=1,
        began_at=datetime.now(UTC),
        execution=ExecutionId(uuid4()),
        command=CommandId(asked.command),
        view=ViewId(uuid4()),
        view_digest=subject.view_digest,
        operation=subject.operation.name,
        base_url=place.base_url,
        is_local=place.is_local,
        deadline_ms=contract.total_deadline_ms,
        token_version=1,
        sealed=_NOTHING_SEALED,
    )
    unsealed = UnsealedLookup(request=asked.request, token=place.token)
    return judge_first_look(contract, begun, unsealed, answer)


async def _read(
    subject: Subject, contract: LookupContract, place: Place, asked: Asked
) -> tuple[FrozenRequest, WireAnswer]:
    request = contract.request(asked.remote_id, asked.request.written, command=asked.command)
    answer = await read_record(
        wire_request(subject.view, request, place.base_url, place.token, {}),
        deadline_ms=contract.total_deadline_ms,
        is_local=place.is_local,
    )
    return request, answer


def lookup_of(subject: Subject) -> LookupContract:
    """
    The operation's lookup.

    Raises:
        NotApplicable: It has none.
    """
    if subject.operation.lookup is None:
        raise NotApplicable("the operation has no lookup: every unknown goes to a person")
    return subject.operation.lookup
