"""Replaying: every verdict that there is, what a replay writes, and who comes first."""

from collections.abc import Awaitable, Callable

import asyncpg
import pytest

from oncefence.catalog.view import IntegrationBindingView
from oncefence.domain import ids
from oncefence.domain.claim import ClaimEnd, ClaimVerdict
from oncefence.domain.effect import Outcome
from oncefence.domain.errors import ActRefused, NoSuchTarget, VersionMoved
from oncefence.domain.ids import WorkId
from oncefence.domain.limits import Limits
from oncefence.domain.lookup import Verdict
from oncefence.domain.redaction import Secret
from oncefence.domain.replay import REMEDIES, ReplayVerdict
from oncefence.storage.claims import NotStarted
from oncefence.storage.phases.add_principal_binding import add_principal_binding
from oncefence.storage.phases.audit_invariants import audit_invariants
from oncefence.storage.phases.claim_work import ClaimedWork
from oncefence.storage.phases.publish_view import publish_view
from oncefence.storage.phases.replay_work import Replayed
from oncefence.storage.phases.start_attempt import Started
from tests.storage.racing import all_at_once
from tests.support.repairs import NOTE, OPERATOR, Repairs
from tests.support.servers import Database
from tests.support.world import INSTALLATION, OPERATION, Accepted, World, an_end, example_view

pytestmark = pytest.mark.asyncio(loop_scope="module")

HOLD = "SELECT FROM oncefence.work_items WHERE org_id = $1 AND work_id = $2 FOR UPDATE"
TERMS = (
    "family",
    "subject_kind",
    "subject_id",
    "command_id",
    "execution_id",
    "installation",
    "view_id",
    "view_digest",
    "view_revision",
    "definition",
    "provider",
    "binding_id",
    "queue_class",
    "deadline_ms",
    "source_lane",
    "source_sequence",
    "target_lane",
    "target_sequence",
    "payload_schema_version",
    "engine_capability",
)


@pytest.fixture
def repairs(world: World) -> Repairs:
    return Repairs(world=world)


# --- how an item comes to each verdict -------------------------------------------------------


async def refused(repairs: Repairs) -> WorkId:
    return (await repairs.a_refused_command()).work


async def proven_unsent(repairs: Repairs) -> WorkId:
    """Nothing was found of it, and then its starter said that nothing had been sent."""
    world = repairs.world
    accepted, started, lookup_work = await world.an_unknown_command()
    for _ in range(5):
        await world.look(lookup_work, Verdict.NOT_FOUND)
    assert await world.states(accepted) == ("dead", "failed")
    await world.tell(started, an_end(Outcome.RETRYABLE_PRE_DISPATCH))
    return accepted.work


async def looked_up(repairs: Repairs) -> WorkId:
    accepted, _, _ = await repairs.world.an_unknown_command()
    return accepted.work


async def not_found(repairs: Repairs) -> WorkId:
    accepted, _, lookup_work = await repairs.world.an_unknown_command()
    for _ in range(5):
        await repairs.world.look(lookup_work, Verdict.NOT_FOUND)
    assert await repairs.world.states(accepted) == ("dead", "failed")
    return accepted.work


async def found_refused(repairs: Repairs) -> WorkId:
    """The provider itself reports a failure; yet that attempt has no proof of its own."""
    accepted, _, lookup_work = await repairs.world.an_unknown_command()
    await repairs.world.look(lookup_work, Verdict.REFUSED)
    assert await repairs.world.states(accepted) == ("dead", "failed")
    return accepted.work


async def contradicted(repairs: Repairs) -> WorkId:
    """It stands as never applied, and then the starter comes with the provider's receipt."""
    world = repairs.world
    accepted, started, lookup_work = await world.an_unknown_command()
    for _ in range(5):
        await world.look(lookup_work, Verdict.NOT_FOUND)
    await world.tell(started, an_end(Outcome.RETRYABLE_PRE_DISPATCH))
    assert await repairs.verdict(accepted.work) == ReplayVerdict.SAFE_TO_REPLAY
    await world.tell(started, an_end(Outcome.ACCEPTED, response_status=200))
    return accepted.work


async def for_a_person(repairs: Repairs) -> WorkId:
    accepted, _ = await repairs.world.a_command_for_a_person()
    return accepted.work


async def reconnected(repairs: Repairs) -> WorkId:
    accepted = await repairs.a_refused_command()
    await repairs.world.retire_generation()
    return accepted.work


async def routed_elsewhere(repairs: Repairs) -> WorkId:
    """The current revision of the view goes to another account."""
    world = repairs.world
    accepted = await repairs.a_refused_command()
    await add_principal_binding(
        world.engine,
        world.ring,
        world.org,
        name="another-account",
        provider="hubspot",
        base_url="http://127.0.0.1:1",
        is_local=True,
        token=Secret("another"),
        actor="tests",
    )
    await publish(world, example_view().model_copy(update={"principal": "another-account"}))
    return accepted.work


async def moved_link(repairs: Repairs) -> WorkId:
    accepted = await repairs.a_refused_command()
    await repairs.world.change_link("lead-1")
    return accepted.work


async def suspended_link(repairs: Repairs) -> WorkId:
    accepted = await repairs.a_refused_command()
    await repairs.world.change_link("lead-1", "suspended")
    return accepted.work


async def no_longer_offered(repairs: Repairs) -> WorkId:
    accepted = await repairs.a_refused_command()
    view = example_view()
    await publish(
        repairs.world,
        view.model_copy(update={"operations": {"lead.other": view.operation(OPERATION)}}),
    )
    return accepted.work


async def overtaken(repairs: Repairs) -> WorkId:
    """What the same record was to become later has been sent by now."""
    accepted = await repairs.a_refused_command()
    await repairs.world.settle(
        await repairs.world.start(await repairs.world.accept_command()), Outcome.ACCEPTED
    )
    return accepted.work


async def being_overtaken(repairs: Repairs) -> WorkId:
    accepted = await repairs.a_refused_command()
    await repairs.world.a_running_command()
    return accepted.work


async def used_up(repairs: Repairs) -> WorkId:
    repairs.world.limits = Limits(attempts_max=1)
    accepted = await repairs.world.accept_command()
    await repairs.world.settle(await repairs.world.start(accepted), Outcome.RETRYABLE_PRE_DISPATCH)
    assert await repairs.world.states(accepted) == ("dead", "failed")
    return accepted.work


async def erased(repairs: Repairs) -> WorkId:
    accepted = await repairs.a_refused_command()
    await repairs.erase_content(accepted)
    return accepted.work


CASES: dict[str, tuple[Callable[[Repairs], Awaitable[WorkId]], ReplayVerdict]] = {
    "refused by the provider": (refused, ReplayVerdict.SAFE_TO_REPLAY),
    "proven unsent": (proven_unsent, ReplayVerdict.SAFE_TO_REPLAY),
    "being looked up": (looked_up, ReplayVerdict.NEEDS_LOOKUP),
    "looked up and not found": (not_found, ReplayVerdict.UNKNOWN),
    "found refused": (found_refused, ReplayVerdict.UNKNOWN),
    "contradicted": (contradicted, ReplayVerdict.UNKNOWN),
    "before a person": (for_a_person, ReplayVerdict.NEEDS_ATTENTION),
    "account reconnected": (reconnected, ReplayVerdict.BINDING_GONE),
    "routed to another account": (routed_elsewhere, ReplayVerdict.BINDING_GONE),
    "link moved": (moved_link, ReplayVerdict.LINK_CHANGED),
    "link suspended": (suspended_link, ReplayVerdict.LINK_CHANGED),
    "operation gone": (no_longer_offered, ReplayVerdict.OPERATION_GONE),
    "overtaken": (overtaken, ReplayVerdict.SUPERSEDED),
    "being overtaken": (being_overtaken, ReplayVerdict.SUPERSEDED),
    "attempts used up": (used_up, ReplayVerdict.ATTEMPTS_EXHAUSTED),
    "content erased": (erased, ReplayVerdict.CONTENT_ERASED),
}
REFUSED = {name: case for name, case in CASES.items() if case[1] != ReplayVerdict.SAFE_TO_REPLAY}


class TestAVerdict:
    """What a plan says of one dead letter."""

    @pytest.mark.parametrize("name", CASES)
    async def test_is_named_after_what_stands(self, repairs: Repairs, name: str) -> None:
        """Each reason has its own word and its own remedy (C403, C405)."""
        make, verdict = CASES[name]
        work = await make(repairs)

        (line,) = (await repairs.plan(work=work)).lines

        assert line.verdict == verdict
        assert line.remedy == REMEDIES[verdict]

    @pytest.mark.parametrize("name", REFUSED)
    async def test_that_is_not_safe_refuses_the_replay(self, repairs: Repairs, name: str) -> None:
        """An unknown outcome never becomes a second call, whoever asks (C229, C403, C404)."""
        make, verdict = REFUSED[name]
        work = await make(repairs)
        before = await repairs.world.count("work_items")

        with pytest.raises(ActRefused) as refusal:
            await repairs.replay(work)

        assert refusal.value.verdict == verdict
        assert refusal.value.remedy == REMEDIES[verdict]
        assert await repairs.world.count("work_items") == before
        assert await repairs.acts() == []

    async def test_of_an_item_that_waits_is_not_terminal(self, repairs: Repairs) -> None:
        """What still runs is not made a second time beside itself (C48)."""
        accepted = await repairs.world.accept_command()

        with pytest.raises(ActRefused, match="not_terminal"):
            await repairs.replay(accepted.work)

    @pytest.mark.parametrize("outcome", ["succeeded", "cancelled"])
    async def test_of_what_is_settled_for_good_is_settled(
        self, repairs: Repairs, outcome: str
    ) -> None:
        """What was done, and what was cancelled, is not done again (C63)."""
        accepted = await repairs.world.accept_command()
        if outcome == "succeeded":
            await repairs.world.settle(await repairs.world.start(accepted), Outcome.ACCEPTED)
        else:
            await repairs.cancel(accepted.work)

        with pytest.raises(ActRefused, match=r"\(settled\)"):
            await repairs.replay(accepted.work)

    async def test_of_a_lookup_is_never_safe(self, repairs: Repairs) -> None:
        """A lookup is the execution's own; a second one beside it would break its tries (C98)."""
        _, _, lookup_work = await repairs.world.an_unknown_command()
        await repairs.world.look(lookup_work, Verdict.APPLIED)

        with pytest.raises(ActRefused, match=r"\(settled\)"):
            await repairs.replay(lookup_work)

    async def test_names_what_was_pinned_and_what_stands(self, repairs: Repairs) -> None:
        """Definition, route, generation and revision are resolved anew and shown (C402)."""
        work = await refused(repairs)
        view = example_view()
        await publish(
            repairs.world,
            and_another_operation(view),
        )

        (line,) = (await repairs.plan(work=work)).lines

        assert line.verdict == ReplayVerdict.SAFE_TO_REPLAY
        assert (line.pinned_revision, line.current_revision) == (1, 2)
        assert line.pinned_digest == view.digest
        assert line.current_digest != view.digest
        assert (line.pinned_generation, line.current_generation) == (1, 1)
        assert (line.pinned_link_version, line.current_link_version) == (1, 1)
        assert (line.attempts_started, line.attempts_max) == (1, 8)


class TestAReplay:
    """What is written where the verdict is safe."""

    async def test_makes_a_new_item_under_the_same_execution(self, repairs: Repairs) -> None:
        """Item, execution and audit move together, and the old item stands (C48, C70, C402)."""
        world = repairs.world
        accepted = await repairs.a_refused_command()
        old = await world.item(accepted.work)
        version = await repairs.version(accepted.work)

        replayed = await repairs.replay(accepted.work, version=version)

        new = await world.item(replayed.ref.work)
        assert replayed.ref.work == ids.dispatch_work_id(accepted.command, 2)
        assert (new.state, new.replays_work_id, new.attempt) == ("pending", accepted.work, 0)
        assert [getattr(new, name) for name in TERMS] == [getattr(old, name) for name in TERMS]
        assert await world.item(accepted.work) == old
        execution = await world.execution(accepted)
        assert (execution.status, execution.via) == ("retrying", "operator_retry")
        (act,) = await repairs.acts()
        assert (act.actor, act.act, act.subject_id) == (
            OPERATOR,
            "work.replay",
            str(accepted.work),
        )
        assert (act.note, act.expected_version) == (NOTE, version)

    async def test_is_sent_once_more_and_settles_anew(self, repairs: Repairs) -> None:
        """The attempt is the next one of the execution, and its end a completion more (C99)."""
        world = repairs.world
        accepted = await repairs.a_refused_command()
        again = await repairs.again(accepted, await repairs.replay(accepted.work))

        started = await world.start(again)
        await world.settle(started, Outcome.ACCEPTED)

        attempts = await world.of_command("effect_attempts", accepted)
        assert [(each.ordinal, each.outcome) for each in attempts] == [
            (1, "REJECTED"),
            (2, "ACCEPTED"),
        ]
        assert await world.states(again) == ("succeeded", "succeeded")
        completions = await world.of_command("completions", accepted)
        assert [(each.settlement, each.status) for each in completions] == [
            (1, "failed"),
            (2, "succeeded"),
        ]
        assert (await audit_invariants(world.engine)).violations == 0

    async def test_is_replayed_by_its_newest_item_alone(self, repairs: Repairs) -> None:
        """A line of replays is a chain; whoever asks for a link of it is told where it goes on."""
        world = repairs.world
        accepted = await repairs.a_refused_command()
        first = await repairs.replay(accepted.work)

        with pytest.raises(ActRefused, match=str(first.ref.work)) as refusal:
            await repairs.replay(accepted.work)
        again = await repairs.again(accepted, first)
        await world.settle(await world.start(again), Outcome.REJECTED)
        second = await repairs.replay(first.ref.work)

        assert refusal.value.verdict == ReplayVerdict.ALREADY_REPLAYED
        assert second.ref.work == ids.dispatch_work_id(accepted.command, 3)

    async def test_of_another_version_is_refused(self, repairs: Repairs) -> None:
        """An operator acts on what he saw (C406)."""
        work = await refused(repairs)

        with pytest.raises(VersionMoved):
            await repairs.replay(work, version="0" * 16)

        assert await repairs.acts() == []

    async def test_of_an_item_of_another_org_finds_nothing(
        self, repairs: Repairs, store: Database
    ) -> None:
        """Nobody can act on, or learn of, what another org has (C8)."""
        work = await refused(Repairs(world=await World.make(store)))

        with pytest.raises(NoSuchTarget):
            await repairs.replay(work, version="0" * 16)

    async def test_keeps_the_place_ahead_of_what_waits(self, repairs: Repairs) -> None:
        """Behind later work the older value would come last and undo it (C221, C229)."""
        world = repairs.world
        older = await repairs.a_refused_command()
        younger = await world.accept_command()

        again = await repairs.again(older, await repairs.replay(older.work))

        blocked = await world.try_to_start(younger)
        assert isinstance(blocked, NotStarted)
        assert blocked.verdict == ClaimVerdict.LANE_BLOCKED
        await world.settle(await world.start(again), Outcome.ACCEPTED)
        await world.start(younger)

    async def test_is_refused_where_only_the_source_lane_was_overtaken(
        self, repairs: Repairs
    ) -> None:
        """Either lane alone supersedes (C229)."""
        world = repairs.world
        older = await repairs.a_refused_command()
        younger = await world.accept_command()
        await in_another_lane(world, younger, "target_lane")
        await world.start(younger)

        with pytest.raises(ActRefused, match="superseded"):
            await repairs.replay(older.work)

    async def test_is_refused_where_only_the_target_lane_was_overtaken(
        self, repairs: Repairs
    ) -> None:
        """Either lane alone supersedes (C229)."""
        world = repairs.world
        older = await repairs.a_refused_command()
        younger = await world.accept_command()
        await in_another_lane(world, younger, "source_lane")
        await world.start(younger)

        with pytest.raises(ActRefused, match="superseded"):
            await repairs.replay(older.work)

    async def test_passes_what_was_cancelled_before_it_was_claimed(self, repairs: Repairs) -> None:
        """What never went ahead overtook nobody."""
        older = await repairs.a_refused_command()
        younger = await repairs.world.accept_command()
        await repairs.cancel(younger.work)

        replayed = await repairs.replay(older.work)

        assert (await repairs.world.item(replayed.ref.work)).state == "pending"

    async def test_of_another_family_is_a_new_item_of_the_same_terms(
        self, repairs: Repairs
    ) -> None:
        """Lineage and terms are the kernel's; what the family does is its own (C402)."""
        world = repairs.world
        work = await repairs.an_ended_item()

        replayed = await repairs.replay(work)

        new = await world.item(replayed.ref.work)
        assert (new.family, new.state, new.replays_work_id) == ("event.apply", "pending", work)
        assert new.execution_id is None

    async def test_of_another_family_that_ended_well_is_refused(self, repairs: Repairs) -> None:
        """There is nothing left to do of it."""
        work = await repairs.an_ended_item(ClaimEnd.FINISH)

        with pytest.raises(ActRefused, match=r"\(settled\)"):
            await repairs.replay(work)

    async def test_is_refused_where_its_command_has_another_item_of_the_family(
        self, repairs: Repairs
    ) -> None:
        """At most one item of a command and family is active (C52)."""
        accepted = await repairs.a_refused_command()
        claimed = await repairs.try_to_hold(await repairs.a_waiting_item(command=accepted.command))
        assert isinstance(claimed, ClaimedWork)
        await repairs.end(claimed, ClaimEnd.GIVE_UP)
        await repairs.a_waiting_item(command=accepted.command)

        with pytest.raises(ActRefused, match="superseded"):
            await repairs.replay(claimed.fence.work)


class TestAPlan:
    """Many at once: a digest over all verdicts."""

    async def test_counts_the_calls_that_it_begins_with(self, repairs: Repairs) -> None:
        """A dispatch that is safe is one call; nothing else is (C405)."""
        for number in range(2):
            await repairs.a_refused_command(f"lead-{number}")
        await repairs.an_ended_item()
        await repairs.world.an_unknown_command("lead-9")

        plan = await repairs.plan()

        assert len(plan.lines) == 4
        assert plan.provider_calls == 2

    async def test_goes_by_the_order_of_acceptance(self, repairs: Repairs) -> None:
        """Replayed in this order, no item overtakes another one of the plan."""
        works = [(await repairs.a_refused_command(f"lead-{each}")).work for each in range(3)]

        assert [line.work for line in (await repairs.plan()).lines] == works

    async def test_is_narrowed_by_its_filter(self, repairs: Repairs) -> None:
        """Whoever repairs one incident does not touch another one."""
        refused_work = await refused(repairs)
        await repairs.an_ended_item()

        for narrowed in (
            {"failure_class": "rejected"},
            {"family": "effect.dispatch"},
            {"provider": "hubspot"},
            {"definition": OPERATION},
            {"work": refused_work},
        ):
            plan = await repairs.plan(**narrowed)
            assert [line.work for line in plan.lines] == [refused_work], narrowed

    async def test_holds_no_more_than_its_bound(
        self, repairs: Repairs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A plan that nobody can read is no plan; it says that there is more."""
        for number in range(2):
            await repairs.a_refused_command(f"lead-{number}")
        whole = await repairs.plan()
        monkeypatch.setattr("oncefence.storage.phases.plan_replay.ITEMS_MAX", 1)

        bounded = await repairs.plan()

        assert (len(whole.lines), whole.has_more) == (2, False)
        assert (len(bounded.lines), bounded.has_more) == (1, True)

    async def test_begins_where_nothing_moved(self, repairs: Repairs) -> None:
        """The start of applying it is on record under its digest."""
        work = await refused(repairs)
        plan = await repairs.plan()

        begun = await repairs.begin(plan.digest)

        assert [line.work for line in begun.lines] == [work]
        (act,) = await repairs.acts()
        assert (act.subject_kind, act.subject_id, act.note) == ("replay_plan", plan.digest, NOTE)

    @pytest.mark.parametrize("what", ["verdict", "revision", "link", "replay"])
    async def test_is_refused_when_anything_moved(self, repairs: Repairs, what: str) -> None:
        """What is applied is what was looked at (C405)."""
        work = await refused(repairs)
        plan = await repairs.plan()
        match what:
            case "verdict":
                await repairs.world.a_running_command()
            case "revision":
                view = example_view()
                await publish(
                    repairs.world,
                    and_another_operation(view),
                )
            case "link":
                await repairs.world.change_link("lead-1")
            case "replay":
                await repairs.replay(work)
        before = len(await repairs.acts())

        with pytest.raises(VersionMoved):
            await repairs.begin(plan.digest)

        assert len(await repairs.acts()) == before

    async def test_is_not_disturbed_by_what_ended_since(self, repairs: Repairs) -> None:
        """An incident goes on while it is repaired; what ends later is for the next plan."""
        work = await refused(repairs)
        plan = await repairs.plan()
        await repairs.a_refused_command("lead-2")

        assert [line.work for line in (await repairs.begin(plan.digest)).lines] == [work]

    async def test_that_was_begun_is_begun_again_after_a_crash(self, repairs: Repairs) -> None:
        """What of it was replayed is no other plan, and is refused a second replay (C405)."""
        works = [(await repairs.a_refused_command(f"lead-{each}")).work for each in range(3)]
        plan = await repairs.plan()
        begun = await repairs.begin(plan.digest)
        await repairs.replay(begun.lines[0].work, version=begun.lines[0].version)

        resumed = await repairs.begin(plan.digest)

        assert [line.work for line in resumed.lines] == works
        assert {line.verdict for line in resumed.lines} == {ReplayVerdict.SAFE_TO_REPLAY}
        with pytest.raises(ActRefused, match="already_replayed"):
            await repairs.replay(resumed.lines[0].work, version=resumed.lines[0].version)
        for line in resumed.lines[1:]:
            await repairs.replay(line.work, version=line.version)

    async def test_that_was_begun_is_still_refused_when_something_else_moved(
        self, repairs: Repairs
    ) -> None:
        """Only its own replays are forgiven."""
        for number in range(2):
            await repairs.a_refused_command(f"lead-{number}")
        plan = await repairs.plan()
        await repairs.begin(plan.digest)
        await repairs.world.change_link("lead-0")

        with pytest.raises(VersionMoved):
            await repairs.begin(plan.digest)

    @pytest.mark.parametrize("text", ["", "x", "12-", "-ab", "1" * 30 + "-ab"])
    async def test_of_no_digest_is_told_what_to_give(self, repairs: Repairs, text: str) -> None:
        """A slip of the hand is no moved plan."""
        with pytest.raises(ActRefused, match="exactly as the plan shows it"):
            await repairs.begin(text)


class TestARace:
    """Who comes first, on connections of their own."""

    async def test_of_two_replays_makes_one_item(self, repairs: Repairs) -> None:
        """Two operators, one incident, one call more (C402)."""
        world = repairs.world
        accepted = await repairs.a_refused_command()
        version = await repairs.version(accepted.work)

        ends = await all_at_once(
            world.database,
            [repairs.replay(accepted.work, version=version) for _ in range(4)],
            HOLD,
            world.org,
            accepted.work,
        )

        assert sum(isinstance(end, Replayed) for end in ends) == 1
        told = [end.verdict for end in ends if isinstance(end, ActRefused)]
        assert told == ["already_replayed"] * 3
        assert len(await world.of_command("work_items", accepted)) == 2

    async def test_with_a_claim_of_later_work_keeps_the_order(self, repairs: Repairs) -> None:
        """Either the later one went ahead and the replay is refused, or it waits (C229)."""
        world = repairs.world
        for number in range(6):
            subject = f"lead-{number}"
            older = await repairs.a_refused_command(subject)
            younger = await world.accept_command(subject)
            version = await repairs.version(older.work)

            replay, claim = await all_at_once(
                world.database,
                [repairs.replay(older.work, version=version), world.try_to_start(younger)],
                HOLD,
                world.org,
                younger.work,
            )

            if isinstance(claim, Started):
                assert isinstance(replay, ActRefused), replay
                assert replay.verdict == "superseded"
            else:
                assert isinstance(claim, NotStarted), claim
                assert claim.verdict == ClaimVerdict.LANE_BLOCKED
                assert isinstance(replay, Replayed), replay

    async def test_with_an_acceptance_keeps_the_order(self, repairs: Repairs) -> None:
        """Whoever is accepted meanwhile comes behind the replay, and so waits for it (C221)."""
        world = repairs.world
        older = await repairs.a_refused_command()
        offer = await world.offer()
        version = await repairs.version(older.work)

        async def accept_and_claim() -> object:
            receipt = await world.accept(offer)
            assert receipt.command is not None
            assert receipt.execution is not None
            assert receipt.work is not None
            younger = Accepted(
                handover=offer,
                receipt=receipt,
                command=receipt.command,
                execution=receipt.execution,
                work=receipt.work,
            )
            return await world.try_to_start(younger)

        replay, claim = await all_at_once(
            world.database,
            [repairs.replay(older.work, version=version), accept_and_claim()],
            "SELECT FROM oncefence.lanes WHERE org_id = $1 FOR UPDATE",
            world.org,
        )

        assert isinstance(replay, Replayed) != isinstance(claim, Started), (replay, claim)

    async def test_with_a_late_word_never_forgets_it(self, repairs: Repairs) -> None:
        """A word of having applied comes before the replay and refuses it, or is on record."""
        world = repairs.world
        for _ in range(4):
            accepted, started, lookup_work = await world.an_unknown_command("lead-1")
            for _ in range(5):
                await world.look(lookup_work, Verdict.NOT_FOUND)
            await world.tell(started, an_end(Outcome.RETRYABLE_PRE_DISPATCH))
            version = await repairs.version(accepted.work)

            replay, told = await all_at_once(
                world.database,
                [
                    repairs.replay(accepted.work, version=version),
                    world.tell(started, an_end(Outcome.ACCEPTED, response_status=200)),
                ],
                HOLD,
                world.org,
                accepted.work,
            )

            assert not isinstance(told, BaseException), told
            assert len(await world.of_command("contradictions", accepted)) == 1
            if isinstance(replay, Replayed):
                again = await repairs.again(accepted, replay)
                refused = await world.try_to_start(again)
                assert isinstance(refused, NotStarted)
                assert refused.failure_class == "contradicted"
                with pytest.raises(ActRefused, match=r"\(unknown\)"):
                    await repairs.replay(again.work)
            else:
                assert isinstance(replay, ActRefused), replay
                assert replay.verdict == "unknown"

    async def test_with_a_proof_of_no_effect_is_refused_or_after_it(self, repairs: Repairs) -> None:
        """Without the starter's word nothing of it is replayed; with it, at once (C404)."""
        world = repairs.world
        accepted, started, lookup_work = await world.an_unknown_command()
        for _ in range(5):
            await world.look(lookup_work, Verdict.NOT_FOUND)
        version = await repairs.version(accepted.work)

        replay, told = await all_at_once(
            world.database,
            [
                repairs.replay(accepted.work, version=version),
                world.tell(started, an_end(Outcome.RETRYABLE_PRE_DISPATCH)),
            ],
            HOLD,
            world.org,
            accepted.work,
        )

        assert not isinstance(told, BaseException), told
        if isinstance(replay, ActRefused):
            assert replay.verdict == "unknown"
            await repairs.replay(accepted.work, version=version)
        assert (await world.execution(accepted)).status == "retrying"


# --- what else they need ---------------------------------------------------------------------


async def publish(world: World, view: IntegrationBindingView) -> None:
    """The next revision of the view, which is current at once."""
    await publish_view(world.engine, world.org, INSTALLATION, view, actor="tests", activate=True)


def and_another_operation(view: IntegrationBindingView) -> IntegrationBindingView:
    more = {**view.operations, "lead.other": view.operation(OPERATION)}
    return view.model_copy(update={"operations": more})


async def in_another_lane(world: World, accepted: Accepted, lane: str) -> None:
    """The item shares only its other lane; no default key of a pack has it so."""
    connection = await asyncpg.connect(world.database.admin_url)
    try:
        async with connection.transaction():
            await connection.execute("SET LOCAL session_replication_role = replica")
            await connection.execute(
                f"UPDATE oncefence.work_items SET {lane} = 'another' WHERE work_id = $1",
                accepted.work,
            )
    finally:
        await connection.close()
