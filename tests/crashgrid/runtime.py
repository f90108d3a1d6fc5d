"""
What a Runtime and its operator do in a cell, and do again after whatever became of them.

They call the phases and the doors' own code, as the program's doors do.
"""

import json
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar
from uuid import UUID

from oncefence.activities.contracts import SignedHandover
from oncefence.activities.handoff import HandoffActivity
from oncefence.activities.process_context import ProcessContext
from oncefence.app.doors import Doors
from oncefence.domain.command import Handover, Receipt
from oncefence.domain.errors import HandoffAlreadyRejected, HandoffConflict, ScopeRefused
from oncefence.domain.handoff import Admission, EffectHandoffKey, payload_digest
from oncefence.domain.ids import CommandId, ExecutionId, OrgId, OutboxId
from oncefence.domain.redaction import Secret
from oncefence.domain.signature import HandoffVerb, read_claim
from oncefence.storage.phases.accept_handoff import accept_handoff
from oncefence.storage.phases.add_principal_binding import (
    BindingNameTaken,
    add_principal_binding,
)
from oncefence.storage.phases.adopt_link import adopt_link
from oncefence.storage.phases.authenticate import Caller
from oncefence.storage.phases.publish_view import publish_view
from oncefence.storage.phases.register_runtime import ScopeTaken, register_runtime
from oncefence.storage.phases.reject_handoff import reject_handoff
from oncefence.storage.phases.stage_payload import stage_payload
from tests.crashgrid.board import Board
from tests.crashgrid.cell import Cell, Story
from tests.crashgrid.ground import Ground
from tests.crashgrid.world import (
    LIMITS,
    RING,
    SIGNING_KEY,
    SUBJECT,
    TITLE,
    operation_of,
    payload_of,
    token_of,
    view_of,
)
from tests.support.world import INSTALLATION, scope_of

T = TypeVar("T")

OTHER_PAYLOAD = json.dumps({"title": f"{TITLE} of another kind"}).encode()
OUTBOX = OutboxId("outbox-1")
SECOND = OutboxId("outbox-2")


class UntilDone(Protocol):
    """Repeats a call while the database is silent."""

    async def __call__(self, call: Callable[[], Awaitable[T]]) -> T: ...


class Runtime:
    """Hands one work over, and holds the receipt in the end."""

    def __init__(
        self,
        cell: Cell,
        ground: Ground,
        board: Board,
        *,
        context: ProcessContext,
        until_done: UntilDone,
        say: Callable[[str], None],
    ) -> None:
        self._cell = cell
        self._ground = ground
        self._board = board
        self._engine = context.engine
        self._until_done = until_done
        self._say = say
        self._doors = Doors(engine=context.engine, ring=RING, limits=LIMITS, announce=context.wake)
        self._temporal_door = HandoffActivity(context)

    async def enter(self) -> Caller:
        """The caller that its credential makes it."""
        credential = self._ground.credential
        if credential is None:
            credential = await self._set_up()
            # All is made and the credential kept: whoever comes after this life has it too.
            self._say(f"credential {credential}")
        known = credential
        return await self._until_done(lambda: self._doors.caller(known))

    async def _set_up(self) -> str:
        """Everything that an operator makes, again by whoever comes after one that was struck."""
        org, view = OrgId(self._ground.org), view_of(self._cell)
        credential = await self._register(org)
        await self._until_done(
            lambda: publish_view(self._engine, org, INSTALLATION, view, actor="grid")
        )
        try:
            await self._until_done(
                lambda: add_principal_binding(
                    self._engine,
                    RING,
                    org,
                    name=view.principal,
                    provider=view.pack,
                    base_url=self._ground.base_url,
                    is_local=True,
                    token=Secret(token_of(self._cell)),
                    actor="grid",
                )
            )
        except BindingNameTaken:
            pass  # by this very story, before its answer or its life was lost
        assert self._ground.contact is not None, "what is set up writes to a record"
        contact = self._ground.contact
        operation = view.operation(operation_of(self._cell))
        await self._until_done(
            lambda: adopt_link(
                self._engine,
                org,
                binding_name=view.principal,
                local_object=operation.local_object,
                subject=SUBJECT,
                remote_object=operation.remote_object,
                remote_id=contact,
                actor="grid",
            )
        )
        return credential

    async def _register(self, org: OrgId) -> str:
        number = 1
        while True:
            scope = scope_of(org, capability=f"outbox-{number}")
            try:
                return await self._until_done(
                    lambda scope=scope: register_runtime(self._engine, RING, scope, actor="grid")  # type: ignore[misc]  # bound for this round
                )
            except ScopeTaken:
                # Its credential was shown to nobody: the refusal says what to do.
                number += 1

    def _handover(
        self, caller: Caller, payload: bytes | None = None, outbox: OutboxId = OUTBOX
    ) -> Handover:
        return Handover(
            key=EffectHandoffKey.for_outbox(caller.scope, outbox),
            outbox=outbox,
            digest=payload_digest(payload or payload_of(self._cell)),
            operation=operation_of(self._cell),
            subject=SUBJECT,
        )

    async def hand_over(self, caller: Caller) -> Receipt:
        """The receipt of the work, whichever it is; told again, it is the same."""
        if not self._board.has_receipt:
            await self._stage(caller)
        if self._cell.story is Story.SIGNED:
            return await self._sign_over(caller)
        try:
            receipt = await accept_handoff(
                self._engine, RING, caller, self._handover(caller), LIMITS
            )
        except HandoffAlreadyRejected:
            return await self.reject(caller)
        await self._doors.tell(receipt)
        if self._cell.story is Story.CONTEST and not self._board.has_receipt:
            await self._contest(caller, receipt)
        return receipt

    async def hand_over_second(self, caller: Caller) -> Receipt:
        """
        The receipt of another work of the same record.

        Raises:
            SubjectTaken: It is to be created, and has a link or is being created already.
        """
        await self._stage(caller)
        second = self._handover(caller, outbox=SECOND)
        return await accept_handoff(self._engine, RING, caller, second, LIMITS)

    async def _stage(self, caller: Caller) -> None:
        payload = payload_of(self._cell)
        await stage_payload(self._engine, RING, caller, payload_digest(payload), payload)

    async def _contest(self, caller: Caller, receipt: Receipt) -> None:
        again = await accept_handoff(self._engine, RING, caller, self._handover(caller), LIMITS)
        assert again.command == receipt.command, "a repeat finds the first"
        await self._doors.tell(again)
        other = self._handover(caller, OTHER_PAYLOAD)
        await _refused(HandoffConflict, accept_handoff(self._engine, RING, caller, other, LIMITS))
        foreign = Handover(
            key=EffectHandoffKey.for_outbox(scope_of(f"{self._ground.org}-other"), OUTBOX),
            outbox=OUTBOX,
            digest=other.digest,
            operation=other.operation,
            subject=SUBJECT,
        )
        await _refused(ScopeRefused, accept_handoff(self._engine, RING, caller, foreign, LIMITS))

    async def reject(self, caller: Caller) -> Receipt:
        """The receipt that stands when the work is not wanted any more."""
        handover = self._handover(caller)
        return await reject_handoff(
            self._engine,
            caller,
            handover.key,
            digest=handover.digest,
            outbox=handover.outbox,
            reason="withdrawn",
            limits=LIMITS,
        )

    async def _sign_over(self, caller: Caller) -> Receipt:
        """Through the Temporal door, whose work is an activity's."""
        handover = self._handover(caller)
        claim = read_claim(
            HandoffVerb.ACCEPT,
            handoff_key=str(handover.key),
            payload_digest=handover.digest,
            outbox_id=handover.outbox,
            operation=handover.operation,
            subject=handover.subject,
        )
        told = await self._temporal_door.accept(
            SignedHandover(
                handoff_key=str(handover.key),
                payload_digest=handover.digest,
                outbox_id=handover.outbox,
                operation=handover.operation,
                subject=handover.subject,
                signature=SIGNING_KEY.sign(claim.signed_text()).hex(),
            )
        )
        assert told.command_id is not None, "nobody rejects it"
        assert told.execution_id is not None, "likewise"
        return Receipt(
            admission=Admission(told.admission),
            key=handover.key,
            admitted_at=told.admitted_at,
            is_new=told.is_new,
            command=CommandId(UUID(told.command_id)),
            execution=ExecutionId(UUID(told.execution_id)),
        )


async def _refused(kind: type[Exception], call: Awaitable[Receipt]) -> None:
    try:
        await call
    except kind:
        return
    raise AssertionError(f"this is refused as {kind.__name__}")
