"""Symptoms of HTTP that people met in the field, each as a test under its id."""

import asyncio
import errno
import gzip
import json
import os
import socket
import tracemalloc
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from oncefence.activities import connecting
from oncefence.activities.http_once import EgressProxy, SendDeadline, http_once
from oncefence.domain.classification import WirePhase
from oncefence.domain.effect import Outcome
from oncefence.domain.limits import Limits
from oncefence.domain.redaction import Secret
from tests.cases.processes import Process
from tests.cases.raw_provider import (
    IS_DONE_WITHOUT_A_BODY,
    REFUSES_IN_A_SUCCESS,
    TELLS_ITEMS_APART,
    WHERE_ITEMS_ARE,
    RawWorld,
    at_a_raw_server,
    dialect,
    judged,
    operation,
)
from tests.providers.certificates import tls_pair
from tests.providers.client_hello import length_of_hello, read_client_hello
from tests.providers.proxies import answers_connect, proxy_at, tunnels_to
from tests.providers.raw_server import Call, RawServer, Script, answer, raw_server, replies
from tests.providers.sending import LOCAL, request_to, send, swallowing_host
from tests.support.dialect import Form
from tests.support.servers import Database
from tests.support.world import Accepted

pytestmark = pytest.mark.asyncio(loop_scope="module")

HERE = Path(__file__).read_text(encoding="utf-8")
DATA = Path(__file__).parents[1] / "data" / "cases" / "http_outcome.jsonl"
CASES: dict[str, dict[str, Any]] = {
    case["id"]: case for case in map(json.loads, DATA.read_text(encoding="utf-8").splitlines())
}
GOOD = answer(body=b'{"id": "501", "set": {"role": "Lead"}}')
SECRET = Secret("Bearer t0k3n")


def given(case: str) -> Any:  # a case's own form
    return CASES[case]["input"]


def expected(case: str) -> Any:  # as above
    return CASES[case]["expected"]


def patches(server: RawServer) -> int:
    """The PATCH requests that reached the server, on whichever connection."""
    return sum(bytes(part).count(b"PATCH /records/") for part in server.received)


def in_turn(*scripts: Script) -> Script:
    """A script for each connection; the last is for all that come later."""
    calls: list[int] = []

    async def script(call: Call) -> None:
        calls.append(1)
        await scripts[min(len(calls), len(scripts)) - 1](call)

    return script


async def resets(call: Call) -> None:
    await call.read_request()
    call.reset()


async def closes(call: Call) -> None:
    await call.read_request()


async def in_flight_no_more(world: RawWorld, accepted: Accepted) -> None:
    """Whoever runs the item again is told that it is over, and sends nothing."""
    before = len(await world.attempts(accepted))
    await world.send(accepted)
    assert len(await world.attempts(accepted)) == before


async def test_every_case_has_its_test() -> None:
    """A case without a test is a symptom that may come back."""
    missing = [case for case in CASES if f"test_{case.lower().replace('-', '_')}_" not in HERE]

    assert missing == []
    assert len(CASES) == 16


# --- HTTP-01 ---------------------------------------------------------------------------------


async def test_http_01_a_reset_with_the_whole_request_in_hand_is_unknown(
    store: Database,
) -> None:
    """Nobody can say whether it was read, so a lookup asks and no attempt does (C246, C261)."""
    keeps = replies(answer("200 OK", b'{"id": "501"}', "Connection: keep-alive"))
    later = replies(answer(body=b'{"id": "502"}'))
    wanted = expected("HTTP-01")
    async with at_a_raw_server(store, in_turn(keeps, resets, later)) as (world, server):
        first, second = [await world.accept_in(Form.LOCAL, f"lead-{n}") for n in (1, 2)]
        before = await world.send(first)
        end = await world.send(second)
        await in_flight_no_more(world, second)
        await server.was_left_alone()

        assert before.attempt.outcome == Outcome.ACCEPTED
        assert end.attempt.outcome == wanted["outcome"]
        assert (end.item.state, end.execution.status) == ("dead", "unknown")
        assert await world.lookup_work(second) is not None
        assert server.connections == wanted["connections"]
        assert patches(server) == 1 + wanted["patches"]


# --- HTTP-02 ---------------------------------------------------------------------------------


class TestHTTP02:
    @pytest.mark.parametrize("method", given("HTTP-02")["methods"])
    @pytest.mark.parametrize("ends", [closes, resets])
    async def test_http_02_a_dropped_connection_is_one_request_for_every_method(
        self, method: str, ends: Script
    ) -> None:
        """That HTTP calls a method idempotent is no leave to send it twice (C1, C247)."""
        async with raw_server(in_turn(ends, replies(GOOD))) as server:
            body = None if method in {"GET", "HEAD", "DELETE"} else b"{}"
            result = await send(server, method=method, body=body)
            await server.was_left_alone()

        assert judged(operation(), result).outcome == expected("HTTP-02")["outcome"]
        assert server.requests_seen == server.connections == expected("HTTP-02")["requests"]

    async def test_http_02_no_second_send_hides_behind_an_accepted_one(
        self, store: Database
    ) -> None:
        """The one attempt row stands for the one request (C1, C253)."""
        async with at_a_raw_server(store, in_turn(closes, replies(GOOD))) as (world, server):
            accepted = await world.accept_in(Form.LOCAL)
            end = await world.send(accepted)
            await in_flight_no_more(world, accepted)
            await server.was_left_alone()

            assert end.attempt.outcome == expected("HTTP-02")["outcome"]
            assert patches(server) == len(await world.attempts(accepted)) == 1


# --- HTTP-04 ---------------------------------------------------------------------------------


async def no_such_name(*asked: object, **how: object) -> list[Any]:
    raise socket.gaierror(socket.EAI_NONAME, "no such name")


async def speaks_plainly(call: Call) -> None:
    await call.reader.read(100)
    await call.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")


class TestHTTP04:
    @pytest.mark.parametrize("why", given("HTTP-04")["unsent"])
    async def test_http_04_what_never_connected_may_be_tried_again_so_often(
        self, store: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str
    ) -> None:
        """Before the first byte every reason is the same: nothing left (C246, C247)."""
        serving, _ = tls_pair(tmp_path, host="127.0.0.1")
        wanted = expected("HTTP-04")
        tls = serving if why == "an unknown certificate" else None
        script = speaks_plainly if why == "the handshake fails" else replies(GOOD)
        async with raw_server(script, tls=tls) as server:
            with swallowing_host("127.0.0.1", 0) as silent, socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                address = {
                    "the connect is swallowed": f"http://127.0.0.1:{silent}",
                    "nobody listens": f"http://127.0.0.1:{free.getsockname()[1]}",
                    "no such name": "http://wire.invalid",
                }.get(why, f"https://127.0.0.1:{server.port}")
                if why == "no such name":
                    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", no_such_name)
                world = await RawWorld.at(
                    store, address, limits=Limits(attempts_max=wanted["attempts"]), local_ms=300
                )
                accepted = await world.accept_in(Form.LOCAL)
                ends = [await world.send(accepted) for _ in range(wanted["attempts"])]
            await server.was_left_alone()

        assert [end.attempt.outcome for end in ends] == [wanted["unsent"]] * wanted["attempts"]
        assert [end.item.state for end in ends] == ["retry", "retry", wanted["then"]]
        assert ends[-1].execution.status == "failed"
        assert server.requests_seen == wanted["requests"][0]
        waits = min(end.waits_seconds for end in ends[:-1])
        assert (waits >= 1_800) is (why == "an unknown certificate")

    async def test_http_04_a_read_that_times_out_is_unknown(self, store: Database) -> None:
        """The change is made when we have stopped waiting, as it may always be (C246)."""
        roles: list[str] = []

        async def script(call: Call) -> None:
            request = await call.read_request()
            assert await call.client_is_gone()
            roles.append(json.loads(request.partition(b"\r\n\r\n")[2])["set"]["role"])

        wanted = expected("HTTP-04")
        async with at_a_raw_server(store, script, local_ms=300) as (world, server):
            accepted = await world.accept_in(Form.LOCAL, title="Lead")
            end = await world.send(accepted)
            await in_flight_no_more(world, accepted)
            await server.was_left_alone()

        assert end.attempt.outcome == wanted["sent"]
        assert roles == ["Lead"]
        assert patches(server) == wanted["requests"][1]

    async def test_http_04_there_is_no_pool_to_wait_for(self) -> None:
        """However many are out, each has a connection of its own, and the next one too (C241)."""
        many = given("HTTP-04")["in_flight"]
        released = asyncio.Event()

        async def script(call: Call) -> None:
            await call.read_request()
            await released.wait()
            await call.send(GOOD)

        async with raw_server(script) as server:
            sending = [asyncio.create_task(send(server)) for _ in range(many)]
            async with asyncio.timeout(5):
                while server.requests_seen < many:
                    await asyncio.sleep(0.01)
            released.set()
            results = await asyncio.gather(*sending)

        assert [result.complete for result in results] == [True] * many
        assert (server.connections, server.requests_seen) == (many, many)


# --- HTTP-05 ---------------------------------------------------------------------------------


class FaultySocket(socket.socket):
    """A socket of the system whose calls fail as the case says."""

    call: str = ""
    number: int = 0
    room: int = 0

    def _fail(self) -> None:
        raise OSError(self.number, os.strerror(self.number))

    def connect(self, address: Any) -> None:
        if self.call == "connect":
            self._fail()
        super().connect(address)

    def recv(self, *how: Any) -> bytes:
        if self.call == "recv":
            self._fail()
        return super().recv(*how)

    def send(self, data: Any, *flags: int) -> int:
        if self.call != "send" or b"PATCH" in bytes(data[:8]):
            return super().send(data, *flags)
        # The head is out; of the body a part is taken, and then no more.
        if self.room == 0:
            self._fail()
        taken, FaultySocket.room = self.room, 0
        return super().send(data[:taken], *flags)


@pytest.mark.parametrize(("call", "name"), given("HTTP-05")["injected"], ids=str)
async def test_http_05_an_errno_is_judged_by_where_it_came_from(
    monkeypatch: pytest.MonkeyPatch, call: str, name: str
) -> None:
    """Its name says nothing; whether a byte was out says all (C247)."""
    monkeypatch.setattr(FaultySocket, "call", call)
    monkeypatch.setattr(FaultySocket, "number", getattr(errno, name))
    monkeypatch.setattr(FaultySocket, "room", given("HTTP-05")["sent_before"])
    shimmed = SimpleNamespace(**(vars(socket) | {"socket": FaultySocket}))
    monkeypatch.setattr(connecting, "socket", shimmed)
    body = b"x" * 300

    async def script(call: Call) -> None:
        await call.read_request()
        await call.send(GOOD)

    async with raw_server(in_turn(script, replies(GOOD))) as server:
        result = await send(server, target="/records/501", body=body)
        await server.was_left_alone()

    assert judged(operation(), result).outcome == expected("HTTP-05")[call]
    assert (result.journal.bytes_out > 0) is (call != "connect")
    assert server.connections == (0 if call == "connect" else 1)
    if call == "send":
        assert result.phase is WirePhase.FIRST_BYTE_OUT
        assert bytes(server.received[0]).endswith(b"\r\n\r\n" + b"x" * 40)


# --- HTTP-07 ---------------------------------------------------------------------------------


def refusal_of(how: str) -> Script:
    line = given("HTTP-07")["refusals"][how]
    if not line:
        return closes
    page = b"<html>Ask the people of the network.</html>"
    status = line.partition(",")[0].encode()
    return answers_connect(
        b"HTTP/1.1 %b\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n%b"
        % (status, len(page), page)
    )


def through(world: RawWorld, proxy: EgressProxy) -> Process:
    """A process whose only way out is the proxy."""
    process = Process(world)
    return process.with_context(replace(process.context, egress_proxy=proxy))


class TestHTTP07:
    @pytest.mark.parametrize("how", given("HTTP-07")["refusals"])
    async def test_http_07_a_refused_tunnel_is_no_answer_of_the_provider(
        self, store: Database, how: str
    ) -> None:
        """Nothing passed it: tried again in time, so often and no more (C246, C249)."""
        wanted = expected("HTTP-07")
        limits = Limits(attempts_max=given("HTTP-07")["attempts"])
        async with (
            at_a_raw_server(store, replies(GOOD), limits=limits) as (world, server),
            raw_server(refusal_of(how)) as proxy,
        ):
            accepted = await world.accept_in(Form.LOCAL)
            process = through(world, proxy_at(proxy))
            ends = [await world.send(accepted, process) for _ in range(limits.attempts_max)]
            await server.was_left_alone()
            await proxy.was_left_alone()

        for end in ends:
            assert end.attempt.outcome == wanted["outcome"]
            assert end.attempt.failure_class == wanted["failure_class"]
            assert end.attempt.response_status == wanted["response_status"]
        assert server.connections == wanted["provider_requests"]
        assert proxy.connections == limits.attempts_max, "one CONNECT for an attempt"
        waits = min(end.waits_seconds for end in ends[:-1])
        is_configuration = how in wanted["configuration_faults"]
        assert (waits >= wanted["they_wait_seconds"]) is is_configuration
        assert ends[-1].item.state == wanted["in_the_end"]
        assert ends[-1].execution.status == "failed"

    async def test_http_07_a_tunnel_that_opens_carries_the_one_request(
        self, store: Database
    ) -> None:
        """The same proxy when it lets us through: the attempt is as without it."""
        async with (
            at_a_raw_server(store, replies(GOOD)) as (world, server),
            raw_server(tunnels_to(server)) as proxy,
        ):
            accepted = await world.accept_in(Form.LOCAL)
            end = await world.send(accepted, through(world, proxy_at(proxy)))

        assert end.attempt.outcome == Outcome.ACCEPTED
        assert (proxy.connections, patches(server)) == (1, 1)

    async def test_http_07_a_lookup_goes_out_by_the_same_way(self, store: Database) -> None:
        """A read that went around the proxy would reach a provider that nobody let us reach."""
        async with (
            at_a_raw_server(store, in_turn(closes, replies(GOOD))) as (world, server),
            raw_server(tunnels_to(server)) as proxy,
        ):
            accepted = await world.accept_in(Form.LOCAL, title="Lead")
            process = through(world, proxy_at(proxy))
            await world.send(accepted, process)
            await world.read_back(accepted, process)
            status = await world.status(accepted)

        assert status == "succeeded"
        assert proxy.connections == server.connections == 2
        assert patches(server) == 1


# --- HTTP-08 ---------------------------------------------------------------------------------


async def test_http_08_a_gateways_502_proves_nothing_and_a_read_finds_out(
    store: Database,
) -> None:
    """The provider has done it; the record says so, and the attempt stays what it was (C268)."""
    wanted, role = expected("HTTP-08"), given("HTTP-08")["role"]
    record = {"id": "501", "set": {"role": "before"}, "changed_ms": 0}

    async def script(call: Call) -> None:
        request = await call.read_request()
        if request.startswith(b"PATCH"):
            record["set"] = json.loads(request.partition(b"\r\n\r\n")[2])["set"]
            page = b"<html>Bad gateway</html>"
            await call.send(answer(given("HTTP-08")["answer"], page, "Server: some-gateway"))
        else:
            await call.send(answer(body=json.dumps(record).encode()))

    async with at_a_raw_server(store, script) as (world, server):
        accepted = await world.accept_in(Form.LOCAL, title=role)
        end = await world.send(accepted)
        await world.read_back(accepted)
        (attempt,) = await world.attempts(accepted)
        execution = await world.execution(accepted)

    assert end.attempt.outcome == attempt.outcome == wanted["outcome"]
    assert attempt.response_status == 502
    assert attempt.phases == end.attempt.phases
    assert execution.status == wanted["execution"]
    assert patches(server) == wanted["patches"]


# --- HTTP-10 and HTTP-11 ---------------------------------------------------------------------


async def test_http_10_a_redirect_is_not_followed_to_a_success(store: Database) -> None:
    """The address is wrong and a person mends it; they are shown the host and no more (C240)."""
    wanted = expected("HTTP-10")
    async with raw_server(replies(GOOD)) as other:
        location = f"Location: http://127.0.0.1:{other.port}/records/501?token=secret"
        moved = replies(answer(given("HTTP-10")["answer"], b"", location))
        async with at_a_raw_server(store, moved) as (world, server):
            accepted = await world.accept_in(Form.LOCAL)
            end = await world.send(accepted)
            await server.was_left_alone()
            await other.was_left_alone()

    assert end.attempt.outcome == wanted["outcome"]
    assert end.attempt.failure_class == wanted["failure_class"]
    assert (end.item.state, end.execution.status) == (wanted["item"], "failed")
    assert (server.connections, server.requests_seen) == (wanted["requests"], 1)
    assert other.connections == wanted["at_the_other"]
    assert end.attempt.phases["redirect_host"] == "127.0.0.1"
    assert "secret" not in json.dumps(end.attempt.phases)


@pytest.mark.parametrize("status", given("HTTP-11")["statuses"])
@pytest.mark.parametrize("to", given("HTTP-11")["to"])
async def test_http_11_no_credential_goes_where_a_redirect_points(
    tmp_path: Path, status: int, to: str
) -> None:
    """A followed redirect is a second call outside of what was frozen (C240, C242)."""
    serving, trusting = tls_pair(tmp_path, host="wire.invalid")
    is_secure = to == "the same host in plain HTTP"

    async def resolver(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    async with raw_server(replies(GOOD)) as sink:
        where = {
            "another host": f"http://sink.invalid:{sink.port}/collect",
            "the same host in plain HTTP": f"http://wire.invalid:{sink.port}/records/501",
            "a host with userinfo before it": f"//wire.invalid@127.0.0.1:{sink.port}/",
        }[to]
        moved = replies(answer(f"{status} Elsewhere", b"", f"Location: {where}"))
        async with raw_server(moved, tls=serving if is_secure else None) as server:
            scheme = "https" if is_secure else "http"
            result = await http_once(
                request_to(
                    server,
                    base_url=f"{scheme}://wire.invalid:{server.port}",
                    authorization=SECRET,
                    headers={"X-Api-Key": "k3y"},
                ),
                deadline=SendDeadline.anchor(5_000),
                policy=LOCAL,
                tls=trusting,
                resolver=resolver,
            )
            await server.was_left_alone()
            await sink.was_left_alone()

    wanted = expected("HTTP-11")
    end = judged(operation(), result)
    if status in {301, 307, 308}:
        assert end.outcome == wanted["never_followed"]
        assert end.failure_class == wanted["failure_class"]
    else:
        assert end.outcome == wanted["undeclared"]
    assert server.requests_seen == 1
    assert sink.connections == wanted["at_the_sink"]
    assert result.redirect_host in {"sink.invalid", "wire.invalid", "127.0.0.1"}


# --- HTTP-13 and HTTP-14 ---------------------------------------------------------------------


async def test_http_13_less_than_was_announced_is_no_success(store: Database) -> None:
    """What came is kept as a hint for whoever looks; nothing is sent again (C246)."""
    told, wanted = given("HTTP-13"), expected("HTTP-13")
    short = replies(answer(body=told["body"].encode(), length=told["length"]))
    async with at_a_raw_server(store, short) as (world, server):
        accepted = await world.accept_in(Form.LOCAL)
        end = await world.send(accepted)
        await in_flight_no_more(world, accepted)

        assert end.attempt.outcome == wanted["outcome"]
        assert end.attempt.response_status == wanted["kept_status"]
        assert end.attempt.phases["fault"] == "lost"
        assert patches(server) == len(await world.attempts(accepted)) == wanted["attempts"]


@pytest.mark.parametrize("ends", given("HTTP-14")["ends"])
async def test_http_14_chunks_without_their_last_are_no_success(store: Database, ends: str) -> None:
    """That the document is whole so far does not say that it was to end there (C246)."""
    body = given("HTTP-14")["body"].encode()
    head = (
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    chunk = b"%x\r\n%b\r\n" % (len(body), body)

    async def script(call: Call) -> None:
        await call.read_request()
        await call.send(head + chunk + (b"0\r\n" if ends == "half a last chunk" else b""))
        if ends == "RST":
            call.reset()

    async with at_a_raw_server(store, script) as (world, server):
        end = await world.send(await world.accept_in(Form.LOCAL))

    assert end.attempt.outcome == expected("HTTP-14")["outcome"]
    assert end.execution.status == "unknown"
    assert patches(server) == 1


# --- HTTP-16 and HTTP-17 ---------------------------------------------------------------------


@pytest.mark.parametrize("what", given("HTTP-16"))
@pytest.mark.parametrize("declared", ["declared", "undeclared"])
async def test_http_16_an_error_in_a_success_is_never_accepted(
    store: Database, what: str, declared: str
) -> None:
    """Only a pack can say that it is a refusal; otherwise somebody has to look (C246)."""
    body = given("HTTP-16")[what].encode()
    said = answer(body=body)
    if what == "page":
        said = said.replace(b"application/json", b"text/html")
    spoken = dialect(more=REFUSES_IN_A_SUCCESS if declared == "declared" else "")
    async with at_a_raw_server(store, replies(said), spoken=spoken) as (world, server):
        end = await world.send(await world.accept_in(Form.LOCAL))

    assert end.attempt.outcome == expected("HTTP-16")[declared][what]
    assert end.execution.status in {"failed", "unknown"}
    assert patches(server) == 1


class TestHTTP17:
    async def test_http_17_each_input_has_the_outcome_of_its_own_id(self) -> None:
        """Done, failed, and of the third nothing was said (C246)."""
        said = json.dumps(given("HTTP-17")["answer"]).encode()
        bound = operation(*TELLS_ITEMS_APART, more=WHERE_ITEMS_ARE)
        async with raw_server(replies(answer("207 Multi-Status", said))) as server:
            result = await send(server, target="/records/batch")

        for item in given("HTTP-17")["inputs"]:
            end = judged(bound, result, remote_id=item, is_only_input=False)
            assert end.outcome == expected("HTTP-17")[item]
        assert server.requests_seen == 1

    async def test_http_17_an_error_alone_is_about_the_only_input(self, store: Database) -> None:
        """A request for one record has nobody else whom the error could be about."""
        said = json.dumps(given("HTTP-17")["alone"]).encode()
        spoken = dialect(*TELLS_ITEMS_APART, more=WHERE_ITEMS_ARE)
        script = replies(answer("207 Multi-Status", said))
        async with at_a_raw_server(store, script, spoken=spoken) as (world, _):
            end = await world.send(await world.accept_in(Form.LOCAL))

        assert end.attempt.outcome == expected("HTTP-17")["alone"]

    async def test_http_17_half_an_answer_accepts_nobody(self) -> None:
        """What was cut off may be the error about the one that stands there as done."""
        said = json.dumps(given("HTTP-17")["answer"]).encode()
        short = replies(answer("207 Multi-Status", said, length=len(said) + 1))
        async with raw_server(short) as server:
            result = await send(server)

        bound = operation(*TELLS_ITEMS_APART, more=WHERE_ITEMS_ARE)
        for item in given("HTTP-17")["inputs"]:
            end = judged(bound, result, remote_id=item, is_only_input=False)
            assert end.outcome is Outcome.OUTCOME_UNKNOWN


# --- HTTP-19 ---------------------------------------------------------------------------------


@pytest.mark.parametrize("declared", ["declared", "undeclared"])
async def test_http_19_a_close_after_204_is_not_the_next_requests_fault(
    store: Database, declared: str
) -> None:
    """Each has a connection of its own; whether 204 is a success is the pack's to say (C241)."""
    wanted = expected("HTTP-19")
    nothing = replies(b"HTTP/1.1 204 No Content\r\nConnection: keep-alive\r\n\r\n")
    spoken, second = dialect(), replies(answer(body=b'{"id": "502"}'))
    if declared == "declared":
        spoken, second = dialect(*IS_DONE_WITHOUT_A_BODY), nothing
    async with at_a_raw_server(store, in_turn(nothing, second), spoken=spoken) as (world, server):
        both = [await world.accept_in(Form.LOCAL, f"lead-{n}") for n in (1, 2)]
        ends = [await world.send(accepted) for accepted in both]
        await server.was_left_alone()

    assert [end.attempt.outcome for end in ends] == [wanted[declared], wanted["next"]]
    assert [bytes(part).count(b"PATCH") for part in server.received] == wanted["requests"]
    assert server.connections == wanted["connections"]


# --- HTTP-20 ---------------------------------------------------------------------------------


class TestHTTP20:
    async def test_http_20_http_2_is_not_offered(self) -> None:
        """Read from the first bytes of the handshake: there is no stream to be refused (C240)."""

        async def script(call: Call) -> None:
            while len(call.received) < (length_of_hello(bytes(call.received)) or 6):
                call.received += await call.reader.read(65_536)

        async with raw_server(script) as server:
            await http_once(
                request_to(server, base_url=f"https://127.0.0.1:{server.port}"),
                deadline=SendDeadline.anchor(2_000),
                policy=LOCAL,
            )

        hello = read_client_hello(bytes(server.received[0]))
        assert list(hello.protocols) == expected("HTTP-20")["offered"]

    @pytest.mark.parametrize("what", given("HTTP-20")["frames"])
    async def test_http_20_frames_that_come_all_the_same_prove_nothing(
        self, store: Database, what: str
    ) -> None:
        """They belong to a protocol that was not spoken, and nobody sends again for them."""
        frames = bytes.fromhex("000000040000000000" + given("HTTP-20")["frames"][what])

        async with at_a_raw_server(store, in_turn(replies(frames), replies(GOOD))) as (
            world,
            server,
        ):
            end = await world.send(await world.accept_in(Form.LOCAL))
            await server.was_left_alone()

        assert end.attempt.outcome == expected("HTTP-20")["outcome"]
        assert server.requests_seen == expected("HTTP-20")["requests"]


# --- HTTP-22 ---------------------------------------------------------------------------------


@pytest.mark.parametrize("drip", given("HTTP-22")["drips"])
async def test_http_22_a_drip_ends_with_the_total_deadline(store: Database, drip: str) -> None:
    """The starter itself settles it, under a lease that outlives the deadline (C207, C240)."""
    told, wanted = given("HTTP-22"), expected("HTTP-22")
    gone: list[bool] = []

    async def script(call: Call) -> None:
        await call.read_request()
        if drip == "body":
            await call.send(answer(length=9_999))
        pause = told["just_in_time_s"] if drip == "just in time" else told["pause_s"]
        while not await call.client_is_gone(within_seconds=pause):
            await call.send(b" " if drip == "body" else b"H")
        gone.append(True)

    async with at_a_raw_server(store, script, local_ms=told["deadline_ms"]) as (world, server):
        accepted = await world.accept_in(Form.LOCAL)
        started = asyncio.get_running_loop().time()
        end = await world.send(accepted)
        seconds = asyncio.get_running_loop().time() - started
        await asyncio.wait_for(server.finished.wait(), 5)

    assert end.attempt.outcome == wanted["outcome"]
    assert end.run.verdict == "settled", "by the starter: its fence was not lost"
    assert seconds < told["deadline_ms"] / 1000 + wanted["over_at_most_s"]
    assert gone == [True]


# --- HTTP-23 ---------------------------------------------------------------------------------


def floods(what: str) -> Script:
    piece = b"x" * 65_536
    head = {
        "length": "200 OK\r\nContent-Type: application/json\r\nContent-Length: 5000000000",
        "chunks": "200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked",
        "refusal": "422 No\r\nContent-Type: text/plain\r\nContent-Length: 200000000",
    }
    if what == "bomb":
        unfolds = gzip.compress(b" " * 30_000_000)
        return replies(answer("200 OK", unfolds, "Content-Encoding: gzip"))
    if what == "chunks":
        piece = b"%x\r\n%b\r\n" % (len(piece), piece)

    async def script(call: Call) -> None:
        await call.read_request()
        await call.send(f"HTTP/1.1 {head[what]}\r\n\r\n".encode())
        while not call.writer.is_closing():
            await call.send(piece)

    return script


class TestHTTP23:
    @pytest.mark.parametrize("what", given("HTTP-23")["answers"])
    async def test_http_23_no_more_is_taken_in_than_the_limit(
        self, store: Database, what: str
    ) -> None:
        """A refusal is said by its status; a success lies in the part that was not read (C246)."""
        async with at_a_raw_server(store, floods(what), local_ms=5_000) as (world, server):
            end = await world.send(await world.accept_in(Form.LOCAL))

        assert end.attempt.outcome == expected("HTTP-23")[what]
        assert end.attempt.phases["bytes_in"] < 2 * given("HTTP-23")["limit"]
        assert end.attempt.phases["fault"] == ("encoded" if what == "bomb" else "too_large")
        assert patches(server) == 1

    @pytest.mark.parametrize("what", given("HTTP-23")["answers"])
    async def test_http_23_memory_stays_flat(self, what: str) -> None:
        """The limit is one of memory too, and not only of what is kept."""
        limit = given("HTTP-23")["limit"]
        async with raw_server(floods(what)) as server:
            await send(server)
            tracemalloc.start()
            try:
                result = await send(server, response_limit_bytes=limit)
                _, peak = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()

        assert len(result.body or b"") <= limit
        assert peak < expected("HTTP-23")["memory_bytes_at_most"]

    @pytest.mark.parametrize("piece", [b"1\r\nx\r\n", b"ffff\r\n" + b"x" * 0xFFFF + b"\r\n"])
    async def test_http_23_others_go_on_meanwhile(self, piece: bytes) -> None:
        """Reading a flood is work of this process, and others have their turn in between."""

        async def script(call: Call) -> None:
            await call.read_request()
            await call.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            while not call.writer.is_closing():
                await call.send(piece * (1 + 65_536 // len(piece)))

        turns = 0
        async with raw_server(script) as flooding:
            flood = asyncio.create_task(send(flooding))
            while not flood.done():
                await asyncio.sleep(0)
                turns += 1

        assert not flood.result().complete
        assert turns >= expected("HTTP-23")["turns_of_others_at_least"]
