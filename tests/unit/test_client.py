"""What the client makes of answers, faults and its own settings."""

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from oncefence.app.client import (
    TRIES_MAX,
    DoorAnswer,
    DoorLine,
    DoorUnavailable,
    HandoffRefused,
    RuntimeClient,
)
from oncefence.domain.errors import ConfigurationRefused, Refused, Unknown
from oncefence.domain.redaction import Secret

CREDENTIAL = "ofc1_canary-credential"
SCOPE = {
    "org": "acme",
    "installation": "crm",
    "capability": "titles",
    "work_binding_digest": "ab" * 32,
}
KEY = f"ehk1.acme.crm.titles.{'ab' * 32}.outbox-1"
ACCEPTED = {
    "receipt_version": 1,
    "admission": "COMMAND_ACCEPTED",
    "handoff_key": KEY,
    "admitted_at": "2026-01-02T03:04:05.000006Z",
    "command_id": "9f820dc3-9abd-8a07-8e89-162e47ef4f92",
    "execution_id": "166910b2-5a53-88bf-8222-45b4cde24209",
}
UNAVAILABLE = httpx.Response(503, headers={"Retry-After": "2"})

Answer = httpx.Response | Exception


class Door:
    """Answers what it is told, one after the other, and keeps what it was asked."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.asked: list[httpx.Request] = []
        self.pauses: list[float] = []

    def handle(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return httpx.Response(answer.status_code, headers=answer.headers, content=answer.content)

    async def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)

    def client(self) -> RuntimeClient:
        return RuntimeClient(
            "http://door.invalid/prefix",
            CREDENTIAL,
            transport=httpx.MockTransport(self.handle),
            pause=self.pause,
        )

    def line(self) -> DoorLine:
        return DoorLine(
            "http://door.invalid",
            Secret(CREDENTIAL),
            transport=httpx.MockTransport(self.handle),
            pause=self.pause,
        )


def says(body: Any, status: int = 200) -> httpx.Response:
    return httpx.Response(status, json=body)


class TestRepeating:
    @pytest.mark.parametrize(
        "fault",
        [
            httpx.ConnectError("refused"),
            httpx.ReadError("reset"),
            httpx.WriteError("reset"),
            httpx.RemoteProtocolError("cut"),
            httpx.ConnectTimeout("late"),
            httpx.ReadTimeout("late"),
            httpx.PoolTimeout("late"),
            httpx.Response(502, text="<html>"),
            httpx.Response(504),
            httpx.Response(429),
            UNAVAILABLE,
        ],
    )
    async def test_goes_on_until_there_is_an_answer(self, fault: Answer) -> None:
        """No answer says nothing about what happened, and a repeat cannot do it twice."""
        door = Door(fault, fault, says(SCOPE))

        async with door.client() as client:
            scope = await client.scope()

        assert scope.org == "acme"
        assert len({(each.method, each.url, each.content) for each in door.asked}) == 1
        assert len(door.asked) == 3

    async def test_is_bounded(self) -> None:
        """A Runtime's worker must get its thread of work back."""
        door = Door(httpx.ReadTimeout("late"))

        async with door.client() as client:
            with pytest.raises(DoorUnavailable) as caught:
                await client.scope()

        assert len(door.asked) == 5
        assert "ReadTimeout at http://door.invalid/prefix/, 5 times" in str(caught.value)
        assert "the same call is safe to repeat" in str(caught.value)

    async def test_pauses_longer_each_time(self) -> None:
        """A door that is down is not hammered."""
        door = Door(httpx.ConnectError("refused"))

        async with door.client() as client:
            with pytest.raises(DoorUnavailable):
                await client.scope()

        assert door.pauses == sorted(door.pauses)
        assert 0.1 <= door.pauses[0] <= 0.2
        assert 0.8 <= door.pauses[-1] <= 1.6

    @pytest.mark.parametrize(
        ("asked", "lowest", "highest"),
        [("0", 0, 0), ("2", 2, 2), ("3600", 5, 5), ("-1", 0.1, 0.2), ("soon", 0.1, 0.2)],
    )
    async def test_waits_as_asked_within_reason(
        self, asked: str, lowest: float, highest: float
    ) -> None:
        """A wrong header cannot put a worker to sleep for a day."""
        door = Door(httpx.Response(503, headers={"Retry-After": asked}), says(SCOPE))

        async with door.client() as client:
            await client.scope()

        assert lowest <= door.pauses[0] <= highest

    async def test_of_a_handoff_carries_the_same_key(self) -> None:
        """Another key would be another command."""
        staged = says({"payload_digest": "ab" * 32, "size_bytes": 2})
        door = Door(says(SCOPE), staged, UNAVAILABLE, httpx.ReadError("reset"), says(ACCEPTED, 201))

        async with door.client() as client:
            receipt = await client.hand_over("outbox-1", "lead.title.push", "lead-1", b"{}")

        posted = [json.loads(each.content) for each in door.asked if each.method == "POST"]
        assert [body["handoff_key"] for body in posted] == [KEY] * 3
        assert (str(receipt.key), receipt.is_new) == (KEY, True)
        assert door.pauses[0] == 2


class TestWhatMayNotBeRepeated:
    """An operator's act: what it names may have moved because the first one was done (C406)."""

    @pytest.mark.parametrize(
        "fault",
        [
            httpx.ReadError("gone"),
            httpx.ReadTimeout("slow"),
            httpx.WriteError("gone"),
            httpx.RemoteProtocolError("gone"),
            UNAVAILABLE,
        ],
    )
    async def test_is_asked_once_where_it_may_have_arrived(self, fault: Answer) -> None:
        """The answer was lost, and not the act."""
        door = Door(fault, says({}))

        with pytest.raises(DoorUnavailable, match="1 times"):
            await door.line().call("act", "POST", "/act", may_repeat=False)

        assert len(door.asked) == 1

    @pytest.mark.parametrize("fault", [httpx.ConnectError("no"), httpx.ConnectTimeout("no")])
    async def test_is_asked_again_where_nothing_was_sent(self, fault: Answer) -> None:
        """Without a connection there was no act; a restart of the doors is ridden out."""
        door = Door(fault, fault, says({"done": 1}))

        answer = await door.line().call("act", "POST", "/act", may_repeat=False)

        assert answer == DoorAnswer(status=200, content=b'{"done":1}')
        assert (len(door.asked), len(door.pauses)) == (3, 2)

    async def test_is_given_up_after_a_few_tries(self) -> None:
        """A door that is not there is told."""
        door = Door(httpx.ConnectError("no"))

        with pytest.raises(DoorUnavailable, match="ConnectError"):
            await door.line().call("act", "POST", "/act", may_repeat=False)

        assert len(door.asked) == TRIES_MAX

    def test_shows_no_answer_in_a_log(self) -> None:
        """The answer to a new operator holds its token (C407)."""
        assert "ofo1_x" not in repr(DoorAnswer(status=201, content=b'{"token": "ofo1_x"}'))


class TestAnAnswer:
    @pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 413, 422])
    async def test_that_refuses_is_a_refusal_at_once(self, status: int) -> None:
        """A rule said no, and asking again changes nothing."""
        door = Door(
            says(
                {
                    "type": "urn:oncefence:problem:a_code",
                    "title": "Title",
                    "status": status,
                    "detail": "what to do",
                    "code": "a_code",
                    "new_member": 1,
                },
                status,
            )
        )

        async with door.client() as client:
            with pytest.raises(HandoffRefused) as caught:
                await client.scope()

        assert isinstance(caught.value, Refused)
        assert (caught.value.status, caught.value.code, caught.value.detail) == (
            status,
            "a_code",
            "what to do",
        )
        assert len(door.asked) == 1

    @pytest.mark.parametrize(
        "answer",
        [
            httpx.Response(200, text="<html>welcome</html>"),
            httpx.Response(200, json={}),
            httpx.Response(204),
            httpx.Response(302, headers={"Location": "http://elsewhere.invalid/"}),
            httpx.Response(404, text="<html>not here</html>"),
            httpx.Response(500, json={"detail": "something failed here"}),
        ],
    )
    async def test_of_something_else_proves_nothing(self, answer: httpx.Response) -> None:
        """A proxy's page is neither an acceptance nor a refusal, and is never followed."""
        for ask in _every_question():
            door = Door(answer)
            async with door.client() as client:
                with pytest.raises(DoorUnavailable, match="not a door's") as caught:
                    await ask(client)

            assert isinstance(caught.value, Unknown)
            assert {each.url.host for each in door.asked} == {"door.invalid"}

    async def test_about_another_key_is_not_believed(self) -> None:
        """A receipt for something else must not end an outbox entry."""
        other = ACCEPTED | {"handoff_key": KEY + "0"}
        door = Door(says(SCOPE), says({"payload_digest": "", "size_bytes": 0}), says(other))

        async with door.client() as client:
            with pytest.raises(DoorUnavailable, match="another handoff key"):
                await client.hand_over("outbox-1", "lead.title.push", "lead-1", b"{}")

    async def test_may_know_more_than_the_client(self) -> None:
        """A newer door adds members, and an older client passes over them."""
        door = Door(says(SCOPE | {"region": "eu"}))

        async with door.client() as client:
            assert (await client.scope()).capability == "titles"


def _every_question() -> list[Callable[[RuntimeClient], Any]]:
    return [
        lambda client: client.scope(),
        lambda client: client.put_payload(b"{}"),
        lambda client: client.hand_over("outbox-1", "lead.title.push", "lead-1", b"{}"),
    ]


class TestTheCredential:
    async def test_goes_into_one_header_and_nowhere_else(self) -> None:
        """It can be used and not be seen (C444)."""
        door = Door(httpx.ReadError(f"Bearer {CREDENTIAL}"))
        client = door.client()

        async with client:
            with pytest.raises(DoorUnavailable) as caught:
                await client.scope()

        assert door.asked[0].headers["authorization"] == f"Bearer {CREDENTIAL}"
        assert str(door.asked[0].url) == "http://door.invalid/prefix/v1/scope"
        for told in (repr(client), str(client), str(caught.value), repr(caught.value)):
            assert CREDENTIAL not in told
        assert CREDENTIAL not in str(vars(client))

    @pytest.mark.parametrize("text", [f"{CREDENTIAL}\n", f" {CREDENTIAL}", "", "é", "a\0b"])
    def test_that_cannot_be_one_is_refused_unseen(self, text: str) -> None:
        """The library's own complaint about a bad header would print it."""
        with pytest.raises(ConfigurationRefused, match="runtime register") as caught:
            RuntimeClient("http://door.invalid", text)

        assert CREDENTIAL not in str(caught.value)

    def test_may_come_as_a_secret(self) -> None:
        """Whoever holds one need not open it."""
        RuntimeClient("http://door.invalid", Secret(CREDENTIAL))


@pytest.mark.parametrize(
    "url",
    ["", "door.invalid", "ftp://door.invalid", "http://", "http://user:pass@door.invalid",
     "http://door.invalid?x=1", "http://[::1"],
)  # fmt: skip
def test_an_address_that_is_none_is_refused(url: str) -> None:
    """One message that says which setting to correct (C12)."""
    with pytest.raises(ConfigurationRefused, match="ONCEFENCE_URL"):
        RuntimeClient(url, CREDENTIAL)
