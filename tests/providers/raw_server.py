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
    peers: list[int] = field(default_factory=list)
    """The ports of the clients, in the order in which they came."""

    finished: asyncio.Event = field(default_factory=asyncio.Event)

    async def was_left_alone(self) -> None:
        """
        Return when every connection that was made before this call has been counted.

        They are accepted in the order in which they came, so one of our own that is accepted
        stands behind all others; it is not counted.
        """
        with socket.create_connection(("127.0.0.1", self.port), PATIENCE_SECONDS) as last:
            own = last.getsockname()[1]
            async with asyncio.timeout(PATIENCE_SECONDS):
                while own not in self.peers:
                    await asyncio.sleep(0)
        self.connections -= 1
        del self.received[self.peers.index(own)]
        self.peers.remove(own)

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

    async def hang_up(self) -> None:
        """Say nothing more, and count what the client still has to say."""
        if self.writer.is_closing():
            return
        if self.writer.can_write_eof():
            self.writer.write_eof()
        while data := await asyncio.wait_for(self.reader.read(65_536), PATIENCE_SECONDS):
            self.received += data

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
    """
    Serve every connection by the script, on a free port of loopback.

    A connection counts from the moment that the operating system hands it over, with or without
    a handshake after it. An assertion that fails in a script fails the test.
    """
    loop = asyncio.get_running_loop()
    server = RawServer()
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    server.port = listener.getsockname()[1]
    calls: set[asyncio.Task[None]] = set()

    async def accept() -> None:
        while True:
            connection, peer = await loop.sock_accept(listener)
            server.connections += 1
            server.peers.append(peer[1])
            received = bytearray()
            server.received.append(received)
            calls.add(asyncio.create_task(_serve(server, script, connection, tls, received)))

    accepting = asyncio.create_task(accept())
    try:
        yield server
        if calls:
            await asyncio.wait(calls, timeout=PATIENCE_SECONDS)
    finally:
        accepting.cancel()
        for call in calls:
            call.cancel()
        ends = await asyncio.gather(*calls, return_exceptions=True)
        listener.close()
    for end in ends:
        if isinstance(end, Exception):
            raise end


async def _serve(
    server: RawServer,
    script: Script,
    connection: socket.socket,
    tls: ssl.SSLContext | None,
    received: bytearray,
) -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(loop=loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    try:
        transport, _ = await loop.connect_accepted_socket(lambda: protocol, connection, ssl=tls)
    except OSError:
        return  # no handshake, and so no request
    call = Call(reader, asyncio.StreamWriter(transport, protocol, reader, loop), received)
    try:
        await script(call)
        await call.hang_up()
    except OSError:
        pass  # the client is gone or silent: what arrived is counted all the same
    finally:
        transport.close()
        server.finished.set()
