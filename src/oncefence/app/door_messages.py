"""
The messages of the HTTP door: what it takes and what it answers.

What comes in is read strictly, and an unknown member is refused. What goes out may gain members,
so a client passes over those that it does not know.
"""

from datetime import datetime
from typing import Annotated, Final, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from oncefence.domain.command import OUTBOX_ID_LENGTH_MAX, SUBJECT_LENGTH_MAX, Receipt
from oncefence.domain.effect import Outcome
from oncefence.domain.execution import EXECUTION, ExecutionStatus
from oncefence.domain.handoff import LENGTH_MAX, Admission, TrustedRuntimeWorkScope
from oncefence.domain.settlement import Effect

REASON_LENGTH_MAX: Final = 512
OPERATION_LENGTH_MAX: Final = 100
REASON_UNSTATED: Final = "the Runtime gave no reason"

# Described here and judged where handoff keys are parsed, which names the part that is wrong.
KEY_FORM: Final[dict[str, object]] = {
    "maxLength": LENGTH_MAX,
    "pattern": r"^ehk1(\.[a-z0-9][a-z0-9_-]{0,62}){3}\.[0-9a-f]{64}\.[A-Za-z0-9_-]{1,128}$",
}
DIGEST_FORM: Final[dict[str, object]] = {
    "minLength": 64,
    "maxLength": 64,
    "pattern": "^[0-9a-f]{64}$",
}

KeyText = Annotated[str, Field(json_schema_extra=KEY_FORM)]
DigestText = Annotated[str, Field(json_schema_extra=DIGEST_FORM)]
OutboxText = Annotated[str, Field(min_length=1, max_length=OUTBOX_ID_LENGTH_MAX)]


class _Taken(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, hide_input_in_errors=True)


class _Given(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, hide_input_in_errors=True)


class HandoffRequest(_Taken):
    """An effect that is handed over; its payload was put before (C135)."""

    handoff_key: KeyText
    payload_digest: DigestText
    outbox_id: OutboxText
    operation: Annotated[str, Field(min_length=1, max_length=OPERATION_LENGTH_MAX)]
    subject: Annotated[str, Field(min_length=1, max_length=SUBJECT_LENGTH_MAX)]


class RejectionRequest(_Taken):
    """A handoff that must never become a command, if it has not become one yet (C127)."""

    handoff_key: KeyText
    payload_digest: DigestText
    outbox_id: OutboxText
    reason: Annotated[str, Field(min_length=1, max_length=REASON_LENGTH_MAX)] = REASON_UNSTATED


class ScopeReport(_Given):
    """The TrustedRuntimeWorkScope that the credential stands for."""

    org: str
    installation: str
    capability: str
    work_binding_digest: str

    @classmethod
    def of(cls, scope: TrustedRuntimeWorkScope) -> "ScopeReport":
        """The report of `scope`."""
        return cls(
            org=scope.org,
            installation=scope.installation,
            capability=scope.capability,
            work_binding_digest=scope.work_binding_digest,
        )


class PayloadStaged(_Given):
    """The bytes of this digest are kept until a handoff names them."""

    payload_digest: DigestText
    size_bytes: int


class AcceptedReceipt(_Given):
    """The handoff is one command now and for ever."""

    receipt_version: Literal[1] = 1
    admission: Literal["COMMAND_ACCEPTED"] = "COMMAND_ACCEPTED"
    handoff_key: KeyText
    admitted_at: datetime
    command_id: UUID
    execution_id: UUID


class RejectedReceipt(_Given):
    """The handoff is no command and never will be."""

    receipt_version: Literal[1] = 1
    admission: Literal["HANDOFF_REJECTED"] = "HANDOFF_REJECTED"
    handoff_key: KeyText
    admitted_at: datetime
    reason: str


class Undecided(_Given):
    """The key has no admission; that proves nothing, and least of all a rejection (C132)."""

    admission: Literal["UNDECIDED"] = "UNDECIDED"


class LocalContract(_Given):
    """What the Runtime is to do with a result, as the command had it frozen at acceptance."""

    command: str
    version: int
    data: dict[str, str | int | bool]


class CompletionReport(_Given):
    """What one settlement hands back; a later one names the one that it supersedes (C99)."""

    completion_id: str
    settlement: int
    status: ExecutionStatus
    supersedes: str | None
    contract: LocalContract


class ExecutionReport(_Given):
    """
    What the caller may know of an execution.

    `effect` is there once it failed (C68), and `completion` once it was settled: the newest,
    which stays while an operator has the execution tried again.
    """

    execution_id: UUID
    command_id: UUID
    handoff_key: KeyText
    operation: str
    status: ExecutionStatus
    via: str
    attempts: int
    last_outcome: Outcome | None
    failure_class: str | None
    settled_by: str | None
    evidence_grade: str | None
    effect: Effect | None
    accepted_at: datetime
    changed_at: datetime
    completion: CompletionReport | None = None

    @property
    def is_settled(self) -> bool:
        """Whether the answer is final."""
        return self.status in EXECUTION.final


class Health(_Given):
    """The process, or what it stands on, is there."""

    status: Literal["alive", "ready"]


class ProblemDocument(_Given):
    """Why a request was not answered as it asked; `incident` finds the log line of a failure."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    incident: str | None = None


def receipt_message(receipt: Receipt) -> AcceptedReceipt | RejectedReceipt:
    """The receipt as it is told; the same for the first answer and for every repeat (C131)."""
    if receipt.admission is Admission.HANDOFF_REJECTED:
        return RejectedReceipt(
            handoff_key=str(receipt.key),
            admitted_at=receipt.admitted_at,
            reason=receipt.reason or REASON_UNSTATED,
        )
    assert receipt.command is not None, "an acceptance names its command"
    assert receipt.execution is not None, "a command has its execution"
    return AcceptedReceipt(
        handoff_key=str(receipt.key),
        admitted_at=receipt.admitted_at,
        command_id=receipt.command,
        execution_id=receipt.execution,
    )
