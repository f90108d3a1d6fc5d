"""The last check before the first byte, and what ends a send that began."""

import asyncio

import pytest

from oncefence.activities.connecting import open_streams
from oncefence.activities.http_once import (
    PhaseJournal,
    SendDeadline,
    http_once,
)
from oncefence.activities.wire import GuardedStream
from oncefence.activities.wire_fault import WireFault
from oncefence.domain.classification import SendFault, WirePhase
from tests.providers.raw_server import Call, RawServer, answer, raw_server, replies
from tests.providers.sending import (
    LOCAL,
    ManualClock,
    connected_to,
    request_to,
    send,
    swallowing_host,
)


class TestDeadline:
    async def test_passed_at_the_last_check_sends_zero_bytes(self) -> None:
        """Connected and ready, and yet nothing leaves once the time is over (C165, C166)."""
        clock = ManualClock()

        def suspend() -> None:
            clock.now += 60.0

        async def script(call: Call) -> None:
            assert await call.client_is_gone()

        async with raw_server(script) as server:
            result = await http_once(
                request_to(server),
                deadline=SendDeadline.anchor(8_000, clock=clock),
                policy=LOCAL,
                before_first_byte=suspend,
            )
            await asyncio.wait_for(server.finished.wait(), 5)

        assert (server.connections, server.bytes_seen) == (1, 0)
        assert (result.phase, result.fault) == (WirePhase.CONNECTED, SendFault.DEADLINE)
        assert result.journal.bytes_out == 0

    async def test_passed_before_connecting_opens_no_connection(self) -> None:
        """A worker that wakes too late does not even knock."""
        clock = ManualClock()
        deadline = SendDeadline.anchor(8_000, clock=clock)
        clock.now += 8.0
        asked: list[str] = []

        async def resolver(host: str, port: int) -> list[str]:
            asked.append(host)
            return [host]

        async with raw_server(replies(answer())) as server:
            result = await http_once(
                request_to(server), deadline=deadline, policy=LOCAL, resolver=resolver
            )

        assert (server.connections, asked) == (0, [])
        assert (result.phase, result.fault) == (WirePhase.NOTHING, SendFault.DEADLINE)

    @pytest.mark.parametrize("drip", ["body", "head", "silence"])
    async def test_ends_a_drip_that_no_single_read_would(self, drip: str) -> None:
        """Each byte comes in time and the answer never does: only the total counts (C240)."""

        async def script(call: Call) -> None:
            await call.read_request()
            if drip == "body":
                await call.send(b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n")
            while not await call.client_is_gone(within_seconds=0.02):
                if drip != "silence":
                    await call.send(b"x")

        async with raw_server(script) as server:
            started = asyncio.get_running_loop().time()
            result = await send(server, deadline_ms=300)
            seconds = asyncio.get_running_loop().time() - started
            await asyncio.wait_for(server.finished.wait(), 5)

        assert (result.fault, result.complete) == (SendFault.DEADLINE, False)
        assert result.phase >= WirePhase.ALL_OUT
        assert 0.25 < seconds < 1.3

    async def test_covers_a_resolver_that_never_answers(self) -> None:
        """Finding the address is part of the send."""

        async def silent(host: str, port: int) -> list[str]:
            await asyncio.Event().wait()
            return [host]

        result = await http_once(
            request_to(RawServer(port=1)),
            deadline=SendDeadline.anchor(100),
            policy=LOCAL,
            resolver=silent,
        )

        assert (result.phase, result.fault) == (WirePhase.NOTHING, SendFault.DEADLINE)

    async def test_covers_a_host_that_swallows_the_connect(self) -> None:
        """A dropped SYN is no answer either, and nothing of the request left."""
        with swallowing_host("127.0.0.1", 0) as port:
            result = await send(RawServer(port=port), deadline_ms=300)

        assert result.phase is WirePhase.RESOLVED
        assert result.fault in {SendFault.CONNECT, SendFault.DEADLINE}

    async def test_leaves_no_buffered_byte_to_leave_later(self) -> None:
        """What the peer did not take before the deadline must not reach it afterwards."""
        released = asyncio.Event()
        late = bytearray()

        async def script(call: Call) -> None:
            await released.wait()
            while data := await call.reader.read(1_000_000):
                late.extend(data)

        async with raw_server(script) as server:
            result = await send(server, body=b"x" * 64_000_000, deadline_ms=300)
            sent_by_then = result.journal.bytes_out
            released.set()
            await asyncio.wait_for(server.finished.wait(), 5)

        assert result.phase is WirePhase.FIRST_BYTE_OUT
        assert len(late) < 64_000_000 <= sent_by_then

    def test_counts_from_its_anchor(self) -> None:
        """The mark's own round trip is taken out of the time to send (C165)."""
        clock = ManualClock()
        deadline = SendDeadline.anchor(8_000, clock=clock)
        clock.now += 3.0

        assert deadline.remaining() == pytest.approx(5.0)
        assert not deadline.has_passed()
        clock.now += 5.0
        assert deadline.has_passed()

    def test_refuses_to_be_over_from_the_start(self) -> None:
        """No pack may declare a deadline that never lets anything out."""
        with pytest.raises(ValueError, match="positive"):
            SendDeadline.anchor(0)

    @pytest.mark.skipif(not hasattr(__import__("time"), "CLOCK_BOOTTIME"), reason="Linux only")
    def test_is_kept_by_the_clock_that_runs_while_asleep(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A suspended machine must find its deadline passed (C165)."""
        import time

        asked: list[int] = []

        def clock_gettime(clock: int) -> float:
            asked.append(clock)
            return 7.0

        monkeypatch.setattr(time, "clock_gettime", clock_gettime)

        assert SendDeadline.anchor(1_000).expires_at == 8.0
        assert asked == [time.CLOCK_BOOTTIME]


class TestBeforeFirstByte:
    async def test_runs_once_when_all_but_the_send_is_done(self) -> None:
        """It is the place where a test, or a fence, stands between check and wire."""
        journal = PhaseJournal()
        seen: list[tuple[WirePhase, int]] = []
        async with raw_server(replies(answer())) as server:
            await http_once(
                request_to(server),
                deadline=SendDeadline.anchor(5_000),
                policy=LOCAL,
                journal=journal,
                before_first_byte=lambda: seen.append((journal.phase, server.bytes_seen)),
            )

        assert seen == [(WirePhase.CONNECTED, 0)]

    async def test_that_raises_stops_the_send_and_is_heard(self) -> None:
        """An error of the caller's is the caller's, and no byte leaves behind it."""

        def stop() -> None:
            raise LookupError("fence is gone")

        async def script(call: Call) -> None:
            assert await call.client_is_gone()

        async with raw_server(script) as server:
            with pytest.raises(LookupError, match="fence is gone"):
                await http_once(
                    request_to(server),
                    deadline=SendDeadline.anchor(5_000),
                    policy=LOCAL,
                    before_first_byte=stop,
                )
            await asyncio.wait_for(server.finished.wait(), 5)

        assert (server.connections, server.bytes_seen) == (1, 0)

    async def test_finding_the_peer_gone_sends_nothing(self) -> None:
        """A connection that ended before we spoke proves that nothing left."""

        async def script(call: Call) -> None:
            call.reset()

        async with raw_server(script) as server:
            reader, writer = await open_streams(connected_to(server))
            with pytest.raises(OSError, match="reset"):
                await asyncio.wait_for(reader.read(1), 5)
            journal = PhaseJournal()
            stream = GuardedStream(
                reader,
                writer,
                journal=journal,
                deadline=SendDeadline.anchor(5_000),
                before_first_byte=None,
                response_limit_bytes=1,
            )
            with pytest.raises(WireFault) as caught:
                await stream.write(b"PATCH")

        assert caught.value.fault is SendFault.CONNECT
        assert (journal.phase, journal.bytes_out) == (WirePhase.NOTHING, 0)


class TestCancellation:
    async def test_is_not_swallowed_and_leaves_a_true_journal(self) -> None:
        """Whoever is cancelled in a send must still know that it began."""
        journal = PhaseJournal()
        read = asyncio.Event()

        async def script(call: Call) -> None:
            await call.read_request()
            read.set()
            assert await call.client_is_gone()

        async with raw_server(script) as server:
            task = asyncio.create_task(
                http_once(
                    request_to(server),
                    deadline=SendDeadline.anchor(5_000),
                    policy=LOCAL,
                    journal=journal,
                )
            )
            await asyncio.wait_for(read.wait(), 5)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.wait_for(server.finished.wait(), 5)

        assert journal.phase is WirePhase.ALL_OUT
