"""The Temporal door's own work: whose signature it is, and then the phases of every door (C136)."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from temporalio import activity

from oncefence.activities.boundary import safe_to_show
from oncefence.activities.contracts import (
    ACCEPT_HANDED_OVER,
    REJECT_HANDED_OVER,
    HandoffReceipt,
    SignedHandover,
    SignedRejection,
)
from oncefence.activities.process_context import ProcessContext
from oncefence.activities.until_answered import until_answered
from oncefence.domain.command import Handover, Receipt
from oncefence.domain.errors import HandoffConflict, NoSuchTarget, ScopeRefused
from oncefence.domain.signature import HandoffClaim, HandoffVerb, read_claim, read_signature
from oncefence.storage.phases.accept_handoff import accept_handoff
from oncefence.storage.phases.authenticate import Caller
from oncefence.storage.phases.find_dispatch import find_live_dispatch
from oncefence.storage.phases.find_work_binding import find_work_binding
from oncefence.storage.phases.reject_handoff import reject_handoff

log = logging.getLogger(__name__)
T = TypeVar("T")

REJECTED_HERE: Final = "rejected over the Temporal door, which carries no reason"
_ANNOUNCE_SECONDS_MAX: Final = 5.0

# A store that restarts is back by then; a longer outage is told to the Runtime, which repeats.
_PATIENCE_SECONDS: Final = 15.0

# Nobody has its other half. Verified against where there is no key to verify with, so that the
# time of a refusal does not tell a registered scope from one that is none.
_NOBODY: Final = Ed25519PrivateKey.generate().public_key().public_bytes_raw()


class HandoffActivity:
    """
    Verifies, then accepts or rejects.

    Safe to run again at any point: the phases answer a repeat with what the first one wrote, so
    a silent store is asked again here, and Temporal may run all of it again.
    """

    def __init__(self, context: ProcessContext) -> None:
        self._context = context

    @activity.defn(name=ACCEPT_HANDED_OVER)
    async def accept(self, message: SignedHandover) -> HandoffReceipt:
        """Accept the handoff if its Runtime signed it."""
        return await _at_door(lambda: self._accept(message))

    @activity.defn(name=REJECT_HANDED_OVER)
    async def reject(self, message: SignedRejection) -> HandoffReceipt:
        """Reject the handoff if its Runtime signed that and no command came of it."""
        return await _at_door(lambda: self._reject(message))

    async def _accept(self, message: SignedHandover) -> HandoffReceipt:
        claim = read_claim(
            HandoffVerb.ACCEPT,
            handoff_key=message.handoff_key,
            payload_digest=message.payload_digest,
            outbox_id=message.outbox_id,
            operation=message.operation,
            subject=message.subject,
        )
        caller = await self._verified(claim, message.signature)
        handover = Handover(
            key=claim.key,
            outbox=claim.outbox,
            digest=claim.digest,
            operation=message.operation,
            subject=message.subject,
        )
        context = self._context
        receipt = await accept_handoff(
            context.engine, context.ring, caller, handover, context.limits
        )
        await self._announce(receipt)
        return _told(receipt)

    async def _reject(self, message: SignedRejection) -> HandoffReceipt:
        claim = read_claim(
            HandoffVerb.REJECT_IF_UNACCEPTED,
            handoff_key=message.handoff_key,
            payload_digest=message.payload_digest,
            outbox_id=message.outbox_id,
        )
        caller = await self._verified(claim, message.signature)
        receipt = await reject_handoff(
            self._context.engine,
            caller,
            claim.key,
            digest=claim.digest,
            outbox=claim.outbox,
            reason=REJECTED_HERE,
            limits=self._context.limits,
        )
        await self._announce(receipt)
        return _told(receipt)

    async def _verified(self, claim: HandoffClaim, signature: str) -> Caller:
        """
        The caller who signed the claim.

        Scope and verifying key come from the registered binding that the key's text names, and
        nothing is believed before the signature is. So nothing of it is written anywhere: an
        audit row of what a stranger claims would let strangers write to any org they name.

        Raises:
            ScopeRefused: No such binding, no key registered with it, or another signature.
        """
        shown = read_signature(signature)
        binding = await find_work_binding(self._context.engine, claim.key.scope)
        registered = None if binding is None else binding.public_key
        key = Ed25519PublicKey.from_public_bytes(registered or _NOBODY)
        try:
            key.verify(shown, claim.signed_text())
        except InvalidSignature:
            log.warning("a handoff is not signed by the Runtime that it names")
            raise ScopeRefused from None
        assert binding is not None, "nobody signs with the key that nobody has"
        return binding.caller(self._context.ring)

    async def _announce(self, receipt: Receipt) -> None:
        """Tell Temporal of the item; what this misses, the sweep finds (C394)."""
        if receipt.work is None:
            return
        try:
            async with asyncio.timeout(_ANNOUNCE_SECONDS_MAX):
                ref = await find_live_dispatch(
                    self._context.engine, receipt.key.scope.org, receipt.work
                )
                if ref is not None:
                    await self._context.window.announce(ref, self._context.wake)
        except Exception as error:  # noqa: BLE001  # a hint, never a fact: the receipt stands
            log.warning(
                "announcing failed by %s",
                type(error).__name__,
                extra={"work_id": str(receipt.work)},
            )


async def _at_door(run: Callable[[], Awaitable[T]]) -> T:
    """
    The result of `run`; its error becomes one that is safe to show, and says as much as it may.

    Raises:
        ApplicationError: Of the error's class; final, since a silent store was asked for long.
    """
    try:
        return await until_answered(run, patience_seconds=_PATIENCE_SECONDS)
    except HandoffConflict as error:
        raise safe_to_show(error, error.field) from None
    except NoSuchTarget as error:
        # What kind of thing is missing comes from the catalog; its name may be the caller's.
        raise safe_to_show(error, error.kind) from None
    except Exception as error:  # noqa: BLE001  # mapped as a whole, so that nothing slips by
        raise safe_to_show(error) from None


def _told(receipt: Receipt) -> HandoffReceipt:
    return HandoffReceipt(
        admission=receipt.admission,
        handoff_key=str(receipt.key),
        admitted_at=receipt.admitted_at,
        is_new=receipt.is_new,
        command_id=None if receipt.command is None else str(receipt.command),
        execution_id=None if receipt.execution is None else str(receipt.execution),
    )
