"""
Requests and bytes, counted at the other end for every fault that a wire can have.

Whoever comes a second time, by whatever way, finds a server that answers well: a hidden re-send
would be seen as a second connection, as a second request, as more bytes, and as a success.
"""

import asyncio
import gzip
import resource
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from oncefence.activities.connecting import open_streams
from oncefence.activities.http_once import (
    PhaseJournal,
    SendDeadline,
    TargetPolicy,
    WireAnswer,
    http_once,
)
from oncefence.activities.wire import GuardedStream
from oncefence.activities.wire_fault import WireFault
from oncefence.domain.classification import ReplyContract, SendFault, WirePhase, classify
from oncefence.domain.effect import Outcome
from tests.providers.certificates import tls_pair
from tests.providers.client_hello import length_of_hello, read_client_hello
from tests.providers.proxies import answers_connect, proxy_at
from tests.providers.raw_server import Call, RawServer, Script, answer, raw_server, replies
from tests.providers.sending import (
    BODY,
    LOCAL,
    ManualClock,
    connected_to,
    request_to,
    send,
    swallowing_host,
)

GOOD = answer(body=b'{"id":"501"}')
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
WHOLE_CHUNK = b'c\r\n{"id":"501"}\r\n'
LIMIT = 100_000
DEADLINE_MS = 400

CONTRACT = ReplyContract(
    success_statuses=frozenset({200}),
    rejected_statuses=frozenset({404}),
    not_applied_statuses=frozenset({429}),
    has_live_idempotency_key=False,
)


def outcome_of(result: WireAnswer) -> Outcome:
    """Without a verdict on the body nothing is accepted; all else is as in earnest."""
    return classify(
        phase=result.phase,
        status=result.status,
        body=None,
        contract=CONTRACT,
        cause=result.fault,
    ).outcome


def once(fault: Script) -> tuple[Script, list[int]]:
    """The fault for who comes first, and a good answer for each later request."""
    calls: list[int] = []

    async def script(call: Call) -> None:
        calls.append(1)
        await (fault if len(calls) == 1 else replies(GOOD))(call)

    return script, calls


def says(data: bytes) -> Script:
    """Read the request, say this, hang up."""
    return replies(data)


def says_and_resets(data: bytes) -> Script:
    async def script(call: Call) -> None:
        await call.read_request()
        await call.send(data)
        # What was said arrives, and the reset after it.
        assert not call.writer.transport.get_write_buffer_size()
        call.reset()

    return script


def says_again_and_again(piece: bytes, *, first: bytes = b"", pause: float = 0.0) -> Script:
    async def script(call: Call) -> None:
        await call.read_request()
        await call.send(first)
        while not call.writer.is_closing():
            await call.send(piece)
            if pause and await call.client_is_gone(within_seconds=pause):
                return

    return script


async def is_silent(call: Call) -> None:
    await call.read_request()
    assert await call.client_is_gone()


async def keeps_alive(call: Call) -> None:
    """Invite the client to stay, and see whether it sends more on the same connection."""
    await call.read_request()
    await call.send(answer("200 OK", b"{}", "Connection: keep-alive", "Keep-Alive: timeout=60"))
    assert await call.client_is_gone()


SETTINGS = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
GOAWAY = b"\x00\x00\x08\x07\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
REFUSED_STREAM = b"\x00\x00\x04\x03\x00\x00\x00\x00\x01\x00\x00\x00\x07"
BOMB = gzip.compress(b" " * 30_000_000)

LOST, GARBLED = SendFault.LOST, SendFault.GARBLED
TOO_LARGE, DEADLINE = SendFault.TOO_LARGE, SendFault.DEADLINE

# All of the request was read, and then:
AFTER_THE_REQUEST: dict[str, tuple[Script, SendFault | None]] = {
    "closes": (says(b""), LOST),
    "resets": (says_and_resets(b""), LOST),
    "is silent": (is_silent, DEADLINE),
    # answers that are cut
    "half a status line": (says(b"HTTP/1.1 20"), LOST),
    "half a head": (says(b"HTTP/1.1 200 OK\r\nContent-Le"), LOST),
    "a head alone": (says(answer(body=b"", length=180)), LOST),
    "less than the length": (says(answer(body=b'{"id":"501"}', length=180)), LOST),
    "less than the length, and a reset": (
        says_and_resets(answer(body=b'{"id":"501"}', length=180)),
        LOST,
    ),
    "half a chunk": (says(CHUNKED + b'ff\r\n{"id":"501"}'), LOST),
    "no last chunk": (says(CHUNKED + WHOLE_CHUNK), LOST),
    "no last chunk, and a reset": (says_and_resets(CHUNKED + WHOLE_CHUNK), LOST),
    "half a last chunk": (says(CHUNKED + WHOLE_CHUNK + b"0\r\n"), LOST),
    "an interim answer alone": (says(b"HTTP/1.1 100 Continue\r\n\r\n"), LOST),
    "an interim answer and a reset": (says_and_resets(b"HTTP/1.1 103 Hints\r\n\r\n"), LOST),
    "no length": (says(b'HTTP/1.1 200 OK\r\n\r\n{"id":"501"}'), SendFault.UNFRAMED),
    # answers that are none
    "another protocol": (says(b"220 mail.example.com ESMTP\r\n\r\n"), GARBLED),
    "TLS": (says(b"\x15\x03\x03\x00\x02\x02\x46\r\n\r\n"), GARBLED),
    "HTTP/0.9": (says(b"<html>hello</html>\r\n\r\n"), GARBLED),
    "HTTP/2 in words": (says(b"HTTP/2 200\r\nContent-Length: 2\r\n\r\n{}"), GARBLED),
    "HTTP/2 that goes away": (says(SETTINGS + GOAWAY + b"\r\n\r\n"), GARBLED),
    "HTTP/2 that refuses the stream": (says(SETTINGS + REFUSED_STREAM + b"\r\n\r\n"), GARBLED),
    "two lengths": (
        says(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}"),
        GARBLED,
    ),
    "a length below zero": (says(answer(length=-1)), GARBLED),
    "a length and chunks": (
        says(CHUNKED.replace(b"\r\n\r\n", b"\r\nContent-Length: 2\r\n\r\n") + b"0\r\n\r\n"),
        GARBLED,
    ),
    "chunks in HTTP/1.0": (says(CHUNKED.replace(b"/1.1", b"/1.0") + b"0\r\n\r\n"), GARBLED),
    "a chunk of no size": (says(CHUNKED + b"zz\r\n{}\r\n0\r\n\r\n"), GARBLED),
    "a folded head": (
        says(b"HTTP/1.1 200 OK\r\nHTTP/1.1 500 Oops\r\nContent-Length: 2\r\n\r\n{}"),
        GARBLED,
    ),
    "a NUL in the head": (
        says(b"HTTP/1.1 200 OK\r\nX: a\x00b\r\nContent-Length: 2\r\n\r\n{}"),
        GARBLED,
    ),
    "two answers": (says(GOOD + GOOD), GARBLED),
    "an answer and one byte": (says(GOOD + b"}"), GARBLED),
    "an upgrade": (
        says(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n"),
        GARBLED,
    ),
    "a coded body": (
        says(answer("200 OK", gzip.compress(b"{}"), "Content-Encoding: gzip")),
        SendFault.ENCODED,
    ),
    "a coded body that unfolds a thousand times": (
        says(answer("200 OK", BOMB, "Content-Encoding: gzip")),
        SendFault.ENCODED,
    ),
    # answers that take for ever
    "a head, byte by byte": (says_again_and_again(b"x", pause=0.01), DEADLINE),
    "a body, byte by byte": (
        says_again_and_again(b"x", first=answer(length=9_999), pause=0.01),
        DEADLINE,
    ),
    "a byte just in time": (says_again_and_again(b"H", pause=0.15), DEADLINE),
    # answers without end
    "a flood": (says_again_and_again(b"x" * 65_536, first=answer(length=5 * 10**9)), TOO_LARGE),
    "endless chunks": (
        says_again_and_again(b"ffff\r\n" + b"x" * 0xFFFF + b"\r\n", first=CHUNKED),
        TOO_LARGE,
    ),
    "endless chunks of a byte": (
        says_again_and_again(b"1\r\nx\r\n" * 1_000, first=CHUNKED),
        TOO_LARGE,
    ),
    "endless interim answers": (
        says_again_and_again(b"HTTP/1.1 102 Processing\r\n\r\n" * 1_000),
        TOO_LARGE,
    ),
    "an endless head": (
        says_again_and_again(b"x" * 65_536, first=b"HTTP/1.1 200 OK\r\nX-Long: "),
        GARBLED,
    ),
    "endless headers": (
        says_again_and_again(b"X-More: yes\r\n" * 1_000, first=b"HTTP/1.1 200 OK\r\n"),
        GARBLED,
    ),
    # whole answers by which other clients are moved to come again
    **{
        status: (says(answer(status, b"", *headers)), None)
        for status, *headers in (
            ["408 Request Timeout", "Connection: close"],
            ["421 Misdirected Request"],
            ["425 Too Early"],
            ["429 Too Many Requests", "Retry-After: 0"],
            ["503 Service Unavailable", "Retry-After: 0"],
            ["401 Unauthorized", 'WWW-Authenticate: Basic realm="x"'],
            ["407 Proxy Authentication Required", 'Proxy-Authenticate: Basic realm="x"'],
            ["300 Multiple Choices", "Location: /objects/501"],
            ["301 Moved", "Location: /objects/501"],
            ["302 Found", "Location: /objects/501"],
            ["303 See Other", "Location: /objects/501"],
            ["307 Temporary Redirect", "Location: /objects/501"],
            ["308 Permanent Redirect", "Location: /objects/501"],
            ["200 Refresh", "Refresh: 0; url=/objects/501"],
            ["200 Elsewhere", 'Alt-Svc: h2="127.0.0.1:443"'],
            ["205 Reset Content"],
        )
    },
    "204 and FIN": (says(b"HTTP/1.1 204 No Content\r\nConnection: keep-alive\r\n\r\n"), None),
    "304 and FIN": (says(b"HTTP/1.1 304 Not Modified\r\n\r\n"), None),
    "an invitation to stay": (keeps_alive, None),
}


class TestAfterTheRequest:
    @pytest.mark.parametrize("method", ["PATCH", "GET"])
    @pytest.mark.parametrize("what", AFTER_THE_REQUEST)
    async def test_there_was_one_request_of_exactly_its_own_bytes(
        self, what: str, method: str
    ) -> None:
        """Nothing is sent twice: not on a new connection, not on the same one (C1, C240)."""
        fault, expected = AFTER_THE_REQUEST[what]
        script, calls = once(fault)
        body = None if method == "GET" else BODY
        async with raw_server(script) as server:
            wire = await one_request(server, method)
            result = await send(
                server,
                method=method,
                body=body,
                deadline_ms=DEADLINE_MS if expected is DEADLINE else 5_000,
                response_limit_bytes=LIMIT,
            )
            await server.was_left_alone()

        assert (server.connections, server.requests_seen) == (1, 1)
        assert bytes(server.received[0]) == wire
        assert result.journal.bytes_out == len(wire)
        assert len(calls) <= 2, "one is the last to come, and asks nothing"
        assert result.fault is expected
        assert result.complete is (expected is None)
        assert result.phase >= WirePhase.ALL_OUT
        assert outcome_of(result) not in {Outcome.RETRYABLE_PRE_DISPATCH, Outcome.ACCEPTED}
        assert len(result.body or b"") <= LIMIT
        assert result.journal.bytes_in < 3 * LIMIT + 600_000

    async def test_a_race_with_the_end_of_a_kept_connection_is_not_there(self) -> None:
        """Each request has a connection of its own, which nobody can have closed yet (C241)."""

        async def script(call: Call) -> None:
            await call.read_request()
            await call.send(answer("200 OK", b"{}", "Connection: keep-alive"))
            call.reset()

        async with raw_server(script) as server:
            results = [await send(server) for _ in range(5)]
            await server.was_left_alone()

        assert [result.complete for result in results] == [True] * 5
        assert (server.connections, server.requests_seen) == (5, 5)


async def one_request(server: RawServer, method: str) -> bytes:
    """The bytes of the request as another server saw them, which did nothing but answer."""
    async with raw_server(replies(GOOD)) as other:
        body = None if method == "GET" else BODY
        assert (await send(other, method=method, body=body)).complete
        wire = bytes(other.received[0])
    assert wire.count(b"HTTP/1.1") == 1
    return wire.replace(b"127.0.0.1:%d" % other.port, b"127.0.0.1:%d" % server.port)


class TestWithinTheRequest:
    BIG = b"x" * 16_000_000

    @pytest.mark.parametrize("end", ["resets", "closes"])
    async def test_there_was_a_part_of_one_request(self, end: str) -> None:
        """A lenient server may act on the part that it has; nobody sends the rest (C246)."""

        async def fault(call: Call) -> None:
            call.received += await call.reader.readexactly(300)
            if end == "resets":
                call.reset()
            else:
                call.writer.close()

        script, _ = once(fault)
        async with raw_server(script) as server:
            result = await send(server, body=self.BIG)
            await server.was_left_alone()

        assert (server.connections, server.requests_seen) == (1, 1)
        assert (result.phase, result.fault) == (WirePhase.FIRST_BYTE_OUT, LOST)
        assert outcome_of(result) is Outcome.OUTCOME_UNKNOWN

    async def test_a_success_before_its_end_is_none(self) -> None:
        """Whoever has not had all of it cannot have done it; a refusal needs no more (C246)."""

        async def fault(call: Call) -> None:
            call.received += await call.reader.readexactly(300)
            await call.send(GOOD)
            await call.hang_up()

        script, _ = once(fault)
        async with raw_server(script) as server:
            result = await send(server, body=self.BIG)
            await server.was_left_alone()

        assert (server.connections, server.requests_seen) == (1, 1)
        assert server.bytes_seen == result.journal.bytes_out
        assert (result.status, result.fault) == (200, SendFault.EARLY)
        assert not result.complete
        assert outcome_of(result) is Outcome.OUTCOME_UNKNOWN

    async def test_an_answer_right_after_its_end_is_not_before_it(self) -> None:
        """However fast the other side is: its answer is read after our last byte is noted."""

        async def script(call: Call) -> None:
            await call.read_request()
            await call.send(GOOD)

        async with raw_server(script) as server:
            results = [await send(server, body=self.BIG) for _ in range(10)]

        assert [result.fault for result in results] == [None] * 10

    async def test_a_refusal_before_its_end_is_one(self) -> None:
        """It was said by the status alone, and nothing can follow that undoes it."""

        async def fault(call: Call) -> None:
            call.received += await call.reader.readexactly(300)
            await call.send(answer("404 Not Found"))
            await call.hang_up()

        script, _ = once(fault)
        async with raw_server(script) as server:
            result = await send(server, body=self.BIG)

        assert (result.status, outcome_of(result)) == (404, Outcome.REJECTED)

    async def test_an_answer_before_its_beginning_is_nobodys(self) -> None:
        """What was said before we spoke is no answer to us, and so we do not speak."""

        async def fault(call: Call) -> None:
            await call.send(GOOD)
            assert await call.client_is_gone()

        async with raw_server(fault) as server:
            reader, writer = await open_streams(connected_to(server))
            async with asyncio.timeout(5):
                while not reader.has_arrived:
                    await asyncio.sleep(0)
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
            stream.abort()

        assert (caught.value.fault, caught.value.note) == (
            GARBLED,
            "peer_spoke_before_the_request",
        )
        assert (journal.phase, journal.bytes_out, server.bytes_seen) == (WirePhase.NOTHING, 0, 0)

    async def test_a_peer_that_reads_nothing_is_left_at_the_deadline(self) -> None:
        """What it has not taken by then it never gets (C165)."""

        async def fault(call: Call) -> None:
            call.reader.set_exception(ConnectionError())
            call.writer.transport.pause_reading()  # type: ignore[attr-defined]  # of a socket
            await gone.wait()

        gone = asyncio.Event()
        async with raw_server(fault) as server:
            result = await send(server, body=self.BIG, deadline_ms=DEADLINE_MS)
            gone.set()
            await server.was_left_alone()

        assert (result.phase, result.fault) == (WirePhase.FIRST_BYTE_OUT, DEADLINE)
        assert server.connections == 1


# --- before the first byte -------------------------------------------------------------------

Sender = Callable[[RawServer, Path], Any]


async def send_tls(server: RawServer, tls: ssl.SSLContext | None, **changes: Any) -> WireAnswer:
    async def resolver(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    return await http_once(
        request_to(server, base_url=f"https://provider.invalid:{server.port}"),
        deadline=SendDeadline.anchor(DEADLINE_MS),
        policy=LOCAL,
        tls=tls,
        resolver=resolver,
        **changes,
    )


async def hears_hello(call: Call) -> None:
    """Read the client's first message of a handshake."""
    while len(call.received) < (length_of_hello(bytes(call.received)) or 6):
        data = await call.reader.read(65_536)
        if not data:
            raise ConnectionError("whoever came says nothing")
        call.received += data


def in_the_handshake(data: bytes, *, resets: bool = False, waits: bool = False) -> Script:
    async def script(call: Call) -> None:
        await hears_hello(call)
        await call.send(data)
        if resets:
            call.reset()
        elif waits:
            assert await call.client_is_gone()

    return script


HANDSHAKE: dict[str, tuple[Script, SendFault]] = {
    "talks in plain": (in_the_handshake(b"HTTP/1.1 400 Bad Request\r\n\r\n"), SendFault.TLS),
    "closes": (in_the_handshake(b""), SendFault.TLS),
    "resets": (in_the_handshake(b"", resets=True), SendFault.TLS),
    "alerts": (in_the_handshake(b"\x15\x03\x03\x00\x02\x02\x28"), SendFault.TLS),
    "says half a record": (in_the_handshake(b"\x16\x03\x03\x00\x7a\x02"), SendFault.TLS),
    "is silent": (in_the_handshake(b"", waits=True), DEADLINE),
}


class TestInTheHandshake:
    @pytest.mark.parametrize("what", HANDSHAKE)
    async def test_nothing_but_the_handshake_left(self, what: str) -> None:
        """No TLS, no request; and nobody falls back to less (C240, C246)."""
        script, fault = HANDSHAKE[what]
        async with raw_server(script) as server:
            result = await send_tls(server, None)
            await server.was_left_alone()

        assert server.connections == 1
        assert server.requests_seen == 0
        assert b"objects" not in bytes(server.received[0])
        assert (result.phase, result.fault) == (WirePhase.CONNECTED, fault)
        assert result.journal.bytes_out == 0
        assert outcome_of(result) is Outcome.RETRYABLE_PRE_DISPATCH

    @pytest.mark.parametrize(
        ("case", "fault"),
        [
            ("an unknown authority", SendFault.CERTIFICATE),
            ("another name", SendFault.CERTIFICATE),
            ("over since yesterday", SendFault.CERTIFICATE),
            ("not before tomorrow", SendFault.CERTIFICATE),
            ("an older version alone", SendFault.TLS),
        ],
    )
    async def test_a_server_that_is_not_the_provider_hears_nothing(
        self, tmp_path: Path, case: str, fault: SendFault
    ) -> None:
        """A certificate that does not fit is found before the request, each time (C249)."""
        days = {"over since yesterday": (-3, -1), "not before tomorrow": (1, 3)}.get(case, (-1, 1))
        host = "other.invalid" if case == "another name" else "provider.invalid"
        serving, trusting = tls_pair(tmp_path, host=host, days=days)
        if case == "an older version alone":
            serving.maximum_version = ssl.TLSVersion.TLSv1_2
            trusting.minimum_version = ssl.TLSVersion.TLSv1_3
        async with raw_server(replies(GOOD), tls=serving) as server:
            result = await send_tls(server, None if case == "an unknown authority" else trusting)
            await server.was_left_alone()

        assert (server.connections, server.requests_seen, server.bytes_seen) == (1, 0, 0)
        assert (result.phase, result.fault) == (WirePhase.CONNECTED, fault)
        assert outcome_of(result) is Outcome.RETRYABLE_PRE_DISPATCH

    async def test_only_http_1_1_is_offered(self) -> None:
        """Read from the raw bytes: no protocol that may tell a transport to send again (C240)."""
        async with raw_server(in_the_handshake(b"")) as server:
            await send_tls(server, None)

        hello = read_client_hello(bytes(server.received[0]))
        assert hello.protocols == ("http/1.1",)
        assert hello.server_name == "provider.invalid"

    async def test_a_server_that_takes_the_request_and_refuses_us_is_unknown(
        self, tmp_path: Path
    ) -> None:
        """A certificate that it wants of us is asked for when the request may be out (C247)."""
        serving, trusting = tls_pair(tmp_path, host="provider.invalid")
        serving.verify_mode = ssl.CERT_REQUIRED
        async with raw_server(replies(GOOD), tls=serving) as server:
            result = await send_tls(server, trusting)
            await server.was_left_alone()

        assert (server.connections, server.requests_seen) == (1, 0)
        assert result.phase >= WirePhase.FIRST_BYTE_OUT
        assert outcome_of(result) is Outcome.OUTCOME_UNKNOWN


@contextmanager
def no_more_files() -> Iterator[None]:
    """Let this process open no file and no socket beyond those that it has."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.socket() as probe:
        next_one = probe.fileno()
    resource.setrlimit(resource.RLIMIT_NOFILE, (next_one, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def knows_no_such_name(host: str, port: int) -> list[str]:
    raise socket.gaierror(socket.EAI_NONAME, "no such name")


async def knows_no_address(host: str, port: int) -> list[str]:
    return []


async def cannot_spell(host: str, port: int) -> list[str]:
    raise UnicodeError("label too long")


async def points_inward(host: str, port: int) -> list[str]:
    return ["127.0.0.1"]


async def never_answers(host: str, port: int) -> list[str]:
    await asyncio.Event().wait()
    return []


BEFORE: dict[str, tuple[dict[str, Any], SendFault]] = {
    "no such name": ({"resolver": knows_no_such_name}, SendFault.DNS),
    "no address": ({"resolver": knows_no_address}, SendFault.DNS),
    "a name that cannot be": ({"resolver": cannot_spell}, SendFault.DNS),
    "a resolver that is silent": ({"resolver": never_answers}, DEADLINE),
    "an address within": (
        {
            "resolver": points_inward,
            "policy": TargetPolicy(is_local=False),
            "base_url": "https://provider.invalid",
        },
        SendFault.GUARD_REFUSED,
    ),
    "a target that climbs": ({"target": "/objects/../admin"}, SendFault.GUARD_REFUSED),
    "a header that is not ours to give": (
        {"headers": {"Transfer-Encoding": "chunked"}},
        SendFault.GUARD_REFUSED,
    ),
    "an unknown method": ({"method": "BREW"}, SendFault.GUARD_REFUSED),
}


class TestBeforeConnecting:
    @pytest.mark.parametrize("what", BEFORE)
    async def test_nobody_was_called(self, what: str) -> None:
        """Not one connection is opened, and the class says so (C246)."""
        changes, fault = BEFORE[what]
        of_the_call = {key: changes[key] for key in ("resolver", "policy") if key in changes}
        of_the_request = {key: changes[key] for key in changes if key not in of_the_call}
        async with raw_server(replies(GOOD)) as server:
            result = await http_once(
                request_to(server, **of_the_request),
                deadline=SendDeadline.anchor(DEADLINE_MS),
                **({"policy": LOCAL} | of_the_call),
            )
            await server.was_left_alone()

        assert (server.connections, server.bytes_seen) == (0, 0)
        assert (result.phase, result.fault) == (WirePhase.NOTHING, fault)
        assert result.journal.bytes_out == 0
        assert outcome_of(result) is Outcome.RETRYABLE_PRE_DISPATCH

    async def test_a_deadline_that_is_over_calls_nobody(self) -> None:
        """Whoever wakes too late does not even knock (C166)."""
        clock = ManualClock()
        deadline = SendDeadline.anchor(1_000, clock=clock)
        clock.now += 1.0
        async with raw_server(replies(GOOD)) as server:
            result = await http_once(request_to(server), deadline=deadline, policy=LOCAL)
            await server.was_left_alone()

        assert (server.connections, result.fault) == (0, DEADLINE)
        assert outcome_of(result) is Outcome.RETRYABLE_PRE_DISPATCH

    async def test_a_process_without_a_socket_left_calls_nobody(self) -> None:
        """There is no pool to wait for; what runs out are files, and that is before too."""
        async with raw_server(replies(GOOD)) as server:
            with no_more_files():
                result = await send(server)
            again = await send(server)
            await server.was_left_alone()

        assert (result.fault, result.journal.note) == (SendFault.POOL, "no_more_sockets")
        assert outcome_of(result) is Outcome.RETRYABLE_PRE_DISPATCH
        assert again.complete
        assert (server.connections, server.requests_seen) == (1, 1)

    async def test_a_refused_connect_leaves_nothing(self) -> None:
        """Nobody listens; the port is held so that nobody else can."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            result = await send(RawServer(port=free.getsockname()[1]))

        assert (result.phase, result.fault) == (WirePhase.RESOLVED, SendFault.CONNECT)
        assert outcome_of(result) is Outcome.RETRYABLE_PRE_DISPATCH

    async def test_a_dropped_syn_leaves_nothing(self) -> None:
        """A full queue drops it: silence before the connection, not after it (C247)."""
        with swallowing_host("127.0.0.1", 0) as port:
            result = await send(RawServer(port=port), deadline_ms=DEADLINE_MS)

        assert result.phase is WirePhase.RESOLVED
        assert result.fault in {SendFault.CONNECT, DEADLINE}
        assert outcome_of(result) is Outcome.RETRYABLE_PRE_DISPATCH

    async def test_a_proxy_that_refuses_is_asked_once(self) -> None:
        """Its word is not the provider's; the others of its kind are beside this file."""
        refusal = b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n"
        async with (
            raw_server(replies(GOOD)) as server,
            raw_server(answers_connect(refusal)) as proxy,
        ):
            result = await http_once(
                request_to(server),
                deadline=SendDeadline.anchor(5_000),
                policy=LOCAL,
                proxy=proxy_at(proxy),
            )
            await server.was_left_alone()
            await proxy.was_left_alone()

        assert (server.connections, proxy.connections) == (0, 1)
        assert outcome_of(result) is Outcome.RETRYABLE_PRE_DISPATCH


class TestAtTheFirstByte:
    @pytest.mark.parametrize("end", ["resets", "closes"])
    async def test_a_peer_that_hangs_up_at_once_is_judged_by_what_left(self, end: str) -> None:
        """Whether our bytes were first or its end is a race; the class follows the bytes."""

        async def fault(call: Call) -> None:
            if end == "resets":
                call.reset()
            else:
                await call.hang_up()

        for _ in range(20):
            async with raw_server(once(fault)[0]) as server:
                result = await send(server)
                await server.was_left_alone()

            left = result.journal.bytes_out > 0
            assert server.connections == 1
            assert server.requests_seen <= 1
            assert outcome_of(result) is (
                Outcome.OUTCOME_UNKNOWN if left else Outcome.RETRYABLE_PRE_DISPATCH
            )

    async def test_a_deadline_that_passes_there_sends_nothing(self) -> None:
        """Connected and ready, and yet not a byte leaves (C165)."""
        clock = ManualClock()

        def suspend() -> None:
            clock.now += 60.0

        async def fault(call: Call) -> None:
            assert await call.client_is_gone()

        async with raw_server(fault) as server:
            result = await http_once(
                request_to(server),
                deadline=SendDeadline.anchor(1_000, clock=clock),
                policy=LOCAL,
                before_first_byte=suspend,
            )
            await server.was_left_alone()

        assert (server.connections, server.bytes_seen) == (1, 0)
        assert outcome_of(result) is Outcome.RETRYABLE_PRE_DISPATCH


def test_the_faults_are_many_and_each_has_a_name() -> None:
    """A table that shrinks unseen would still be green."""
    assert len(AFTER_THE_REQUEST) >= 55
    assert len(HANDSHAKE) + len(BEFORE) >= 14
