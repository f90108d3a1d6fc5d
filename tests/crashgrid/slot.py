"""A slot plays one cell after the other: it forks the lives, watches them, and thaws them."""

import asyncio
import contextlib
import ctypes
import gc
import os
import pickle
import random
import resource
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sqlalchemy.engine import make_url

from tests.crashgrid.board import Board
from tests.crashgrid.cell import Cell, Story, Thaw
from tests.crashgrid.companion import Companion, Findings
from tests.crashgrid.driver import Exit, Life, Role
from tests.crashgrid.ground import Ground, Servers
from tests.crashgrid.points import Action
from tests.crashgrid.proxy import LINES, LineEnd
from tests.crashgrid.striking import Striker
from tests.crashgrid.warming import AimedEngine

_CELL_SECONDS_MAX = 60.0
_LIVES_MAX = 30
_POLL_SECONDS = 0.25
_PR_SET_PDEATHSIG = 1


@dataclass(slots=True, kw_only=True)
class Played:
    """What came of one cell, as its slot saw it."""

    cell: Cell
    lives: int = 0
    fired: list[bool] = field(default_factory=list)
    receipts: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0


@dataclass(slots=True, kw_only=True)
class _Alive:
    role: Role
    line: int
    is_frozen: bool = False


def die_with_parent() -> None:
    """Where the system can: a run that is killed leaves nobody behind, not even the frozen."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


def die(code: int) -> None:
    """End a forked process, and nothing of what its parent had begun."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


class Slot:
    """One place in which cells are played; no event loop and no connection is in its process."""

    def __init__(self, servers: Servers, aimed: AimedEngine, place: Path) -> None:
        self._servers = servers
        self._aimed = aimed
        self.place = place
        self._log_path = place.with_suffix(".log")
        self._log_path.touch()
        self._log_size = 0
        self._board = Board()
        self._news, self._teller = os.pipe()
        os.set_blocking(self._news, False)
        # A child's end wakes the watching; the handler has nothing to do but be there.
        self._wake, wake_end = socket.socketpair()
        wake_end.setblocking(False)
        self._wake.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_end.fileno(), warn_on_full_buffer=False)
        self._wake_end = wake_end
        self._alive: dict[int, _Alive] = {}
        self._ended: set[Role] = set()
        self._open_companion()

    # --- the companion ----------------------------------------------------------------------

    def _open_companion(self) -> None:
        controls = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(LINES)]
        listeners = [socket.create_server(("127.0.0.1", 0), backlog=64) for _ in range(LINES)]
        self._lines = [
            (listener.getsockname()[1], end)
            for listener, (end, _) in zip(listeners, controls, strict=True)
        ]
        self._talk, far = socket.socketpair()
        self._companion = os.fork()
        if self._companion == 0:
            self._in_child(
                lambda: asyncio.run(
                    Companion(
                        servers=self._servers,
                        board=self._board,
                        place=self.place,
                        talk=far,
                        controls=[end for _, end in controls],
                        listeners=listeners,
                        say=self._say,
                    ).serve()
                ),
                closing=(self._talk,),
            )
        far.close()
        for (_, end), listener in zip(controls, listeners, strict=True):
            end.close()
            listener.close()

    def _ask(self, verb: str, given: object = None) -> Any:
        question = pickle.dumps((verb, given))
        self._talk.sendall(len(question).to_bytes(4) + question)
        return pickle.loads(self._received(int.from_bytes(self._received(4))))

    def _received(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self._talk.recv(size - len(data))
            if not part:
                raise AssertionError(f"the companion has ended: {self._new_log()}")
            data += part
        return bytes(data)

    def findings(self) -> Findings:
        """What the database says now."""
        found: Findings = self._ask("findings")
        return found

    def close(self) -> None:
        """Nothing of the slot is left."""
        self._talk.close()
        os.waitpid(self._companion, 0)

    # --- a cell -----------------------------------------------------------------------------

    def play(self, cell: Cell) -> Played:
        """Let the cell happen, from its ground to the end of its last life."""
        began = time.monotonic()
        self._board.clear()
        self._heard()  # what the last cell left unread
        self._ended.clear()
        played = Played(cell=cell)
        self._ground: Ground = self._ask("ground", cell)
        roles = [Role.WORKER, Role.REJECTER] if cell.story is Story.REJECT else [Role.WORKER]
        try:
            for role in roles:
                self._begin(played, role)
            while self._alive and not played.problems:
                if time.monotonic() > began + _CELL_SECONDS_MAX:
                    played.problems.append(f"not at its end after {_CELL_SECONDS_MAX:.0f} s")
                    break
                select.select([self._news, self._wake], [], [], _POLL_SECONDS)
                self._look(played)
        finally:
            self._end_all()
        if played.problems:
            played.problems.append(self._new_log())
        played.fired = [self._board.has_fired(number) for number in range(len(cell.traps))]
        played.seconds = time.monotonic() - began
        self._log_size = self._log_path.stat().st_size
        return played

    def _look(self, played: Played) -> None:
        with contextlib.suppress(BlockingIOError):
            self._wake.recv(4096)
        # Read first: what a life said before its end belongs before that end.
        for line in self._heard():
            self._told(played, line)
        for pid in tuple(self._alive):
            # One by one: the companion and what a server starts are not the cell's.
            ended, status = os.waitpid(pid, os.WNOHANG | os.WUNTRACED)
            if ended:
                self._changed(played, pid, status)
        # What was said just before an end that was only now seen.
        for line in self._heard():
            self._told(played, line)

    def _told(self, played: Played, line: str) -> None:
        word, _, rest = line.partition(" ")
        match word:
            case "takeover":
                self._begin(played, Role(rest))
            case "lost" if played.cell.thaw is Thaw.LOST:
                self._thaw(Role(rest))
            case "lost":
                pass
            case "credential":
                self._ground = replace(self._ground, credential=rest)
            case "receipt":
                played.receipts.append(rest)
            case "restart":
                assert self._servers.restart_database is not None, "a slot with its own server"
                self._servers.restart_database()
                self._board.restarted()
            case _:
                raise AssertionError(f"{line!r} is no word of a life")

    def _changed(self, played: Played, pid: int, status: int) -> None:
        life = self._alive[pid]
        if os.WIFSTOPPED(status):
            life.is_frozen = True
            self._begin(played, life.role)
            return
        del self._alive[pid]
        if os.WIFSIGNALED(status):
            if os.WTERMSIG(status) != signal.SIGKILL or not _was_to_die(played.cell):
                played.problems.append(f"a life ended by signal {os.WTERMSIG(status)}")
        elif os.WEXITSTATUS(status) == Exit.AT_THE_END:
            self._ended.add(life.role)
            self._thaw(life.role)
        elif os.WEXITSTATUS(status) != Exit.HANDED_OVER:
            played.problems.append(f"a life ended with code {os.WEXITSTATUS(status)}")
        if life.role not in self._ended and not self._is_somebody_awake(life.role):
            self._begin(played, life.role)

    def _is_somebody_awake(self, role: Role) -> bool:
        return any(life.role is role and not life.is_frozen for life in self._alive.values())

    def _thaw(self, role: Role) -> None:
        for pid, life in self._alive.items():
            if life.role is role and life.is_frozen:
                life.is_frozen = False
                os.kill(pid, signal.SIGCONT)

    def _end_all(self) -> None:
        for pid in self._alive:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        self._alive.clear()

    # --- a life -----------------------------------------------------------------------------

    def _begin(self, played: Played, role: Role) -> None:
        taken = {life.line for life in self._alive.values()}
        # Not the line of one that has just died either: what it left there is being cleared.
        line = next(
            number
            for number in ((played.lives + step) % LINES for step in range(LINES))
            if number not in taken
        )
        played.lives += 1
        if played.lives > _LIVES_MAX:
            played.problems.append(f"more than {_LIVES_MAX} lives, and no end")
            return
        pid = os.fork()
        if pid == 0:
            self._in_child(
                lambda: asyncio.run(self._live(played.cell, role, line)),
                closing=(self._talk,),
            )
        self._alive[pid] = _Alive(role=role, line=line)

    async def _live(self, cell: Cell, role: Role, number: int) -> int:
        port, control = self._lines[number]
        url = make_url(self._servers.database_url)
        engine = self._aimed.aim(url.set(port=port) if cell.needs_line else url)

        def say(word: str) -> None:
            # Whose part it is belongs to what is said of taking over.
            self._say(f"{word} {role}" if word in ("takeover", "lost") else word)

        life = Life(cell, self._ground, self._board, engine, say)
        Striker(
            cell,
            self._board,
            LineEnd(port, control),
            engine,
            interrupt=life.interrupt,
            say=say,
        ).install()
        return await life.live(role)

    def _in_child(self, run: Callable[[], object], *, closing: tuple[socket.socket, ...]) -> None:
        """Never returns: what was forked ends here, whatever happens in it."""
        code = int(Exit.FAILED)
        try:
            die_with_parent()
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for each in closing:
                each.close()
            log = os.open(self._log_path, os.O_WRONLY | os.O_APPEND)
            os.dup2(log, 1)
            os.dup2(log, 2)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            gc.disable()  # it lives for a second
            random.seed()
            code = int(run() or 0)  # type: ignore[call-overload]  # None or an int
        except BaseException:  # noqa: BLE001  # told in the log, and by the code
            traceback.print_exc()
        finally:
            die(code)

    def _say(self, word: str) -> None:
        os.write(self._teller, f"{word}\n".encode())

    def _heard(self) -> list[str]:
        heard = bytearray()
        with contextlib.suppress(BlockingIOError):
            while part := os.read(self._news, 65_536):
                heard += part
        return heard.decode().splitlines()

    def _new_log(self) -> str:
        with self._log_path.open("rb") as log:
            log.seek(self._log_size)
            return log.read()[-6000:].decode(errors="replace")


def _was_to_die(cell: Cell) -> bool:
    return any(trap.action is Action.KILL for trap in cell.traps)
