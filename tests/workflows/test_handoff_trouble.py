"""The Temporal door in trouble: junk, buttons, outages, and what is kept of all that."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client, WorkflowExecutionStatus

from oncefence.app.temporal_client import DoorUnavailable, HandoffRefused, TemporalRuntimeClient
from oncefence.domain.handoff import Admission, EffectHandoffKey, payload_digest
from oncefence.domain.ids import OutboxId, command_id
from oncefence.domain.signature import HandoffVerb
from oncefence.storage.phases.stage_payload import stage_payload
from oncefence.workflows import policies
from oncefence.workflows.handoff import ACCEPT_WITHOUT_RECEIPT
from tests.providers.simulated import Simulated
from tests.support.servers import Database
from tests.support.station import new_queue, until
from tests.workflows.gate import Gate, command_of, gate, http_door
from tests.workflows.store_link import StoreLink, linked_engine
from tests.workflows.watching import patches

pytestmark = pytest.mark.asyncio(loop_scope="module")

REJECT = HandoffVerb.REJECT_IF_UNACCEPTED
CANARY = "Canary-Zeta-7731"
UPDATE_ACCEPTED = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED
UPDATE_COMPLETED = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_COMPLETED


class TestWithoutReceipt:
    """Signals: taken when they are in order, and harmless when they are not."""

    async def test_a_signalled_handoff_is_found_by_its_key(
        self, store: Database, client: Client, simulator: Simulated
    ) -> None:
        """No receipt comes, so the Runtime asks any door what the key came to (C138)."""
        async with gate(store, client, simulator) as here:
            handover = await here.world.offer()

            key = await here.door.hand_over_without_receipt(
                handover.outbox, handover.operation, handover.subject, handover.digest
            )

            assert key == handover.key
            async with http_door(here) as http:
                found = await until(lambda: http.admission(key), what="an admission")
            assert found.admission is Admission.COMMAND_ACCEPTED
            accepted = command_of(handover, found)
            assert await here.world.settled(accepted) == ["succeeded"]
            assert patches(simulator, accepted) == 1

    async def test_junk_is_passed_over(
        self, store: Database, client: Client, simulator: Simulated
    ) -> None:
        """Whoever reaches Temporal can signal; that must neither act nor spoil a key (C382)."""
        async with gate(store, client, simulator) as here:
            handover = await here.world.offer()
            good = here.message(handover)
            stranger = here.signing_with(Ed25519PrivateKey.generate())

            await here.signal(handover.key, "no-such-signal", {"a": 1})
            for words in (
                (),
                (7,),
                (None,),
                (b"\xff",),
                (good, good),
                ({"handoff_key": None},),
                (replace(good, signature="junk"),),
                (here.message(handover, REJECT),),
                (here.message(handover, signed_for=REJECT),),
                (stranger.message(handover),),
            ):
                await here.signal(handover.key, ACCEPT_WITHOUT_RECEIPT, *words)
            rejected = await here.ask(handover, REJECT)

            assert (rejected.admission, rejected.is_new) == (Admission.HANDOFF_REJECTED, True)
            assert list(await here.rows("commands")) == []
            await until(lambda: is_closed(here, handover.key), what="the end of the workflow")
            described = await here.workflow(handover.key).describe()
            assert described.status is WorkflowExecutionStatus.COMPLETED


class TestButtons:
    """Whatever is pressed in Temporal, a key has one admission and its command is sent once."""

    async def test_the_workflow_ends_with_its_answers(
        self, store: Database, client: Client, simulator: Simulated
    ) -> None:
        """It is a door and no record: what it gave is in SQL (C21)."""
        async with gate(store, client, simulator) as here:
            handover = await here.world.offer()
            await here.ask(handover)

            report = await here.workflow(handover.key).result()

            assert report == {"receipts": 1, "refusals": 0}

    async def test_one_that_is_asked_nothing_ends_by_itself(
        self,
        store: Database,
        client: Client,
        simulator: Simulated,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """Workflows that anybody can leave open for ever would fill Temporal."""
        monkeypatch.setattr(policies, "HANDOFF_IDLE", timedelta(seconds=1))
        async with gate(store, client, simulator) as here:
            key = EffectHandoffKey.for_outbox(here.world.caller.scope, OutboxId("nothing"))
            await here.signal(key, "no-such-signal")

            report = await here.workflow(key).result()

            assert report == {"receipts": 0, "refusals": 0}

    async def test_reset_answers_again_and_makes_no_second_command(
        self, store: Database, client: Client, simulator: Simulated
    ) -> None:
        """The update is run again, and finds what the first run wrote (C382)."""
        async with gate(store, client, simulator) as here:
            handover = await here.world.offer()
            receipt = await here.ask(handover)
            accepted = command_of(handover, receipt)
            assert await here.world.settled(accepted) == ["succeeded"]
            assert (await here.workflow(handover.key).result())["receipts"] == 1
            first = (await here.workflow(handover.key).describe()).run_id

            await here.reset(handover.key)

            assert (await here.workflow(handover.key).describe()).run_id != first
            assert await here.workflow(handover.key).result() == {"receipts": 1, "refusals": 0}
            assert len(await here.rows("commands")) == len(await here.rows("work_items")) == 1
            assert patches(simulator, accepted) == 1
            assert await here.ask(handover) == replace(receipt, is_new=False)

    @pytest.mark.parametrize("button", ["terminate", "cancel"])
    async def test_a_workflow_that_is_closed_while_it_is_asked_loses_nothing(
        self, store: Database, client: Client, simulator: Simulated, button: str
    ) -> None:
        """The client asks on by itself, it gets its receipt, and the command is one (C382)."""
        async with (
            linked_engine(store.app_url) as (engine, link),
            gate(store, client, simulator, engine=engine) as here,
        ):
            handover = await here.world.offer()
            link.cut()
            asking = asyncio.create_task(here.ask(handover))
            await was_asked(link)

            await getattr(here.workflow(handover.key), button)()
            link.mend()
            receipt = await asking

            accepted = command_of(handover, receipt)
            assert await here.world.settled(accepted) == ["succeeded"]
            assert len(await here.rows("commands")) == 1
            assert patches(simulator, accepted) == 1


class TestOutages:
    """Silence is not an answer, and is never taken for one."""

    async def test_a_silent_store_is_asked_again(
        self, store: Database, client: Client, simulator: Simulated
    ) -> None:
        """Accepting is safe to repeat, so the Runtime need not even notice (C131)."""
        async with (
            linked_engine(store.app_url) as (engine, link),
            gate(store, client, simulator, engine=engine) as here,
        ):
            handover = await here.world.offer()
            link.cut()
            asking = asyncio.create_task(here.ask(handover))
            await was_asked(link)
            link.mend()

            receipt = await asking

            assert receipt.is_new
            assert len(await here.rows("commands")) == 1

    async def test_a_store_that_stays_silent_is_told_as_unknown(
        self, store: Database, client: Client, simulator: Simulated
    ) -> None:
        """The Runtime keeps its entry and hands it over again (C138)."""
        async with (
            linked_engine(store.app_url) as (engine, link),
            gate(store, client, simulator, engine=engine, timeout_seconds=1.5) as here,
        ):
            handover = await here.world.offer()
            link.cut()

            with pytest.raises(DoorUnavailable, match="safe to repeat"):
                await here.ask(handover)

            link.mend()
            receipt = await here.signing_with(here.private_key).ask(handover)
            assert receipt.command == command_id(str(handover.key))
            assert len(await here.rows("commands")) == 1

    async def test_a_door_that_nobody_serves_is_told_as_unknown(
        self, store: Database, client: Client, simulator: Simulated
    ) -> None:
        """The question may stay with Temporal until a worker comes, so it is no refusal (C138)."""
        async with gate(store, client, simulator) as here:
            handover = await here.world.offer()
            deserted = replace(here, door=deserted_door(here, timeout_seconds=1.0))

            with pytest.raises(DoorUnavailable, match="hand over: no answer"):
                await deserted.ask(handover)

            await here.workflow(handover.key).terminate("a test")

    async def test_whoever_stops_asking_is_let_go(
        self, store: Database, client: Client, simulator: Simulated
    ) -> None:
        """A caller that is cancelled ends at once, and is not told of an outage that was none."""
        async with gate(store, client, simulator) as here:
            handover = await here.world.offer()
            deserted = replace(here, door=deserted_door(here, timeout_seconds=30.0))
            asking = asyncio.create_task(deserted.ask(handover))
            await until(lambda: is_open(here, handover.key), what="a workflow that was started")

            asking.cancel()

            with pytest.raises(asyncio.CancelledError):
                await asking
            await here.workflow(handover.key).terminate("a test")


class TestWhatTemporalKeeps:
    """Identifiers, digests and classifications (C380)."""

    async def test_what_is_not_of_the_form_is_refused_before_it_is_kept(
        self, store: Database, client: Client, simulator: Simulated
    ) -> None:
        """A history is written for long, so the form is judged before anything is in it."""
        async with gate(store, client, simulator) as here:
            handover = await here.world.offer()
            good = here.message(handover)
            texts = {"outbox_id": f"{CANARY}@x", "subject": f"{CANARY} x", "signature": CANARY}

            for member, text in texts.items():
                refusal = await here.refusal_of(replace(good, **{member: text}))
                assert refusal.type == "HandoffMessageMalformed"
                assert refusal.message.startswith(member)
                assert CANARY not in refusal.message
            with pytest.raises(HandoffRefused, match="nothing was sent") as caught:
                await here.ask(replace(handover, subject=f"{CANARY} x"))

            assert caught.value.code == "body_invalid"
            kept = await here.history(handover.key)
            assert not [event for event in kept if event.event_type == UPDATE_ACCEPTED]
            assert CANARY.encode() not in all_bytes(kept)

    async def test_no_payload_and_no_reason_are_in_any_history(
        self, store: Database, client: Client, simulator: Simulated
    ) -> None:
        """What somebody wrote stays in the database, whatever became of it (C380, C445)."""
        async with gate(store, client, simulator) as here:
            world = here.world
            fine = await world.offer(title=f"{CANARY} fine")
            accepted = command_of(fine, await here.ask(fine))
            payload = b'{"%b": 1}' % CANARY.encode()
            odd = replace(await world.offer("lead-2"), digest=payload_digest(payload))
            await stage_payload(world.engine, world.ring, world.caller, odd.digest, payload)
            with pytest.raises(HandoffRefused, match="through HTTP") as caught:
                await here.ask(odd)
            withdrawn = await world.offer("lead-3")
            await world.reject(withdrawn, reason=f"{CANARY} asked us to")
            told = await here.ask(withdrawn, REJECT)
            assert await world.settled(accepted) == ["succeeded"]

            assert caught.value.code == "payload_refused"
            assert (told.admission, told.reason) == (Admission.HANDOFF_REJECTED, None)
            kept = all_bytes((await here.station.workflow(accepted.work).fetch_history()).events)
            for handover in (fine, odd, withdrawn):
                kept += all_bytes(await here.history(handover.key))
            assert str(fine.key).encode() in kept, "the bytes are where such a text would be"
            assert CANARY.encode() not in kept

    async def test_a_refusal_says_its_class_and_repeats_nothing(
        self, store: Database, client: Client, simulator: Simulated
    ) -> None:
        """The message of an error may hold anything, so its class goes alone (C380)."""
        async with gate(store, client, simulator) as here:
            absent = replace(await here.world.offer(), subject=f"{CANARY}-absent")

            with pytest.raises(HandoffRefused, match="no link for lead") as caught:
                await here.ask(absent)

            assert caught.value.code == "no_such_target"
            answers = [
                event
                for event in await here.history(absent.key)
                if event.event_type == UPDATE_COMPLETED
            ]
            assert len(answers) == 1
            assert CANARY.encode() not in all_bytes(answers)


def all_bytes(events: list[HistoryEvent]) -> bytes:
    """Everything that Temporal keeps in these events."""
    return b"".join(event.SerializeToString() for event in events)


def deserted_door(here: Gate, *, timeout_seconds: float) -> TemporalRuntimeClient:
    """The Runtime's client at a queue that no worker looks at."""
    return TemporalRuntimeClient(
        here.station.client,
        here.world.caller.scope,
        here.private_key,
        new_queue(),
        timeout_seconds=timeout_seconds,
    )


async def was_asked(link: StoreLink) -> None:
    """The worker has tried to reach the store and was turned away."""

    async def is_so() -> bool:
        return link.turned_away > 0

    await until(is_so, what="a connection that is turned away")


async def is_open(here: Gate, key: EffectHandoffKey) -> bool:
    """Whether a workflow of the key is there."""
    found = here.station.client.list_workflows(f"WorkflowId = '{here.workflow(key).id}'")
    return bool([each async for each in found])


async def is_closed(here: Gate, key: EffectHandoffKey) -> bool:
    """Whether the newest workflow of the key has ended."""
    return (await here.workflow(key).describe()).status is not WorkflowExecutionStatus.RUNNING
