"""Lookups: five tries at their times, what each verdict settles, and who gets what is left."""

from uuid import uuid4

import pytest

from oncefence.domain.claim import ClaimVerdict
from oncefence.domain.effect import Outcome
from oncefence.domain.errors import FenceLost
from oncefence.domain.ids import LeaseToken
from oncefence.domain.limits import Limits
from oncefence.domain.lookup import WAITS_SECONDS, Verdict
from oncefence.storage.claims import NotStarted
from oncefence.storage.engine import sqlstate
from oncefence.storage.phases.find_successors import find_successors
from oncefence.storage.phases.start_lookup import LookupStarted, unseal_lookup
from tests.storage.racing import all_at_once
from tests.support.servers import Database
from tests.support.world import TOKEN, Accepted, World, an_end, seconds

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def is_lane_free(world: World, subject: str = "lead-1") -> bool:
    behind = await world.accept_command(subject, title="behind")
    return not isinstance(await world.try_to_start(behind), NotStarted)


async def stands(world: World, accepted: Accepted) -> tuple[str, str | None, int]:
    execution = await world.execution(accepted)
    return execution.status, execution.failure_class, execution.settlements


class TestTheLadder:
    @pytest.mark.parametrize("verdict", [Verdict.NOT_FOUND, Verdict.INCONCLUSIVE])
    async def test_has_five_tries_at_the_five_waits(self, world: World, verdict: Verdict) -> None:
        """The n-th lookup waits the n-th wait, counted from the one before (C262, C270)."""
        accepted, started = await world.a_running_command()
        as_of = await world.now()
        settled = await world.settle(started, Outcome.OUTCOME_UNKNOWN, as_of=as_of)
        assert settled.lookup is not None
        lookup_work = settled.lookup.work
        due = (await world.item(lookup_work)).run_after
        assert due == as_of + seconds(WAITS_SECONDS[0])

        for wait in WAITS_SECONDS[1:]:
            early = await world.try_to_look(lookup_work, as_of=due - seconds(0.001))
            assert isinstance(early, NotStarted)
            assert early.verdict is ClaimVerdict.NOT_DUE
            looking = await world.try_to_look(lookup_work, as_of=due)
            assert isinstance(looking, LookupStarted)
            done = await world.conclude(looking, verdict, as_of=due)
            assert done.execution_status == "unknown"
            assert done.next_due == due + seconds(wait)
            due = done.next_due
        last = await world.try_to_look(lookup_work, as_of=due)
        assert isinstance(last, LookupStarted)
        assert last.tries_spent == 4
        done = await world.conclude(last, verdict, as_of=due)

        expected = "failed" if verdict is Verdict.NOT_FOUND else "needs_attention"
        assert (done.execution_status, done.next_due) == (expected, None)
        assert [row.try_ for row in await named(world, accepted)] == [1, 2, 3, 4, 5]
        assert (await world.item(lookup_work)).state == "succeeded"

    async def test_is_not_climbed_by_a_closed_door(self, world: World) -> None:
        """A provider that cannot be reached spends none of the five tries (C265)."""
        accepted, _, lookup_work = await world.an_unknown_command()

        for _ in range(7):
            done = await world.look(lookup_work, Verdict.UNREACHABLE)
            assert done.execution_status == "unknown"
        looking = await world.start_looking(lookup_work)

        assert looking.tries_spent == 0
        assert [row.try_ for row in await named(world, accepted)] == [None] * 7

    async def test_leaves_sensitive_work_to_a_person(self, store: Database) -> None:
        """Not found at the fifth try decides nothing there (C271)."""
        world = await World.make(store, is_sensitive=True)
        accepted, started, lookup_work = await world.an_unknown_command()

        for _ in range(5):
            done = await world.look(lookup_work, Verdict.NOT_FOUND)

        assert done.execution_status == "needs_attention"
        assert (await world.attempt(started.attempt)).disposition is None
        assert not await is_lane_free(world)
        assert await world.of_command("completions", accepted) == []

    async def test_is_shortened_where_time_is_scaled(self, world: World) -> None:
        """One factor for all waits (C208)."""
        world.limits = Limits(time_scale=0.01)
        _, _, lookup_work = await world.an_unknown_command()
        as_of = await world.now()

        done = await world.look(lookup_work, Verdict.INCONCLUSIVE, as_of=as_of)

        assert done.next_due == as_of + seconds(WAITS_SECONDS[1] * 0.01)


async def named(world: World, accepted: Accepted) -> list[object]:
    rows = await world.sql(
        'SELECT "try" AS try_, verdict, reading FROM oncefence.lookups WHERE org_id = :org'
        " AND execution_id = :execution ORDER BY looked_at",
        execution=accepted.execution,
    )
    return list(rows)


class TestAVerdict:
    @pytest.mark.parametrize(
        ("verdict", "status", "failure", "disposition"),
        [
            (Verdict.APPLIED, "succeeded", None, "applied"),
            (Verdict.REFUSED, "failed", "lookup_refused", "refused"),
        ],
    )
    async def test_that_decides_settles_at_the_first_try(
        self, world: World, verdict: Verdict, status: str, failure: str, disposition: str
    ) -> None:
        """Attempt, item, execution and completion together, and the lane passes on (C101, C269)."""
        accepted, started, lookup_work = await world.an_unknown_command()

        await world.look(lookup_work, verdict)

        assert await stands(world, accepted) == (status, failure, 1)
        assert (await world.attempt(started.attempt)).disposition == disposition
        assert (await world.item(lookup_work)).state == "succeeded"
        completions = await world.of_command("completions", accepted)
        assert [row.status for row in completions] == [status]
        assert (await world.execution(accepted)).settled_by == "investigator"
        assert await is_lane_free(world)

    async def test_of_not_found_passes_the_lane_on_and_permits_no_second_send(
        self, world: World
    ) -> None:
        """It settles and proves nothing: the command has no further attempt (C102, C189)."""
        accepted, started, lookup_work = await world.an_unknown_command()

        for _ in range(5):
            await world.look(lookup_work, Verdict.NOT_FOUND)

        assert await stands(world, accepted) == ("failed", "lookup_not_found", 1)
        assert (await world.attempt(started.attempt)).disposition == "not_found"
        answer = await world.try_to_start(accepted)
        assert isinstance(answer, NotStarted)
        assert answer.verdict is ClaimVerdict.FINISHED
        assert await is_lane_free(world)

    async def test_of_no_usable_lookup_gives_it_to_a_person(self, world: World) -> None:
        """A lane that nobody may pass, and no completion: a person decides (C223, C272)."""
        accepted, started, lookup_work = await world.an_unknown_command()

        await world.look(lookup_work, Verdict.UNUSABLE)

        assert await stands(world, accepted) == ("needs_attention", "lookup_unusable", 0)
        assert (await world.attempt(started.attempt)).disposition is None
        assert (await world.item(lookup_work)).state == "succeeded"
        assert await world.of_command("completions", accepted) == []
        assert not await is_lane_free(world)

    async def test_of_unsent_is_a_proof_with_its_evidence(self, world: World) -> None:
        """The starter's own word that not one byte left: the effect is none, proven (C190)."""
        accepted, started, lookup_work = await world.an_unknown_command()
        await world.tell(started, an_end(Outcome.RETRYABLE_PRE_DISPATCH))
        looking = await world.start_looking(lookup_work)
        assert [word.kind for word in looking.late_words] == ["unsent"]

        await world.conclude(looking, Verdict.UNSENT)

        attempt = await world.attempt(started.attempt)
        evidence = await world.sql(
            "SELECT evidence_id FROM oncefence.attempt_evidence WHERE org_id = :org"
        )
        assert await stands(world, accepted) == ("failed", "lookup_unsent", 1)
        assert attempt.disposition == "no_effect_proof"
        assert attempt.disposition_evidence_id == evidence[0].evidence_id
        assert await is_lane_free(world)

    async def test_of_unsent_without_that_word_settles_nothing(self, world: World) -> None:
        """A proof needs its row (C182)."""
        accepted, _, lookup_work = await world.an_unknown_command()
        looking = await world.start_looking(lookup_work)

        with pytest.raises(Exception):  # noqa: B017  # no row, and so no transaction
            await world.conclude(looking, Verdict.UNSENT)

        assert await stands(world, accepted) == ("unknown", "outcome_unknown", 0)
        assert await world.count("lookups") == 0

    async def test_told_again_is_the_same(self, world: World) -> None:
        """The answer to the first COMMIT was lost: one lookup, one settlement."""
        for verdict in (Verdict.APPLIED, Verdict.INCONCLUSIVE):
            accepted, _, lookup_work = await world.an_unknown_command(f"lead-{verdict}")
            looking = await world.start_looking(lookup_work)
            done = await world.conclude(looking, verdict)

            again = await world.conclude(looking, verdict)

            assert again == done
            assert len(await world.of_command("lookups", accepted)) == 1

    async def test_wakes_who_waits_behind(self, world: World) -> None:
        """The dispatch lane is returned by a lookup item that stands in none (C227, C228)."""
        _, _, lookup_work = await world.an_unknown_command()
        behind = await world.accept_command(title="behind")
        await world.look(lookup_work, Verdict.APPLIED)

        successors = (
            await find_successors(world.engine, world.org, lookup_work, limits=world.limits)
        ).refs

        assert [each.work for each in successors] == [behind.work]


class TestAWordThatComesDuringALookup:
    @pytest.mark.parametrize("verdict", [each for each in Verdict if each is not Verdict.UNSENT])
    async def test_is_not_passed_over(self, world: World, verdict: Verdict) -> None:
        """What a lookup could not know is heard before it settles anything (C274)."""
        accepted, started, lookup_work = await world.an_unknown_command()
        for _ in range(4):
            await world.look(lookup_work, Verdict.INCONCLUSIVE)
        looking = await world.start_looking(lookup_work)
        await world.tell(started, an_end(Outcome.ACCEPTED))
        as_of = (await world.item(lookup_work)).run_after + seconds(1.0)

        done = await world.conclude(looking, verdict, as_of=as_of)

        assert (done.execution_status, done.next_due) == ("unknown", as_of)
        heard = await world.start_looking(lookup_work)
        assert [word.outcome for word in heard.late_words] == ["ACCEPTED"]
        assert heard.tries_spent == 4
        await world.conclude(heard, Verdict.APPLIED)
        assert (await world.execution(accepted)).status == "succeeded"


class TestAClaimOfALookup:
    async def test_hands_over_what_the_read_needs(self, world: World) -> None:
        """The record, the frozen request to compare with, and a token that shows nothing."""
        accepted, started, lookup_work = await world.an_unknown_command()

        looking = await world.start_looking(lookup_work)

        assert (looking.attempt, looking.command) == (started.attempt, accepted.command)
        assert looking.remote_id == "1000"
        opened = unseal_lookup(world.ring, looking)
        assert opened is not None
        assert opened.request.written == {"jobtitle": "Director"}
        assert opened.token.reveal() == TOKEN
        assert TOKEN not in repr((looking, opened))
        assert "Director" not in repr((looking, opened))

    async def test_without_its_generation_opens_nothing(self, world: World) -> None:
        """The account is another one now: there is no usable lookup (C267)."""
        _, _, lookup_work = await world.an_unknown_command()
        await world.retire_generation()

        assert unseal_lookup(world.ring, await world.start_looking(lookup_work)) is None

    async def test_is_found_again_by_its_own_token(self, world: World) -> None:
        """The claimant whose COMMIT got no answer finds its claim and no second one (C172)."""
        _, _, lookup_work = await world.an_unknown_command()
        token = LeaseToken(uuid4())

        first, again = [await world.try_to_look(lookup_work, token=token) for _ in range(2)]

        assert isinstance(first, LookupStarted)
        assert isinstance(again, LookupStarted)
        assert (again.fence, again.fence.epoch) == (first.fence, 1)

    async def test_is_one_however_many_look(self, world: World) -> None:
        """Investigations may overlap, and one of them settles (C275)."""
        _, _, lookup_work = await world.an_unknown_command()

        answers = await all_at_once(
            world.database,
            [world.try_to_look(lookup_work) for _ in range(8)],
            "SELECT FROM oncefence.work_items WHERE org_id = $1 AND work_id = $2 FOR UPDATE",
            world.org,
            lookup_work,
        )

        assert sum(isinstance(answer, LookupStarted) for answer in answers) == 1
        others = {answer.verdict for answer in answers if isinstance(answer, NotStarted)}
        assert others == {ClaimVerdict.IN_FLIGHT}

    async def test_that_lost_its_claimant_is_made_again(self, world: World) -> None:
        """A lookup is a read; the stale claimant settles nothing with it (C54)."""
        accepted, _, lookup_work = await world.an_unknown_command()
        stale = await world.start_looking(lookup_work)
        await world.expire_lease(lookup_work)
        fresh = await world.start_looking(lookup_work)

        with pytest.raises(FenceLost):
            await world.conclude(stale, Verdict.NOT_FOUND)

        assert await world.count("lookups") == 0
        await world.conclude(fresh, Verdict.APPLIED)
        assert (await world.execution(accepted)).status == "succeeded"

    async def test_that_kills_its_claimants_goes_to_a_person(self, world: World) -> None:
        """At the ceiling of lost claims the item dies and the execution is listed (C273)."""
        world.limits = Limits(claims_lost_max=2)
        accepted, _, lookup_work = await world.an_unknown_command()
        for _ in range(2):
            await world.start_looking(lookup_work)
            await world.expire_lease(lookup_work)

        answer = await world.try_to_look(lookup_work)

        assert isinstance(answer, NotStarted)
        assert (answer.failure_class, answer.execution_status) == ("poison", "needs_attention")
        assert (await world.item(lookup_work)).state == "dead"
        assert await stands(world, accepted) == ("needs_attention", "poison", 0)

    async def test_cannot_be_cancelled(self, world: World) -> None:
        """Nobody may stop looking while it is unknown (C273)."""
        _, _, lookup_work = await world.an_unknown_command()

        with pytest.raises(Exception) as refused:  # its SQLSTATE counts
            await world.sql(
                "UPDATE oncefence.work_items SET state = 'cancelled', via = 'cancel'"
                " WHERE org_id = :org AND work_id = :work",
                work=lookup_work,
            )

        assert sqlstate(refused.value) == "OF032"
