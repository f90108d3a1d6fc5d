"""
One life: a process that hands over, sweeps, and runs what is due until its command has ended.

It stands in the place of Temporal and of the Runtime: it calls the doors' and the activities' own
code, waits where a workflow would wait, and repeats what a Runtime would repeat.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import IntEnum, StrEnum
from typing import Any, TypeVar

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine
from temporalio.exceptions import ApplicationError

from oncefence.activities.attempt import AttemptActivity
from oncefence.activities.contracts import RunRequest, RunResult
from oncefence.activities.contracts import Step as Next
from oncefence.activities.lookup import LookupActivity
from oncefence.activities.process_context import ProcessContext
from oncefence.activities.sweep import SweepActivity
from oncefence.app.bootstrap import make_context
from oncefence.app.doors import Doors
from oncefence.domain.command import Handover, Receipt
from oncefence.domain.errors import (
    HandoffAlreadyRejected,
    HandoffConflict,
    ScopeRefused,
    StoreUnavailable,
)
from oncefence.domain.handoff import Admission, EffectHandoffKey, payload_digest
from oncefence.domain.ids import OrgId, OutboxId
from oncefence.domain.redaction import Secret
from oncefence.storage.engine import is_store_away
from oncefence.storage.phases.accept_handoff import accept_handoff
from oncefence.storage.phases.add_principal_binding import (
    BindingNameTaken,
    add_principal_binding,
)
from oncefence.storage.phases.adopt_link import adopt_link
from oncefence.storage.phases.authenticate import Caller
from oncefence.storage.phases.find_work import WorkRef
from oncefence.storage.phases.publish_view import publish_view
from oncefence.storage.phases.read_execution import read_execution
from oncefence.storage.phases.register_runtime import ScopeTaken, register_runtime
from oncefence.storage.phases.reject_handoff import reject_handoff
from oncefence.storage.phases.stage_payload import stage_payload
from tests.crashgrid.board import Board
from tests.crashgrid.cell import Cell, Story
from tests.crashgrid.ground import Ground
from tests.crashgrid.points import Action
from tests.crashgrid.world import (
    LIMITS,
    RING,
    SUBJECT,
    TITLE,
    TOKEN,
    operation_of,
    view_of,
)
from tests.support.dialect import Form
from tests.support.world import INSTALLATION, scope_of

T = TypeVar("T")

PAYLOAD = json.dumps({"title": TITLE}).encode()
OTHER_PAYLOAD = json.dumps({"title": f"{TITLE} of another kind"}).encode()
OUTBOX = OutboxId("outbox-1")

_FINAL = ("succeeded", "failed", "cancelled", "needs_attention")
_PAUSE_SECONDS = 0.02
_LOOK_AGAIN_SECONDS = 0.2
_DRAIN_SECONDS = 10.0
_STATE = text(
    """
    SELECT clock_timestamp() AS now, e.status, w.work_id, w.family, w.state, w.run_after,
           w.deadline_ms, w.lease_until
      FROM oncefence.executions AS e
      LEFT JOIN oncefence.work_items AS w
        ON w.org_id = e.org_id AND w.execution_id = e.execution_id
       AND w.state IN ('pending', 'processing', 'retry')
     WHERE e.org_id = :org AND e.execution_id = :execution
    """
)


class Role(StrEnum):
    """Whose part a life plays."""

    WORKER = "worker"
    REJECTER = "rejecter"


class Exit(IntEnum):
    """How a life ended by itself."""

    AT_THE_END = 0
    FAILED = 1
    HANDED_OVER = 3


class Stuck(Exception):
    """The command is not at its end, and nothing is there that would move it on."""


class _TakenOver(Exception):
    """Another life goes on; this one only finishes what it has begun."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Announcer:
    """Nobody is told: what is due is read from SQL."""

    async def announce(self, ref: WorkRef) -> None:
        """Nobody."""

    async def wake(self, ref: WorkRef) -> None:
        """Nobody."""


class Life:
    """One process of a cell."""

    def __init__(
        self,
        cell: Cell,
        ground: Ground,
        board: Board,
        engine: AsyncEngine,
        say: Callable[[str], None],
    ) -> None:
        announcer = _Announcer()
        self._cell = cell
        self._ground = ground
        self._board = board
        self._engine = engine
        self._say = say
        self._context: ProcessContext = make_context(engine, RING, announcer, LIMITS)  # type: ignore[arg-type]  # only `wake` is asked of it
        self._doors = Doors(engine=engine, ring=RING, limits=LIMITS, announce=announcer.announce)
        self._handlers = {
            "effect.dispatch": AttemptActivity(self._context).run_attempt,
            "effect.lookup": LookupActivity(self._context).run_lookup,
        }
        self._awaited: asyncio.Task[Any] | None = None
        self._interruption: Action | None = None

    def interrupt(self, action: Action) -> None:
        """Whoever waits for what runs now stops waiting; what the process owns goes on."""
        self._interruption = action
        if self._awaited is not None:
            self._awaited.cancel()

    async def live(self, role: Role) -> Exit:
        """Play the part to its end, or until another life has taken over."""
        try:
            caller = await self._enter()
            if role is Role.REJECTER:
                self._note(await self._until_done(lambda: self._reject(caller)))
                return Exit.AT_THE_END
            receipt = await self._until_done(lambda: self._hand_over(caller))
            self._board.hold_receipt()
            self._note(receipt)
            await self._until_done(SweepActivity(self._context).run_sweep)
            if receipt.admission is Admission.COMMAND_ACCEPTED:
                await self._work(receipt)
                await self._until_done(lambda: self._look_up(caller, receipt))
        except _TakenOver:
            return Exit.HANDED_OVER
        finally:
            left = await self._context.runs.drain(timeout_seconds=_DRAIN_SECONDS)
            assert left == 0, "a run goes on for ever"
        return Exit.AT_THE_END

    # --- how a call is made -----------------------------------------------------------------

    async def _until_done(self, call: Callable[[], Awaitable[T]]) -> T:
        """What the call returns; repeated while the database is silent, and when interrupted."""
        while True:
            try:
                return await self._awaiting(call)
            except StoreUnavailable:
                await asyncio.sleep(_PAUSE_SECONDS)
            except ApplicationError as error:
                if error.type != StoreUnavailable.__name__:
                    raise
                await asyncio.sleep(_PAUSE_SECONDS)

    async def _awaiting(self, call: Callable[[], Awaitable[T]]) -> T:
        while True:
            self._interruption = None
            self._awaited = asyncio.ensure_future(_whole(call))
            try:
                return await self._awaited
            except asyncio.CancelledError:
                match self._interruption:
                    case Action.CANCEL if self._cell.form is Form.LOCAL:
                        continue
                    case Action.TIME_OUT:
                        self._say("takeover")
                        continue
                    case Action.CANCEL | Action.TERMINATE:
                        self._say("takeover")
                        raise _TakenOver from None
                raise
            finally:
                self._awaited = None

    # --- coming in --------------------------------------------------------------------------

    async def _enter(self) -> Caller:
        credential = self._ground.credential
        if credential is None:
            credential = await self._set_up()
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
                    token=Secret(TOKEN),
                    actor="grid",
                )
            )
        except BindingNameTaken:
            pass  # by this very story, before its answer or its life was lost
        operation = view.operation(operation_of(self._cell.form))
        await self._until_done(
            lambda: adopt_link(
                self._engine,
                org,
                binding_name=view.principal,
                local_object=operation.local_object,
                subject=SUBJECT,
                remote_object=operation.remote_object,
                remote_id=self._ground.contact,
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

    def _handover(self, caller: Caller, payload: bytes = PAYLOAD) -> Handover:
        return Handover(
            key=EffectHandoffKey.for_outbox(caller.scope, OUTBOX),
            outbox=OUTBOX,
            digest=payload_digest(payload),
            operation=operation_of(self._cell.form),
            subject=SUBJECT,
        )

    async def _hand_over(self, caller: Caller) -> Receipt:
        if not self._board.has_receipt:
            digest = payload_digest(PAYLOAD)
            await stage_payload(self._engine, RING, caller, digest, PAYLOAD)
        try:
            receipt = await accept_handoff(
                self._engine, RING, caller, self._handover(caller), LIMITS
            )
        except HandoffAlreadyRejected:
            return await self._reject(caller)
        await self._doors.tell(receipt)
        if self._cell.story is Story.CONTEST and not self._board.has_receipt:
            await self._contest(caller, receipt)
        return receipt

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

    async def _reject(self, caller: Caller) -> Receipt:
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

    def _note(self, receipt: Receipt) -> None:
        self._say(f"receipt {receipt.admission.value} {receipt.key} {receipt.command}")

    # --- working ----------------------------------------------------------------------------

    async def _work(self, receipt: Receipt) -> None:
        while True:
            state = await self._state(receipt)
            if state.status in _FINAL:
                return
            if state.work_id is None:
                raise Stuck(f"{state.status}, and no item that would move it on")
            due = (state.run_after - self._now()).total_seconds()
            if state.state != "processing" and due > 0:
                await self._rest(state.family, due)
            else:
                await asyncio.sleep(await self._run(state))

    async def _rest(self, family: str, seconds: float) -> None:
        if family == "effect.dispatch":
            # Nothing at the provider changes by waiting: the next attempt may as well be now.
            self._board.skip(seconds)
        else:
            await asyncio.sleep(min(seconds, _LOOK_AGAIN_SECONDS))

    async def _run(self, state: Any) -> float:
        """Run the item; how long there is nothing to do then, in seconds."""
        request = RunRequest(
            org_id=self._ground.org,
            work_id=str(state.work_id),
            deadline_ms=state.deadline_ms,
            as_of=self._now(),
        )
        try:
            result: RunResult = await self._awaiting(lambda: self._handlers[state.family](request))
        except ApplicationError as error:
            if error.type != StoreUnavailable.__name__:
                raise
            return _PAUSE_SECONDS
        if result.verdict == "attempt_lost":
            self._say("lost")
        if result.step is Next.IN_FLIGHT and result.until is not None:
            # A lease ends in real time. Whoever holds it may be done before.
            left = (result.until - datetime.now(UTC)).total_seconds()
            return min(max(left, 0.0) + 0.002, _LOOK_AGAIN_SECONDS)
        return 0.0

    async def _state(self, receipt: Receipt) -> Any:
        while True:
            try:
                async with self._engine.connect() as connection:
                    rows = await connection.execute(
                        _STATE, {"org": self._ground.org, "execution": receipt.execution}
                    )
                    return rows.one()
            except Exception as error:
                if not is_store_away(error):
                    raise
                await asyncio.sleep(_PAUSE_SECONDS)

    async def _look_up(self, caller: Caller, receipt: Receipt) -> None:
        assert receipt.execution is not None, "it was accepted"
        seen = await read_execution(self._engine, caller.scope, receipt.execution)
        assert seen is not None, "the Runtime sees what it handed over"
        assert seen.status in _FINAL, "what has ended stays so"

    def _now(self) -> datetime:
        return datetime.now(UTC) + timedelta(seconds=self._board.skipped_seconds)


async def _whole(call: Callable[[], Awaitable[T]]) -> T:
    return await call()


async def _refused(kind: type[Exception], call: Awaitable[Receipt]) -> None:
    try:
        await call
    except kind:
        return
    raise AssertionError(f"this is refused as {kind.__name__}")
