"""What the Temporal door's answers mean to its client: a receipt, a refusal, or no answer."""

from http import HTTPStatus
from typing import Final
from uuid import UUID

from temporalio.client import WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError

from oncefence.activities.contracts import HandoffReceipt
from oncefence.app.door_answers import DoorUnavailable, HandoffRefused
from oncefence.domain.command import Receipt
from oncefence.domain.errors import HandoffAlreadyRejected, HandoffConflict
from oncefence.domain.handoff import Admission, EffectHandoffKey
from oncefence.domain.ids import CommandId, ExecutionId
from oncefence.workflows.handoff import NO_ANSWER

# The failures that say nothing about the handoff: a silent store, an activity without an end, a
# workflow that was closed while it was asked.
_UNANSWERED: Final = frozenset(("StoreUnavailable", NO_ANSWER, "AcceptedUpdateCompletedWorkflow"))

# Temporal carries the class of a refusal; what it means is said here, in the words and under
# the codes of the other doors.
REFUSALS: Final[dict[str, tuple[HTTPStatus, str]]] = {
    "ScopeRefused": (HTTPStatus.FORBIDDEN, "scope_refused"),
    "HandoffConflict": (HTTPStatus.CONFLICT, "handoff_conflict"),
    "HandoffAlreadyRejected": (HTTPStatus.CONFLICT, "handoff_already_rejected"),
    "HandoffKeyMalformed": (HTTPStatus.UNPROCESSABLE_ENTITY, "handoff_key_malformed"),
    "NoSuchTarget": (HTTPStatus.UNPROCESSABLE_ENTITY, "no_such_target"),
    "SubjectTaken": (HTTPStatus.CONFLICT, "subject_taken"),
    "PayloadRefused": (HTTPStatus.UNPROCESSABLE_ENTITY, "payload_refused"),
    "UnknownOperation": (HTTPStatus.UNPROCESSABLE_ENTITY, "unknown_operation"),
    "HandoffMessageMalformed": (HTTPStatus.UNPROCESSABLE_ENTITY, "body_invalid"),
}
_ELSEWHERE: Final = "hand it over through HTTP to be told more, or look at what is registered"


def refuse_failure(verb: str, key: str, error: WorkflowUpdateFailedError) -> str:
    """
    Why there is no answer yet.

    Raises:
        HandoffRefused: There is one, and it is no.
        DoorUnavailable: What failed is none of the door's failures.
    """
    cause = error.cause
    kind = cause.type if isinstance(cause, ApplicationError) else None
    if kind in _UNANSWERED:
        return str(kind)
    if not isinstance(cause, ApplicationError) or kind not in REFUSALS:
        reason = f"it failed by {kind or type(cause).__name__}"
        raise DoorUnavailable(verb=verb, reason=reason) from None
    status, code = REFUSALS[kind]
    word = next((str(word) for word in cause.details), "")
    raise HandoffRefused(code=code, detail=_detail(kind, word, key, cause), status=status) from None


def _detail(kind: str, word: str, key: str, cause: ApplicationError) -> str:
    match kind:
        case "ScopeRefused":
            return (
                "the signature is not one of the work binding that the handoff key names, or "
                "that binding is not registered with a public key"
            )
        case "HandoffConflict":
            return str(HandoffConflict(field=word))
        case "HandoffAlreadyRejected":
            return str(HandoffAlreadyRejected(handoff_key=key))
        case "NoSuchTarget" if word == "payload":
            return "no payload of this digest: put its bytes first, PUT /v1/payloads/{digest}"
        case "NoSuchTarget":
            return f"no {word} of the name that the handoff gives; {_ELSEWHERE}"
        case "SubjectTaken":
            return f"what is to be created has its record, or is being created; {_ELSEWHERE}"
        case "PayloadRefused":
            return f"the payload cannot become an exact request; {_ELSEWHERE}"
        case "UnknownOperation":
            return f"no binding has the operation; {_ELSEWHERE}"
        case _:
            # The form is judged before anything is kept, and that answer alone carries a text.
            return cause.message


def read_receipt(verb: str, key: EffectHandoffKey, found: HandoffReceipt) -> Receipt:
    """
    The receipt of `key` that was found.

    Raises:
        DoorUnavailable: It is another key's.
    """
    if found.handoff_key != str(key):
        raise DoorUnavailable(verb=verb, reason="the answer is about another handoff key")
    return Receipt(
        admission=Admission(found.admission),
        key=key,
        admitted_at=found.admitted_at,
        is_new=found.is_new,
        command=None if found.command_id is None else CommandId(UUID(found.command_id)),
        execution=None if found.execution_id is None else ExecutionId(UUID(found.execution_id)),
    )
