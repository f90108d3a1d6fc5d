"""A line to PostgreSQL over which, once told to, nobody hears how a transaction ended."""

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import AsyncEngine

from oncefence.storage.engine import make_engine

_LENGTH = struct.Struct("!I")
_READY = ord("Z")
_IDLE = ord("I")


class DeafLine:
    """
    Carries everything to the server; what comes back is lost while `is_deaf`, in one case.

    The case is the answer after which the session is in no transaction: it is swallowed and its
    connection broken. So whatever was asked is durable, and who asked cannot know it.
    """

    def __init__(self, host: str, port: int) -> None:
        self._target = host, port
        self._lines: set[asyncio.StreamWriter] = set()
        self.is_deaf = False
        self.swallowed = 0
        """How many answers were lost."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection until either side ends it or an answer is swallowed."""
        far_reader, far_writer = await asyncio.open_connection(*self._target)
        lines = {writer, far_writer}
        self._lines |= lines
        asking = asyncio.create_task(_carry(reader, far_writer))
        try:
            with suppress(ConnectionError):  # ended by a side: both ends of the line end
                await self._answer(far_reader, writer)
        finally:
            asking.cancel()
            self._lines -= lines
            for line in lines:
                line.transport.abort()

    def end(self) -> None:
        """Break every connection that is left."""
        for line in self._lines:
            line.transport.abort()

    async def _answer(self, far: asyncio.StreamReader, near: asyncio.StreamWriter) -> None:
        pending = bytearray()
        while data := await far.read(65_536):
            pending += data
            ends_at, is_over = _whole_messages(pending)
            if self.is_deaf and is_over:
                self.swallowed += 1
                return
            # A message that is not whole yet waits for its rest; asyncpg waits for it as well.
            near.write(bytes(pending[:ends_at]))
            del pending[:ends_at]
            await near.drain()


def _whole_messages(pending: bytearray) -> tuple[int, bool]:
    """Where the last whole message ends, and whether the session came to rest on the way."""
    at, is_over = 0, False
    while len(pending) >= at + 5:
        size = 1 + _LENGTH.unpack_from(pending, at + 1)[0]
        if len(pending) < at + size:
            break
        is_over = is_over or (pending[at] == _READY and pending[at + 5] == _IDLE)
        at += size
    return at, is_over


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):  # as above
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
        writer.write_eof()


@asynccontextmanager
async def deaf_engine(url: str, *, size: int) -> AsyncIterator[tuple[AsyncEngine, DeafLine]]:
    """An engine that reaches the database of `url` over a line of its own, in plain text."""
    parsed = make_url(url)
    line = DeafLine(parsed.host or "127.0.0.1", parsed.port or 5432)
    server = await asyncio.start_server(line.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    plain = parsed.set(port=port).update_query_dict({"ssl": "disable"})
    engine = make_engine(plain.render_as_string(hide_password=False), size=size)
    try:
        yield engine, line
    finally:
        line.is_deaf = False
        await engine.dispose()
        line.end()
        server.close()
        await server.wait_closed()
