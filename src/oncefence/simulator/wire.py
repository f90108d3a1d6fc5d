"""
One connection of a client, on a bare socket.

Bare, because faults have to fall at exact points: before a byte is read, in the middle of a body,
or between two bytes of an answer. Each connection carries one request.
"""

import asyncio
import json
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import h11

_HEAD_BYTES_MAX = 65_536
_BODY_BYTES_MAX = 1_048_576
_CHUNK_BYTES = 65_536
JSON = "application/json;charset=utf-8"
# A head that has not arrived by then is read as it comes, and faults that leave a request unread
# pass it by. Clients send a head in one write, so only a hand-typed request gets here.
_PEEK_SECONDS = 1.0
_PEEK_POLL_SECONDS = 0.005
# A client that vanished without a word shows as a time-out of the kernel's own retries.
_CLIENT_LEFT = (ConnectionError, TimeoutError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The request line and headers (names in lower case)."""

    method: str
    target: str
    headers: Mapping[str, str] = field(repr=False)  # holds the bearer token

    @property
    def path(self) -> str:
        """The target without its query."""
        return urlsplit(self.target).path

    @property
    def query(self) -> list[tuple[str, str]]:
        """The query's pairs in order, empty values kept."""
        return parse_qsl(urlsplit(self.target).query, keep_blank_values=True)

    @property
    def media_type(self) -> str:
        """The media type of the body, without its parameters."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request that was read to its end."""

    head: Head
    body: bytes


class Unfinished(Exception):
    """The client left before its request was whole."""

    def __init__(self, *, head: Head | None, bytes_read: int) -> None:
        super().__init__(f"the client left after {bytes_read} bytes")
        self.head = head
        self.bytes_read = bytes_read


class Malformed(Exception):
    """What the client sent is not an HTTP request that can be served."""

    def __init__(self, reason: str, *, head: Head | None, status: int = 400) -> None:
        super().__init__(reason)
        self.head = head
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A status with a JSON body, or with raw bytes where the body must not be JSON."""

    status: int
    body: Mapping[str, Any] | list[Any] | bytes
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def content(self) -> bytes:
        """The body as it goes out; 204 has none."""
        if self.status == HTTPStatus.NO_CONTENT:
            return b""
        if isinstance(self.body, bytes):
            return self.body
        return json.dumps(self.body, ensure_ascii=False).encode()

    def encode(self) -> bytes:
        """The whole answer as it goes out."""
        if self.status == HTTPStatus.NO_CONTENT:
            return self.head({})
        content = self.content
        return self.head({"Content-Length": str(len(content))}) + content

    def head(self, framing: Mapping[str, str]) -> bytes:
        """Status line and headers; `framing` says where the body ends."""
        headers = {"Content-Type": JSON, "Connection": "close", **self.headers, **framing}
        lines = [f"HTTP/1.1 {self.status} {_phrase(self.status)}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        return "\r\n".join([*lines, "", ""]).encode()


class Connection:
    """An accepted socket."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sock = sock
        self._loop = asyncio.get_running_loop()

    async def peek(self) -> Head | None:
        """The head of the request, left unread in the socket; None if it does not come whole."""
        await self._readable()
        give_up_at = self._loop.time() + _PEEK_SECONDS
        while self._loop.time() < give_up_at:
            try:
                seen = self._sock.recv(_HEAD_BYTES_MAX, socket.MSG_PEEK)
            except BlockingIOError:
                await self._readable()
                continue
            except _CLIENT_LEFT:
                return None  # `read` meets the same end and says so
            if not seen:
                return None
            if b"\r\n\r\n" in seen:
                return _head_of(seen)
            await asyncio.sleep(_PEEK_POLL_SECONDS)
        return None

    async def read(self) -> Request:
        """
        The whole request.

        Raises:
            Unfinished: The client left first.
            Malformed: It is not HTTP, or too large.
        """
        parser = h11.Connection(h11.SERVER, max_incomplete_event_size=_HEAD_BYTES_MAX)
        head: Head | None = None
        body = bytearray()
        bytes_read = 0
        while True:
            try:
                event = parser.next_event()
            except h11.RemoteProtocolError as reason:
                raise Malformed(str(reason), head=head, status=reason.error_status_hint) from reason
            if event is h11.NEED_DATA:
                go_on = None
                if parser.they_are_waiting_for_100_continue:
                    go_on = parser.send(h11.InformationalResponse(status_code=100, headers=[]))
                try:
                    if go_on:
                        await self.send(go_on)
                    data = await self._loop.sock_recv(self._sock, _CHUNK_BYTES)
                except _CLIENT_LEFT:
                    data = b""
                if not data:
                    raise Unfinished(head=head, bytes_read=bytes_read)
                bytes_read += len(data)
                parser.receive_data(data)
            elif isinstance(event, h11.Request):
                head = _head(event)
            elif isinstance(event, h11.Data):
                body += event.data
                if len(body) > _BODY_BYTES_MAX:
                    raise Malformed("the body is over 1 MiB", head=head, status=413)
            elif isinstance(event, h11.EndOfMessage) and head is not None:
                return Request(head=head, body=bytes(body))

    def read_part(self) -> bool:
        """Half of what has arrived is read, the rest is left; False when the client left first."""
        try:
            seen = len(self._sock.recv(_HEAD_BYTES_MAX, socket.MSG_PEEK))
            return bool(self._sock.recv(max(1, seen // 2)))
        except _CLIENT_LEFT:
            return False

    async def send(self, data: bytes) -> None:
        """All of `data` is with the kernel. Raises ConnectionError when the client has left."""
        try:
            await self._loop.sock_sendall(self._sock, data)
        except TimeoutError as reason:
            raise ConnectionAbortedError(str(reason)) from reason

    async def gone(self) -> None:
        """Returns when the client has closed its end; what it sends before is dropped."""
        try:
            while await self._loop.sock_recv(self._sock, _CHUNK_BYTES):
                pass
        except _CLIENT_LEFT:
            return

    def reset(self) -> None:
        """The client gets an RST."""
        # With a linger time of zero, close discards the connection instead of ending it.
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._sock.close()

    def close(self) -> None:
        """The client gets the end of the stream. Closing twice is harmless."""
        self._sock.close()

    async def _readable(self) -> None:
        ready: asyncio.Future[None] = self._loop.create_future()
        descriptor = self._sock.fileno()
        self._loop.add_reader(descriptor, _set, ready)
        try:
            await ready
        finally:
            self._loop.remove_reader(descriptor)


def _set(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


def _head_of(seen: bytes) -> Head | None:
    parser = h11.Connection(h11.SERVER, max_incomplete_event_size=_HEAD_BYTES_MAX)
    parser.receive_data(seen)
    try:
        event = parser.next_event()
    except h11.RemoteProtocolError:
        return None  # `read` meets the same bytes again and says what is wrong with them
    return _head(event) if isinstance(event, h11.Request) else None


def _head(event: h11.Request) -> Head:
    return Head(
        method=event.method.decode("ascii"),
        target=event.target.decode("latin-1"),
        headers={name.decode("ascii"): value.decode("latin-1") for name, value in event.headers},
    )


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Unnamed"
