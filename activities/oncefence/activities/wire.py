"""
One connection for one request, with a guard where its bytes pass.

httpcore's own connection opens sockets by name, may try again and yields to the event loop
between the last check and the write. Here the address that was checked is the one connected
to, and the first byte is handed to the operating system in the same step as the last check.
httpcore still speaks HTTP over the stream.
"""

import asyncio
import ssl
from collections.abc import Callable
from typing import Final

import h11
import httpcore

from oncefence.activities.connecting import ArrivalReader, Resolver, connect
from oncefence.activities.egress_proxy import EgressProxy
from oncefence.activities.phase_journal import PhaseJournal
from oncefence.activities.send_deadline import SendDeadline
from oncefence.activities.target import Target, TargetPolicy
from oncefence.activities.wire_fault import DeadlinePassed, HookRaised, WireFault
from oncefence.domain.classification import SendFault, WirePhase

# Parsing is this process's own work: others have their turn after each of these many bytes.
_SLICE_BYTES: Final = 16 * 1024

# Head, chunk sizes and interim answers come on top of the body.
_OVERHEAD_BYTES_MAX: Final = 256 * 1024


class GuardedStream(httpcore.AsyncNetworkStream):
    """The byte stream of one request: checks before the first byte out, watches every byte."""

    def __init__(
        self,
        reader: ArrivalReader,
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
        self.was_answered_early = False
        """Something came back before the last byte of the request was handed over."""

        # Nothing waits in this process: a part is out when the operating system has all of it.
        writer.transport.set_write_buffer_limits(high=0)

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
        # Drained, this goes on before anything that the last byte may have brought about is read.
        self.was_answered_early = self._reader.has_arrived

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
        if self._reader.has_arrived:
            # What is said before the question is no answer to it.
            raise WireFault(SendFault.GARBLED, "peer_spoke_before_the_request")
        if self._deadline.has_passed():
            raise DeadlinePassed

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ARG002, ASYNC109  # httpcore's; the total deadline governs
        try:
            data = await self._reader.read(min(max_bytes, _SLICE_BYTES))
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
        # Bytes that have arrived already are read without waiting.
        await asyncio.sleep(0)
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
    proxy: EgressProxy | None,
) -> GuardedStream:
    """
    Connect to the target and stand guard over what passes.

    Raises:
        WireFault: Not connected; nothing of the request was sent.
    """
    reader, writer = await connect(
        target,
        policy,
        tls=tls,
        resolver=resolver,
        deadline=deadline,
        journal=journal,
        proxy=proxy,
    )
    return GuardedStream(
        reader,
        writer,
        journal=journal,
        deadline=deadline,
        before_first_byte=before_first_byte,
        response_limit_bytes=response_limit_bytes,
    )


async def has_bytes_after_the_answer(received: bytes, method: str) -> bool:
    """
    Whether more arrived than the one answer that the request asked for.

    httpcore drops what follows an answer; a second status line would go unseen. So what
    arrived is read once more by the same parser, up to where the first answer ends.
    """
    parser = h11.Connection(h11.CLIENT, max_incomplete_event_size=len(received) + 1)
    parser.send(h11.Request(method=method, target="/", headers=[("Host", "_")]))
    parser.send(h11.EndOfMessage())
    for start in range(0, len(received), _SLICE_BYTES):
        end = start + _SLICE_BYTES
        parser.receive_data(received[start:end])
        while (event := parser.next_event()) is not h11.NEED_DATA:
            if isinstance(event, h11.EndOfMessage):
                return end < len(received) or bool(parser.trailing_data[0])
            if event is h11.PAUSED:
                return True
        await asyncio.sleep(0)
    return True
