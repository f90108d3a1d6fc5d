"""The Python client against a real door."""

import asyncio
from uuid import uuid4

import httpx
import pytest

from oncefence.app.client import (
    DoorUnavailable,
    ExecutionStillOpen,
    HandoffRefused,
    RuntimeClient,
)
from oncefence.domain.effect import Outcome
from oncefence.domain.handoff import Admission, EffectHandoffKey, payload_digest
from oncefence.domain.ids import ExecutionId, OutboxId
from tests.support.doors import OTHER_PAYLOAD, PAYLOAD, SUBJECT, OpenDoor
from tests.support.world import OPERATION, World, an_end, scope_of

IDS = ["outbox-1", "urn:änderung/№ 1 😀", "a.b"]


@pytest.fixture
async def runtime(door: OpenDoor, world: World) -> RuntimeClient:
    return RuntimeClient(door.url + "/", world.credential)


class TestHandingOver:
    async def test_makes_one_command_of_an_outbox_entry(
        self, runtime: RuntimeClient, world: World
    ) -> None:
        """Whatever its id is made of, an entry handed over twice is one command (C131, C139)."""
        async with runtime:
            for outbox in IDS:
                first = await runtime.hand_over(outbox, OPERATION, SUBJECT, PAYLOAD)
                again = await runtime.hand_over(outbox, OPERATION, SUBJECT, PAYLOAD)

                assert (first.admission, first.is_new) == (Admission.COMMAND_ACCEPTED, True)
                assert (again.command, again.execution) == (first.command, first.execution)
                assert not again.is_new
                assert first.key == await runtime.key_for(outbox)
                assert await runtime.admission(first.key) == again

        assert await world.count("commands") == len(IDS)

    async def test_that_is_refused_says_why(self, runtime: RuntimeClient, world: World) -> None:
        """A program decides by the code and a person by the detail."""
        async with runtime:
            await runtime.hand_over("outbox-1", OPERATION, SUBJECT, PAYLOAD)
            refused = [
                ("outbox-1", OPERATION, SUBJECT, OTHER_PAYLOAD, 409, "handoff_conflict"),
                ("b", "lead.title.pull", SUBJECT, PAYLOAD, 422, "no_such_target"),
                ("b", OPERATION, "nobody", PAYLOAD, 422, "no_such_target"),
                ("b", OPERATION, SUBJECT, b"{}", 422, "payload_refused"),
                ("b", OPERATION, SUBJECT, b" " * 262_145, 413, "body_too_large"),
                ("", OPERATION, SUBJECT, PAYLOAD, 422, "body_invalid"),
                ("a\0b", OPERATION, SUBJECT, PAYLOAD, 400, "json_refused"),
                ("a\ud800b", OPERATION, SUBJECT, PAYLOAD, 400, "json_refused"),
            ]
            for outbox, operation, subject, payload, status, code in refused:
                with pytest.raises(HandoffRefused) as caught:
                    await runtime.hand_over(outbox, operation, subject, payload)
                assert (caught.value.status, caught.value.code) == (status, code)
                assert caught.value.detail in str(caught.value)

        assert await world.count("commands") == 1

    async def test_from_many_tasks_at_once_makes_one_command(
        self, runtime: RuntimeClient, world: World
    ) -> None:
        """A Runtime may have more than one worker on its outbox."""
        async with runtime:
            receipts = await asyncio.gather(
                *(runtime.hand_over("outbox-1", OPERATION, SUBJECT, PAYLOAD) for _ in range(8))
            )

        assert len({receipt.command for receipt in receipts}) == 1
        assert sum(receipt.is_new for receipt in receipts) == 1
        assert await world.count("commands") == 1

    async def test_with_a_credential_of_nobody_is_refused(self, door: OpenDoor) -> None:
        """And the refusal does not repeat the credential."""
        async with RuntimeClient(door.url, "ofc1_nobody") as stranger:
            with pytest.raises(HandoffRefused) as caught:
                await stranger.hand_over("outbox-1", OPERATION, SUBJECT, PAYLOAD)

        assert (caught.value.status, caught.value.code) == (401, "credential_unknown")
        assert "ofc1_nobody" not in str(caught.value) + repr(caught.value)


class TestRejecting:
    async def test_proves_that_an_entry_is_no_command(
        self, runtime: RuntimeClient, world: World
    ) -> None:
        """The receipt of the rejection is what lets a Runtime drop the entry (C128)."""
        async with runtime:
            key = await runtime.key_for("outbox-1")
            before = await runtime.admission(key)
            told = await runtime.reject("outbox-1", payload_digest(PAYLOAD), reason="withdrawn")
            with pytest.raises(HandoffRefused) as caught:
                await runtime.hand_over("outbox-1", OPERATION, SUBJECT, PAYLOAD)

            assert before is None
            assert (told.admission, told.reason) == (Admission.HANDOFF_REJECTED, "withdrawn")
            assert await runtime.admission(key) == told
            assert caught.value.code == "handoff_already_rejected"

    async def test_of_an_accepted_entry_gives_its_command(self, runtime: RuntimeClient) -> None:
        """Acceptance came first, and the caller learns it."""
        async with runtime:
            accepted = await runtime.hand_over("outbox-1", OPERATION, SUBJECT, PAYLOAD)
            told = await runtime.reject("outbox-1", payload_digest(PAYLOAD))

        assert (told.admission, told.command) == (accepted.admission, accepted.command)

    async def test_of_another_scopes_key_is_refused(self, runtime: RuntimeClient) -> None:
        """The client asks the door and adds no judgement of its own (C125)."""
        theirs = EffectHandoffKey.for_outbox(scope_of("umbrella"), OutboxId("outbox-1"))
        async with runtime:
            with pytest.raises(HandoffRefused) as caught:
                await runtime.admission(theirs)

        assert (caught.value.status, caught.value.code) == (403, "scope_refused")


class TestWaiting:
    async def test_ends_when_the_execution_does(self, runtime: RuntimeClient, world: World) -> None:
        """The report is the final one."""
        accepted, started = await world.a_running_command()
        async with runtime:
            waiting = asyncio.create_task(runtime.wait(accepted.execution, timeout_seconds=20))
            assert (await runtime.execution(accepted.execution)).status == "running"
            await world.settle(started, an_end(Outcome.REJECTED, may_have_applied=False))

            report = await waiting

        assert (report.status, report.effect) == ("failed", "refused_by_provider")

    async def test_ends_when_only_a_person_can_go_on(
        self, runtime: RuntimeClient, world: World
    ) -> None:
        """Nothing that the caller could wait for will come by itself."""
        accepted, _ = await world.a_command_for_a_person()
        async with runtime:
            report = await runtime.wait(accepted.execution, timeout_seconds=20)

        assert report.status == "needs_attention"

    async def test_that_is_over_too_early_says_where_it_stands(
        self, runtime: RuntimeClient, world: World
    ) -> None:
        """A wait is no deadline: the execution goes on, and one asks again."""
        accepted = await world.accept_command()
        async with runtime:
            with pytest.raises(ExecutionStillOpen, match="still accepted") as caught:
                await runtime.wait(accepted.execution, timeout_seconds=0.05)

        assert caught.value.report.execution_id == accepted.execution

    async def test_for_nothing_is_refused(self, runtime: RuntimeClient) -> None:
        """An id of nothing never ends, so it is said at once."""
        async with runtime:
            with pytest.raises(HandoffRefused) as caught:
                await runtime.wait(ExecutionId(uuid4()), timeout_seconds=20)

        assert caught.value.code == "not_found"


class _LostAnswers(httpx.AsyncBaseTransport):
    """Every request reaches the door, and the first answer of each address is lost."""

    def __init__(self) -> None:
        self.below = httpx.AsyncHTTPTransport()
        self.lost: list[str] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await self.below.handle_async_request(request)
        await response.aread()
        if request.url.path not in self.lost:
            self.lost.append(request.url.path)
            raise httpx.ReadError("the answer was lost")
        return response

    async def aclose(self) -> None:
        await self.below.aclose()


async def test_answers_that_are_lost_after_acceptance_are_asked_for_again(
    door: OpenDoor, world: World
) -> None:
    """The repeat carries the same key, so the command that was made is found again (C131)."""

    async def no_pause(_: float) -> None:
        await asyncio.sleep(0)

    transport = _LostAnswers()
    async with RuntimeClient(
        door.url, world.credential, transport=transport, pause=no_pause
    ) as runtime:
        receipt = await runtime.hand_over("outbox-1", OPERATION, SUBJECT, PAYLOAD)

    assert not receipt.is_new
    assert "/v1/handoffs" in transport.lost
    assert await world.count("commands") == 1


async def test_a_door_that_is_closed_is_unavailable() -> None:
    """After a few tries the caller is told that nothing is known."""
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    # Nothing listens on the port of discarded bytes.
    async with RuntimeClient("http://127.0.0.1:9", "ofc1_any", pause=pause) as runtime:
        with pytest.raises(
            DoorUnavailable, match=r"no door was reached \(ConnectError at .*, 5 times"
        ):
            await runtime.scope()

    assert len(pauses) == 4
