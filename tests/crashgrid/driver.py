"""
One life: a process that hands over, sweeps, and runs what is due until its command has ended.

It stands in the place of Temporal: it calls the activities' own code, outside of any workflow,
and waits where a workflow would wait.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import IntEnum, StrEnum
from typing import Any, TypeVar

from sqlalchemy import TextClause, text
from sqlalchemy.ext.asyncio import AsyncEngine
from temporalio.exceptions import ApplicationError

from oncefence.activities.attempt import AttemptActivity
from oncefence.activities.contracts import RunRequest, RunResult
from oncefence.activities.contracts import Step as Next
from oncefence.activities.lookup import LookupActivity
from oncefence.activities.process_context import ProcessContext
from oncefence.activities.sweep import SweepActivity
from oncefence.app.bootstrap import make_context
from oncefence.domain.command import Receipt
from oncefence.domain.errors import StoreUnavailable, SubjectTaken
from oncefence.domain.handoff import Admission
from oncefence.domain.ids import OrgId
from oncefence.domain.work_item import WORK_ITEM
from oncefence.storage.engine import is_store_away
from oncefence.storage.phases.add_work import add_work
from oncefence.storage.phases.authenticate import Caller
from oncefence.storage.phases.find_work import WorkRef
from oncefence.storage.phases.read_execution import read_execution
from tests.crashgrid import kin
from tests.crashgrid.board import Board
from tests.crashgrid.cell import Cell, Story
from tests.crashgrid.ground import Ground
from tests.crashgrid.operating import Operator
from tests.crashgrid.points import Action
from tests.crashgrid.renewing import authorise_anew
from tests.crashgrid.runtime import Runtime
from tests.crashgrid.world import LIMITS, RING, token_of, view_of
from tests.support.dialect import Form

T = TypeVar("T")

_FINAL = ("succeeded", "failed", "cancelled", "needs_attention")
_PAUSE_SECONDS = 0.02
_LOOK_AGAIN_SECONDS = 0.2
# A frozen life holds its row until the database ends its transaction, half a minute later.
_DRAIN_SECONDS = 35.0
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
        self._runtime = Runtime(
            cell, ground, board, context=self._context, until_done=self._until_done, say=say
        )
        self._operator = Operator(engine, ground.org, until_done=self._until_done, read=self._read)
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
            caller = await self._runtime.enter()
            if self._cell.story is Story.KIN:
                await self._tend()
                return Exit.AT_THE_END
            if role is Role.REJECTER:
                self._note(await self._until_done(lambda: self._runtime.reject(caller)))
                return Exit.AT_THE_END
            if self._cell.story is Story.OPERATE:
                await self._operate(caller)
                return Exit.AT_THE_END
            receipt = await self._until_done(lambda: self._runtime.hand_over(caller))
            self._board.hold_receipt()
            self._note(receipt)
            # What is only just due is not yet overdue.
            await asyncio.sleep(2 * LIMITS.sweep_grace_scaled_seconds)
            await self._until_done(SweepActivity(self._context).run_sweep)
            if receipt.admission is Admission.COMMAND_ACCEPTED:
                await self._work(receipt)
                await self._until_done(lambda: self._look_up(caller, receipt))
                if self._cell.story.makes_record:
                    await self._make_again(caller, receipt)
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
            is_held = state.state == "processing" and state.family == "effect.dispatch"
            if self._cell.story is Story.OPERATE and is_held:
                assert receipt.execution is not None, "it was accepted"
                # Whoever runs it would settle it as lost; here that is the operator's to do.
                await asyncio.sleep(_PAUSE_SECONDS)
                await self._operator.reclaim(receipt.execution)
                continue
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
        if result.verdict == "paused":
            # By a life that stands still, or stood in its way: the operator sees that it is on.
            await self._operator.resume()
        if result.step is Next.BLOCKED and result.verdict == "credential_held":
            await self._until_done(
                lambda: authorise_anew(
                    self._engine, RING, OrgId(self._ground.org), token_of(self._cell)
                )
            )
        is_held = result.verdict in ("token_busy", "credential_held")
        if (result.step is Next.IN_FLIGHT or is_held) and result.until is not None:
            # A lease ends in real time. Whoever holds it may be done before.
            left = (result.until - datetime.now(UTC)).total_seconds()
            return min(max(left, 0.0) + 0.002, _LOOK_AGAIN_SECONDS)
        return 0.0

    async def _operate(self, caller: Caller) -> None:
        """Every act of an operator, around a command that ends well and one that must not run."""
        operator = self._operator
        await operator.pause()
        receipt = await self._until_done(lambda: self._runtime.hand_over(caller))
        assert receipt.execution is not None, "nobody rejects it"
        self._board.hold_receipt()
        self._note(receipt)
        unwanted = await self._until_done(lambda: self._runtime.hand_over_second(caller))
        assert unwanted.execution is not None, "likewise"
        self._note(unwanted)
        await operator.cancel(unwanted.execution)
        state = await self._state(receipt)
        if state.state in ("pending", "retry"):
            await self._run(state)
        await operator.resume()
        await operator.open_window(receipt.execution)
        await self._work(receipt)
        if await operator.replay(receipt.execution):
            await self._work(receipt)
        await operator.change_hands()
        await operator.revise(view_of(self._cell))

    async def _make_again(self, caller: Caller, first: Receipt) -> None:
        """Ask for another of the record that was asked for; that is for a failed create alone."""
        before = (await self._state(first)).status
        try:
            second = await self._until_done(lambda: self._runtime.hand_over_second(caller))
        except SubjectTaken:
            assert before != "failed", "nothing came of the first, and its slot is free"
            return
        after = (await self._state(first)).status
        assert after == "failed", f"a second record, and the first is {after}"
        self._note(second)
        await self._work(second)

    async def _tend(self) -> None:
        """Add the cell's item of a family of its own, and run it until it has ended."""
        new = await self._until_done(lambda: kin.new_item(self._engine, self._ground.org))
        await self._until_done(lambda: add_work(self._engine, new))
        family = kin.handlers_of(self._context)
        while True:
            state = await self._read(kin.STATE, {"org": self._ground.org, "work": new.work})
            if state.state in WORK_ITEM.final:
                assert state.state == "succeeded", f"the item ended as {state.state}"
                return
            request = RunRequest(
                org_id=self._ground.org,
                work_id=str(new.work),
                deadline_ms=new.deadline_ms,
                as_of=self._now(),
                family=new.family,
            )
            result = await self._until_done(lambda request=request: family.run_work(request))  # type: ignore[misc]  # bound for this round
            if result.step is Next.IN_FLIGHT:
                await asyncio.sleep(min(kin.seconds_until(result.until), _LOOK_AGAIN_SECONDS))

    async def _state(self, receipt: Receipt) -> Any:
        return await self._read(_STATE, {"org": self._ground.org, "execution": receipt.execution})

    async def _read(self, statement: TextClause, values: dict[str, object]) -> Any:
        while True:
            try:
                async with self._engine.connect() as connection:
                    return (await connection.execute(statement, values)).one()
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
