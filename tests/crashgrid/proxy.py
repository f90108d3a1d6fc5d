"""
The line between a life and PostgreSQL, which reads the protocol and can strike inside of it.

A life arms its line before a transaction. The line then waits for that transaction's COMMIT (or,
where the statement is a transaction of its own, for its Execute), and either never delivers it,
or delivers it and swallows what the server answers.
"""

import asyncio
import json
import os
import signal
import socket
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.crashgrid.board import Board
from tests.crashgrid.points import INTERRUPTIONS, Action, Moment

LINES = 12
DROP_SECONDS = 0.12

_LENGTH = struct.Struct("!I")
_STARTUP = struct.Struct("!II")
_SSL_REQUEST = 80877103
_ACTIONS = tuple(Action)


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What a life tells its line to do."""

    moment: Moment | None
    action: Action
    trap: int
    pid: int

    def encode(self) -> bytes:
        """As it goes over the socket."""
        moment = None if self.moment is None else self.moment.value
        return json.dumps([moment, self.action.value, self.trap, self.pid]).encode()

    @classmethod
    def decode(cls, text: bytes) -> "Order":
        """As it came."""
        moment, action, trap, pid = json.loads(text)
        return cls(
            moment=None if moment is None else Moment(moment),
            action=Action(action),
            trap=trap,
            pid=pid,
        )


class LineEnd:
    """The life's end of its line: one order, one acknowledgement."""

    def __init__(self, port: int, control: socket.socket) -> None:
        self.port = port
        self._control = control

    def arm(self, moment: Moment, action: Action, trap: int) -> None:
        """Strike in the next transaction."""
        self._tell(Order(moment=moment, action=action, trap=trap, pid=os.getpid()))

    def drop(self) -> None:
        """Break every connection now, and let none through for a moment."""
        self._tell(Order(moment=None, action=Action.DROP, trap=0, pid=os.getpid()))

    def _tell(self, order: Order) -> None:
        self._control.send(order.encode())
        assert self._control.recv(16) == b"done", "the line has done it"


class Line:
    """One listening port, for one life at a time."""

    def __init__(
        self,
        control: socket.socket,
        target: tuple[str, int],
        board: Board,
        say: Callable[[str], None],
    ) -> None:
        self._control = control
        self._target = target
        self._board = board
        self._say = say
        self._armed: Order | None = None
        self._connections: set[_Connection] = set()
        self._down_until = 0.0

    async def open(self, listener: socket.socket) -> None:
        """Carry what comes, and listen for orders."""
        self._control.setblocking(False)
        asyncio.get_running_loop().add_reader(self._control.fileno(), self._ordered)
        await asyncio.start_server(self._serve, sock=listener)

    def hang_up(self) -> None:
        """The life is gone; nothing of it is left on the line."""
        self._armed = None
        self._down_until = 0.0
        self._abort_all()

    def _ordered(self) -> None:
        order = Order.decode(self._control.recv(4096))
        if order.moment is None:
            self._go_down()
        else:
            self._armed = order
        self._control.send(b"done")

    def _go_down(self) -> None:
        self._down_until = asyncio.get_running_loop().time() + DROP_SECONDS
        self._abort_all()

    def _abort_all(self) -> None:
        for connection in tuple(self._connections):
            connection.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if asyncio.get_running_loop().time() < self._down_until:
            writer.transport.abort()
            return
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()  # the server is away: so is the line
            return
        connection = _Connection(self, reader, writer, far_reader, far_writer)
        self._connections.add(connection)
        try:
            await connection.carry()
        finally:
            self._connections.discard(connection)
            connection.abort()

    def claim(self, moment: Moment) -> Order | None:
        """The order for this moment, given to one transaction only."""
        order = self._armed
        if order is None or order.moment is not moment:
            return None
        self._armed = None
        return order

    def strike(self, order: Order, connection: "_Connection") -> None:
        """Do to the life what was ordered; its connection breaks in any case."""
        self._board.fire(order.trap)
        match order.action:
            case Action.KILL:
                os.kill(order.pid, signal.SIGKILL)
            case Action.FREEZE:
                os.kill(order.pid, signal.SIGSTOP)
            case Action.DROP:
                self._go_down()
            case Action.RESTART:
                self._say("restart")
            case action if action in INTERRUPTIONS:
                self._board.pending_action = _ACTIONS.index(action)
                os.kill(order.pid, signal.SIGUSR1)
        connection.abort()


def action_of(number: int) -> Action:
    """The action that the board names by its number."""
    return _ACTIONS[number]


class _Connection:
    """One connection of a life, carried message by message."""

    def __init__(
        self,
        line: Line,
        near: asyncio.StreamReader,
        near_out: asyncio.StreamWriter,
        far: asyncio.StreamReader,
        far_out: asyncio.StreamWriter,
    ) -> None:
        self._line = line
        self._near, self._near_out = near, near_out
        self._far, self._far_out = far, far_out
        self._is_started = False
        self._plain_bytes_due = 0
        self._is_in_transaction = False
        self._swallowing: Order | None = None

    def abort(self) -> None:
        """Both sides see it break."""
        self._near_out.transport.abort()
        self._far_out.transport.abort()

    async def carry(self) -> None:
        """Carry in both directions until either side ends it."""
        outward = asyncio.ensure_future(self._outward())
        inward = asyncio.ensure_future(self._inward())
        done, left = await asyncio.wait({outward, inward}, return_when=asyncio.FIRST_COMPLETED)
        for task in left:
            task.cancel()
        await asyncio.wait(left | done)
        for task in done:
            error = None if task.cancelled() else task.exception()
            if error is not None and not isinstance(error, ConnectionError):
                raise error

    async def _outward(self) -> None:
        pending = bytearray()
        while data := await self._near.read(65_536):
            pending += data
            for message in self._requests(pending):
                if not self._pass_on(message):
                    return
            await self._far_out.drain()

    def _requests(self, pending: bytearray) -> Iterator[bytes]:
        """The whole messages at the head of `pending`, which they leave."""
        while True:
            head = 0 if not self._is_started else 1
            if len(pending) < head + 4:
                return
            size = head + _LENGTH.unpack_from(pending, head)[0]
            if len(pending) < size:
                return
            message = bytes(pending[:size])
            del pending[:size]
            if not self._is_started:
                if _STARTUP.unpack_from(message)[1] == _SSL_REQUEST:
                    self._plain_bytes_due = 1
                else:
                    self._is_started = True
            yield message

    def _pass_on(self, message: bytes) -> bool:
        """Deliver it, unless this is where the line was told to break."""
        kind = message[:1] if self._is_started else b""
        is_end = False
        if kind == b"Q":
            text = message[5:].lstrip().upper()
            if text.startswith(b"BEGIN"):
                self._is_in_transaction = True
            else:
                is_end = self._is_in_transaction and text.startswith(b"COMMIT")
                self._is_in_transaction = False
        elif kind == b"E":
            is_end = not self._is_in_transaction
        if is_end:
            order = self._line.claim(Moment.INSIDE)
            if order is not None:
                # Half a message is no message: the server drops it with the connection.
                self._far_out.write(message[: len(message) // 2])
                self._line.strike(order, self)
                return False
            self._swallowing = self._line.claim(Moment.COMMIT_LOST)
        self._far_out.write(message)
        return True

    async def _inward(self) -> None:
        pending = bytearray()
        while data := await self._far.read(65_536):
            if self._plain_bytes_due:
                # The answer to the question for TLS has no frame.
                self._plain_bytes_due = 0
                self._near_out.write(data[:1])
                data = data[1:]
            if self._swallowing is None:
                # Nothing is held back, and between two requests there is nothing left over.
                self._near_out.write(data)
                await self._near_out.drain()
                continue
            pending += data
            if _has_ready(pending):
                self._line.strike(self._swallowing, self)
                return


def _has_ready(pending: bytearray) -> bool:
    """Whether the server has answered in full: ReadyForQuery is among the messages."""
    at = 0
    while len(pending) >= at + 5:
        if pending[at : at + 1] == b"Z":
            return True
        at += 1 + _LENGTH.unpack_from(pending, at + 1)[0]
    return False
