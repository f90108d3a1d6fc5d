"""A line to PostgreSQL that a test can cut: open connections break, and new ones are reset."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import AsyncEngine

from oncefence.storage.engine import make_engine


class StoreLink:
    """Forwards to one server until it is cut, and again once it is mended."""

    def __init__(self, host: str, port: int) -> None:
        self._target = host, port
        self._lines: set[asyncio.StreamWriter] = set()
        self._is_cut = False
        self.turned_away = 0
        """How many connections were reset because the line was cut."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection in both directions until either side ends it."""
        if self._is_cut:
            self.turned_away += 1
            writer.transport.abort()
            return
        far_reader, far_writer = await asyncio.open_connection(*self._target)
        lines = {writer, far_writer}
        self._lines |= lines
        try:
            await asyncio.gather(_carry(reader, far_writer), _carry(far_reader, writer))
        finally:
            self._lines -= lines
            for line in lines:
                line.transport.abort()

    def cut(self) -> None:
        """Nothing passes any more."""
        self._is_cut = True
        for line in self._lines:
            line.transport.abort()

    def mend(self) -> None:
        """New connections pass again."""
        self._is_cut = False


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):  # cut, or ended by the other side: both end the line
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
        writer.write_eof()


@asynccontextmanager
async def linked_engine(url: str) -> AsyncIterator[tuple[AsyncEngine, StoreLink]]:
    """An engine that reaches the database of `url` over a line of its own."""
    parsed = make_url(url)
    link = StoreLink(parsed.host or "127.0.0.1", parsed.port or 5432)
    server = await asyncio.start_server(link.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    engine = make_engine(parsed.set(port=port).render_as_string(hide_password=False))
    try:
        yield engine, link
    finally:
        link.mend()
        await engine.dispose()
        link.cut()
        server.close()
        await server.wait_closed()
