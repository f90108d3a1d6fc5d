"""
One connection for one request, with a guard where its bytes pass.

httpcore's own connection opens sockets by name, may try again and yields to the event loop
between the last check and the write. Here the address that was checked is the one connected
to, and the first byte is handed to the operating system in the same step as the last check.
httpcore still speaks HTTP over the stream.
"""

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable
from ipaddress import ip_address
from typing import Final

import h11
import httpcore

from oncefence.activities.phase_journal import PhaseJournal
from oncefence.activities.send_deadline import SendDeadline
from oncefence.activities.target import Target, TargetPolicy, refused_address
from oncefence.domain.classification import SendFault, WirePhase

Resolver = Callable[[str, int], Awaitable[list[str]]]

# Head, chunk sizes and interim answers come on top of the body.
_OVERHEAD_BYTES_MAX: Final = 256 * 1024


class WireFault(Exception):
    """The send ended here; carries the fault and a word from a closed list, never a text."""

    def __init__(self, fault: SendFault, note: str | None = None) -> None:
        super().__init__(fault.value)
        self.fault = fault
        self.note = note


class DeadlinePassed(BaseException):
    """
    The deadline passed before the first byte, and nothing was sent.

    Not an Exception: no layer between the stream and `http_once` may take it for a network
    error, which httpcore answers by waiting for a reply.
    """


class HookRaised(BaseException):
    """The caller's hook raised before the first byte; carries its error past all layers."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error


async def system_resolver(host: str, port: int) -> list[str]:
    """Return the addresses of a host in the order in which to try them."""
    if _is_address(host):
        # Nothing to look up, and so no thread to wait for.
        return [host]
    entries = await asyncio.get_running_loop().getaddrinfo(
        host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP
    )
    return list(dict.fromkeys(str(entry[4][0]) for entry in entries))


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    # A zone names an interface of this machine: that is for the system to read.
    return "%" not in host


class GuardedStream(httpcore.AsyncNetworkStream):
    """The byte stream of one request: checks before the first byte out, watches every byte."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        journal: PhaseJournal,
        deadline: SendDeadline,
        before_first_byte: Callable[[], None] | None,
        response_limit_bytes: int,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._journal = journal
        self._deadline = deadline
        self._before_first_byte = before_first_byte
        self._received_max = 2 * response_limit_bytes + _OVERHEAD_BYTES_MAX
        self.received = bytearray()
        self.has_ended = False

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ARG002, ASYNC109  # httpcore's; the total deadline governs
        if not buffer:
            return
        if self._journal.phase < WirePhase.FIRST_BYTE_OUT:
            self._check()
            # Noted first: if we die in between, the row errs on the side of "may have left".
            self._journal.reach(WirePhase.FIRST_BYTE_OUT)
        elif self._deadline.has_passed():
            # A process that stood still within its request must not finish it when it goes on:
            # by then others may have settled it as lost and looked.
            raise WireFault(SendFault.DEADLINE)
        self._writer.write(buffer)
        self._journal.bytes_out += len(buffer)
        try:
            await self._writer.drain()
        except OSError as error:
            raise WireFault(SendFault.LOST) from error

    def _check(self) -> None:
        """Run the last checks; nothing may be awaited between them and the write (C165)."""
        if self._before_first_byte is not None:
            try:
                self._before_first_byte()
            except Exception as error:
                raise HookRaised(error) from error
        if self._writer.is_closing() or self._reader.at_eof():
            # The peer hung up before we spoke: not one byte can have left.
            raise WireFault(SendFault.CONNECT, "peer_hung_up_before_the_request")
        if self._deadline.has_passed():
            raise DeadlinePassed

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ARG002, ASYNC109  # httpcore's; the total deadline governs
        try:
            data = await self._reader.read(max_bytes)
        except OSError as error:
            raise WireFault(SendFault.LOST) from error
        if not data:
            self.has_ended = True
            return data
        self._journal.reach(WirePhase.FIRST_BYTE_IN)
        self._journal.bytes_in += len(data)
        self.received += data
        if len(self.received) > self._received_max:
            raise WireFault(SendFault.TOO_LARGE)
        return data

    async def aclose(self) -> None:
        self.abort()

    def abort(self) -> None:
        """Drop the connection at once: bytes still buffered must not leave after the deadline."""
        self._writer.transport.abort()


async def open_stream(
    target: Target,
    policy: TargetPolicy,
    *,
    tls: ssl.SSLContext,
    resolver: Resolver,
    deadline: SendDeadline,
    journal: PhaseJournal,
    before_first_byte: Callable[[], None] | None,
    response_limit_bytes: int,
) -> GuardedStream:
    """
    Connect to an address of the target that passed the check, and finish TLS on it.

    Raises:
        WireFault: Not connected; nothing was sent.
    """
    addresses = await _resolve(target, policy, resolver)
    journal.reach(WirePhase.RESOLVED)
    connection = await _connect_to_one_of(addresses, target.port, deadline)
    journal.reach(WirePhase.CONNECTED)
    if target.scheme == "https":
        reader, writer = await _with_tls(connection, tls, target.host)
        journal.reach(WirePhase.TLS)
    else:
        reader, writer = await asyncio.open_connection(sock=connection)
    return GuardedStream(
        reader,
        writer,
        journal=journal,
        deadline=deadline,
        before_first_byte=before_first_byte,
        response_limit_bytes=response_limit_bytes,
    )


async def _resolve(target: Target, policy: TargetPolicy, resolver: Resolver) -> list[str]:
    try:
        addresses = await resolver(target.host, target.port)
    except (OSError, UnicodeError) as error:
        raise WireFault(SendFault.DNS) from error
    if not addresses:
        raise WireFault(SendFault.DNS)
    refusal = refused_address(addresses, policy)
    if refusal is not None:
        raise WireFault(SendFault.GUARD_REFUSED, refusal.value)
    return addresses


async def _connect_to_one_of(
    addresses: list[str], port: int, deadline: SendDeadline
) -> socket.socket:
    # Another address after a failed connect is no second send: nothing has been written. Each
    # gets an equal share of what is left, so that a silent first one does not use up all.
    failure: OSError | None = None
    for position, address in enumerate(addresses):
        share = max(deadline.remaining(), 0.0) / (len(addresses) - position)
        try:
            async with asyncio.timeout(share):
                return await _connect(address, port)
        except OSError as error:
            # ETIMEDOUT and the end of the share arrive as the same class; both mean: next.
            failure = error
    raise WireFault(SendFault.CONNECT) from failure


async def _connect(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    connection = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        connection.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connection, (address, port))
    except BaseException:
        connection.close()
        raise
    return connection


async def _with_tls(
    connection: socket.socket, tls: ssl.SSLContext, host: str
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    try:
        return await asyncio.open_connection(sock=connection, ssl=tls, server_hostname=host)
    except ssl.SSLCertVerificationError as error:
        raise WireFault(SendFault.CERTIFICATE, "certificate_not_verified") from error
    except OSError as error:
        raise WireFault(SendFault.TLS) from error


def has_bytes_after_the_answer(received: bytes, method: str) -> bool:
    """
    Whether more arrived than the one answer that the request asked for.

    httpcore drops what follows an answer; a second status line would go unseen. So what
    arrived is read once more by the same parser, up to where the first answer ends.
    """
    parser = h11.Connection(h11.CLIENT, max_incomplete_event_size=len(received) + 1)
    parser.send(h11.Request(method=method, target="/", headers=[("Host", "_")]))
    parser.send(h11.EndOfMessage())
    parser.receive_data(received)
    while not isinstance(event := parser.next_event(), h11.EndOfMessage):
        if event is h11.NEED_DATA or event is h11.PAUSED:
            return True
    return bool(parser.trailing_data[0])
