"""One request at most, and a true account of what came back, against a bare socket."""

import asyncio

import pytest

from oncefence.domain.classification import SendFault, WirePhase
from oncefence.domain.redaction import Secret
from tests.providers.raw_server import Call, answer, raw_server, replies
from tests.providers.sending import BODY, send

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
CHUNKS = b"2\r\n{}\r\n0\r\n\r\n"


class TestWholeExchange:
    async def test_tells_what_arrived_and_every_phase(self) -> None:
        """Without faults the account is whole and in order (C244)."""
        async with raw_server(replies(answer(body=b'{"id":"501"}'))) as server:
            result = await send(server)

        evidence = result.journal.as_evidence()
        offsets = [
            evidence[f"{name}_ms"]
            for name in (
                *["resolved", "connected", "first_byte_out"],
                *["all_out", "first_byte_in", "complete"],
            )
        ]
        assert (result.phase, result.status) == (WirePhase.COMPLETE, 200)
        assert (result.complete, result.fault) == (True, None)
        assert result.body == b'{"id":"501"}'
        assert result.headers["content-type"] == "application/json"
        assert evidence["phase"] == "complete"
        assert evidence["bytes_out"] == server.bytes_seen
        assert offsets == sorted(offsets)

    async def test_sends_exactly_the_headers_that_it_was_given_and_its_own(self) -> None:
        """No client adds cookies, codings or authentication of its own (C240)."""
        async with raw_server(replies(answer())) as server:
            await send(
                server,
                headers={"Content-Type": "application/json", "X-Attempt": "a-1"},
                authorization=Secret("Bearer t0k3n"),
            )
            head, _, body = bytes(server.received[0]).partition(b"\r\n\r\n")

        lines = head.lower().split(b"\r\n")
        assert lines[0] == b"patch /objects/501 http/1.1"
        assert body == BODY
        assert sorted(lines[1:]) == sorted(
            [
                b"host: 127.0.0.1:%d" % server.port,
                b"user-agent: oncefence",
                b"accept-encoding: identity",
                b"connection: close",
                b"content-type: application/json",
                b"x-attempt: a-1",
                b"authorization: bearer t0k3n",
                b"content-length: %d" % len(BODY),
            ]
        )

    @pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"])
    @pytest.mark.parametrize("closes", ["reset", "fin"])
    async def test_is_one_request_for_every_method(self, method: str, closes: str) -> None:
        """What HTTP calls idempotent is no permission to send twice (C1, C247)."""

        async def script(call: Call) -> None:
            await call.read_request()
            if closes == "reset":
                call.reset()

        body = None if method in {"GET", "HEAD", "DELETE"} else BODY
        async with raw_server(script) as server:
            result = await send(server, method=method, body=body)

        assert (server.connections, server.requests_seen) == (1, 1)
        assert result.fault is SendFault.LOST
        assert result.phase is WirePhase.ALL_OUT

    async def test_never_reuses_a_connection(self) -> None:
        """A kept connection may die under the next request and take it along (C241)."""
        keep = answer("200 OK", b"{}", "Connection: keep-alive", "Keep-Alive: timeout=60")

        async def script(call: Call) -> None:
            await call.read_request()
            await call.send(keep)
            assert await call.client_is_gone()

        async with raw_server(script) as server:
            results = [await send(server) for _ in range(3)]

        assert [result.complete for result in results] == [True] * 3
        assert (server.connections, server.requests_seen) == (3, 3)

    async def test_carries_no_cookie_into_the_next_call(self) -> None:
        """A cookie would carry one tenant's session into another tenant's call (C240)."""
        cookie = answer("200 OK", b"{}", "Set-Cookie: session=tenant-a; Path=/")
        async with raw_server(replies(cookie)) as server:
            first = await send(server)
            await send(server)

        assert first.headers["set-cookie"].startswith("session=")
        assert b"cookie:" not in bytes(server.received[1]).lower()

    async def test_ignores_the_proxy_of_the_environment(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The environment of a process is not part of the frozen request (C240)."""
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, "http://127.0.0.1:9")
        async with raw_server(replies(answer())) as server:
            result = await send(server)

        assert result.complete

    @pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
    async def test_follows_no_redirect(self, status: int) -> None:
        """A followed redirect is a second request outside the frozen target (C240)."""
        async with raw_server(replies(answer())) as sink:
            location = f"Location: http://user:pw@127.0.0.1:{sink.port}/collect?x=1"
            moved = answer(f"{status} Moved", b"", location)
            async with raw_server(replies(moved)) as server:
                result = await send(server, authorization=Secret("Bearer t0k3n"))

        assert (result.status, result.complete) == (status, True)
        assert result.redirect_host == "127.0.0.1"
        assert (server.requests_seen, sink.connections) == (1, 0)

    async def test_reads_past_interim_answers(self) -> None:
        """100 and 103 are no answers; the one that follows is."""
        hints = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"
        async with raw_server(replies(hints + answer())) as server:
            result = await send(server)

        assert (result.status, result.complete) == (200, True)

    @pytest.mark.parametrize(
        ("data", "method"),
        [
            (b"HTTP/1.1 204 No Content\r\n\r\n", "PATCH"),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", "HEAD"),
            (CHUNKED + b"2;x=y\r\n{}\r\n0\r\nT: v\r\n\r\n", "PATCH"),
        ],
    )
    async def test_is_complete_where_http_says_how_it_ends(self, data: bytes, method: str) -> None:
        """No body, and chunks with extension and trailer, have an end of their own."""
        async with raw_server(replies(data)) as server:
            result = await send(server, method=method, body=None if method == "HEAD" else BODY)

        assert (result.complete, result.fault) == (True, None)


class TestBrokenAnswer:
    @pytest.mark.parametrize(
        ("data", "fault"),
        [
            (answer(body=b'{"id":"501"}', length=180), SendFault.LOST),
            (CHUNKED + b'c\r\n{"id":"501"}\r\n', SendFault.LOST),
            (b"HTTP/1.1 200 OK\r\nContent-Le", SendFault.LOST),
            (b'HTTP/1.1 200 OK\r\n\r\n{"id":"501"}', SendFault.UNFRAMED),
            (b"220 mail.example.com ESMTP\r\n\r\n", SendFault.GARBLED),
            (b"\x16\x03\x01\x02\x00garbage\r\n\r\n", SendFault.GARBLED),
            (
                b"HTTP/1.1 200 OK\r\nHTTP/1.1 500 Oops\r\nContent-Length: 2\r\n\r\n{}",
                SendFault.GARBLED,
            ),
            (
                b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
                SendFault.GARBLED,
            ),
            (
                CHUNKED.replace(b"\r\n\r\n", b"\r\nContent-Length: 2\r\n\r\n") + CHUNKS,
                SendFault.GARBLED,
            ),
            (
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
                SendFault.GARBLED,
            ),
            (CHUNKED.replace(b"/1.1", b"/1.0") + CHUNKS, SendFault.GARBLED),
            (CHUNKED + b"zz\r\n{}\r\n0\r\n\r\n", SendFault.GARBLED),
            (CHUNKED + CHUNKS + b"0\r\n\r\n", SendFault.GARBLED),
            (answer() + answer("500 Oops"), SendFault.GARBLED),
            (answer() + b"}", SendFault.GARBLED),
            (
                b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n",
                SendFault.GARBLED,
            ),
            (answer("200 OK", b"\x1f\x8b\x08", "Content-Encoding: gzip"), SendFault.ENCODED),
        ],
    )
    async def test_is_not_complete(self, data: bytes, fault: SendFault) -> None:
        """An answer counts as whole only if its own framing proves it (C246)."""
        async with raw_server(replies(data)) as server:
            result = await send(server)

        assert (result.complete, result.fault) == (False, fault)
        assert result.phase >= WirePhase.FIRST_BYTE_IN
        assert server.requests_seen == 1

    async def test_keeps_the_status_and_the_part_that_came(self) -> None:
        """They are evidence for whoever reconciles, though they prove nothing."""
        async with raw_server(replies(answer(body=b'{"id":"501"}', length=180))) as server:
            result = await send(server)

        assert (result.status, result.body) == (200, b'{"id":"501"}')

    async def test_by_reset_after_the_request_got_all_out(self) -> None:
        """The peer may have read all of it; only the phase can say so (C247)."""

        async def script(call: Call) -> None:
            await call.read_request()
            call.reset()

        async with raw_server(script) as server:
            result = await send(server)

        assert (result.phase, result.fault) == (WirePhase.ALL_OUT, SendFault.LOST)
        assert (result.status, result.body) == (None, None)

    async def test_by_reset_in_the_middle_of_the_request_got_partly_out(self) -> None:
        """A lenient server may act on the part that it has (C246)."""

        async def script(call: Call) -> None:
            await call.reader.readexactly(300)
            call.reset()

        async with raw_server(script) as server:
            result = await send(server, body=b"x" * 16_000_000)

        assert (result.phase, result.fault) == (WirePhase.FIRST_BYTE_OUT, SendFault.LOST)

    async def test_by_reset_before_a_read_never_looks_unsent(self) -> None:
        """If our bytes went into the socket, nobody can say that they were not read."""

        async def script(call: Call) -> None:
            call.reset()

        async with raw_server(script) as server:
            result = await send(server)

        assert not result.complete
        assert (result.phase >= WirePhase.FIRST_BYTE_OUT) is (result.journal.bytes_out > 0)

    async def test_over_the_cap_is_kept_up_to_the_cap(self) -> None:
        """A flood of bytes must not take the worker down in the middle of an effect."""

        async def script(call: Call) -> None:
            await call.read_request()
            await call.send(b"HTTP/1.1 200 OK\r\nContent-Length: 5000000000\r\n\r\n")
            while not call.writer.is_closing():
                await call.send(b"x" * 65_536)

        async with raw_server(script) as server:
            result = await send(server, response_limit_bytes=100_000)
            await asyncio.wait_for(server.finished.wait(), 5)

        assert (result.fault, result.complete) == (SendFault.TOO_LARGE, False)
        assert result.body is not None
        assert len(result.body) == 100_000
        assert result.journal.bytes_in < 1_000_000

    async def test_at_the_cap_is_complete(self) -> None:
        """The cap is the last length that is allowed."""
        async with raw_server(replies(answer(body=b"x" * 1_000))) as server:
            result = await send(server, response_limit_bytes=1_000)

        assert result.complete

    async def test_of_endless_interim_answers_is_cut_off(self) -> None:
        """Interim answers are bytes too, and no body limit sees them."""

        async def script(call: Call) -> None:
            await call.read_request()
            while not call.writer.is_closing():
                await call.send(b"HTTP/1.1 102 Processing\r\n\r\n" * 1_000)

        async with raw_server(script) as server:
            result = await send(server, response_limit_bytes=1_000)

        assert (result.status, result.fault) == (None, SendFault.TOO_LARGE)
