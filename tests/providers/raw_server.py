"""A provider made of a bare socket: it counts what reaches it and answers with exact bytes."""

import asyncio
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

# What a script may wait for at most before the test counts as hung.
PATIENCE_SECONDS = 5.0


@dataclass
class RawServer:
    """The counts of one server, over all its connections."""

    port: int = 0
    connections: int = 0
    received: list[bytearray] = field(default_factory=list)
    finished: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def bytes_seen(self) -> int:
        return sum(len(part) for part in self.received)

    @property
    def requests_seen(self) -> int:
        return sum(bytes(part).count(b" HTTP/1.1\r\n") for part in self.received)


@dataclass
class Call:
    """One accepted connection, as a script sees it."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    received: bytearray

    async def read_request(self) -> bytes:
        """Read one whole request: the head, and the body that its Content-Length announces."""
        while b"\r\n\r\n" not in self.received:
            await self._read_some()
        head, _, _ = bytes(self.received).partition(b"\r\n\r\n")
        lengths = [
            int(line.split(b":")[1])
            for line in head.split(b"\r\n")
            if line.lower().startswith(b"content-length:")
        ]
        while len(self.received) < len(head) + 4 + sum(lengths):
            await self._read_some()
        return bytes(self.received)

    async def _read_some(self) -> None:
        data = await asyncio.wait_for(self.reader.read(65_536), PATIENCE_SECONDS)
        if not data:
            raise ConnectionError("the client hung up before its request was whole")
        self.received += data

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def client_is_gone(self, *, within_seconds: float = PATIENCE_SECONDS) -> bool:
        """Whether the client hangs up within the time; what it sends meanwhile is counted."""
        try:
            data = await asyncio.wait_for(self.reader.read(65_536), within_seconds)
        except TimeoutError:
            return False
        except OSError:
            return True
        self.received += data
        return not data

    def reset(self) -> None:
        """Close with RST instead of FIN."""
        connection = self.writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


Script = Callable[[Call], Awaitable[None]]


def answer(
    status: str = "200 OK", body: bytes = b"{}", *headers: str, length: int | None = None
) -> bytes:
    """Return the bytes of an answer; `length` lies about the body's."""
    lines = [
        f"HTTP/1.1 {status}",
        "Content-Type: application/json",
        f"Content-Length: {len(body) if length is None else length}",
        *headers,
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def replies(data: bytes) -> Script:
    """Return a script that reads the request, sends the bytes and ends the connection."""

    async def script(call: Call) -> None:
        await call.read_request()
        await call.send(data)

    return script


@asynccontextmanager
async def raw_server(
    script: Script, *, tls: ssl.SSLContext | None = None
) -> AsyncIterator[RawServer]:
    """Serve every connection by the script, on a free port of loopback."""
    server = RawServer()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server.connections += 1
        received = bytearray()
        server.received.append(received)
        try:
            await script(Call(reader, writer, received))
        except (ConnectionError, TimeoutError):
            pass  # the client is gone or silent: what arrived is counted all the same
        finally:
            writer.close()
            server.finished.set()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listener.close()
