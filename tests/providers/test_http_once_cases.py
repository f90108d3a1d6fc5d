"""Troubles that people met in the field, from the bytes on the wire to the outcome."""

import asyncio
import errno
import json
import socket
from unittest.mock import patch

import pytest

from oncefence.activities.http_once import SendDeadline, WireAnswer, http_once
from oncefence.domain.classification import (
    AttemptFailure,
    BodyVerdict,
    Classified,
    ReplyContract,
    SendFault,
    WirePhase,
    classify,
)
from oncefence.domain.effect import Outcome
from tests.providers.raw_server import Call, RawServer, answer, raw_server, replies
from tests.providers.sending import LOCAL, request_to, send

CONTRACT = ReplyContract(
    success_statuses=frozenset({200}),
    rejected_statuses=frozenset({400, 404, 422}),
    not_applied_statuses=frozenset({429}),
    has_live_idempotency_key=False,
)
GOOD = b'{"id":"501","properties":{"jobtitle":"Lead"}}'


def judged(result: WireAnswer, contract: ReplyContract = CONTRACT) -> Classified:
    """Judge an answer as an operation does that declares `id` as evidence and identity."""
    body = None
    if result.body is not None:
        try:
            document = json.loads(result.body)
        except ValueError:
            document = None
        fields = document if isinstance(document, dict) else {}
        body = BodyVerdict(
            complete=result.complete,
            parseable=document is not None,
            evidence_present="id" in fields,
            identity_matches=fields.get("id") == "501",
            declares_refusal="errors" in fields,
        )
    return classify(
        phase=result.phase,
        status=result.status,
        body=body,
        contract=contract,
        cause=result.fault,
    )


class TestConnectionThatDies:
    async def test_http_01_reset_after_the_whole_request_was_read(self) -> None:
        """A reset does not say whether the application read what the kernel took."""

        async def script(call: Call) -> None:
            await call.read_request()
            call.reset()

        async with raw_server(script) as server:
            result = judged(await send(server))

        assert (result.outcome, server.requests_seen) == (Outcome.OUTCOME_UNKNOWN, 1)

    async def test_http_02_close_without_an_answer_is_not_resent(self) -> None:
        """The library must not try once more on its own, least of all unseen."""
        second_try = [False, True]

        async def script(call: Call) -> None:
            await call.read_request()
            if second_try.pop(0):
                await call.send(answer(body=GOOD))

        async with raw_server(script) as server:
            result = judged(await send(server))

        assert (result.outcome, server.requests_seen) == (Outcome.OUTCOME_UNKNOWN, 1)

    async def test_http_19_the_next_request_does_not_take_the_blame(self) -> None:
        """The first answer closes its connection; the second request has its own."""
        answers = [b"HTTP/1.1 204 No Content\r\nConnection: keep-alive\r\n\r\n", answer(body=GOOD)]

        async def script(call: Call) -> None:
            data = answers[server.connections - 1]
            await call.read_request()
            await call.send(data)

        async with raw_server(script) as server:
            first, second = judged(await send(server)), judged(await send(server))

        assert first.outcome is Outcome.OUTCOME_UNKNOWN
        assert second.outcome is Outcome.ACCEPTED
        assert (server.connections, server.requests_seen) == (2, 2)


class TestTimeout:
    async def test_http_04_in_reading_is_unknown(self) -> None:
        """The provider applies the change a moment after we stopped to wait."""

        async def script(call: Call) -> None:
            await call.read_request()
            assert await call.client_is_gone()

        async with raw_server(script) as server:
            result = judged(await send(server, deadline_ms=200))

        assert (result.outcome, server.requests_seen) == (Outcome.OUTCOME_UNKNOWN, 1)

    @pytest.mark.parametrize("at", ["connect", "read"])
    async def test_http_05_the_same_errno_is_judged_by_its_phase(self, at: str) -> None:
        """ETIMEDOUT from connect() sent nothing; from recv() it says nothing."""
        error = TimeoutError(errno.ETIMEDOUT, "timed out")
        place, name = {
            "connect": (asyncio.get_running_loop(), "sock_connect"),
            "read": (asyncio.StreamReader, "read"),
        }[at]
        hold = asyncio.Event()

        async def script(call: Call) -> None:
            await hold.wait()

        async with raw_server(script) as server:
            with patch.object(place, name, side_effect=error):
                result = judged(await send(server))
            hold.set()

        expected = {
            "connect": Outcome.RETRYABLE_PRE_DISPATCH,
            "read": Outcome.OUTCOME_UNKNOWN,
        }
        assert result.outcome is expected[at]

    @pytest.mark.parametrize("drip", ["head", "body", "late"])
    async def test_http_22_per_read_never_comes_and_the_total_does(self, drip: str) -> None:
        """A byte in time, again and again, would outlive the lease."""

        async def script(call: Call) -> None:
            await call.read_request()
            if drip == "body":
                await call.send(b"HTTP/1.1 200 OK\r\nContent-Length: 600\r\n\r\n")
            pause = 0.15 if drip == "late" else 0.02
            while not await call.client_is_gone(within_seconds=pause):
                await call.send(b"H" if drip != "body" else b" ")

        async with raw_server(script) as server:
            started = asyncio.get_running_loop().time()
            result = judged(await send(server, deadline_ms=400))
            seconds = asyncio.get_running_loop().time() - started

        assert result.outcome is Outcome.OUTCOME_UNKNOWN
        assert seconds < 1.4


class TestBeforeDispatch:
    @pytest.mark.parametrize("fault", ["refused", "no such name"])
    async def test_http_04_no_connection_means_nothing_left(self, fault: str) -> None:
        """Whatever the reason, zero bytes are zero bytes."""

        async def resolver(host: str, port: int) -> list[str]:
            if fault == "no such name":
                raise socket.gaierror(socket.EAI_NONAME, "no such name")
            return ["127.0.0.1"]

        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            result = await http_once(
                request_to(RawServer(port=free.getsockname()[1])),
                deadline=SendDeadline.anchor(2_000),
                policy=LOCAL,
                resolver=resolver,
            )

        assert judged(result).outcome is Outcome.RETRYABLE_PRE_DISPATCH

    @pytest.mark.parametrize(
        ("status", "cause", "is_configuration_fault"),
        [
            (502, SendFault.PROXY_CONNECT, False),
            (407, SendFault.PROXY_REFUSED, True),
            (403, SendFault.PROXY_REFUSED, True),
            (None, SendFault.PROXY_CONNECT, False),
        ],
    )
    def test_http_07_a_proxys_refusal_is_not_the_providers_answer(
        self, status: int | None, cause: SendFault, is_configuration_fault: bool
    ) -> None:
        """No byte passed the tunnel; 403 and 407 need a person and not patience."""
        result = classify(
            phase=WirePhase.CONNECTED, status=status, body=None, contract=CONTRACT, cause=cause
        )

        assert result == Classified(
            outcome=Outcome.RETRYABLE_PRE_DISPATCH,
            failure_class=AttemptFailure.PROXY_CONNECT,
            may_have_applied=False,
            is_configuration_fault=is_configuration_fault,
        )


class TestAnswer:
    @pytest.mark.parametrize(
        ("data", "outcome", "failure"),
        [
            pytest.param(
                b"HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/html\r\n"
                b"Content-Length: 6\r\n\r\n<html>",
                Outcome.OUTCOME_UNKNOWN,
                AttemptFailure.SERVER_ERROR,
                id="http_08_gateway",
            ),
            pytest.param(
                b"HTTP/1.1 301 Moved\r\nLocation: https://api2.example.com/x\r\n\r\n",
                Outcome.REJECTED,
                AttemptFailure.UNEXPECTED_REDIRECT,
                id="http_10_redirect_without_a_length",
            ),
            pytest.param(
                answer("308 Moved", b"", "Location: http://sink.example.net/collect"),
                Outcome.REJECTED,
                AttemptFailure.UNEXPECTED_REDIRECT,
                id="http_11_redirect_to_plain_http",
            ),
            pytest.param(
                answer(body=GOOD, length=180),
                Outcome.OUTCOME_UNKNOWN,
                AttemptFailure.LOST_ANSWER,
                id="http_13_shorter_than_declared",
            ),
            pytest.param(
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n"
                % (len(GOOD), GOOD),
                Outcome.OUTCOME_UNKNOWN,
                AttemptFailure.LOST_ANSWER,
                id="http_14_no_last_chunk",
            ),
            pytest.param(
                answer(body=b'{"errors":[{"id":"validationError"}]}'),
                Outcome.REJECTED,
                AttemptFailure.REJECTED,
                id="http_16_declared_error_in_a_200",
            ),
            pytest.param(
                answer(body=b'{"ok":false}'),
                Outcome.OUTCOME_UNKNOWN,
                AttemptFailure.EVIDENCE_MISSING,
                id="http_16_undeclared_error_in_a_200",
            ),
            pytest.param(
                answer(body=b"<html>maintenance</html>"),
                Outcome.OUTCOME_UNKNOWN,
                AttemptFailure.GARBLED_ANSWER,
                id="http_16_a_page_instead_of_json",
            ),
            pytest.param(
                answer(body=b'{"id":"501","errors":[]}'),
                Outcome.OUTCOME_UNKNOWN,
                AttemptFailure.CONTRADICTORY_ANSWER,
                id="http_16_evidence_and_errors",
            ),
            pytest.param(
                answer(body=b'{"id":"777"}'),
                Outcome.OUTCOME_UNKNOWN,
                AttemptFailure.IDENTITY_MISMATCH,
                id="another_object",
            ),
            pytest.param(
                b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 2\r\n\r\n",
                Outcome.REPLAY_SAFE_RETRY,
                AttemptFailure.RATE_LIMITED,
                id="429_without_a_length",
            ),
            pytest.param(answer(body=GOOD), Outcome.ACCEPTED, None, id="accepted"),
        ],
    )
    async def test_is_judged_from_its_bytes(
        self, data: bytes, outcome: Outcome, failure: AttemptFailure | None
    ) -> None:
        """The bytes of the field case lead to its outcome, over one request."""
        async with raw_server(replies(data)) as server:
            result = judged(await send(server))

        assert (result.outcome, result.failure_class) == (outcome, failure)
        assert server.requests_seen == 1

    @pytest.mark.parametrize(
        ("head", "outcome"),
        [
            ("200 OK\r\nContent-Length: 5000000000", Outcome.OUTCOME_UNKNOWN),
            ("200 OK\r\nTransfer-Encoding: chunked", Outcome.OUTCOME_UNKNOWN),
            ("422 No\r\nContent-Length: 200000000", Outcome.REJECTED),
        ],
    )
    async def test_http_23_of_gigabytes_is_not_taken_in(self, head: str, outcome: Outcome) -> None:
        """Evidence that we do not read is no evidence; a refusal is said by its status."""
        piece = b"x" * 65_536
        if "chunked" in head:
            piece = b"%x\r\n%b\r\n" % (len(piece), piece)

        async def script(call: Call) -> None:
            await call.read_request()
            await call.send(f"HTTP/1.1 {head}\r\n\r\n".encode())
            while not call.writer.is_closing():
                await call.send(piece)

        async with raw_server(script) as server:
            result = await send(server, response_limit_bytes=1_048_576)
            await asyncio.wait_for(server.finished.wait(), 5)

        assert judged(result).outcome is outcome
        assert len(result.body or b"") == 1_048_576
        assert result.journal.bytes_in < 2_000_000

    async def test_http_23_a_coded_body_is_not_blown_up(self) -> None:
        """Ten kilobytes may unfold into a gigabyte, and nobody asked for a coding."""
        coded = answer("200 OK", b"\x1f\x8b" + b"\x00" * 10_000, "Content-Encoding: gzip")
        async with raw_server(replies(coded)) as server:
            result = await send(server)

        assert judged(result).outcome is Outcome.OUTCOME_UNKNOWN
        assert len(result.body or b"") == 10_002
