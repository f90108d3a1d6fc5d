"""What a door's answers mean to its client: a message, a refusal, or no answer at all."""

from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Final, TypeVar

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from oncefence.app.door_messages import (
    AcceptedReceipt,
    ExecutionReport,
    ProblemDocument,
    RejectedReceipt,
    Undecided,
)
from oncefence.domain.command import Receipt
from oncefence.domain.errors import Refused, Unknown
from oncefence.domain.handoff import Admission, EffectHandoffKey
from oncefence.domain.ids import CommandId, ExecutionId

M = TypeVar("M", bound=BaseModel)
AnyAdmission = AcceptedReceipt | RejectedReceipt | Undecided

# Told apart by the member that says which it is; without it the answer is none of the three.
_ADMISSION: Final[TypeAdapter[AnyAdmission]] = TypeAdapter(
    Annotated[AnyAdmission, Field(discriminator="admission")]
)


@dataclass(eq=False)
class HandoffRefused(Refused):
    """The door said no; `code` is stable, and the same request will be refused again."""

    code: str
    detail: str
    status: int

    def __str__(self) -> str:
        return f"{self.detail} ({self.code})"


@dataclass(eq=False)
class DoorUnavailable(Unknown):
    """No answer that settles it: it may have happened. The same call is safe to repeat."""

    verb: str
    reason: str
    was_reached: bool = True

    def __str__(self) -> str:
        if not self.was_reached:
            return (
                f"{self.verb}: no door was reached ({self.reason}), so nothing happened. "
                "Look at its URL, and whether `oncefence worker` or `oncefence serve` runs there"
            )
        return (
            f"{self.verb}: no answer from the door ({self.reason}); "
            "the outcome is unknown, and the same call is safe to repeat"
        )


@dataclass(eq=False)
class ExecutionStillOpen(Unknown):
    """The wait is over before the execution is; nothing was cancelled."""

    report: ExecutionReport

    def __str__(self) -> str:
        return f"execution {self.report.execution_id} is still {self.report.status}; ask later"


def read_answer(verb: str, status: int, content: bytes, model: type[M]) -> M:
    """
    The message of an answer.

    Raises:
        HandoffRefused: The door refused.
        DoorUnavailable: The answer is none of a door's.
    """
    _refuse_problem(verb, status, content)
    try:
        return model.model_validate_json(content)
    except ValidationError:
        raise none_of_ours(verb, status) from None


def read_admission(verb: str, status: int, content: bytes) -> AnyAdmission:
    """Which of the three an answer about a key is. Raises what `read_answer` raises."""
    _refuse_problem(verb, status, content)
    try:
        return _ADMISSION.validate_json(content)
    except ValidationError:
        raise none_of_ours(verb, status) from None


def receipt_of(
    verb: str,
    key: EffectHandoffKey,
    found: AcceptedReceipt | RejectedReceipt,
    *,
    is_new: bool = False,
) -> Receipt:
    """
    The receipt of `key` that was found.

    Raises:
        DoorUnavailable: It is another key's.
    """
    if found.handoff_key != str(key):
        raise DoorUnavailable(verb=verb, reason="the answer is about another handoff key")
    if isinstance(found, RejectedReceipt):
        return Receipt(
            admission=Admission.HANDOFF_REJECTED,
            key=key,
            admitted_at=found.admitted_at,
            is_new=is_new,
            reason=found.reason,
        )
    return Receipt(
        admission=Admission.COMMAND_ACCEPTED,
        key=key,
        admitted_at=found.admitted_at,
        is_new=is_new,
        command=CommandId(found.command_id),
        execution=ExecutionId(found.execution_id),
    )


def none_of_ours(verb: str, status: int) -> DoorUnavailable:
    """The error for an answer that something other than a door has given."""
    return DoorUnavailable(verb=verb, reason=f"status {status} with an answer that is not a door's")


def _refuse_problem(verb: str, status: int, content: bytes) -> None:
    if HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
        return
    if not HTTPStatus.BAD_REQUEST <= status < HTTPStatus.INTERNAL_SERVER_ERROR:
        raise none_of_ours(verb, status)
    try:
        found = ProblemDocument.model_validate_json(content)
    except ValidationError:
        # Something between here and the door; it may say so to anyone, at any time.
        raise none_of_ours(verb, status) from None
    raise HandoffRefused(code=found.code, detail=found.detail, status=status)
