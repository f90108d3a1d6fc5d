"""The dispatch mark: who may send, and everyone who may not."""

from uuid import uuid4

import pytest

from oncefence.domain.claim import ClaimVerdict
from oncefence.domain.effect import Outcome
from oncefence.domain.ids import LeaseToken, WorkId, attempt_id
from oncefence.domain.limits import Limits
from oncefence.domain.lookup import Verdict
from oncefence.storage.claims import NotStarted
from oncefence.storage.engine import sqlstate
from oncefence.storage.phases.start_attempt import Started, start_attempt, unseal
from tests.storage.lifecycle_rows import EXPIRE, move_execution, move_item
from tests.storage.racing import all_at_once
from tests.support.world import TOKEN, Accepted, World, seconds

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def verdict(world: World, accepted: Accepted) -> ClaimVerdict | str:
    answer = await world.try_to_start(accepted)
    return answer.verdict if isinstance(answer, NotStarted) else "started"


async def claim_by_hand(world: World, accepted: Accepted) -> None:
    """A claim whose claimant prepared something and marked nothing."""
    await world.transaction(move_item("processing", "claim"), work=accepted.work)


class TestAStartedAttempt:
    async def test_is_marked_in_both_lifecycles(self, world: World) -> None:
        """Claim, mark and both moves are one transaction (C65, C146)."""
        accepted, started = await world.a_running_command()

        item, execution = await world.item(accepted.work), await world.execution(accepted)
        attempt = await world.attempt(started.attempt)
        assert (item.state, execution.status) == ("processing", "running")
        assert (item.attempt, execution.attempt, attempt.ordinal) == (1, 1, 1)
        assert (item.lease_token, item.ownership_epoch) == (
            started.fence.token,
            started.fence.epoch,
        )
        assert (attempt.lease_token, attempt.ownership_epoch) == (
            started.fence.token,
            started.fence.epoch,
        )
        assert (attempt.settled_at, attempt.outcome) == (None, None)
        assert started.attempt == attempt_id(accepted.work, 1)

    async def test_has_a_lease_of_deadline_and_margin(self, world: World) -> None:
        """The end of the lease is the bound and a minute (C205)."""
        before = await world.now()
        _, started = await world.a_running_command()
        after = await world.now()

        lease = seconds(started.deadline_ms / 1000 + 60)
        assert before + lease <= started.lease_until <= after + lease

    async def test_hands_over_request_and_token_sealed(self, world: World) -> None:
        """Nothing of it is in the clear until its starter opens it (C9)."""
        _, started = await world.a_running_command()

        assert TOKEN not in repr(started)
        assert "Director" not in repr(started)
        unsealed = unseal(world.ring, started)
        assert unsealed.token.reveal() == TOKEN
        assert b"Director" in unsealed.request.body
        assert TOKEN not in repr(unsealed)
        assert "Director" not in repr(unsealed)

    async def test_is_found_again_by_its_own_token(self, world: World) -> None:
        """The starter whose COMMIT got no answer finds its mark and no second one (C172)."""
        accepted = await world.accept_command()
        token = LeaseToken(uuid4())

        first = await world.start(accepted, token=token)
        again = await world.start(accepted, token=token)

        assert (again.attempt, again.fence) == (first.attempt, first.fence)
        assert len(await world.of_command("effect_attempts", accepted)) == 1

    async def test_is_in_flight_for_everybody_else(self, world: World) -> None:
        """Whoever finds it started and unsettled sends nothing (C149)."""
        accepted, started = await world.a_running_command()

        answer = await world.try_to_start(accepted)

        assert isinstance(answer, NotStarted)
        assert (answer.verdict, answer.until) == (ClaimVerdict.IN_FLIGHT, started.lease_until)

    async def test_is_lost_once_its_lease_is_over(self, world: World) -> None:
        """It is settled as unknown then, and still not sent again (C149)."""
        accepted, _ = await world.a_running_command()
        await world.expire_lease(accepted.work)

        assert await verdict(world, accepted) == ClaimVerdict.ATTEMPT_LOST
        assert await world.states(accepted) == ("processing", "running")

    async def test_is_one_however_many_want_it(self, world: World) -> None:
        """Eight connections before one item: one marks, seven are told that it flies (C49)."""
        accepted = await world.accept_command()

        answers = await all_at_once(
            world.database,
            [world.try_to_start(accepted) for _ in range(8)],
            "SELECT FROM oncefence.work_items WHERE org_id = $1 AND work_id = $2 FOR UPDATE",
            world.org,
            accepted.work,
        )

        winners = [answer for answer in answers if isinstance(answer, Started)]
        others = [a.verdict for a in answers if isinstance(a, NotStarted)]
        assert (len(winners), others) == (1, [ClaimVerdict.IN_FLIGHT] * 7)
        assert len(await world.of_command("effect_attempts", accepted)) == 1


class TestWhatIsNotDue:
    async def test_waits_by_the_time_that_the_caller_gives(self, world: World) -> None:
        """Due times are judged by `as_of` and never by the server's clock (C201)."""
        accepted = await world.accept_command()
        due = (await world.item(accepted.work)).run_after

        early = await world.try_to_start(accepted, as_of=due - seconds(0.001))

        assert isinstance(early, NotStarted)
        assert (early.verdict, early.until) == (ClaimVerdict.NOT_DUE, due)
        assert isinstance(await world.try_to_start(accepted, as_of=due), Started)

    async def test_is_due_in_whole_milliseconds(self, world: World) -> None:
        """A finer due time would look as if it were ahead to a workflow's clock."""
        item = await world.item((await world.accept_command()).work)

        assert item.run_after.microsecond % 1000 == 0

    async def test_or_is_not_there_or_is_done_is_told_apart(self, world: World) -> None:
        """A worker stops for each of them, for another reason each."""
        accepted, started = await world.a_running_command()
        await world.settle(started, Outcome.ACCEPTED)
        nobody = await start_attempt(
            world.engine,
            world.org,
            WorkId(uuid4()),
            as_of=await world.now(),
            owner=uuid4(),
            token=LeaseToken(uuid4()),
            limits=world.limits,
        )

        assert isinstance(nobody, NotStarted)
        assert nobody.verdict is ClaimVerdict.NO_SUCH_ITEM
        assert await verdict(world, accepted) == ClaimVerdict.FINISHED

    async def test_needs_an_engine_that_can_run_it(self, world: World) -> None:
        """An older process leaves alone what it would run wrongly (C59)."""
        accepted = await world.accept_command()
        row = (
            await world.sql(
                "SELECT verdict FROM oncefence.start_attempt_v2(:org, :work, clock_timestamp(),"
                " gen_random_uuid(), gen_random_uuid(), interval '60 s', 5, 1, 32, true)",
                work=accepted.work,
            )
        )[0]

        assert row.verdict == ClaimVerdict.NEEDS_NEWER_ENGINE
        assert await world.states(accepted) == ("pending", "accepted")


class TestTheLane:
    async def test_lets_the_earlier_one_go_first(self, world: World) -> None:
        """While it waits, while it flies and while it waits again (C223)."""
        first, second = await world.accept_command(), await world.accept_command(title="Head")

        assert await verdict(world, second) == ClaimVerdict.LANE_BLOCKED
        started = await world.start(first)
        assert await verdict(world, second) == ClaimVerdict.LANE_BLOCKED
        await world.settle(started, Outcome.RETRYABLE_PRE_DISPATCH)
        assert await verdict(world, second) == ClaimVerdict.LANE_BLOCKED
        await world.settle(await world.start(first), Outcome.ACCEPTED)
        assert await verdict(world, second) == "started"

    async def test_waits_for_what_is_in_doubt(self, world: World) -> None:
        """Unknown and needs_attention hold it; only what settles passes it on (C223, C224)."""
        first, _, lookup_work = await world.an_unknown_command()
        second = await world.accept_command(title="Head")

        assert await verdict(world, second) == ClaimVerdict.LANE_BLOCKED
        await world.look(lookup_work, Verdict.UNUSABLE)
        assert await world.states(first) == ("dead", "needs_attention")
        assert await verdict(world, second) == ClaimVerdict.LANE_BLOCKED

    async def test_of_another_record_is_free(self, world: World) -> None:
        """Lanes are narrow: one stuck record holds up no other."""
        await world.an_unknown_command("lead-1")

        assert await verdict(world, await world.accept_command("lead-2")) == "started"

    async def test_is_not_passed_while_a_claim_is_held(self, world: World) -> None:
        """A claimant that has marked nothing holds its place all the same."""
        first, second = await world.accept_command(), await world.accept_command(title="Head")
        await claim_by_hand(world, first)

        assert await verdict(world, first) == ClaimVerdict.IN_FLIGHT
        assert await verdict(world, second) == ClaimVerdict.LANE_BLOCKED


class TestWhatItReliesOn:
    @pytest.mark.parametrize(
        ("what", "failure"),
        [
            ("link moved", "link_changed"),
            ("link suspended", "link_changed"),
            ("link retired", "link_changed"),
            ("account reconnected", "binding_generation_stale"),
        ],
    )
    @pytest.mark.parametrize("was", ["accepted", "retrying"])
    async def test_gone_ends_both_lifecycles(
        self, world: World, what: str, failure: str, was: str
    ) -> None:
        """Work for the old target is never sent to a new one (C6, C141)."""
        accepted = await world.accept_command()
        if was == "retrying":
            await world.settle(await world.start(accepted), Outcome.RETRYABLE_PRE_DISPATCH)
        if what == "account reconnected":
            await world.retire_generation()
        else:
            state = {"link moved": "active", "link suspended": "suspended"}.get(what, "retired")
            await world.change_link("lead-1", state)

        answer = await world.try_to_start(accepted)

        assert isinstance(answer, NotStarted)
        assert (answer.verdict, answer.failure_class, answer.execution_status) == (
            ClaimVerdict.CANNOT_PROCEED,
            failure,
            "failed",
        )
        item, execution = await world.item(accepted.work), await world.execution(accepted)
        assert (item.state, item.failure_class) == ("cancelled", failure)
        assert (execution.via, execution.failure_class) == ("cannot_proceed", failure)
        completions = await world.of_command("completions", accepted)
        assert [(row.status, row.settlement) for row in completions] == [("failed", 1)]

    async def test_gone_while_an_attempt_may_have_applied_is_unknown(self, world: World) -> None:
        """Nothing may be called failed that a first attempt may have done (C85)."""
        accepted = await world.accept_command()
        await world.give_idempotency_key(accepted, window_seconds=3600)
        first = await world.start(accepted)
        await world.settle(first, Outcome.REPLAY_SAFE_RETRY, may_have_applied=True)
        await world.change_link("lead-1")

        answer = await world.try_to_start(accepted)

        assert isinstance(answer, NotStarted)
        assert answer.execution_status == "unknown"
        assert (await world.execution(accepted)).via == "safety_ended"
        assert answer.lookup is not None
        assert (await world.item(answer.lookup.work)).attempt_id == first.attempt
        assert await world.of_command("completions", accepted) == []

    @pytest.mark.parametrize(
        ("change", "failure"),
        [
            ("remote_links SET version = version + 1", "link_changed"),
            ("binding_generations SET state = 'retired'", "binding_generation_stale"),
        ],
    )
    async def test_is_locked_and_then_judged(self, world: World, change: str, failure: str) -> None:
        """A change that commits while the mark waits for it is seen, and nothing is sent (C168)."""
        accepted = await world.accept_command()

        answers = await all_at_once(
            world.database,
            [world.try_to_start(accepted)],
            f"UPDATE oncefence.{change} WHERE org_id = $1",
            world.org,
            commits=True,
        )

        assert [getattr(answer, "failure_class", answer) for answer in answers] == [failure]
        assert await world.of_command("effect_attempts", accepted) == []


class TestAReclaim:
    async def test_takes_over_what_nobody_marked(self, world: World) -> None:
        """A claim that ended by expiry is counted, and takes nothing from the attempts (C51)."""
        accepted = await world.accept_command()
        await claim_by_hand(world, accepted)
        await world.expire_lease(accepted.work)

        started = await world.start(accepted)

        item = await world.item(accepted.work)
        assert (started.fence.epoch, started.ordinal) == (2, 1)
        assert (item.via, item.claims_lost, item.attempt) == ("reclaim", 1, 1)

    async def test_past_the_ceiling_is_poison(self, world: World) -> None:
        """What kills each claimant must not kill claimants for ever (C56)."""
        world.limits = Limits(claims_lost_max=2)
        accepted = await world.accept_command()
        await claim_by_hand(world, accepted)
        await world.transaction(EXPIRE, move_item("processing", "reclaim"), work=accepted.work)
        await world.expire_lease(accepted.work)
        world.limits = Limits(claims_lost_max=1)

        answer = await world.try_to_start(accepted)

        assert isinstance(answer, NotStarted)
        assert (answer.failure_class, answer.execution_status) == ("poison", "failed")
        assert await world.states(accepted) == ("dead", "failed")
        assert (await world.item(accepted.work)).claims_lost == 1


async def test_an_item_whose_execution_ended_elsewhere_is_an_alarm(world: World) -> None:
    """Both must end together (C86); where they did not, nothing is sent and the code says why."""
    accepted = await world.accept_command()
    await world.transaction(
        move_execution("cancelled", "cancel_before_first_attempt"), execution=accepted.execution
    )

    with pytest.raises(Exception) as refused:  # its SQLSTATE is what counts
        await world.try_to_start(accepted)

    assert sqlstate(refused.value) == "OF040"
