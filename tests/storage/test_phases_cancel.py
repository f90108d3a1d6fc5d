"""Cancelling and reclaiming by hand: what ends, what is only asked for, and what is refused."""

import pytest

from oncefence.domain.claim import ClaimEnd, ClaimVerdict
from oncefence.domain.effect import Outcome
from oncefence.domain.errors import ActRefused, FenceLost, NoSuchTarget, VersionMoved
from oncefence.storage.claims import NotStarted
from oncefence.storage.phases.audit_invariants import audit_invariants
from oncefence.storage.phases.cancel_work import CancelEnd
from oncefence.storage.phases.claim_work import ClaimedWork
from oncefence.storage.phases.reclaim_work import Reclaimed
from oncefence.storage.phases.renew_work import renew_work
from oncefence.storage.phases.settle_attempt import Settled
from oncefence.storage.phases.start_attempt import Started
from tests.storage.lifecycle_rows import move_item
from tests.storage.racing import all_at_once
from tests.support.repairs import NOTE, OPERATOR, Repairs
from tests.support.servers import Database
from tests.support.world import World

pytestmark = pytest.mark.asyncio(loop_scope="module")

HOLD = "SELECT FROM oncefence.work_items WHERE org_id = $1 AND work_id = $2 FOR UPDATE"


@pytest.fixture
def repairs(world: World) -> Repairs:
    return Repairs(world=world)


class TestCancelling:
    """An operator no longer wants it."""

    async def test_before_the_first_attempt_ends_item_and_execution(self, repairs: Repairs) -> None:
        """Both end in one transaction, with a completion and the audit row (C69, C86, C406)."""
        world = repairs.world
        accepted = await world.accept_command()
        version = await repairs.version(accepted.work)

        end = await repairs.cancel(accepted.work, version=version)

        assert (end.item_state, end.execution_status) == ("cancelled", "cancelled")
        item, execution = await world.item(accepted.work), await world.execution(accepted)
        assert (item.state, item.via) == ("cancelled", "cancel")
        assert (execution.status, execution.via, execution.settled_by) == (
            "cancelled",
            "cancel_before_first_attempt",
            "operator",
        )
        (completion,) = await world.of_command("completions", accepted)
        assert (completion.settlement, completion.status) == (1, "cancelled")
        (act,) = await repairs.acts()
        assert (act.actor, act.act, act.subject_id, act.note, act.expected_version) == (
            OPERATOR,
            "work.cancel",
            str(accepted.work),
            NOTE,
            version,
        )
        assert (await audit_invariants(world.engine)).violations == 0

    async def test_sends_nothing_afterwards(self, repairs: Repairs) -> None:
        """Whoever comes to run it finds it finished (C63)."""
        accepted = await repairs.world.accept_command()
        await repairs.cancel(accepted.work)

        found = await repairs.world.try_to_start(accepted)

        assert isinstance(found, NotStarted)
        assert found.verdict == ClaimVerdict.FINISHED

    async def test_lets_go_of_its_lanes(self, repairs: Repairs) -> None:
        """What waited behind it is no longer blocked (C224)."""
        world = repairs.world
        first, second = await world.accept_command(), await world.accept_command()
        blocked = await world.try_to_start(second)
        assert isinstance(blocked, NotStarted)

        await repairs.cancel(first.work)

        await world.start(second)

    async def test_of_what_was_tried_already_is_refused(self, repairs: Repairs) -> None:
        """What became of its attempts must not vanish behind a cancel (C55)."""
        world = repairs.world
        accepted = await world.accept_command()
        await world.settle(await world.start(accepted), Outcome.RETRYABLE_PRE_DISPATCH)

        with pytest.raises(ActRefused, match="retrying") as refusal:
            await repairs.cancel(accepted.work)

        assert "pause" in refusal.value.remedy
        assert await world.states(accepted) == ("retry", "retrying")
        assert await repairs.acts() == []

    async def test_of_a_replay_that_waits_is_refused(self, repairs: Repairs) -> None:
        """Its execution was tried too, so it is a retry like any other."""
        accepted = await repairs.a_refused_command()
        replayed = await repairs.replay(accepted.work)

        with pytest.raises(ActRefused, match="retrying"):
            await repairs.cancel(replayed.ref.work)

    async def test_of_a_request_on_its_way_is_refused(self, repairs: Repairs) -> None:
        """What may have been sent comes to its outcome (C55)."""
        accepted, _ = await repairs.world.a_running_command()

        with pytest.raises(ActRefused, match="on its way") as refusal:
            await repairs.cancel(accepted.work)

        assert refusal.value.verdict == "open_attempt"
        assert (await repairs.world.item(accepted.work)).cancel_requested_at is None

    async def test_of_a_dispatch_that_is_held_is_refused(self, repairs: Repairs) -> None:
        """Its holder asks nobody any more before it sends."""
        world = repairs.world
        accepted = await world.accept_command()
        await world.transaction(move_item("processing", "claim"), work=accepted.work)

        with pytest.raises(ActRefused, match=r"\(claimed\)"):
            await repairs.cancel(accepted.work)

    async def test_of_a_lookup_is_refused(self, repairs: Repairs) -> None:
        """An unknown outcome is never simply forgotten (C98)."""
        _, _, lookup_work = await repairs.world.an_unknown_command()

        with pytest.raises(ActRefused, match="looked up until it is known"):
            await repairs.cancel(lookup_work)

    async def test_of_what_has_ended_is_refused(self, repairs: Repairs) -> None:
        """A terminal item never changes again (C48)."""
        accepted = await repairs.a_refused_command()

        with pytest.raises(ActRefused, match="it has ended as dead"):
            await repairs.cancel(accepted.work)

    async def test_of_what_its_old_owner_may_run_is_refused(self, repairs: Repairs) -> None:
        """A rollback fenced it; only the old owner's receipt ends it."""
        accepted = await repairs.world.accept_command()
        await repairs.world.transaction(
            move_item("awaiting_legacy_outcome", "rollback_fence"), work=accepted.work
        )

        with pytest.raises(ActRefused, match="old owner"):
            await repairs.cancel(accepted.work)

    async def test_of_another_version_is_refused(self, repairs: Repairs) -> None:
        """An operator acts on what he saw (C406)."""
        accepted = await repairs.world.accept_command()

        with pytest.raises(VersionMoved):
            await repairs.cancel(accepted.work, version="0" * 16)

        assert await repairs.world.states(accepted) == ("pending", "accepted")

    async def test_of_an_item_of_another_org_finds_nothing(
        self, repairs: Repairs, store: Database
    ) -> None:
        """Nobody can act on, or learn of, what another org has (C8)."""
        accepted = await (await World.make(store)).accept_command()

        with pytest.raises(NoSuchTarget):
            await repairs.cancel(accepted.work, version="0" * 16)

    @pytest.mark.parametrize("is_deferred", [False, True])
    async def test_of_another_family_ends_what_nobody_holds(
        self, repairs: Repairs, is_deferred: bool
    ) -> None:
        """Waiting for the first time or again is the same (W09, W10)."""
        if is_deferred:
            claimed = await repairs.a_held_item()
            await repairs.end(claimed, ClaimEnd.DEFER)
            work = claimed.fence.work
        else:
            work = await repairs.a_waiting_item()

        end = await repairs.cancel(work)

        assert (end.item_state, end.execution_status) == ("cancelled", None)
        assert (await repairs.world.item(work)).state == "cancelled"


class TestAskingToCancel:
    """Somebody holds it and nothing of it is in the open."""

    async def test_is_told_to_its_holder_at_the_next_renewal(self, repairs: Repairs) -> None:
        """A claimed item is cancelled by its claimant's acknowledging alone (C55)."""
        claimed = await repairs.a_held_item()

        end = await repairs.cancel(claimed.fence.work)

        assert end.item_state == "processing"
        assert end.lease_until is not None
        renewed = await renew_work(
            repairs.world.engine, claimed.fence, deadline_ms=1_000, limits=repairs.world.limits
        )
        assert renewed.is_cancel_requested
        await repairs.end(claimed, ClaimEnd.ACKNOWLEDGE_CANCEL)
        assert (await repairs.world.item(claimed.fence.work)).state == "cancelled"

    async def test_is_acknowledged_by_whoever_reclaims_it(self, repairs: Repairs) -> None:
        """A holder that is gone cannot keep what nobody wants (C55)."""
        claimed = await repairs.a_held_item()
        await repairs.cancel(claimed.fence.work)
        await repairs.world.expire_lease(claimed.fence.work)

        found = await repairs.try_to_hold(claimed.fence.work)

        assert isinstance(found, NotStarted)
        assert found.verdict == ClaimVerdict.CANCELLED
        assert (await repairs.world.item(claimed.fence.work)).state == "cancelled"

    async def test_is_asked_once(self, repairs: Repairs) -> None:
        """Asking again changes nothing, and says since when it was asked for."""
        claimed = await repairs.a_held_item()
        await repairs.cancel(claimed.fence.work)

        with pytest.raises(ActRefused, match="was asked for at"):
            await repairs.cancel(claimed.fence.work)

        assert len(await repairs.acts()) == 1

    async def test_comes_too_late_for_what_its_holder_ends(self, repairs: Repairs) -> None:
        """The claimant decides: work that was done is done."""
        claimed = await repairs.a_held_item()
        await repairs.cancel(claimed.fence.work)

        await repairs.end(claimed, ClaimEnd.FINISH)

        assert (await repairs.world.item(claimed.fence.work)).state == "succeeded"


class TestReclaiming:
    """An operator knows that its holder is gone."""

    async def test_settles_an_open_attempt_as_lost(self, repairs: Repairs) -> None:
        """It becomes unknown and is looked up; it is never sent again (C45, C146)."""
        world = repairs.world
        accepted, started = await world.a_running_command()
        await world.expire_lease(accepted.work)
        version = await repairs.version(accepted.work)

        reclaimed = await repairs.reclaim(accepted.work, version=version)

        assert reclaimed.is_lost
        assert reclaimed.wake.family == "effect.lookup"
        assert await world.states(accepted) == ("dead", "unknown")
        assert (await world.attempt(started.attempt)).settled_as == "lost"
        (act,) = await repairs.acts()
        assert (act.act, act.subject_id, act.note, act.expected_version) == (
            "work.reclaim",
            str(accepted.work),
            NOTE,
            version,
        )

    async def test_hands_back_what_has_nothing_in_the_open(self, repairs: Repairs) -> None:
        """The next claim takes the next epoch; the row is not touched before that (C50)."""
        world = repairs.world
        claimed = await repairs.a_held_item()
        await world.expire_lease(claimed.fence.work)
        before = await world.item(claimed.fence.work)

        reclaimed = await repairs.reclaim(claimed.fence.work)

        assert not reclaimed.is_lost
        assert reclaimed.wake.work == claimed.fence.work
        assert await world.item(claimed.fence.work) == before
        assert len(await repairs.acts()) == 1
        again = await repairs.try_to_hold(claimed.fence.work)
        assert isinstance(again, ClaimedWork)
        assert again.fence.epoch == claimed.fence.epoch + 1

    async def test_on_a_live_lease_is_refused_until_it_ends(self, repairs: Repairs) -> None:
        """Its holder may be alive, and nobody's word makes it dead (C45)."""
        accepted, started = await repairs.world.a_running_command()

        with pytest.raises(ActRefused) as refusal:
            await repairs.reclaim(accepted.work)

        assert refusal.value.verdict == "in_flight"
        assert started.lease_until.isoformat() in refusal.value.remedy
        assert await repairs.world.states(accepted) == ("processing", "running")

    async def test_of_what_nobody_holds_is_refused(self, repairs: Repairs) -> None:
        """There is nothing to take back."""
        accepted = await repairs.world.accept_command()

        with pytest.raises(ActRefused, match="it is pending"):
            await repairs.reclaim(accepted.work)

    async def test_of_another_version_is_refused(self, repairs: Repairs) -> None:
        """An operator acts on what he saw (C406)."""
        accepted, _ = await repairs.world.a_running_command()
        await repairs.world.expire_lease(accepted.work)

        with pytest.raises(VersionMoved):
            await repairs.reclaim(accepted.work, version="0" * 16)

    async def test_of_an_item_of_another_org_finds_nothing(
        self, repairs: Repairs, store: Database
    ) -> None:
        """Nobody can act on, or learn of, what another org has (C8)."""
        accepted, _ = await (await World.make(store)).a_running_command()

        with pytest.raises(NoSuchTarget):
            await repairs.reclaim(accepted.work, version="0" * 16)


class TestARace:
    """Who comes first, on connections of their own."""

    async def test_of_a_cancel_and_a_claim_has_one_winner(self, repairs: Repairs) -> None:
        """Either nothing is ever sent, or the cancel is refused (C69)."""
        world = repairs.world
        won = []
        for number in range(8):
            accepted = await world.accept_command(f"lead-{number}")
            version = await repairs.version(accepted.work)
            racers = [repairs.cancel(accepted.work, version=version), world.try_to_start(accepted)]
            order = (0, 1) if number % 2 else (1, 0)

            ends = await all_at_once(
                world.database, [racers[each] for each in order], HOLD, world.org, accepted.work
            )

            cancelled, claimed = (ends[order.index(each)] for each in (0, 1))
            attempts = len(await world.of_command("effect_attempts", accepted))
            if isinstance(claimed, Started):
                assert isinstance(cancelled, VersionMoved), cancelled
                assert attempts == 1
            else:
                assert isinstance(claimed, NotStarted), claimed
                assert claimed.verdict == ClaimVerdict.FINISHED
                assert isinstance(cancelled, CancelEnd), cancelled
                assert attempts == 0
            won.append(attempts)
        assert (await audit_invariants(world.engine)).violations == 0

    async def test_of_a_reclaim_and_a_settle_has_one_winner(self, repairs: Repairs) -> None:
        """The starter's own answer stands where it came first; else it is late evidence (C160)."""
        world = repairs.world
        for number in range(8):
            accepted, started = await world.a_running_command(f"lead-{number}")
            await world.expire_lease(accepted.work)
            version = await repairs.version(accepted.work)

            reclaimed, settled = await all_at_once(
                world.database,
                [
                    repairs.reclaim(accepted.work, version=version),
                    world.settle(started, Outcome.ACCEPTED),
                ],
                HOLD,
                world.org,
                accepted.work,
            )

            if isinstance(settled, Settled):
                assert isinstance(reclaimed, VersionMoved), reclaimed
                assert await world.states(accepted) == ("succeeded", "succeeded")
            else:
                assert isinstance(settled, FenceLost), settled
                assert isinstance(reclaimed, Reclaimed), reclaimed
                assert await world.states(accepted) == ("dead", "unknown")

    async def test_of_a_cancel_and_the_end_of_the_work_has_one_winner(
        self, repairs: Repairs
    ) -> None:
        """A cancel that is too late says so, and one that is in time changes no ended row."""
        world = repairs.world
        for _ in range(4):
            claimed = await repairs.a_held_item()
            work = claimed.fence.work
            version = await repairs.version(work)

            asked, _ = await all_at_once(
                world.database,
                [repairs.cancel(work, version=version), repairs.end(claimed, ClaimEnd.FINISH)],
                HOLD,
                world.org,
                work,
            )

            assert (await world.item(work)).state == "succeeded"
            assert isinstance(asked, CancelEnd | VersionMoved), asked
