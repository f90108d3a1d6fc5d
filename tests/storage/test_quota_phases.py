"""Quota where it is used: the mark takes it, a settlement gives it back, and the rest waits."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from oncefence.catalog.view import IntegrationBindingView
from oncefence.domain.claim import ClaimVerdict
from oncefence.domain.effect import Outcome
from oncefence.domain.ids import LeaseToken, WorkId
from oncefence.domain.lookup import Verdict
from oncefence.storage.claims import NotStarted
from oncefence.storage.phases.settle_attempt import AttemptEnd
from oncefence.storage.phases.start_attempt import Started
from oncefence.storage.phases.start_lookup import LookupStarted
from tests.support.servers import Database
from tests.support.world import OPERATION, World, an_end, example_view

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def limited(store: Database, burst: int | str = 3, daily: int | str = "false") -> World:
    """A world whose account has so many requests in ten seconds, and so many a day."""
    quota = f"\n[quota]\nburst = {burst}\ndaily = {daily}\n"
    return await World.make(store, view=example_view(quota=quota))


async def used(world: World, dimension: str = "burst") -> int:
    """How many units of the world's account are used."""
    rows = await world.sql(
        "SELECT oncefence.quota_used(c) AS units FROM oncefence.quota_counts AS c"
        " WHERE binding_id = :binding AND dimension = :dimension",
        binding=world.binding,
        dimension=dimension,
    )
    return int(rows[0].units) if rows else 0


async def behind_the_guards(world: World, statement: str, value: str) -> None:
    """What connecting would have written of the world's binding."""
    connection = await asyncpg.connect(world.database.admin_url)
    try:
        async with connection.transaction():
            await connection.execute("SET LOCAL session_replication_role = replica")
            await connection.execute(statement, value, world.binding)
    finally:
        await connection.close()


def told(**close: Any) -> dict[str, Any]:  # as an answer says it
    return {
        "rates": [],
        "close": {"dimension": None, "seconds": 30.0, "until_midnight": False} | close,
    }


class TestTheMark:
    async def test_takes_a_unit_of_each_dimension_and_keeps_it_with_the_attempt(
        self, store: Database
    ) -> None:
        """What was used for which attempt can be told, and given back (C300)."""
        world = await limited(store, daily=1_000)
        accepted = await world.accept_command()
        started = await world.start(accepted)
        (attempt,) = await world.of_command("effect_attempts", accepted)

        assert started.attempt == attempt.attempt_id
        assert [unit["key"].split("/")[1] for unit in attempt.quota] == ["burst", "daily"]
        assert {unit["purpose"] for unit in attempt.quota} == {"effect"}
        assert (await used(world), await used(world, "daily")) == (1, 1)

    async def test_that_is_asked_for_again_takes_nothing_again(self, store: Database) -> None:
        """The answer to its COMMIT was lost, and the same token finds it (C301)."""
        world = await limited(store)
        accepted = await world.accept_command()
        token = LeaseToken(uuid4())
        first = await world.start(accepted, token=token)
        again = await world.start(accepted, token=token)

        assert again.attempt == first.attempt
        assert await used(world) == 1

    async def test_is_not_made_without_room_and_nothing_is_spent(self, store: Database) -> None:
        """An item waits as it is, however often it comes too early (C52, C301)."""
        world = await limited(store, burst=1, daily=1_000)
        await world.start(await world.accept_command("lead-1"))
        waiting = await world.accept_command("lead-2")
        before = await world.item(waiting.work)
        now = await world.now()

        held = [await world.try_to_start(waiting) for _ in range(3)]

        after = await world.item(waiting.work)
        assert all(isinstance(each, NotStarted) for each in held)
        assert {each.verdict for each in held if isinstance(each, NotStarted)} == {
            ClaimVerdict.QUOTA_HELD
        }
        assert now + timedelta(seconds=9) < after.run_after < now + timedelta(seconds=15)
        assert (after.state, after.attempt, after.claims_lost, after.ownership_epoch) == (
            before.state,
            before.attempt,
            before.claims_lost,
            before.ownership_epoch,
        )
        assert after.run_after >= max(
            each.until for each in held if isinstance(each, NotStarted) and each.until is not None
        )
        assert (await used(world), await used(world, "daily")) == (1, 1)

    async def test_of_a_command_that_was_accepted_before_there_was_quota(
        self, store: Database
    ) -> None:
        """Views of before have no counts, and their work goes on as it did."""
        view = example_view(quota="")
        old = view.model_copy(
            update={
                "operations": {
                    name: operation.model_copy(update={"quota": ()})
                    for name, operation in view.operations.items()
                }
            }
        )
        text = old.to_json().replace(',"quota":[]', "", 1)
        world = await World.make(store, view=IntegrationBindingView.from_json(text))

        started = await world.start(await world.accept_command())

        assert isinstance(started, Started)
        assert await used(world) == 0

    async def test_of_one_account_is_counted_whoever_connected_it(self, store: Database) -> None:
        """The provider counts by account, and knows nothing of our orgs (C300)."""
        worlds = [await limited(store, burst=1) for _ in range(2)]
        account = f"account-{uuid4()}"
        for world in worlds:
            await behind_the_guards(
                world,
                "UPDATE oncefence.binding_generations SET account = $1 WHERE binding_id = $2",
                account,
            )
        first, second = [await world.accept_command() for world in worlds]
        await worlds[0].start(first)

        held = await worlds[1].try_to_start(second)

        assert isinstance(held, NotStarted)
        assert held.verdict is ClaimVerdict.QUOTA_HELD


class TestTheEndOfAnAttempt:
    @pytest.mark.parametrize(
        ("outcome", "units"),
        [
            (Outcome.RETRYABLE_PRE_DISPATCH, 0),
            (Outcome.ACCEPTED, 1),
            (Outcome.REJECTED, 1),
            (Outcome.REPLAY_SAFE_RETRY, 1),
            (Outcome.OUTCOME_UNKNOWN, 1),
        ],
    )
    async def test_gives_back_what_provably_never_left_and_nothing_else(
        self, store: Database, outcome: Outcome, units: int
    ) -> None:
        """The provider counted what reached it, whatever it said to it."""
        world = await limited(store)
        _, started = await world.a_running_command()
        await world.settle(started, outcome)
        await world.settle(started, outcome)

        assert await used(world) == units

    async def test_that_nobody_saw_keeps_it(self, store: Database) -> None:
        """A worker that died may have sent it."""
        world = await limited(store)
        await world.an_unknown_command()

        assert await used(world) == 1

    @pytest.mark.parametrize(
        ("closes", "other_binding_waits"), [("class", False), ("provider", True)]
    )
    async def test_closes_what_the_answer_says_for_the_others(
        self, store: Database, closes: str, other_binding_waits: bool
    ) -> None:
        """One answer is enough: nobody else has to be turned away to learn it (C302)."""
        world, other = await limited(store), await limited(store)
        address = f"http://127.0.0.1:1/{uuid4()}"
        for each in (world, other):
            await behind_the_guards(
                each,
                "UPDATE oncefence.principal_bindings SET base_url = $1 WHERE binding_id = $2",
                address,
            )
        _, started = await world.a_running_command("lead-1")
        waiting, of_other = await world.accept_command("lead-2"), await other.accept_command()
        await world.settle(started, _refused(told(closes=closes, because="status 429")))

        held, of_other_held = await world.try_to_start(waiting), await other.try_to_start(of_other)

        assert isinstance(held, NotStarted)
        assert (held.verdict, held.failure_class) == (ClaimVerdict.QUOTA_HELD, None)
        assert isinstance(of_other_held, NotStarted) == other_binding_waits
        assert (await world.item(waiting.work)).attempt == 0


def _refused(says: Mapping[str, Any]) -> AttemptEnd:
    end = an_end(Outcome.REPLAY_SAFE_RETRY, may_have_applied=False, failure_class="rate_limited")
    return replace(end, told=says)


class TestALookup:
    async def test_takes_a_unit_for_itself(self, store: Database) -> None:
        """A read counts at the provider as a write does."""
        world = await limited(store)
        _, _, lookup = await world.an_unknown_command()
        await world.start_looking(lookup)

        assert await used(world) == 2

    async def test_asked_for_again_by_the_same_claim_takes_nothing_again(
        self, store: Database
    ) -> None:
        """The answer to its COMMIT was lost (C301)."""
        world = await limited(store)
        _, _, lookup = await world.an_unknown_command()
        token = LeaseToken(uuid4())
        for _ in range(2):
            assert isinstance(await world.try_to_look(lookup, token=token), LookupStarted)

        assert await used(world) == 2

    async def test_that_has_no_room_waits_unclaimed(self, store: Database) -> None:
        """It spends no try and no claim; its share is a tenth, and at least one."""
        world = await limited(store, burst=5)
        lookups = [(await world.an_unknown_command(f"lead-{n}"))[2] for n in range(2)]
        await world.start_looking(lookups[0])
        before = await world.item(lookups[1])

        held = await world.try_to_look(lookups[1])

        after = await world.item(lookups[1])
        assert isinstance(held, NotStarted)
        assert held.verdict is ClaimVerdict.QUOTA_HELD
        assert (after.state, after.ownership_epoch, after.claims_lost) == (
            "pending",
            before.ownership_epoch,
            0,
        )
        assert after.run_after > before.run_after
        # There was room in all, so that writes go on.
        assert isinstance(await world.try_to_start(await world.accept_command("lead-3")), Started)

    async def test_that_is_paused_gives_its_unit_back(self, store: Database) -> None:
        """No read is made, so nothing may count as read."""
        world = await limited(store)
        _, _, lookup = await world.an_unknown_command()
        await world.sql(
            "INSERT INTO oncefence.pauses (org_id, pause_id, paused_by, paused_note)"
            " VALUES (:org, gen_random_uuid(), 'ann', 'n')"
        )

        held = await world.try_to_look(lookup)

        assert isinstance(held, NotStarted)
        assert held.verdict is ClaimVerdict.PAUSED
        assert await used(world) == 1

    async def test_that_the_starters_word_settles_needs_no_quota(self, store: Database) -> None:
        """Nothing is read, so nothing has to be left for it."""
        world = await limited(store, burst=2)
        accepted, started, lookup = await world.an_unknown_command("lead-1")
        await world.start(await world.accept_command("lead-2"))
        await world.tell(started, an_end(Outcome.ACCEPTED))

        looking = await world.try_to_look(lookup)

        assert isinstance(looking, LookupStarted)
        assert looking.late_words
        assert await used(world) == 2
        await world.conclude(looking, Verdict.APPLIED)
        assert (await world.execution(accepted)).status == "succeeded"


async def test_what_a_command_uses_is_frozen_at_acceptance(store: Database) -> None:
    """A revision that is activated later changes the limits of later commands alone (C561)."""
    world = await limited(store, burst=7, daily=500)
    accepted = await world.accept_command()
    (row,) = await world.sql(
        "SELECT quota, lookup_quota FROM oncefence.commands"
        " WHERE org_id = :org AND command_id = :command",
        command=accepted.command,
    )

    assert {each["name"]: each["limit"] for each in row.quota} == {"burst": 7, "daily": 500}
    assert {each["class"] for each in row.quota} == {"crm.objects.write"}
    assert {each["class"] for each in row.lookup_quota} == {"crm.objects.read"}
    assert row.quota == example_view(quota="\n[quota]\nburst = 7\ndaily = 500\n").operation(
        OPERATION
    ).quota_dimensions("crm.objects.write")


class TestABacklog:
    """Those behind a limit come about as fast as it lets them through (C303)."""

    ONE_IN_TEN = '[{"name": "burst", "limit": 10, "window_s": 1}]'
    TURN = (
        "SELECT oncefence.quota_turn(w, CAST(:until AS timestamptz), CAST(:dimensions AS jsonb))"
        " AS turn FROM oncefence.work_items AS w WHERE w.org_id = :org AND w.work_id = :work"
    )

    async def turns(self, world: World, work: WorkId, until: datetime) -> list[float]:
        """After how many seconds from `until` it would come, asked fifty times."""
        found = []
        for _ in range(50):
            (row,) = await world.sql(self.TURN, work=work, until=until, dimensions=self.ONE_IN_TEN)
            found.append((row.turn - until).total_seconds())
        return found

    async def test_of_more_than_the_limit_is_spread_over_the_time_that_it_takes(
        self, world: World
    ) -> None:
        """All at once would be a storm of claims at each opening, of which ten succeed."""
        waiting = [await world.accept_command(f"lead-{number}") for number in range(31)]
        until = await world.now() + timedelta(seconds=1)
        assert set(await self.turns(world, waiting[0].work, until)) == {0.0}
        await world.sql(
            "UPDATE oncefence.work_items SET run_after = clock_timestamp() + interval '1 hour'"
            " WHERE org_id = :org AND work_id <> :work",
            work=waiting[0].work,
        )

        turns = await self.turns(world, waiting[0].work, until)

        # Thirty wait, ten go at once: the other twenty take two windows, less a fifth.
        assert 0 <= min(turns) < max(turns) <= 1.6
        assert max(turns) > 0.8
