"""
A provider that answers at once, in a process of its own: it must not be what is measured.

`python -m tests.bench.provider PORT` answers any PATCH by what it was given, as the shipped pack
demands, and keeps count. GET /sends tells: how many sends carried an attempt id, how many
attempt ids there were, and how many sends carried none.
"""

import asyncio
import json
import re
import sys
from collections import Counter

_OK = b"200 OK"
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_ATTEMPT = re.compile(rb"\r\nx-oncefence-attempt: *([^\r]+)", re.IGNORECASE)


class Sends:
    """What arrived: sends by attempt id; the bare ones have none."""

    def __init__(self) -> None:
        self._by_attempt: Counter[bytes] = Counter()

    def note(self, head: bytes) -> bool:
        """Whether the request is answered as it wants to be; every one is."""
        found = _ATTEMPT.search(head)
        self._by_attempt[found[1] if found else b""] += 1
        return True

    def told(self) -> bytes:
        bare = self._by_attempt[b""]
        return json.dumps(
            {
                "effects": self._by_attempt.total() - bare,
                "attempts": len(self._by_attempt) - (b"" in self._by_attempt),
                "bare": bare,
            }
        ).encode()


class Connection(asyncio.Protocol):
    """One connection; requests come one after the other."""

    def __init__(self, sends: Sends) -> None:
        self._sends = sends
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, blank, rest = self._received.partition(b"\r\n\r\n")
        found = _LENGTH.search(head)
        length = int(found[1]) if found else 0
        if not blank or len(rest) < length:
            return
        self._received = rest[length:]
        status, body = self._answer(head, rest[:length])
        self._transport.write(
            b"HTTP/1.1 "
            + status
            + b"\r\ncontent-type: application/json\r\ncontent-length: "
            + str(len(body)).encode()
            + b"\r\n\r\n"
            + body
        )

    def _answer(self, head: bytes, body: bytes) -> tuple[bytes, bytes]:
        method, target, _ = head.split(b" ", 2)
        if method == b"GET":
            return _OK, self._sends.told()
        if not self._sends.note(head):
            return b"429 Too Many Requests", b'{"status":"error"}'
        contact = target.rpartition(b"/")[2]
        # The request's own object, {"properties": {...}}, with what an answer has besides.
        return _OK, b'{"id":"' + contact + b'","updatedAt":"2026-01-01T00:00:00.000Z",' + body[1:]


async def serve(port: int, sends: Sends | None = None) -> None:
    """Answer until killed."""
    sends = sends or Sends()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(sends), "127.0.0.1", port, backlog=512)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
