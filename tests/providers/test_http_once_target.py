"""Which connection a request may use, and which request may use a connection."""

import socket
import ssl
from pathlib import Path
from typing import Any

import pytest

from oncefence.activities import http_once as module
from oncefence.activities.connecting import system_resolver
from oncefence.activities.http_once import (
    SendDeadline,
    TargetPolicy,
    WireAnswer,
    http_once,
)
from oncefence.activities.target import Target
from oncefence.domain.classification import SendFault, WirePhase
from oncefence.domain.redaction import Secret
from tests.providers.certificates import tls_pair
from tests.providers.raw_server import Call, RawServer, answer, raw_server, replies
from tests.providers.sending import LOCAL, request_to, send, swallowing_host


class TestAddresses:
    async def test_connects_to_the_address_that_was_checked(self) -> None:
        """A name that answers differently the second time is not asked a second time (C243)."""
        asked: list[str] = []

        async def resolver(host: str, port: int) -> list[str]:
            asked.append(host)
            return ["127.0.0.1"]

        async with raw_server(replies(answer())) as server:
            result = await http_once(
                request_to(server, base_url=f"http://provider.invalid:{server.port}"),
                deadline=SendDeadline.anchor(5_000),
                policy=LOCAL,
                resolver=resolver,
            )

        assert result.complete
        assert asked == ["provider.invalid"]
        assert b"host: provider.invalid:" in bytes(server.received[0]).lower()

    @pytest.mark.parametrize("address", ["192.0.2.1", "2001:db8::1"])
    async def test_that_is_one_already_is_not_looked_up(
        self, monkeypatch: pytest.MonkeyPatch, address: str
    ) -> None:
        """It costs no thread, and no resolver of the system may read it in another way (C243)."""
        monkeypatch.delattr(socket, "getaddrinfo")

        assert await system_resolver(address, 443) == [address]

    @pytest.mark.parametrize("name", ["127.1", "0x7f.0.0.1", "localhost"])
    async def test_in_a_form_of_its_own_is_the_systems_to_read(self, name: str) -> None:
        """What it stands for is checked like every other answer of the resolver (C243)."""
        assert "127.0.0.1" in await system_resolver(name, 443)

    async def test_that_is_private_is_refused_before_connecting(self) -> None:
        """A provider's name may not lead into our own network (C243)."""

        async def resolver(host: str, port: int) -> list[str]:
            return ["8.8.8.8", "127.0.0.1"]

        async with raw_server(replies(answer())) as server:
            result = await http_once(
                request_to(server, base_url=f"https://provider.invalid:{server.port}"),
                deadline=SendDeadline.anchor(5_000),
                policy=TargetPolicy(is_local=False),
                resolver=resolver,
            )

        assert (result.phase, result.fault) == (WirePhase.NOTHING, SendFault.GUARD_REFUSED)
        assert server.connections == 0

    async def test_that_refuses_gives_way_to_the_next(self) -> None:
        """A failed connect sent nothing, so another address is no second send."""

        async def resolver(host: str, port: int) -> list[str]:
            return ["127.0.0.2", "::1", "127.0.0.1"]

        async with raw_server(replies(answer())) as server:
            result = await http_once(
                request_to(server, base_url=f"http://provider.invalid:{server.port}"),
                deadline=SendDeadline.anchor(5_000),
                policy=LOCAL,
                resolver=resolver,
            )

        assert result.complete
        assert server.requests_seen == 1

    async def test_that_is_silent_leaves_time_for_the_next(self) -> None:
        """The first address may not use up the whole deadline."""

        async def resolver(host: str, port: int) -> list[str]:
            return ["127.0.0.2", "127.0.0.1"]

        async with raw_server(replies(answer())) as server:
            with swallowing_host("127.0.0.2", server.port):
                result = await http_once(
                    request_to(server, base_url=f"http://provider.invalid:{server.port}"),
                    deadline=SendDeadline.anchor(600),
                    policy=LOCAL,
                    resolver=resolver,
                )

        assert result.complete
        assert server.requests_seen == 1

    async def test_that_refuses_alone_is_a_failed_connect(self) -> None:
        """Nobody listens, so nothing left."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            result = await send(RawServer(port=free.getsockname()[1]))

        assert (result.phase, result.fault) == (WirePhase.RESOLVED, SendFault.CONNECT)

    @pytest.mark.parametrize("addresses", [[], None])
    async def test_that_nobody_knows_is_a_failed_resolution(
        self, addresses: list[str] | None
    ) -> None:
        """No address, no request."""

        async def resolver(host: str, port: int) -> list[str]:
            if addresses is None:
                raise socket.gaierror(socket.EAI_NONAME, "no such name")
            return addresses

        result = await http_once(
            request_to(RawServer(port=1)),
            deadline=SendDeadline.anchor(5_000),
            policy=LOCAL,
            resolver=resolver,
        )

        assert (result.phase, result.fault) == (WirePhase.NOTHING, SendFault.DNS)


class TestGuards:
    @pytest.mark.parametrize(
        ("changes", "note"),
        [
            ({"target": "//evil.example/x"}, "target_is_scheme_relative"),
            ({"target": "http://evil.example/x"}, "target_is_absolute"),
            ({"base_url": "http://127.0.0.1/api"}, "base_url_is_not_an_origin"),
            ({"method": "TRACE"}, "method_is_not_known"),
            ({"method": "patch"}, "method_is_not_known"),
            ({"headers": {"Host": "evil.example"}}, "header_is"),
            ({"headers": {"Cookie": "a=b"}}, "header_is"),
            ({"headers": {"Authorization": "in clear"}}, "header_is"),
            ({"headers": {"Content-Length": "0"}}, "header_is"),
            ({"headers": {"Transfer-Encoding": "chunked"}}, "header_is"),
            ({"headers": {"Expect": "100-continue"}}, "header_is"),
            ({"headers": {"X-HTTP-Method-Override": "DELETE"}}, "header_is"),
            ({"headers": {"X-A": "b\r\nX-C: d"}}, "header_is"),
            ({"headers": {"X-A": "\u00e4"}}, "header_is"),
            ({"headers": {"X A": "b"}}, "header_is"),
            ({"headers": {"X-A": "1", "x-a": "2"}}, "header_is"),
            ({"authorization": Secret("Bearer a\r\nX: y")}, "header_is"),
            ({"authorization": Secret("x"), "authorization_header": "Host"}, "header_is"),
        ],
    )
    async def test_refuse_before_anything_leaves(self, changes: dict[str, Any], note: str) -> None:
        """A request that a rule refuses opens no connection, and the journal names the rule."""
        async with raw_server(replies(answer())) as server:
            result = await send(server, **changes)

        assert (result.phase, result.fault) == (WirePhase.NOTHING, SendFault.GUARD_REFUSED)
        assert str(result.journal.as_evidence()["note"]).startswith(note)
        assert server.connections == 0

    async def test_are_checked_by_a_second_parser(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A guard that let something through is caught where the request is made (C242)."""

        def lenient(base_url: str, target: str, policy: TargetPolicy) -> Target:
            port = int(base_url.rpartition(":")[2])
            return Target(scheme="http", host="127.0.0.1", port=port, path_and_query=target)

        monkeypatch.setattr(module, "check_target", lenient)
        async with raw_server(replies(answer())) as server:
            climbing = await send(server, target="/objects/../admin")
            elsewhere = await send(server, target="@127.0.0.2/objects")

        notes = [result.journal.note for result in (climbing, elsewhere)]
        assert notes == ["final_url_differs_from_the_binding"] * 2
        assert server.connections == 0

    async def test_let_a_key_travel_in_a_header_of_its_own_name(self) -> None:
        """Not every provider calls it Authorization."""
        async with raw_server(replies(answer())) as server:
            await send(server, authorization=Secret("k3y"), authorization_header="X-Api-Key")

        assert b"\r\nx-api-key: k3y\r\n" in bytes(server.received[0]).lower()

    async def test_show_no_secret_in_request_or_answer(self) -> None:
        """Both may be printed by whoever debugs (C444)."""
        async with raw_server(replies(answer(body=b"canary-body"))) as server:
            request = request_to(
                server, authorization=Secret("canary-token"), headers={"x-a": "canary-header"}
            )
            result = await http_once(request, deadline=SendDeadline.anchor(5_000), policy=LOCAL)

        shown = f"{request!r} {result!r} {result.journal.as_evidence()!r}"
        assert "canary" not in shown
        assert "jobtitle" not in shown


class TestTls:
    async def test_keeps_the_name_while_the_address_is_pinned(self, tmp_path: Path) -> None:
        """SNI, certificate and Host speak of the provider, the socket of the checked address."""
        names: list[str | None] = []
        serving, trusting = tls_pair(tmp_path, host="provider.invalid")
        serving.sni_callback = lambda _socket, name, _context: names.append(name)
        result, server = await self._call(serving, trusting, host="provider.invalid")

        assert result.complete
        assert names == ["provider.invalid"]
        assert "tls_ms" in result.journal.as_evidence()
        assert server.requests_seen == 1

    async def test_offers_nothing_but_http_1_1(self, tmp_path: Path) -> None:
        """An HTTP/2 peer may tell the transport to send again, so none is offered (C240)."""
        serving, trusting = tls_pair(tmp_path, host="provider.invalid")
        serving.set_alpn_protocols(["h2", "http/1.1"])
        chosen: list[str | None] = []

        async def script(call: Call) -> None:
            chosen.append(call.writer.get_extra_info("ssl_object").selected_alpn_protocol())
            await call.read_request()
            await call.send(answer())

        result, _ = await self._call(serving, trusting, host="provider.invalid", script=script)

        assert result.complete
        assert chosen == ["http/1.1"]

    @pytest.mark.parametrize("case", ["unknown authority", "another name"])
    async def test_that_cannot_be_verified_sends_nothing(self, tmp_path: Path, case: str) -> None:
        """A certificate that does not fit is a fault of configuration, found before the send."""
        serving, trusting = tls_pair(tmp_path, host="provider.invalid")
        host = "provider.invalid" if case == "unknown authority" else "other.invalid"
        trusted = None if case == "unknown authority" else trusting
        result, server = await self._call(serving, trusted, host=host)

        assert (result.phase, result.fault) == (WirePhase.CONNECTED, SendFault.CERTIFICATE)
        assert server.requests_seen == 0

    async def test_that_breaks_off_sends_nothing(self) -> None:
        """A peer that does not speak TLS never sees the request."""

        async def script(call: Call) -> None:
            await call.send(b"220 not tls\r\n")

        async with raw_server(script) as server:
            result = await http_once(
                request_to(server, base_url=f"https://127.0.0.1:{server.port}"),
                deadline=SendDeadline.anchor(5_000),
                policy=LOCAL,
            )

        assert (result.phase, result.fault) == (WirePhase.CONNECTED, SendFault.TLS)
        assert server.requests_seen == 0

    async def test_is_never_unverified(self) -> None:
        """A context that trusts everybody is a mistake of the caller's, said at once."""
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        with pytest.raises(ValueError, match="must verify"):
            await http_once(
                request_to(RawServer(port=1)),
                deadline=SendDeadline.anchor(5_000),
                policy=LOCAL,
                tls=context,
            )

    async def _call(
        self,
        serving: ssl.SSLContext,
        trusting: ssl.SSLContext | None,
        *,
        host: str,
        script: Any = None,
    ) -> tuple[WireAnswer, RawServer]:
        async def resolver(name: str, port: int) -> list[str]:
            return ["127.0.0.1"]

        async with raw_server(script or replies(answer()), tls=serving) as server:
            result = await http_once(
                request_to(server, base_url=f"https://{host}:{server.port}"),
                deadline=SendDeadline.anchor(5_000),
                policy=LOCAL,
                tls=trusting,
                resolver=resolver,
            )
        return result, server
