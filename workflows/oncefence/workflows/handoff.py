"""The Temporal door: a Runtime asks about one handoff key, and is given a receipt (C383)."""

import asyncio
import hashlib
from collections.abc import Sequence
from typing import NoReturn

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception

from oncefence.activities.contracts import (
    ACCEPT_HANDED_OVER,
    REJECT_HANDED_OVER,
    HandoffReceipt,
    HandoffReport,
    SignedHandover,
    SignedRejection,
)
from oncefence.domain.errors import Refused
from oncefence.domain.signature import (
    HandoffMessageMalformed,
    HandoffVerb,
    read_claim,
    read_signature,
)
from oncefence.workflows import policies

HANDOFF_WORKFLOW = "HandoffWorkflow"
ACCEPT = HandoffVerb.ACCEPT.value
REJECT_IF_UNACCEPTED = HandoffVerb.REJECT_IF_UNACCEPTED.value
ACCEPT_WITHOUT_RECEIPT = "accept_without_receipt"

NO_ANSWER = "NoAnswer"
"""The type of the failure where the activity itself came to no end: nothing is known."""


def handoff_workflow_id(handoff_key: str) -> str:
    """The id of a key's workflow. A digest: ids are shown in more places than histories are."""
    return f"handoff/{hashlib.sha256(handoff_key.encode()).hexdigest()}"


@workflow.defn(name=HANDOFF_WORKFLOW)
class HandoffWorkflow:
    """
    One or several questions about one key, asked close together.

    It ends when they are answered. The next question starts it again and finds the answer in
    SQL, so closing, terminating or resetting it neither makes nor unmakes an admission (C382).
    """

    def __init__(self) -> None:
        self._receipts = 0
        self._refusals = 0

    @workflow.run
    async def run(self) -> HandoffReport:
        """Stay until what was asked is answered."""
        try:
            await workflow.wait_condition(self._is_answered, timeout=policies.HANDOFF_IDLE)
        except TimeoutError:
            # Nobody asked anything that could be read, or the store is slow to answer.
            await workflow.wait_condition(workflow.all_handlers_finished)
        except asyncio.CancelledError:
            # Whoever asked before is still told.
            await workflow.wait_condition(workflow.all_handlers_finished)
            raise
        return HandoffReport(receipts=self._receipts, refusals=self._refusals)

    @workflow.update(name=ACCEPT)
    async def accept(self, message: SignedHandover) -> HandoffReceipt:
        """Accept the handoff, or answer what its key came to before."""
        return await self._answer(ACCEPT_HANDED_OVER, message)

    @accept.validator
    def check_accept(self, message: SignedHandover) -> None:
        """Refuse what is not of the form, before Temporal keeps it."""
        try:
            _check_handover(message)
        except Refused as error:
            _refuse(error)

    @workflow.update(name=REJECT_IF_UNACCEPTED)
    async def reject_if_unaccepted(self, message: SignedRejection) -> HandoffReceipt:
        """Reject the handoff, or answer its acceptance (C128)."""
        return await self._answer(REJECT_HANDED_OVER, message)

    @reject_if_unaccepted.validator
    def check_reject(self, message: SignedRejection) -> None:
        """Refuse what is not of the form, before Temporal keeps it."""
        try:
            _check_rejection(message)
        except Refused as error:
            _refuse(error)

    @workflow.signal(dynamic=True)
    async def take(self, name: str, words: Sequence[RawValue]) -> None:
        """
        Accept what is signalled under `accept_without_receipt`, and pass over all else (C138).

        Every signal comes here raw: one with other arguments than its handler has would fail
        the task, again and again, and so spoil the key for those who ask properly.
        """
        message = _handover_in(name, words)
        if message is None:
            return
        try:
            await self._answer(ACCEPT_HANDED_OVER, message)
        except ApplicationError as error:
            # There is nobody to tell; the Runtime sees that its key has no admission.
            workflow.logger.info("a handoff by signal came to nothing: %s", error.type)

    def _is_answered(self) -> bool:
        return self._receipts + self._refusals > 0 and workflow.all_handlers_finished()

    async def _answer(
        self, activity: str, message: SignedHandover | SignedRejection
    ) -> HandoffReceipt:
        try:
            receipt: HandoffReceipt = await workflow.execute_local_activity(
                activity,
                message,
                result_type=HandoffReceipt,
                start_to_close_timeout=policies.HANDOFF_TIMEOUT,
                retry_policy=policies.HANDOFF,
            )
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise
            self._refusals += 1
            cause = error.cause
            if isinstance(cause, ApplicationError):
                # Without the wrapping: the caller asked the door and knows of no activity.
                raise ApplicationError(
                    cause.message, *cause.details, type=cause.type, non_retryable=True
                ) from None
            raise ApplicationError("unknown", type=NO_ANSWER, non_retryable=True) from None
        self._receipts += 1
        return receipt


def _handover_in(name: str, words: Sequence[RawValue]) -> SignedHandover | None:
    if name != ACCEPT_WITHOUT_RECEIPT or len(words) != 1:
        return None
    try:
        message: object = workflow.payload_converter().from_payload(
            words[0].payload, SignedHandover
        )
    except Exception:  # noqa: BLE001  # a stranger's bytes fail in any way that there is
        return None
    if not isinstance(message, SignedHandover):
        # Some encodings are read as what they are, whatever was asked for.
        return None
    try:
        _check_handover(message)
    except Refused:
        return None
    return message


def _check_handover(message: SignedHandover) -> None:
    read_claim(
        HandoffVerb.ACCEPT,
        handoff_key=message.handoff_key,
        payload_digest=message.payload_digest,
        outbox_id=message.outbox_id,
        operation=message.operation,
        subject=message.subject,
    )
    _check_place(message.handoff_key, message.signature)


def _check_rejection(message: SignedRejection) -> None:
    read_claim(
        HandoffVerb.REJECT_IF_UNACCEPTED,
        handoff_key=message.handoff_key,
        payload_digest=message.payload_digest,
        outbox_id=message.outbox_id,
    )
    _check_place(message.handoff_key, message.signature)


def _check_place(handoff_key: str, signature: str) -> None:
    read_signature(signature)
    if workflow.info().workflow_id != handoff_workflow_id(handoff_key):
        raise HandoffMessageMalformed(
            member="handoff_key", reason="belongs to the workflow of another key; ask that one"
        )


def _refuse(error: Refused) -> NoReturn:
    # Its text names members and forms and repeats no value; only the caller is shown it.
    raise ApplicationError(str(error), type=type(error).__name__, non_retryable=True) from None
