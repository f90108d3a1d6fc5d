"""The Temporal door: who is answered, and that the answer is the one of every door."""

import asyncio
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from temporalio.client import Client, WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError

from oncefence.app.temporal_client import HandoffRefused, TemporalRuntimeClient
from oncefence.domain.handoff import (
    Admission,
    EffectHandoffKey,
    TrustedRuntimeWorkScope,
    payload_digest,
)
from oncefence.domain.ids import OutboxId, command_id
from oncefence.domain.signature import HandoffVerb
from oncefence.storage.phases.register_runtime import register_runtime
from oncefence.storage.phases.stage_payload import stage_payload
from oncefence.workflows.handoff import ACCEPT
from tests.providers.simulated import Simulated
from tests.support.servers import Database
from tests.support.world import scope_of
from tests.workflows.gate import Gate, command_of, gate
from tests.workflows.watching import changes, patches

pytestmark = pytest.mark.asyncio(loop_scope="module")

REJECT = HandoffVerb.REJECT_IF_UNACCEPTED


class TestReceipts:
    """What the door answers to a Runtime that signed."""

    async def test_a_signed_handoff_is_one_command_and_one_change(
        self, store: Database, client: Client, simulator: Simulated
    ) -> None:
        """The receipt comes first, and what it promises is done without anybody's help (C136)."""
        async with gate(store, client, simulator) as here:
            handover = await here.world.offer()

            receipt = await here.ask(handover)

            assert receipt.is_new
            assert receipt.key == handover.key
            assert receipt.command == command_id(str(handover.key))
            accepted = command_of(handover, receipt)
            assert await here.world.settled(accepted) == ["succeeded"]
            assert patches(simulator, accepted) == changes(simulator, accepted) == 1

    async def test_a_repeat_is_given_the_same_receipt_by_every_door(
        self, store: Database, client: Client, simulator: Simulated
    ) -> None:
        """A Runtime that lost the answer asks again, as often and wherever it likes (C131)."""
        async with gate(store, client, simulator) as here:
            handover = await here.world.offer()

            first = await here.ask(handover)
            again = [await here.ask(handover) for _ in range(3)]
            elsewhere = await here.world.accept(handover)

            assert all(each == replace(first, is_new=False) for each in again)
            assert replace(elsewhere, work=None) == again[0]
            assert len(await here.rows("commands")) == 1
            accepted = command_of(handover, first)
            assert await here.world.settled(accepted) == ["succeeded"]
            assert patches(simulator, accepted) == 1

    async def test_many_at_once_are_one_command(
        self, store: Database, client: Client, simulator: Simulated
    ) -> None:
        """Updates of one workflow run beside each other, and the database decides (C124)."""
        async with gate(store, client, simulator) as here:
            handover = await here.world.offer()

            receipts = await asyncio.gather(*(here.ask(handover) for _ in range(8)))

            assert len({each.command for each in receipts}) == 1
            assert sum(each.is_new for each in receipts) == 1
            accepted = command_of(handover, receipts[0])
            assert await here.world.settled(accepted) == ["succeeded"]
            assert len(await here.rows("work_items")) == 1
            assert patches(simulator, accepted) == 1

    async def test_a_rejection_stands_against_every_later_acceptance(
        self, store: Database, client: Client, simulator: Simulated
    ) -> None:
        """The rejection is proof, and proof does not wear off (C128, C129)."""
        async with gate(store, client, simulator) as here:
            handover = await here.world.offer()

            rejected = await here.ask(handover, REJECT)
            again = await here.ask(handover, REJECT)

            assert rejected.admission is Admission.HANDOFF_REJECTED
            assert rejected.is_new
            assert again == replace(rejected, is_new=False)
            for _ in range(2):
                with pytest.raises(HandoffRefused) as caught:
                    await here.ask(handover)
                assert (caught.value.code, caught.value.status) == ("handoff_already_rejected", 409)
            assert list(await here.rows("commands")) == list(await here.rows("work_items")) == []

    async def test_a_rejection_that_comes_late_is_told_of_the_command(
        self, store: Database, client: Client, simulator: Simulated
    ) -> None:
        """What was accepted stays accepted, and the Runtime learns of it (C128)."""
        async with gate(store, client, simulator) as here:
            handover = await here.world.offer()
            receipt = await here.ask(handover)

            assert await here.ask(handover, REJECT) == replace(receipt, is_new=False)

    async def test_acceptance_and_rejection_at_once_come_to_one_admission(
        self, store: Database, client: Client, simulator: Simulated
    ) -> None:
        """Whoever is second is told what the first one came to (C133)."""
        async with gate(store, client, simulator) as here:
            for _ in range(10):
                handover = await here.world.offer()

                accepted, rejected = await asyncio.gather(
                    here.ask(handover), here.ask(handover, REJECT), return_exceptions=True
                )

                of_key = f"handoff_key = '{handover.key}'"
                (row,) = await here.rows("handoffs", of_key)
                commands = await here.rows("commands", of_key)
                if isinstance(accepted, HandoffRefused):
                    assert accepted.code == "handoff_already_rejected"
                    assert rejected.admission == row.admission == Admission.HANDOFF_REJECTED
                    assert list(commands) == []
                else:
                    assert rejected.command == accepted.command == row.command_id
                    assert len(commands) == 1

    @pytest.mark.parametrize("verb", list(HandoffVerb))
    async def test_a_key_that_returns_with_something_else_is_quarantined(
        self, store: Database, client: Client, simulator: Simulated, verb: HandoffVerb
    ) -> None:
        """The Runtime is told which member differs; the first admission stands (C130)."""
        async with gate(store, client, simulator) as here:
            handover = await here.world.offer()
            receipt = await here.ask(handover)
            changed = await here.world.offer(title="Chief", outbox=handover.outbox)
            renamed = replace(handover, outbox=OutboxId("another"))

            with pytest.raises(HandoffRefused, match="another payload digest") as caught:
                await here.ask(changed, verb)
            refusal = await here.refusal_of(here.message(renamed, verb))

            assert (caught.value.code, caught.value.status) == ("handoff_conflict", 409)
            assert (refusal.type, *refusal.details) == ("HandoffConflict", "outbox id")
            conflicts = await here.rows("handoff_conflicts")
            assert sorted(row.field for row in conflicts) == ["outbox id", "payload digest"]
            (command,) = await here.rows("commands")
            assert command.command_id == receipt.command

    async def test_a_payload_that_was_not_put_is_asked_for(
        self, store: Database, client: Client, simulator: Simulated
    ) -> None:
        """Nothing is admitted, so putting it and asking again is all there is to do (C135)."""
        async with gate(store, client, simulator) as here:
            payload = b'{"title": "Late"}'
            late = replace(await here.world.offer(), digest=payload_digest(payload))

            with pytest.raises(HandoffRefused, match="put its bytes first") as caught:
                await here.ask(late)

            assert (caught.value.code, caught.value.status) == ("no_such_target", 422)
            assert list(await here.rows("handoffs")) == []
            world = here.world
            await stage_payload(world.engine, world.ring, world.caller, late.digest, payload)
            assert (await here.ask(late)).is_new

    async def test_a_runtime_needs_no_converter_of_ours(
        self, store: Database, client: Client, simulator: Simulated
    ) -> None:
        """Plain JSON is taken and given, so that any SDK's client can be a Runtime's."""
        async with gate(store, client, simulator) as here:
            handover = await here.world.offer()
            plain = await Client.connect(client.service_client.config.target_host)
            scope, queue = here.world.caller.scope, here.station.task_queue
            foreign = replace(
                here, door=TemporalRuntimeClient(plain, scope, here.private_key, queue)
            )

            receipt = await foreign.ask(handover)

            assert receipt.is_new
            assert await here.ask(handover) == replace(receipt, is_new=False)


class TestSignatures:
    """Scope and key come from the registered binding, and from nowhere else."""

    @pytest.mark.parametrize(
        "who", ["another key", "no key registered", "no such binding", "another org's key"]
    )
    async def test_whoever_is_not_verified_gets_one_refusal_and_leaves_no_row(
        self, store: Database, client: Client, simulator: Simulated, who: str
    ) -> None:
        """The same words whatever is wrong, and nothing that a stranger could fill (C125, C137)."""
        async with gate(store, client, simulator) as here:
            handover = await here.world.offer()
            stranger, claimed = await a_stranger(here, who)
            handover = replace(handover, key=EffectHandoffKey.for_outbox(claimed, handover.outbox))
            before = await here.world.sql("SELECT count(*) FROM oncefence.audit")

            for verb in HandoffVerb:
                with pytest.raises(HandoffRefused) as caught:
                    await stranger.ask(handover, verb)

                assert (caught.value.code, caught.value.status) == ("scope_refused", 403)
                assert caught.value.detail == (
                    "the signature is not one of the work binding that the handoff key names, or "
                    "that binding is not registered with a public key"
                )
            assert list(await here.rows("handoffs")) == []
            assert await here.world.sql("SELECT count(*) FROM oncefence.audit") == before

    async def test_a_member_that_is_changed_on_the_way_is_refused(
        self, store: Database, client: Client, simulator: Simulated
    ) -> None:
        """Temporal, and whoever may write to it, is trusted with no member (C137)."""
        async with gate(store, client, simulator) as here:
            handover = await here.world.offer()
            other = await here.world.offer("lead-2", title="Chief")
            signed = here.message(handover)

            for member, value in {
                "payload_digest": other.digest,
                "outbox_id": other.outbox,
                "operation": f"{handover.operation}.long",
                "subject": other.subject,
            }.items():
                refusal = await here.refusal_of(replace(signed, **{member: value}))
                assert (refusal.type, *refusal.details) == ("ScopeRefused",)
            for verb, signed_for in zip(HandoffVerb, reversed(HandoffVerb), strict=True):
                message = here.message(handover, verb, signed_for=signed_for)
                assert (await here.refusal_of(message)).type == "ScopeRefused"

            assert list(await here.rows("handoffs")) == []
            assert (await here.send(signed)).is_new

    async def test_a_message_is_no_use_at_the_workflow_of_another_key(
        self, store: Database, client: Client, simulator: Simulated
    ) -> None:
        """What was asked about a key is in that key's workflow, where it is looked for (C383)."""
        async with gate(store, client, simulator) as here:
            handover = await here.world.offer()
            other = await here.world.offer("lead-2")
            await here.signal(other.key, "no-such-signal")

            with pytest.raises(WorkflowUpdateFailedError) as caught:
                await here.workflow(other.key).execute_update(ACCEPT, here.message(handover))

            assert isinstance(caught.value.cause, ApplicationError)
            assert caught.value.cause.type == "HandoffMessageMalformed"
            assert list(await here.rows("handoffs")) == []


async def a_stranger(here: Gate, who: str) -> tuple[Gate, TrustedRuntimeWorkScope]:
    """Somebody who signs what `here`'s Runtime did not, and the scope that they claim."""
    own, world = here.world.caller.scope, here.world
    match who:
        case "no key registered":
            claimed = scope_of(world.org)
            return here.signing_with(here.private_key, claimed), claimed
        case "no such binding":
            claimed = scope_of(world.org, capability="nobody")
            return here.signing_with(here.private_key, claimed), claimed
        case "another org's key":
            theirs = Ed25519PrivateKey.generate()
            await register_runtime(
                world.engine,
                world.ring,
                scope_of(f"{world.org}-other", capability="temporal"),
                actor="tests",
                public_key=theirs.public_key().public_bytes_raw(),
            )
            return here.signing_with(theirs), own
        case _:
            return here.signing_with(Ed25519PrivateKey.generate()), own
