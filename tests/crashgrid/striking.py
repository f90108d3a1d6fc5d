"""
How a life comes to be struck: its transactions and its network calls are wrapped, here alone.

Production code has no hooks. `run_phase` is replaced in each module of `storage/phases`, and
`http_once` in the two activities that call it, in the forked process only.
"""

import asyncio
import functools
import importlib
import os
import pkgutil
import signal
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

import oncefence.storage.phases
from oncefence.activities import attempt, lookup, tokens
from oncefence.activities import http_once as wire_once
from oncefence.activities.http_once import http_once
from oncefence.activities.phase_journal import PhaseJournal
from oncefence.activities.wire_message import WireAnswer, WireRequest
from oncefence.storage.engine import is_store_away, run_phase
from tests.crashgrid.board import Board
from tests.crashgrid.cell import Cell
from tests.crashgrid.points import INTERRUPTIONS, Action, Moment, Step, point
from tests.crashgrid.proxy import LineEnd, action_of

T = TypeVar("T")

PHASE_MODULES = tuple(
    importlib.import_module(f"oncefence.storage.phases.{module.name}")
    for module in pkgutil.iter_modules(oncefence.storage.phases.__path__)
)
"""Imported before any fork."""

# Likewise what the first request of a process would load: a fifth of a second in every life.
importlib.import_module("anyio._backends._asyncio")
wire_once._default_tls()

_RESTART_SECONDS_MAX = 30.0


class Striker:
    """Knows the traps of the cell, and lets this life run into them."""

    def __init__(
        self,
        cell: Cell,
        board: Board,
        line: LineEnd,
        engine: AsyncEngine,
        *,
        interrupt: Callable[[Action], None],
        say: Callable[[str], None],
    ) -> None:
        self._cell = cell
        self._board = board
        self._line = line
        self._engine = engine
        self._interrupt = interrupt
        self._say = say

    def install(self) -> None:
        """Wrap what this process calls."""
        for module in PHASE_MODULES:
            if hasattr(module, "run_phase"):
                vars(module)["run_phase"] = self._run_phase
        vars(attempt)["http_once"] = functools.partial(self._http_once, "send")
        vars(lookup)["http_once"] = functools.partial(self._http_once, "lookup_read")
        vars(tokens)["http_once"] = functools.partial(self._http_once, "token_call")
        # The line strikes from outside, and says by a signal what the life is to do.
        asyncio.get_running_loop().add_signal_handler(
            signal.SIGUSR1, lambda: self._interrupt(action_of(self._board.pending_action))
        )

    # --- transactions -----------------------------------------------------------------------

    async def _run_phase(self, verb: str, phase: Callable[[], Awaitable[T]]) -> T:
        await self.reach(point(verb, Moment.BEFORE))
        await self._arm(verb)
        result = await run_phase(verb, phase)
        await self.reach(point(verb, Moment.AFTER))
        return result

    async def _arm(self, verb: str) -> None:
        for moment in (Moment.INSIDE, Moment.COMMIT_LOST):
            trap = self._waiting(point(verb, moment))
            if trap is not None:
                await self._warm_up()
                self._line.arm(moment, self._cell.traps[trap].action, trap)
                return

    async def _warm_up(self) -> None:
        """A fresh connection asks questions of its own, which must not be taken for the phase."""
        while True:
            try:
                async with self._engine.connect() as connection:
                    await connection.execute(text("SELECT 1"))
                return
            except Exception as error:
                if not is_store_away(error):
                    raise
                await asyncio.sleep(0.02)

    # --- network calls ----------------------------------------------------------------------

    async def _http_once(self, call: str, request: WireRequest, **given: Any) -> WireAnswer:
        await self.reach(point(call, Step.BEFORE_CONNECT))
        answer = await http_once(
            request,
            before_first_byte=lambda: self._reach_before_first_byte(call),
            journal=_StrikingJournal(self, call),
            **given,
        )
        await self.reach(point(call, Step.AFTER_ANSWER))
        return answer

    def _reach_before_first_byte(self, call: str) -> None:
        self.reach_now(point(call, Step.BEFORE_FIRST_BYTE))

    # --- points -----------------------------------------------------------------------------

    def _waiting(self, name: str) -> int | None:
        for number, trap in enumerate(self._cell.traps):
            if trap.point == name and not self._board.has_fired(number):
                return number
        return None

    async def reach(self, name: str) -> None:
        """The life is at this point now."""
        if self.reach_now(name) in INTERRUPTIONS:
            # An interruption takes hold where the loop goes on. After anything else it must not
            # go on here: what has stood still does the very next thing.
            await asyncio.sleep(0)
            await asyncio.sleep(0)

    def reach_now(self, name: str) -> Action | None:
        """Likewise, where nothing may be awaited; what happened there."""
        number = self._waiting(name)
        if number is None:
            return None
        action = self._cell.traps[number].action
        self._board.fire(number)
        match action:
            case Action.KILL:
                os.kill(os.getpid(), signal.SIGKILL)
            case Action.FREEZE:
                os.kill(os.getpid(), signal.SIGSTOP)
            case Action.DROP:
                self._line.drop()
            case Action.RESTART:
                self._await_restart()
            case _:
                assert action in INTERRUPTIONS, f"{action} does not happen at {name}"
                self._interrupt(action)
        return action

    def _await_restart(self) -> None:
        before = self._board.restarts
        self._say("restart")
        give_up_at = time.monotonic() + _RESTART_SECONDS_MAX
        while self._board.restarts == before:
            assert time.monotonic() < give_up_at, "the server did not come back"
            time.sleep(0.01)


class _StrikingJournal(PhaseJournal):
    """A journal that reaches the points between the first byte and the last."""

    def __init__(self, striker: Striker, call: str) -> None:
        super().__init__()
        self._striker = striker
        self._call = call

    async def trace(self, event: str, info: Mapping[str, Any]) -> None:
        """Note the event, and be struck there."""
        await super().trace(event, info)
        if event == "http11.send_request_headers.complete":
            await self._striker.reach(point(self._call, Step.MID_REQUEST))
        elif event == "http11.send_request_body.complete":
            await self._striker.reach(point(self._call, Step.AFTER_REQUEST))
