"""Settling an attempt: what each outcome does to both lifecycles, and who may say so."""

import pytest

from oncefence.domain.claim import ClaimVerdict
from oncefence.domain.effect import Outcome
from oncefence.domain.errors import FenceLost
from oncefence.domain.limits import Limits
from oncefence.domain.settlement import Settlement, Situation, settlement
from oncefence.storage.claims import NotStarted
from oncefence.storage.phases.find_successors import find_successors
from oncefence.storage.phases.find_work import WorkRef
from oncefence.storage.phases.settle_attempt import Settled
from oncefence.storage.phases.start_attempt import unseal
from oncefence.storage.tables import effect_attempts, executions, work_items
from tests.storage.racing import all_at_once
from tests.support.world import Accepted, World, an_end, seconds

pytestmark = pytest.mark.asyncio(loop_scope="module")

CEILING = Limits(attempts_max=1)
FLAGS = (False, True)


async def stored(world: World, accepted: Accepted) -> list[object]:
    """All that a settlement could write for the command."""
    return [
        await world.of_command(table, accepted)
        for table in (executions.name, work_items.name, effect_attempts.name, "completions")
    ]


async def check_end(world: World, accepted: Accepted, done: Settled, expected: Settlement) -> None:
    item, execution = await world.item(accepted.work), await world.execution(accepted)
    assert (item.state, item.via) == (expected.item_state, expected.item_trigger)
    assert (execution.status, execution.via) == (
        expected.execution_status,
        expected.execution_trigger,
    )
    assert item.failure_class == expected.failure_class
    assert (done.item_state, done.execution_status) == (item.state, execution.status)
    assert (item.lease_token, item.lease_owner, item.lease_until) == (None, None, None)
    is_final = expected.execution_status in ("succeeded", "failed")
    assert execution.settlements == int(is_final)
    completions = await world.of_command("completions", accepted)
    assert [row.status for row in completions] == [expected.execution_status] * is_final
    lookups = [
        row for row in await world.of_command("work_items", accepted) if row.family[-6:] == "lookup"
    ]
    assert len(lookups) == int(expected.execution_status == "unknown")
    assert [row.work_id for row in lookups] == ([done.lookup.work] if done.lookup else [])


class TestWithoutAKeyOfTheProviders:
    """Every outcome, in doubt or not, with attempts left and without: the reachable rows."""

    @pytest.mark.parametrize("at_ceiling", FLAGS)
    @pytest.mark.parametrize(
        ("outcome", "in_doubt"),
        [
            (Outcome.ACCEPTED, True),
            (Outcome.ACCEPTED, False),
            (Outcome.REJECTED, False),
            (Outcome.RETRYABLE_PRE_DISPATCH, False),
            (Outcome.REPLAY_SAFE_RETRY, False),
            (Outcome.REPLAY_SAFE_RETRY, True),
            (Outcome.OUTCOME_UNKNOWN, True),
        ],
    )
    async def test_the_outcome_decides(
        self, world: World, outcome: Outcome, in_doubt: bool, at_ceiling: bool
    ) -> None:
        """The row of the table is what happens, in one transaction (C81)."""
        world.limits = CEILING if at_ceiling else world.limits
        accepted, started = await world.a_running_command()

        done = await world.settle(started, outcome, may_have_applied=in_doubt)

        situation = Situation(at_ceiling=at_ceiling, may_have_applied=in_doubt, replay_open=False)
        await check_end(world, accepted, done, settlement(outcome, situation))


class TestUnderAKeyOfTheProviders:
    """The second attempt of a command whose first may have applied: the fold over both."""

    @pytest.mark.parametrize("at_ceiling", FLAGS)
    @pytest.mark.parametrize("is_open", FLAGS)
    @pytest.mark.parametrize("outcome", Outcome)
    async def test_an_earlier_doubt_weighs_in(
        self, world: World, outcome: Outcome, is_open: bool, at_ceiling: bool
    ) -> None:
        """No later answer makes an earlier attempt undone (C83, C85, C94)."""
        accepted = await world.accept_command()
        await world.give_idempotency_key(accepted, window_seconds=3600)
        first = await world.start(accepted)
        await world.settle(first, Outcome.REPLAY_SAFE_RETRY, may_have_applied=True)
        world.limits = Limits(attempts_max=2) if at_ceiling else world.limits
        second = await world.start(accepted)
        late = (await world.now()) + seconds(0 if is_open else 3600)

        done = await world.settle(second, an_end(outcome, retry_after_seconds=1), as_of=late)

        situation = Situation(at_ceiling=at_ceiling, may_have_applied=True, replay_open=is_open)
        await check_end(world, accepted, done, settlement(outcome, situation))
        assert (await world.attempt(first.attempt)).superseded_by == second.attempt
        if done.lookup is not None:
            # The newest that may have applied, which need not be the one that settled.
            newest = second if outcome is Outcome.OUTCOME_UNKNOWN else first
            assert (await world.item(done.lookup.work)).attempt_id == newest.attempt

    async def test_past_its_window_nothing_is_sent_again(self, world: World) -> None:
        """A whole send must still fit in, or the key may be forgotten before it arrives (C94)."""
        accepted = await world.accept_command()
        await world.give_idempotency_key(accepted, window_seconds=60)
        first = await world.start(accepted)
        await world.settle(first, Outcome.REPLAY_SAFE_RETRY, may_have_applied=True)
        began = (await world.attempt(first.attempt)).started_as_of
        too_late = began + seconds(60 - first.deadline_ms / 1000)

        answer = await world.try_to_start(accepted, as_of=too_late)

        assert isinstance(answer, NotStarted)
        assert (answer.verdict, answer.execution_status) == (
            ClaimVerdict.CANNOT_PROCEED,
            "unknown",
        )

    async def test_inside_its_window_the_next_attempt_supersedes_the_first(
        self, world: World
    ) -> None:
        """The same bytes under the same key: a repeat, and not a second effect."""
        accepted = await world.accept_command()
        await world.give_idempotency_key(accepted, window_seconds=60)
        first = await world.start(accepted)
        await world.settle(first, Outcome.REPLAY_SAFE_RETRY, may_have_applied=True)

        second = await world.start(accepted)

        assert second.ordinal == 2
        assert second.idempotency_key == str(accepted.command)
        sent = [unseal(world.ring, each).request for each in (first, second)]
        assert sent[0] == sent[1]


OLDER = (
    "SELECT verdict, item_state, execution_status FROM oncefence.settle_attempt_v1(:org, :work,"
    " :attempt, :token, :epoch, 'ACCEPTED', true, NULL, 200, '{}', '{}', NULL, clock_timestamp(),"
    " clock_timestamp(), 8, clock_timestamp())"
)


class TestTheOlderFunction:
    async def test_settles_as_the_one_of_now(self, world: World) -> None:
        """A worker of the version before may have its answer when a deployment rolls (C159)."""
        accepted, started = await world.a_running_command()

        (settled,) = await world.sql(
            OLDER,
            work=accepted.work,
            attempt=started.attempt,
            token=started.fence.token,
            epoch=started.fence.epoch,
        )

        assert tuple(settled) == ("settled", "succeeded", "succeeded")
        assert len(await world.of_command("completions", accepted)) == 1


class TestWhatIsWritten:
    async def test_is_how_it_ended(self, world: World) -> None:
        """Everything an attempt must show is in its row (C144)."""
        _, started = await world.a_running_command()
        end = an_end(
            Outcome.REJECTED,
            failure_class="rejected",
            response_status=409,
            receipt={"remote_id": "1000"},
        )

        await world.settle(started, end)

        row = await world.attempt(started.attempt)
        assert (row.outcome, row.may_have_applied, row.settled_as) == ("REJECTED", False, "starter")
        assert (row.failure_class, row.response_status) == ("rejected", 409)
        assert row.provider_receipt == {"remote_id": "1000"}
        assert (row.settled_token, row.settled_epoch) == (started.fence.token, started.fence.epoch)

    async def test_holds_the_answer_sealed(self, world: World) -> None:
        """The body may hold what only its tenant may read; it opens in its own place alone."""
        accepted, started = await world.a_running_command()
        key = unseal(world.ring, started).answer_key
        place = ("answer", world.org, started.execution, started.ordinal)

        await world.settle(
            started, an_end(Outcome.ACCEPTED, sealed_answer=key.seal(b"the answer", *place))
        )

        rows = await world.sql(
            "SELECT ciphertext FROM oncefence.sealed_payloads WHERE org_id = :org"
            " AND execution_id = :execution AND kind = 'answer' AND ordinal = 1",
            execution=accepted.execution,
        )
        assert b"the answer" not in rows[0].ciphertext
        assert key.open(rows[0].ciphertext, *place) == b"the answer"

    async def test_is_a_completion_after_the_frozen_contract(self, world: World) -> None:
        """The Runtime is told what was agreed at acceptance, once a settlement (C99)."""
        accepted, started = await world.a_running_command()

        await world.settle(started, Outcome.ACCEPTED)

        row = (await world.of_command("completions", accepted))[0]
        assert row.completion_id == f"{accepted.execution}:1"
        assert (row.settlement, row.status, row.supersedes) == (1, "succeeded", None)
        assert row.contract["command"] == "lead.title.pushed"

    async def test_says_when_a_retry_or_lookup_is_due(self, world: World) -> None:
        """A retry waits what it was told, the first lookup after a lost answer its 30 s (C261)."""
        for outcome, wait in ((Outcome.RETRYABLE_PRE_DISPATCH, 7), (Outcome.OUTCOME_UNKNOWN, 30)):
            accepted, started = await world.a_running_command(f"lead-{outcome}")
            as_of = await world.now()

            done = await world.settle(started, an_end(outcome, retry_after_seconds=7), as_of=as_of)

            due = await world.item(done.lookup.work if done.lookup else accepted.work)
            assert done.next_due == due.run_after == as_of + seconds(wait)


class TestAfterwards:
    @pytest.mark.parametrize("outcome", Outcome)
    async def test_settling_again_is_the_same(self, world: World, outcome: Outcome) -> None:
        """The answer to the first COMMIT was lost: what it wrote stands and is told again."""
        accepted, started = await world.a_running_command()
        done = await world.settle(started, outcome)
        before = await stored(world, accepted)

        again = await world.settle(started, outcome)

        assert await stored(world, accepted) == before
        assert (again.item_state, again.execution_status) == (
            done.item_state,
            done.execution_status,
        )
        assert again.lookup == done.lookup
        if done.next_due is not None:
            assert again.next_due == done.next_due

    @pytest.mark.parametrize(
        "outcome", [Outcome.ACCEPTED, Outcome.REJECTED, Outcome.RETRYABLE_PRE_DISPATCH]
    )
    async def test_the_lane_is_free_again(self, world: World, outcome: Outcome) -> None:
        """What is known, whatever it is, keeps nobody waiting (C224)."""
        world.limits = CEILING
        accepted, started = await world.a_running_command()
        behind = await world.accept_command(title="Head")
        # As the wire says it: what was accepted has applied.
        await world.settle(started, outcome)

        assert [
            each.work
            for each in (
                await find_successors(world.engine, world.org, accepted.work, limits=world.limits)
            ).refs
        ]
        assert (await world.start(behind)).ordinal == 1


class TestAStaleClaimant:
    @pytest.mark.parametrize("outcome", Outcome)
    async def test_writes_nothing_once_its_attempt_was_settled_as_lost(
        self, world: World, outcome: Outcome
    ) -> None:
        """It is told that the fence is lost; its answer belongs in the evidence (C54, C161)."""
        accepted, started, _ = await world.an_unknown_command()
        before = await stored(world, accepted)

        with pytest.raises(FenceLost):
            await world.settle(started, outcome)

        assert await stored(world, accepted) == before

    async def test_may_still_settle_before_anybody_called_it_lost(self, world: World) -> None:
        """Token and epoch decide, not the time: its own answer is the better knowledge (C163)."""
        accepted, started = await world.a_running_command()
        await world.expire_lease(accepted.work)

        await world.settle(started, Outcome.ACCEPTED)

        assert await world.states(accepted) == ("succeeded", "succeeded")
        assert await world.settle_as_lost(accepted.work) is None

    async def test_races_the_sweep_for_one_settlement(self, world: World) -> None:
        """Either the answer stands or the attempt is lost, and never a little of both (C66)."""
        accepted, started = await world.a_running_command()
        await world.expire_lease(accepted.work)

        answers = await all_at_once(
            world.database,
            [
                world.settle(started, Outcome.ACCEPTED),
                world.settle_as_lost(accepted.work),
            ],
            "SELECT FROM oncefence.work_items WHERE org_id = $1 AND work_id = $2 FOR UPDATE",
            world.org,
            accepted.work,
        )

        if isinstance(answers[0], Settled):
            assert await world.states(accepted) == ("succeeded", "succeeded")
        else:
            assert isinstance(answers[0], FenceLost)
            assert await world.states(accepted) == ("dead", "unknown")


class TestSettlingAsLost:
    async def test_makes_it_unknown_and_its_lookup_due_at_once(self, world: World) -> None:
        """The lease was the wait; nothing is sent, and somebody looks (C149, C261)."""
        accepted, started, lookup_work = await world.an_unknown_command()

        item, execution = await world.item(accepted.work), await world.execution(accepted)
        attempt, lookup = await world.attempt(started.attempt), await world.item(lookup_work)
        assert (item.state, item.via, item.failure_class) == (
            "dead",
            "attempt_lost",
            "outcome_unknown",
        )
        assert (execution.status, execution.via) == ("unknown", "attempt_lost")
        assert (attempt.outcome, attempt.settled_as) == ("OUTCOME_UNKNOWN", "lost")
        assert attempt.may_have_applied
        assert (lookup.state, lookup.attempt_id) == ("pending", started.attempt)
        assert lookup.run_after <= await world.now()
        assert (lookup.source_lane, lookup.target_lane) == (None, None)

    async def test_on_a_live_lease_does_nothing(self, world: World) -> None:
        """Nobody calls an attempt lost while its starter may still be sending (C205)."""
        accepted, _ = await world.a_running_command()
        before = await stored(world, accepted)

        lost = await world.settle_as_lost(accepted.work)

        assert lost is None
        assert await stored(world, accepted) == before

    async def test_again_does_nothing(self, world: World) -> None:
        """The sweep and a re-run may both find it; one settles."""
        accepted, _, _ = await world.an_unknown_command()
        before = await stored(world, accepted)

        assert await world.settle_as_lost(accepted.work) is None
        assert await stored(world, accepted) == before

    async def test_is_done_once_however_many_sweep(self, world: World) -> None:
        """Eight sweeps at once make one lookup item."""
        accepted, _ = await world.a_running_command()
        await world.expire_lease(accepted.work)

        answers = await all_at_once(
            world.database,
            [world.settle_as_lost(accepted.work) for _ in range(8)],
            "SELECT FROM oncefence.work_items WHERE org_id = $1 AND work_id = $2 FOR UPDATE",
            world.org,
            accepted.work,
        )

        assert sum(isinstance(answer, WorkRef) for answer in answers) == 1
        assert answers.count(None) == 7
        assert await world.states(accepted) == ("dead", "unknown")
