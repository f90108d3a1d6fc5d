"""Acceptance and rejection: one final fact for each handoff key, whoever asks and how often."""

import asyncio
from dataclasses import replace
from uuid import uuid4

import pytest

from oncefence.domain.command import Receipt
from oncefence.domain.errors import (
    HandoffAlreadyRejected,
    HandoffConflict,
    NoSuchTarget,
    ScopeRefused,
)
from oncefence.domain.handoff import Admission, EffectHandoffKey, payload_digest
from oncefence.domain.ids import LinkId, OutboxId
from oncefence.storage.phases.adopt_link import adopt_link
from oncefence.storage.phases.find_admission import find_admission
from oncefence.storage.phases.start_attempt import unseal
from tests.storage.racing import all_at_once
from tests.support.world import PRINCIPAL, Accepted, World, scope_of

pytestmark = pytest.mark.asyncio(loop_scope="module")

# An admission of the same key that is never committed: everyone who wants it waits for its end.
IN_THE_WAY = (
    "INSERT INTO oncefence.handoffs (handoff_key, org_id, installation, capability,"
    " work_binding_digest, admission, outbox_id, payload_address, reason, retained_until)"
    " VALUES ($1, $2, $3, $4, $5, 'HANDOFF_REJECTED', 'x', ''::bytea, 'x', clock_timestamp())"
)


def in_the_way(key: EffectHandoffKey) -> tuple[str, ...]:
    scope = key.scope
    return (
        IN_THE_WAY,
        str(key),
        scope.org,
        scope.installation,
        scope.capability,
        scope.work_binding_digest,
    )


async def counted(world: World) -> dict[str, int]:
    tables = ("handoffs", "commands", "executions", "work_items", "sealed_payloads")
    return {table: await world.count(table) for table in tables}


ONE_OF_EACH = {
    "handoffs": 1,
    "commands": 1,
    "executions": 1,
    "work_items": 1,
    "sealed_payloads": 2,
}


class TestAccept:
    async def test_makes_one_of_everything(self, world: World) -> None:
        """Admission, command, execution, item and both sealed texts, or none of them (C126)."""
        accepted = await world.accept_command()

        assert accepted.receipt.is_new
        assert await world.states(accepted) == ("pending", "accepted")
        assert await counted(world) == ONE_OF_EACH

    async def test_again_gives_the_same_receipt(self, world: World) -> None:
        """After a lost answer the Runtime asks again, and nothing more is made (C131)."""
        accepted = await world.accept_command()

        again = await world.accept(accepted.handover)

        assert not again.is_new
        first = accepted.receipt
        assert (again.key, again.admitted_at) == (first.key, first.admitted_at)
        assert (again.command, again.execution, again.work) == (
            first.command,
            first.execution,
            first.work,
        )
        assert await counted(world) == ONE_OF_EACH

    async def test_again_asks_for_nothing_else(self, world: World) -> None:
        """What stands is told whatever became of link and payload since (C131)."""
        accepted = await world.accept_command()
        await world.change_link("lead-1", "retired")

        again = await world.accept(accepted.handover)

        assert (again.is_new, again.command) == (False, accepted.command)

    async def test_freezes_exactly_what_is_sent(self, world: World) -> None:
        """Whatever changes later, the request stays as it was accepted (C142)."""
        accepted = await world.accept_command("lead-1", title="Über-Chefin ✓")

        sent = unseal(world.ring, await world.start(accepted)).request

        assert (sent.method, sent.target) == ("PATCH", "/crm/v3/objects/contacts/1000")
        assert sent.written == {"jobtitle": "Über-Chefin ✓"}

    @pytest.mark.parametrize("field", ["payload digest", "outbox id"])
    async def test_with_another_meaning_is_a_conflict(self, world: World, field: str) -> None:
        """The first admission stands, the repeat is put on record, nothing else is made (C130)."""
        accepted = await world.accept_command()
        other = replace(accepted.handover, outbox=OutboxId("other"))
        if field == "payload digest":
            other = replace(accepted.handover, digest=payload_digest(b"other"))
        before = await world.sql("SELECT * FROM oncefence.handoffs WHERE org_id = :org")

        for _ in range(2):
            with pytest.raises(HandoffConflict) as refused:
                await world.accept(other)

        assert refused.value.field == field
        assert await world.sql("SELECT * FROM oncefence.handoffs WHERE org_id = :org") == before
        assert await world.count("handoff_conflicts") == 1
        assert await counted(world) == ONE_OF_EACH

    async def test_under_another_scope_is_refused_in_the_same_words(self, world: World) -> None:
        """A key cannot be probed: known and unknown ones get one answer, and it is noted (C125)."""
        accepted = await world.accept_command()
        stranger = replace(world.caller, scope=scope_of("stranger"))
        known = accepted.handover
        unknown = replace(known, key=EffectHandoffKey(scope=world.caller.scope, local="unknown"))
        world.caller = stranger
        said = set()

        for handover in (known, unknown):
            with pytest.raises(ScopeRefused) as refused:
                await world.accept(handover)
            said.add(str(refused.value))

        assert len(said) == 1
        assert world.org not in said.pop()
        noted = await world.sql(
            "SELECT act, note FROM oncefence.audit WHERE org_id = 'stranger' AND :org <> ''"
        )
        assert {row.act for row in noted} == {"handoff.accept.scope_refused"}
        assert all(world.org not in row.note for row in noted)

    @pytest.mark.parametrize(
        ("kind", "change"),
        [
            ("operation", {"operation": "lead.title.pull"}),
            ("link for lead", {"subject": "lead-nobody-linked"}),
            ("payload", {"digest": "0" * 64}),
        ],
    )
    async def test_without_its_target_writes_nothing(
        self, world: World, kind: str, change: dict[str, str]
    ) -> None:
        """What cannot become a request leaves no command, and its key stays free (C156)."""
        handover = await world.offer()

        with pytest.raises(NoSuchTarget) as refused:
            await world.accept(replace(handover, **change))

        assert refused.value.kind == kind
        assert await world.count("handoffs") == 0
        assert (await world.accept(handover)).is_new

    @pytest.mark.parametrize("state", ["suspended", "retired"])
    async def test_through_a_link_that_is_not_active_is_refused(
        self, world: World, state: str
    ) -> None:
        """Identity is repaired first; it is never guessed."""
        handover = await world.offer()
        await world.change_link("lead-1", state)

        with pytest.raises(NoSuchTarget):
            await world.accept(handover)

        assert await counted(world) == dict.fromkeys(ONE_OF_EACH, 0)

    async def test_through_a_link_to_another_kind_of_record_is_refused(self, world: World) -> None:
        """Under the same id another kind has a record of its own, and it would be written (C28)."""
        await adopt_link(
            world.engine,
            world.org,
            binding_name=PRINCIPAL,
            local_object="lead",
            subject="lead-1",
            remote_object="company",
            remote_id="1000",
            actor="tests",
        )
        world.links["lead-1"] = LinkId(uuid4())
        handover = await world.offer()

        with pytest.raises(NoSuchTarget, match="linked to a company"):
            await world.accept(handover)

        assert await world.count("handoffs") == 0

    async def test_numbers_each_lane_in_the_order_of_acceptance(self, world: World) -> None:
        """A later change never overtakes an earlier one of the same record (C221)."""
        items = [
            await world.item((await world.accept_command(lead, title=title)).work)
            for title, lead in (("a", "lead-1"), ("b", "lead-1"), ("c", "lead-2"))
        ]

        assert [item.source_sequence for item in items] == [1, 2, 1]
        assert [item.target_sequence for item in items] == [1, 2, 1]
        assert len({item.target_lane for item in items}) == 2


class TestReject:
    async def test_leaves_a_receipt_and_no_command(self, world: World) -> None:
        """Only the stored rejection proves that nothing was or will be accepted (C128)."""
        handover = await world.offer()

        first, again = await world.reject(handover), await world.reject(handover)

        assert first.admission is Admission.HANDOFF_REJECTED
        assert (first.is_new, again.is_new) == (True, False)
        assert replace(again, is_new=True) == first
        assert await counted(world) == {**dict.fromkeys(ONE_OF_EACH, 0), "handoffs": 1}

    async def test_forbids_acceptance_for_good(self, world: World) -> None:
        """However late it comes, it makes neither command nor item (C129)."""
        handover = await world.offer()
        await world.reject(handover)

        for _ in range(2):
            with pytest.raises(HandoffAlreadyRejected):
                await world.accept(handover)

        assert await world.count("commands") == 0

    async def test_after_acceptance_gives_the_acceptance(self, world: World) -> None:
        """A rejection that comes too late learns what stands (C128)."""
        accepted = await world.accept_command()

        late = await world.reject(accepted.handover)

        assert (late.admission, late.command) == (Admission.COMMAND_ACCEPTED, accepted.command)
        assert not late.is_new

    async def test_with_another_meaning_is_a_conflict(self, world: World) -> None:
        """Whoever rejects must mean the very handover that the key stands for (C130)."""
        accepted = await world.accept_command()

        with pytest.raises(HandoffConflict):
            await world.reject(replace(accepted.handover, outbox=OutboxId("other")))

        assert await world.states(accepted) == ("pending", "accepted")

    async def test_under_another_scope_is_refused(self, world: World) -> None:
        """Nobody withdraws another tenant's work."""
        accepted = await world.accept_command()
        world.caller = replace(world.caller, scope=scope_of("stranger-too"))

        with pytest.raises(ScopeRefused):
            await world.reject(accepted.handover)

    async def test_a_key_without_admission_is_undecided(self, world: World) -> None:
        """That nothing is to be seen proves nothing (C132)."""
        handover = await world.offer()

        assert await find_admission(world.engine, handover.key) is None


class TestRaces:
    async def test_of_acceptances_make_one_command(self, world: World) -> None:
        """Eight connections with one key: one is first, seven are told so (C124, C170)."""
        handover = await world.offer()

        receipts = await all_at_once(
            world.database, [world.accept(handover) for _ in range(8)], *in_the_way(handover.key)
        )

        assert all(isinstance(receipt, Receipt) for receipt in receipts), receipts
        assert sorted(r.is_new for r in receipts if isinstance(r, Receipt)) == [False] * 7 + [True]
        assert len({r.command for r in receipts if isinstance(r, Receipt)}) == 1
        assert await counted(world) == ONE_OF_EACH

    async def test_of_acceptance_and_rejection_make_one_fact(self, world: World) -> None:
        """Exactly one of the two stands, and everybody is told the same one (C133)."""
        handover = await world.offer()
        racers = [world.accept(handover) if n % 2 else world.reject(handover) for n in range(8)]

        answers = await all_at_once(world.database, racers, *in_the_way(handover.key))

        row = await find_admission(world.engine, handover.key)
        assert row is not None
        accepted = row.admission == Admission.COMMAND_ACCEPTED
        assert await counted(world) == (
            ONE_OF_EACH if accepted else {**dict.fromkeys(ONE_OF_EACH, 0), "handoffs": 1}
        )
        told = {a.admission for a in answers if isinstance(a, Receipt)}
        assert told == {row.admission}
        refused = [a for a in answers if not isinstance(a, Receipt)]
        assert len(refused) == (0 if accepted else 4)
        assert all(isinstance(each, HandoffAlreadyRejected) for each in refused), refused

    async def test_of_many_commands_of_one_record_leave_no_gap(self, world: World) -> None:
        """Sequences are drawn under the lane's lock, so none is lost or given twice (C221)."""
        handovers = [await world.offer("lead-1", title=str(n)) for n in range(8)]

        receipts = await asyncio.gather(*(world.accept(handover) for handover in handovers))

        items = [await world.item(r.work) for r in receipts if r.work is not None]
        assert sorted(item.target_sequence for item in items) == list(range(1, 9))
        assert sorted(item.source_sequence for item in items) == list(range(1, 9))


async def test_two_tenants_never_share_a_fact(world: World) -> None:
    """The same names everywhere, and still two commands (C8)."""
    other = await World.make(world.database)
    commands: list[Accepted] = [
        await each.accept_command("lead-1", outbox="outbox-shared") for each in (world, other)
    ]

    assert commands[0].command != commands[1].command
    assert await counted(world) == await counted(other) == ONE_OF_EACH
