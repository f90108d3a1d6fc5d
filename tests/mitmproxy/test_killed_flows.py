"""
The wire cut by mitmproxy before and after the provider: the same to us, and not to the provider.

Whether the change was made is known at the provider alone, and that is what our class says.
"""

import json
from pathlib import Path

import pytest

from oncefence.activities.http_once import (
    EgressProxy,
    SendDeadline,
    TargetPolicy,
    WireAnswer,
    http_once,
)
from oncefence.domain.classification import AttemptFailure, SendFault, WirePhase
from oncefence.domain.effect import Outcome
from tests.cases.raw_provider import RawWorld, judged, operation
from tests.mitmproxy.mitmdump import ADDON, MITMDUMP, mitmdump
from tests.providers.certificates import tls_pair
from tests.providers.raw_server import Call, RawServer, Script, answer, raw_server
from tests.providers.sending import LOCAL, request_to
from tests.support.dialect import Form
from tests.support.servers import Database

pytestmark = pytest.mark.asyncio(loop_scope="module")


class Record:
    """The one record of a provider, and a script that changes and shows it."""

    def __init__(self) -> None:
        self.role = "before"
        self.changes = 0

    def script(self) -> Script:
        async def script(call: Call) -> None:
            # A proxy tries the connection and may keep it for more than one request.
            request = await call.read_request()
            if request.startswith(b"PATCH"):
                self.role = json.loads(request.partition(b"\r\n\r\n")[2])["set"]["role"]
                self.changes += 1
            shown = {"id": "501", "set": {"role": self.role}, "changed_ms": 0}
            await call.send(answer("200 OK", json.dumps(shown).encode(), "Connection: close"))

        return script


def is_as_seen(result: WireAnswer) -> tuple[WirePhase, int | None, SendFault | None, bool]:
    return result.phase, result.status, result.fault, result.complete


async def patch_through(port: int, *, proxy: EgressProxy | None = None) -> WireAnswer:
    return await http_once(
        request_to(RawServer(port=port), target="/records/501", body=b'{"set": {"role": "Lead"}}'),
        deadline=SendDeadline.anchor(10_000),
        policy=LOCAL,
        proxy=proxy,
    )


class TestBetweenUsAndTheProvider:
    async def test_both_kills_look_the_same_and_only_one_was_before_the_change(self) -> None:
        """No error tells them apart, so no error may decide: both are unknown (C246, C247)."""
        seen = {}
        changes = {}
        for hook in ("request", "response"):
            record = Record()
            async with raw_server(record.script()) as server:
                mode = f"reverse:http://127.0.0.1:{server.port}"
                async with mitmdump(mode, kills_in=hook) as port:
                    result = await patch_through(port)
                    assert judged(operation(), result).outcome is Outcome.OUTCOME_UNKNOWN
                    under_a_key = judged(operation(), result, key_is_live=True)
                    assert under_a_key.outcome is Outcome.REPLAY_SAFE_RETRY
                    assert under_a_key.may_have_applied
                    seen[hook], changes[hook] = is_as_seen(result), record.changes
                    requests = server.requests_seen
            assert requests == changes[hook]

        assert changes == {"request": 0, "response": 1}
        assert seen["request"] == seen["response"]
        assert seen["request"] == (WirePhase.ALL_OUT, None, SendFault.LOST, False)

    async def test_without_a_kill_it_is_accepted(self) -> None:
        """The tool in between changes nothing by itself."""
        record = Record()
        async with raw_server(record.script()) as server:
            mode = f"reverse:http://127.0.0.1:{server.port}"
            async with mitmdump(mode, kills_in="nothing") as port:
                result = await patch_through(port)

        assert judged(operation(), result).outcome is Outcome.ACCEPTED
        assert (record.changes, server.requests_seen) == (1, 1)

    @pytest.mark.parametrize(("hook", "changes"), [("request", 0), ("response", 1)])
    async def test_an_attempt_is_unknown_until_a_read_finds_out(
        self, store: Database, hook: str, changes: int
    ) -> None:
        """The rows say no more than was known, and the lookup brings the truth of the provider."""
        record = Record()
        async with raw_server(record.script()) as server:
            mode = f"reverse:http://127.0.0.1:{server.port}"
            async with mitmdump(mode, kills_in=hook) as port:
                world = await RawWorld.at(store, f"http://127.0.0.1:{port}", local_ms=10_000)
                accepted = await world.accept_in(Form.LOCAL, title="Lead")
                end = await world.send(accepted)
                unknown = await world.status(accepted)
                looked = await world.read_back(accepted)
                status = await world.status(accepted)
                attempts = await world.attempts(accepted)

        assert (end.attempt.outcome, unknown) == (Outcome.OUTCOME_UNKNOWN, "unknown")
        assert end.attempt.failure_class == AttemptFailure.LOST_ANSWER
        assert len(attempts) == 1
        assert record.changes == changes
        assert status == ("succeeded" if changes else "unknown")
        assert looked.verdict == ("applied" if changes else "not_found")


class TestAsOurProxy:
    async def test_a_kill_before_the_tunnel_is_before_dispatch(self) -> None:
        """Not a byte of the request was there to be passed on (C246)."""
        record = Record()
        async with (
            raw_server(record.script()) as server,
            mitmdump("regular", kills_in="http_connect") as port,
        ):
            result = await patch_through(
                server.port, proxy=EgressProxy(host="127.0.0.1", port=port)
            )

        end = judged(operation(), result)
        assert (end.outcome, end.failure_class) == (
            Outcome.RETRYABLE_PRE_DISPATCH,
            AttemptFailure.PROXY_CONNECT,
        )
        assert (server.requests_seen, record.changes) == (0, 0)
        assert result.status is None

    @pytest.mark.parametrize(("hook", "changes"), [("request", 0), ("response", 1)])
    async def test_a_kill_within_the_tunnel_is_unknown(self, hook: str, changes: int) -> None:
        """Behind an open tunnel everything is the wire, whoever reads along (C247)."""
        record = Record()
        async with (
            raw_server(record.script()) as server,
            mitmdump("regular", kills_in=hook) as port,
        ):
            result = await patch_through(
                server.port, proxy=EgressProxy(host="127.0.0.1", port=port)
            )

        assert judged(operation(), result).outcome is Outcome.OUTCOME_UNKNOWN
        assert record.changes == changes

    async def test_one_that_reads_along_is_not_the_provider(self, tmp_path: Path) -> None:
        """It shows a certificate of its own, and nobody vouches for it (C240)."""
        serving, trusting = tls_pair(tmp_path, host="localhost")
        record = Record()
        async with (
            raw_server(record.script(), tls=serving) as server,
            mitmdump("regular", kills_in="nothing") as port,
        ):
            result = await http_once(
                request_to(server, base_url=f"https://localhost:{server.port}"),
                deadline=SendDeadline.anchor(10_000),
                policy=TargetPolicy(is_local=True),
                proxy=EgressProxy(host="127.0.0.1", port=port),
                tls=trusting,
            )

        assert result.fault in {SendFault.CERTIFICATE, SendFault.TLS, SendFault.PROXY_CONNECT}
        assert judged(operation(), result).outcome is Outcome.RETRYABLE_PRE_DISPATCH
        assert (server.requests_seen, record.changes) == (0, 0)


async def test_what_cuts_is_pinned_and_apart() -> None:
    """Its versions are its own, exact, and none of ours."""
    lock = (MITMDUMP.parents[3] / "requirements-mitmproxy.lock").read_text("utf-8").splitlines()

    assert all(line.count("==") == 1 for line in lock)
    assert any(line.startswith("mitmproxy==") for line in lock)
    assert ADDON.exists()
