"""The way out through a proxy, and what each of its refusals is worth."""

import ast
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest

from oncefence import activities
from oncefence.activities.http_once import (
    EgressProxy,
    SendDeadline,
    TargetPolicy,
    WireAnswer,
    http_once,
)
from oncefence.domain.classification import SendFault, WirePhase
from oncefence.domain.redaction import Secret
from tests.providers.certificates import tls_pair
from tests.providers.proxies import OPENED, answers_connect, asked_for, proxy_at, tunnels_to
from tests.providers.raw_server import Call, RawServer, Script, answer, raw_server, replies
from tests.providers.sending import LOCAL, request_to

SECRET = Secret("Bearer t0k3n")


async def send_through(
    proxy: EgressProxy,
    server: RawServer,
    *,
    base_url: str | None = None,
    policy: TargetPolicy = LOCAL,
    deadline_ms: int = 5_000,
    **changes: Any,
) -> WireAnswer:
    return await http_once(
        request_to(server, base_url=base_url or server.base_url, authorization=SECRET),
        deadline=SendDeadline.anchor(deadline_ms),
        policy=policy,
        proxy=proxy,
        **changes,
    )


class TestTunnel:
    async def test_carries_the_request_and_nothing_else_knows_of_it(self) -> None:
        """The proxy is told a name and a port; headers, secret and body are the provider's."""
        async with raw_server(replies(answer())) as server, raw_server(tunnels_to(server)) as proxy:
            result = await send_through(proxy_at(proxy), server)
            asked = bytes(proxy.received[0])

        assert (result.complete, result.fault) == (True, None)
        assert (proxy.connections, server.connections, server.requests_seen) == (1, 1, 1)
        authority = b"127.0.0.1:%d" % server.port
        assert asked == (
            b"CONNECT %b HTTP/1.1\r\nHost: %b\r\nUser-Agent: oncefence\r\n\r\n"
            % (authority, authority)
        )
        assert b"authorization: Bearer t0k3n" in bytes(server.received[0])

    async def test_counts_no_byte_of_its_own_as_the_requests(self) -> None:
        """What went to the proxy is no part of what the provider may have read (C244)."""
        async with raw_server(replies(answer())) as server, raw_server(tunnels_to(server)) as proxy:
            result = await send_through(proxy_at(proxy), server)

        assert result.journal.bytes_out == server.bytes_seen

    async def test_is_verified_against_the_providers_name(self, tmp_path: Path) -> None:
        """TLS is between us and the provider; the proxy has the bytes and cannot read them."""
        serving, trusting = tls_pair(tmp_path, host="provider.invalid")
        async with (
            raw_server(replies(answer()), tls=serving) as server,
            raw_server(tunnels_to(server)) as proxy,
        ):
            result = await send_through(
                proxy_at(proxy),
                server,
                base_url=f"https://provider.invalid:{server.port}",
                policy=TargetPolicy(is_local=False),
                tls=trusting,
            )

        assert result.complete
        assert asked_for(proxy) == [b"CONNECT provider.invalid:%d HTTP/1.1" % server.port]

    async def test_resolves_the_proxys_name_and_not_the_providers(self) -> None:
        """Behind a proxy there may be no way to resolve the world's names at all."""
        asked: list[str] = []

        async def resolver(host: str, port: int) -> list[str]:
            asked.append(host)
            return ["127.0.0.1"]

        async with raw_server(replies(answer())) as server, raw_server(tunnels_to(server)) as proxy:
            result = await send_through(
                EgressProxy.parse(f"proxy.internal:{proxy.port}"),
                server,
                base_url=f"http://provider.invalid:{server.port}",
                resolver=resolver,
            )

        assert result.complete
        assert asked == ["proxy.internal"]

    @pytest.mark.parametrize("status", [b"200 OK", b"201 Whatever", b"299 Yes"])
    async def test_opens_by_any_status_of_success(self, status: bytes) -> None:
        """Interim answers are read past, and a length after a 2xx to CONNECT means nothing."""
        opened = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 %b\r\nContent-Length: 9\r\n\r\n" % status
        async with (
            raw_server(replies(answer())) as server,
            raw_server(tunnels_to(server, answer=opened)) as proxy,
        ):
            result = await send_through(proxy_at(proxy), server)

        assert result.complete

    async def test_that_loses_the_answer_is_as_unknown_as_any_wire(self) -> None:
        """Once it is open the proxy is a part of the wire, and its silence is no proof (C247)."""

        async def script(call: Call) -> None:
            await call.read_request()
            call.reset()

        async with raw_server(script) as server, raw_server(tunnels_to(server)) as proxy:
            result = await send_through(proxy_at(proxy), server)

        assert (result.phase, result.fault) == (WirePhase.ALL_OUT, SendFault.LOST)
        assert server.requests_seen == 1


def endless(piece: bytes, *, first: bytes = b"") -> Script:
    async def script(call: Call) -> None:
        await call.read_request()
        await call.send(first)
        while not call.writer.is_closing():
            await call.send(piece)

    return script


async def hangs_up(call: Call) -> None:
    await call.read_request()


async def resets(call: Call) -> None:
    await call.read_request()
    call.reset()


async def is_silent(call: Call) -> None:
    await call.read_request()
    assert await call.client_is_gone()


HTML = b"Content-Type: text/html\r\nContent-Length: 13\r\n\r\n<h1>No.</h1>\n"
REFUSALS: dict[str, tuple[Script, SendFault, str]] = {
    **{
        f"answers {status}": (
            answers_connect(b"HTTP/1.1 %d Proxy says\r\n%b" % (status, HTML)),
            fault,
            f"proxy_answered_{status}",
        )
        for status, fault in {
            **dict.fromkeys((400, 404, 408, 429, 500, 502, 503, 504), SendFault.PROXY_CONNECT),
            **dict.fromkeys((302, 307, 401, 403, 405, 407, 501, 511), SendFault.PROXY_REFUSED),
        }.items()
    },
    "hangs up": (hangs_up, SendFault.PROXY_CONNECT, "proxy_hung_up"),
    "resets": (resets, SendFault.PROXY_CONNECT, "proxy_hung_up"),
    "answers half": (
        answers_connect(b"HTTP/1.1 200 Conn"),
        SendFault.PROXY_CONNECT,
        "proxy_answered_something_else",
    ),
    "answers in another protocol": (
        answers_connect(b"SSH-2.0-OpenSSH_9.9\r\n\r\n"),
        SendFault.PROXY_CONNECT,
        "proxy_answered_something_else",
    ),
    "answers with an endless head": (
        endless(b"x" * 65_536, first=b"HTTP/1.1 200 OK\r\nX-Long: "),
        SendFault.PROXY_CONNECT,
        "proxy_answered_",
    ),
    "answers with interim answers alone": (
        endless(b"HTTP/1.1 102 Processing\r\n\r\n" * 1_000),
        SendFault.PROXY_CONNECT,
        "proxy_answered_without_end",
    ),
    "speaks into the tunnel": (
        answers_connect(OPENED + answer()),
        SendFault.PROXY_CONNECT,
        "proxy_spoke_into_the_tunnel",
    ),
    "is silent": (is_silent, SendFault.DEADLINE, "proxy_has_not_answered"),
}


class TestRefusal:
    @pytest.mark.parametrize("how", REFUSALS)
    async def test_sends_nothing_and_is_not_the_providers_answer(self, how: str) -> None:
        """Not a byte passed the tunnel; what the proxy said is no response (C246)."""
        script, fault, note = REFUSALS[how]
        async with raw_server(replies(answer())) as server, raw_server(script) as proxy:
            result = await send_through(proxy_at(proxy), server, deadline_ms=500)
            await server.was_left_alone()
            await proxy.was_left_alone()

        assert (result.phase, result.fault) == (WirePhase.RESOLVED, fault)
        assert (result.status, result.body, result.headers) == (None, None, {})
        assert (result.journal.bytes_out, result.journal.bytes_in) == (0, 0)
        assert (result.journal.note or "").startswith(note)
        assert (server.connections, proxy.connections) == (0, 1)
        assert b"t0k3n" not in bytes(proxy.received[0])

    @pytest.mark.parametrize("why", ["nobody listens", "no such name", "no address"])
    async def test_by_a_proxy_that_is_not_there_sends_nothing(self, why: str) -> None:
        """It never goes out another way: a proxy that is set is the only way (C240)."""

        async def resolver(host: str, port: int) -> list[str]:
            if why == "no such name":
                raise socket.gaierror(socket.EAI_NONAME, "no such name")
            return [] if why == "no address" else ["127.0.0.1"]

        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            proxy = EgressProxy(host="proxy.internal", port=free.getsockname()[1])
            async with raw_server(replies(answer())) as server:
                result = await send_through(proxy, server, resolver=resolver)
                await server.was_left_alone()

        assert (result.fault, result.journal.note) == (
            SendFault.PROXY_CONNECT,
            "proxy_was_not_reached",
        )
        assert result.phase <= WirePhase.RESOLVED
        assert server.connections == 0

    @pytest.mark.parametrize("case", ["hangs up after opening", "another certificate"])
    async def test_of_the_tls_inside_sends_nothing(self, tmp_path: Path, case: str) -> None:
        """A proxy that opens and has nobody behind it, or that reads along."""
        serving, _ = tls_pair(tmp_path, host="provider.invalid")
        async with raw_server(replies(answer()), tls=serving) as server:
            script = tunnels_to(server) if "certificate" in case else answers_connect(OPENED)
            async with raw_server(script) as proxy:
                result = await send_through(
                    proxy_at(proxy),
                    server,
                    base_url=f"https://provider.invalid:{server.port}",
                    tls=ssl.create_default_context(),
                )

        fault = SendFault.CERTIFICATE if "certificate" in case else SendFault.TLS
        assert (result.phase, result.fault) == (WirePhase.CONNECTED, fault)
        assert server.requests_seen == 0

    async def test_ends_every_connection_that_it_opened(self) -> None:
        """A refused tunnel leaves no socket behind in a process that will try again."""
        async with raw_server(replies(answer())) as server, raw_server(is_gone) as proxy:
            for _ in range(3):
                await send_through(proxy_at(proxy), server)

        assert proxy.connections == 3


async def is_gone(call: Call) -> None:
    await call.read_request()
    await call.send(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
    assert await call.client_is_gone()


class TestGuards:
    @pytest.mark.parametrize(
        "host",
        [
            *["127.0.0.1", "10.0.0.8", "169.254.169.254", "[::1]", "[fd00::1]", "localhost"],
            *["api.localhost", "127.1", "0x7f.1", "2130706433", "10.1"],
        ],
    )
    async def test_refuse_what_is_plainly_not_public(self, host: str) -> None:
        """A proxy stands inside, and would take us there (C243)."""
        async with raw_server(is_silent) as proxy:
            result = await send_through(
                proxy_at(proxy),
                RawServer(port=443),
                base_url=f"https://{host}:443",
                policy=TargetPolicy(is_local=False),
            )
            await proxy.was_left_alone()

        assert result.fault is SendFault.GUARD_REFUSED
        assert proxy.connections == 0

    async def test_check_the_target_before_the_proxy_is_asked(self) -> None:
        """Whatever is refused without a proxy is refused with one (C242)."""
        async with raw_server(is_silent) as proxy:
            result = await send_through(
                proxy_at(proxy),
                RawServer(port=80),
                base_url="http://provider.invalid:80",
                policy=TargetPolicy(is_local=False),
            )
            await proxy.was_left_alone()

        assert result.fault is SendFault.GUARD_REFUSED
        assert proxy.connections == 0


class TestCallers:
    def test_each_says_which_way_out(self) -> None:
        """A call that forgets the proxy goes around it, and nobody sees it."""
        silent = [
            f"{path.name}:{call.lineno}"
            for path in sorted(Path(activities.__path__[0]).glob("*.py"))
            for call in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(call, ast.Call)
            and getattr(call.func, "id", None) in {"http_once", "read_record"}
            and "proxy" not in {keyword.arg for keyword in call.keywords}
        ]

        assert silent == [], "pass proxy=, which is the process's own setting"


class TestSetting:
    @pytest.mark.parametrize(
        ("text", "host", "port"),
        [
            ("proxy.internal:3128", "proxy.internal", 3128),
            ("10.0.0.8:80", "10.0.0.8", 80),
            ("[fd00::1]:3128", "fd00::1", 3128),
            ("Proxy:1", "proxy", 1),
        ],
    )
    def test_names_a_host_and_a_port(self, text: str, host: str, port: int) -> None:
        """Nothing else can be said of a proxy here."""
        assert EgressProxy.parse(text) == EgressProxy(host=host, port=port)

    @pytest.mark.parametrize(
        "text",
        [
            *["", "proxy", "proxy:", ":3128", "proxy:0", "proxy:65536", "proxy:080", "proxy:3128/"],
            *["http://proxy:3128", "user:pw@proxy:3128", "proxy:3128/x", "pro xy:1", "proxy:1\n"],
            *["proxy:3128?x", "fd00::1:3128", "proxy:\u0663"],
        ],
    )
    def test_refuses_what_could_be_read_in_two_ways(self, text: str) -> None:
        """A proxy that is not the one that was meant sees all that leaves."""
        with pytest.raises(ValueError, match="give host:port"):
            EgressProxy.parse(text)
