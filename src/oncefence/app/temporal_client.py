"""
The Temporal door's Python client: how a Runtime that speaks Temporal hands effects over.

    async with RuntimeClient(url, credential) as http:
        digest = await http.put_payload(payload)
    door = TemporalRuntimeClient(client, scope, private_key, "oncefence")
    receipt = await door.hand_over("outbox-17", "lead.title.push", "lead-1", digest)

Only the payload goes another way: what Temporal is given, it keeps and shows. Every call may be
repeated, and the client repeats by itself, a few times, where no answer came.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Final, TypeVar

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from temporalio.client import (
    Client,
    WithStartWorkflowOperation,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.service import RPCError, RPCStatusCode

from oncefence.activities.contracts import HandoffReceipt, SignedHandover, SignedRejection
from oncefence.app.door_answers import DoorUnavailable, HandoffRefused
from oncefence.app.temporal_answers import REFUSALS, read_receipt, refuse_failure
from oncefence.domain.command import Receipt
from oncefence.domain.errors import HandoffKeyMalformed
from oncefence.domain.handoff import EffectHandoffKey, TrustedRuntimeWorkScope
from oncefence.domain.ids import OutboxId, PayloadDigest
from oncefence.domain.signature import (
    HandoffClaim,
    HandoffMessageMalformed,
    HandoffVerb,
    read_claim,
)
from oncefence.workflows import policies
from oncefence.workflows.handoff import (
    ACCEPT,
    ACCEPT_WITHOUT_RECEIPT,
    HANDOFF_WORKFLOW,
    REJECT_IF_UNACCEPTED,
    handoff_workflow_id,
)

__all__ = ["DoorUnavailable", "HandoffRefused", "TemporalRuntimeClient"]

TRIES_MAX: Final = 5
_FIRST_PAUSE_SECONDS, _PAUSE_SECONDS_MAX = 0.1, 5.0
_SUMMARY: Final = "Closing this workflow undoes no handoff: ask again, and it answers from SQL."

T = TypeVar("T")
Pause = Callable[[float], Awaitable[None]]
SignedMessage = SignedHandover | SignedRejection

# Asking again changes none of these.
_POINTLESS: Final = frozenset(
    (
        RPCStatusCode.INVALID_ARGUMENT,
        RPCStatusCode.PERMISSION_DENIED,
        RPCStatusCode.UNAUTHENTICATED,
        RPCStatusCode.UNIMPLEMENTED,
    )
)


class TemporalRuntimeClient:
    """
    One Runtime's way in over Temporal, under the key that its work binding has.

    `client` may use any data converter that writes dataclasses as JSON. The private key is used
    here and goes nowhere.
    """

    def __init__(
        self,
        client: Client,
        scope: TrustedRuntimeWorkScope,
        private_key: Ed25519PrivateKey,
        task_queue: str,
        *,
        timeout_seconds: float = 30.0,
        pause: Pause = asyncio.sleep,
    ) -> None:
        self._client = client
        self._scope = scope
        self._private_key = private_key
        self._task_queue = task_queue
        self._timeout_seconds = timeout_seconds
        self._pause = pause

    def __repr__(self) -> str:
        return f"TemporalRuntimeClient({self._scope.org!r}, {self._task_queue!r})"

    def key_for(self, outbox_id: str) -> EffectHandoffKey:
        """The one handoff key of an outbox entry (C139)."""
        return EffectHandoffKey.for_outbox(self._scope, OutboxId(outbox_id))

    async def hand_over(
        self, outbox_id: str, operation: str, subject: str, digest: PayloadDigest
    ) -> Receipt:
        """
        The receipt of this outbox entry, whose payload was put before.

        Until there is one, keep the entry and call again: the entry has one key, so however
        often and through whichever door it is handed over, it becomes one command.

        Raises:
            HandoffRefused: The door said no.
            DoorUnavailable: No answer; it may be accepted.
        """
        key, message = self._signed_handover(outbox_id, operation, subject, digest)
        return await self._receipt("hand over", key, ACCEPT, message)

    async def hand_over_without_receipt(
        self, outbox_id: str, operation: str, subject: str, digest: PayloadDigest
    ) -> EffectHandoffKey:
        """
        Leave the outbox entry with Temporal and give its key, by which to ask what became of it.

        Not even a refusal comes back, so keep the entry until an admission is seen (C138).

        Raises:
            HandoffRefused: It has not the form in which Temporal may carry it.
            DoorUnavailable: Temporal did not answer; it may have been left.
        """
        key, message = self._signed_handover(outbox_id, operation, subject, digest)

        async def leave() -> None:
            await self._client.start_workflow(
                HANDOFF_WORKFLOW,
                id=handoff_workflow_id(str(key)),
                task_queue=self._task_queue,
                id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
                id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
                task_timeout=policies.WORKFLOW_TASK_TIMEOUT,
                static_summary=_SUMMARY,
                start_signal=ACCEPT_WITHOUT_RECEIPT,
                start_signal_args=[message],
            )

        await self._until_answered("hand over", str(key), leave)
        return key

    async def reject(self, outbox_id: str, digest: PayloadDigest) -> Receipt:
        """
        Proof that this outbox entry never becomes a command, or the receipt that it has.

        The reason of a rejection is text and so is neither sent nor told over this door.

        Raises:
            HandoffRefused: The door said no.
            DoorUnavailable: No answer; it may be rejected.
        """
        key = self.key_for(outbox_id)
        claim = _claim(
            HandoffVerb.REJECT_IF_UNACCEPTED,
            handoff_key=str(key),
            payload_digest=digest,
            outbox_id=outbox_id,
        )
        message = SignedRejection(
            handoff_key=str(key),
            payload_digest=digest,
            outbox_id=outbox_id,
            signature=self._sign(claim),
        )
        return await self._receipt("reject", key, REJECT_IF_UNACCEPTED, message)

    def _signed_handover(
        self, outbox_id: str, operation: str, subject: str, digest: PayloadDigest
    ) -> tuple[EffectHandoffKey, SignedHandover]:
        key = self.key_for(outbox_id)
        members = {
            "handoff_key": str(key),
            "payload_digest": digest,
            "outbox_id": outbox_id,
            "operation": operation,
            "subject": subject,
        }
        claim = _claim(HandoffVerb.ACCEPT, **members)
        return key, SignedHandover(**members, signature=self._sign(claim))

    def _sign(self, claim: HandoffClaim) -> str:
        return self._private_key.sign(claim.signed_text()).hex()

    async def _receipt(
        self, verb: str, key: EffectHandoffKey, update: str, message: SignedMessage
    ) -> Receipt:
        async def ask() -> HandoffReceipt:
            answer: HandoffReceipt = await self._client.execute_update_with_start_workflow(
                update,
                message,
                # One for each try: it remembers the start that it stands for.
                start_workflow_operation=WithStartWorkflowOperation(
                    HANDOFF_WORKFLOW,
                    id=handoff_workflow_id(str(key)),
                    task_queue=self._task_queue,
                    id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
                    id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
                    task_timeout=policies.WORKFLOW_TASK_TIMEOUT,
                    static_summary=_SUMMARY,
                ),
                result_type=HandoffReceipt,
                rpc_timeout=timedelta(seconds=self._timeout_seconds),
            )
            return answer

        return read_receipt(verb, key, await self._until_answered(verb, str(key), ask))

    async def _until_answered(self, verb: str, key: str, ask: Callable[[], Awaitable[T]]) -> T:
        clock = asyncio.get_running_loop().time
        give_up_at = clock() + self._timeout_seconds
        tries = 0
        while True:
            tries += 1
            is_final = False
            timer = asyncio.timeout_at(give_up_at)
            try:
                async with timer:
                    return await ask()
            except (TimeoutError, WorkflowUpdateRPCTimeoutOrCancelledError) as error:
                # The SDK wraps a cancellation too; one that is not our timer's is the caller's.
                if isinstance(error.__cause__, asyncio.CancelledError) and not timer.expired():
                    raise error.__cause__ from None
                reason = "no answer in time"
            except WorkflowUpdateFailedError as error:
                reason = refuse_failure(verb, key, error)
            except RPCError as error:
                reason = error.status.name
                is_final = error.status in _POINTLESS
            pause = _pause_seconds(tries)
            if is_final or tries == TRIES_MAX or clock() + pause >= give_up_at:
                raise DoorUnavailable(verb=verb, reason=f"{reason}, {tries} times")
            await self._pause(pause)


def _claim(verb: HandoffVerb, **members: str) -> HandoffClaim:
    try:
        return read_claim(verb, **members)
    except (HandoffKeyMalformed, HandoffMessageMalformed) as error:
        status, code = REFUSALS[type(error).__name__]
        raise HandoffRefused(
            code=code, detail=f"{error}; nothing was sent", status=status
        ) from None


def _pause_seconds(tries: int) -> float:
    window = _FIRST_PAUSE_SECONDS * 2.0**tries
    # Many clients lose one door in the same moment and should not come back in the same one.
    return min(window * random.uniform(0.5, 1.0), _PAUSE_SECONDS_MAX)  # noqa: S311  # no secret
