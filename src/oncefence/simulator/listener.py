"""A port that accepts, resets at accept, or is closed for a time and then open again."""

import asyncio
import socket
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from oncefence.simulator.wire import Connection

_BACKLOG = 1024


class Listener:
    """
    Hands each accepted connection to `serve`, in a task of its own.

    `refuses` is asked once per connection, before a byte is read; `fail` is told of whatever ends a
    task by surprise.
    """

    def __init__(
        self,
        *,
        serve: Callable[[Connection], Awaitable[None]],
        fail: Callable[[BaseException], None],
        refuses: Callable[[], bool] = lambda: False,
    ) -> None:
        self._serve = serve
        self._fail = fail
        self._refuses = refuses
        self._family = socket.AF_INET
        self._address: Any = ("", 0)  # its shape is the address family's
        self._keeper: socket.socket | None = None
        self._listening: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._reopening: asyncio.TimerHandle | None = None
        self._open_again_at = 0.0
        self._exchanges: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        """The port, the same through every closing."""
        return int(self._address[1])

    @property
    def is_open(self) -> bool:
        """Connections are accepted."""
        return self._listening is not None

    def bind(self, host: str, port: int) -> None:
        """The address is taken; port 0 takes a free one. Raises OSError when it cannot be had."""
        self._family, _, _, _, self._address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        # While the listening socket is away, this one, bound and never listening, keeps the port
        # from being given to anybody else. Other systems than Linux refuse the second bind.
        if sys.platform == "linux":
            self._keeper = self._bound()
            self._address = self._keeper.getsockname()

    def open(self) -> None:
        """Connections are accepted from now on. Raises OSError when the port is taken."""
        listening = self._bound()
        listening.setblocking(False)
        listening.listen(_BACKLOG)
        self._address = listening.getsockname()
        self._listening = listening
        self._accepting = self._watch(asyncio.create_task(self._accept(listening)))

    def close_for(self, seconds: float) -> None:
        """Connections are refused for `seconds`, or longer where a longer closing is under way."""
        self._close_listening()
        loop = asyncio.get_running_loop()
        self._open_again_at = max(self._open_again_at, loop.time() + seconds)
        if self._reopening is not None:
            self._reopening.cancel()
        self._reopening = loop.call_at(self._open_again_at, self._reopen)

    def open_again(self) -> None:
        """A closing that is under way ends now. Raises OSError when the port was taken."""
        if self._reopening is None:
            return
        self._reopening.cancel()
        self._reopening = None
        self._open_again_at = 0.0
        self.open()

    async def stop(self) -> None:
        """The port is free, and every exchange has ended."""
        self._close_listening()
        if self._reopening is not None:
            self._reopening.cancel()
        exchanges = list(self._exchanges)
        for exchange in exchanges:
            exchange.cancel()
        await asyncio.gather(*exchanges, return_exceptions=True)
        if self._keeper is not None:
            self._keeper.close()

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            sock, _ = await loop.sock_accept(listening)
            connection = Connection(sock)
            if self._refuses():
                connection.reset()
                continue
            task = self._watch(asyncio.create_task(self._exchange(connection)))
            self._exchanges.add(task)
            task.add_done_callback(self._exchanges.discard)

    async def _exchange(self, connection: Connection) -> None:
        try:
            await self._serve(connection)
        finally:
            connection.close()

    def _reopen(self) -> None:
        self._reopening = None
        try:
            self.open()
        except OSError as reason:
            self._fail(reason)

    def _close_listening(self) -> None:
        if self._accepting is not None:
            self._accepting.cancel()
            self._accepting = None
        if self._listening is not None:
            asyncio.get_running_loop().remove_reader(self._listening)
            self._listening.close()
            self._listening = None

    def _bound(self) -> socket.socket:
        sock = socket.socket(self._family, socket.SOCK_STREAM)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(self._address)
        except OSError:
            sock.close()
            raise
        return sock

    def _watch(self, task: asyncio.Task[None]) -> asyncio.Task[None]:
        task.add_done_callback(self._notice)
        return task

    def _notice(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (reason := task.exception()) is not None:
            self._fail(reason)
