"""What the sweep finds, and whom the end of one item wakes."""

import pytest

from oncefence.domain.effect import Outcome
from oncefence.domain.ids import WorkId
from oncefence.domain.limits import Limits
from oncefence.storage.phases.find_successors import find_successors
from oncefence.storage.phases.find_work import find_due_work
from oncefence.storage.phases.note_nudges import note_nudges
from tests.storage.lifecycle_rows import move_item
from tests.support.servers import Database
from tests.support.world import World, seconds

pytestmark = pytest.mark.asyncio(loop_scope="module")

AT_ONCE = Limits(sweep_grace_seconds=0)


async def due(world: World, limits: Limits = AT_ONCE) -> set[WorkId]:
    found = await find_due_work(world.engine, page=1000, limits=limits)
    return {each.ref.work for each in found if each.ref.org == world.org}


async def sweep(world: World) -> set[WorkId]:
    """What the sweep finds of this org, and has nudged afterwards."""
    found = await find_due_work(world.engine, page=1000, limits=AT_ONCE)
    mine = [each for each in found if each.ref.org == world.org]
    await note_nudges(world.engine, mine, limits=AT_ONCE)
    return {each.ref.work for each in mine}


class TestTheSweep:
    async def test_finds_the_heads_of_lanes_alone(self, world: World) -> None:
        """What stands behind would only be refused, and would fill the page."""
        first = await world.accept_command("lead-1")
        await world.accept_command("lead-1", title="behind")
        other = await world.accept_command("lead-2")

        assert await due(world) == {first.work, other.work}

    async def test_finds_nothing_behind_a_doubt(self, world: World) -> None:
        """A lane that is held is held for the sweep as well; the lookup is in none."""
        _, _, lookup_work = await world.an_unknown_command()
        await world.accept_command(title="behind")

        assert await due(world) == {lookup_work}

    async def test_finds_nothing_behind_a_doubt_that_a_later_attempt_took_over(
        self, store: Database
    ) -> None:
        """The lane is held until the doubt is disposed, whichever attempt came after (C223)."""
        world = await World.make(store, limits=Limits(attempts_max=2, sweep_grace_seconds=0))
        accepted = await world.accept_command()
        await world.give_idempotency_key(accepted, window_seconds=86_400)
        first = await world.start(accepted)
        await world.settle(first, Outcome.REPLAY_SAFE_RETRY, may_have_applied=True)
        second = await world.start(accepted)
        await world.settle(second, Outcome.RETRYABLE_PRE_DISPATCH)
        behind = await world.accept_command(title="behind")

        assert behind.work not in await due(world)

    async def test_leaves_each_its_grace(self, world: World) -> None:
        """Whoever accepted it starts it; the sweep is for what was forgotten."""
        await world.accept_command()

        assert await due(world, Limits(sweep_grace_seconds=60)) == set()

    async def test_finds_what_waits_only_when_it_is_due(self, world: World) -> None:
        """A retry that waits for its time is not late."""
        accepted, started = await world.a_running_command()
        await world.settle(
            started,
            Outcome.RETRYABLE_PRE_DISPATCH,
            as_of=await world.now() + seconds(3600),
        )

        assert await due(world) == set()
        assert (await world.item(accepted.work)).state == "retry"

    async def test_finds_a_claim_whose_lease_is_over(self, world: World) -> None:
        """Its claimant is gone, with an attempt open or without."""
        opened, _ = await world.a_running_command("lead-1")
        held = await world.accept_command("lead-2")
        await world.transaction(move_item("processing", "claim"), work=held.work)
        assert await due(world) == set()

        await world.expire_lease(opened.work)
        await world.expire_lease(held.work)

        assert await due(world) == {opened.work, held.work}

    async def test_finds_nothing_that_has_ended(self, world: World) -> None:
        """A page of finished work would starve what waits."""
        _, started = await world.a_running_command()
        await world.settle(started, Outcome.ACCEPTED)

        assert await due(world) == set()

    async def test_finds_again_what_it_did_not_get_to_nudge(self, world: World) -> None:
        """A sweep that dies between finding and nudging has lost nothing."""
        accepted = await world.accept_command()

        assert await due(world) == {accepted.work}
        assert await due(world) == {accepted.work}

    async def test_finds_what_it_nudged_only_after_a_while(self, world: World) -> None:
        """What one nudge did not move, a second one at once would not move either (C390)."""
        accepted = await world.accept_command()
        waits = []

        for minutes in (2, 4, 8, 16, 32, 60, 60):
            assert await sweep(world) == {accepted.work}
            assert await sweep(world) == set()
            rows = await world.sql(
                "SELECT next_nudge_at - clock_timestamp() AS wait FROM oncefence.work_nudges"
                " WHERE org_id = :org"
            )
            waits.append((minutes, rows[0].wait))
            await world.sql(
                "UPDATE oncefence.work_nudges SET next_nudge_at = clock_timestamp()"
                " WHERE org_id = :org"
            )

        assert all(
            seconds(-5) < wait - seconds(60 * minutes) <= seconds(0) for minutes, wait in waits
        )

    async def test_finds_it_at_once_where_something_has_changed(self, world: World) -> None:
        """Another claim or another due time is another thing to look after."""
        accepted, _ = await world.a_running_command()
        await world.expire_lease(accepted.work)
        assert await sweep(world) == {accepted.work}

        lookup = await world.settle_as_lost(accepted.work)
        assert lookup is not None
        assert await sweep(world) == {lookup.work}
        await world.start_looking(lookup.work)
        await world.expire_lease(lookup.work)
        assert await sweep(world) == {lookup.work}

    async def test_takes_a_page_at_a_time(self, world: World) -> None:
        """The longest overdue come first, and a backlog comes in pieces."""
        for number in range(3):
            await world.accept_command(f"lead-{number}")

        page = await find_due_work(world.engine, page=2, limits=AT_ONCE)

        assert len(page) == 2
        assert [each.ref.run_after for each in page] == sorted(each.ref.run_after for each in page)


class TestSuccessors:
    async def test_are_the_next_of_both_lanes(self, world: World) -> None:
        """The end of one wakes exactly who stands behind it (C228)."""
        first, started = await world.a_running_command()
        second = await world.accept_command(title="second")
        await world.accept_command(title="third")
        await world.accept_command("lead-2")
        await world.settle(started, Outcome.ACCEPTED)

        found = (
            await find_successors(world.engine, world.org, first.work, limits=world.limits)
        ).refs

        assert [(each.work, each.family) for each in found] == [(second.work, "effect.dispatch")]

    async def test_of_the_last_are_nobody(self, world: World) -> None:
        """Nothing behind it, nothing to wake."""
        accepted, started = await world.a_running_command()
        await world.settle(started, Outcome.ACCEPTED)

        assert (
            await find_successors(world.engine, world.org, accepted.work, limits=world.limits)
        ).refs == []

    async def test_are_never_of_another_org(self, world: World) -> None:
        """Lanes of one name in two orgs are two lanes (C8)."""
        other = await World.make(world.database)
        accepted, started = await world.a_running_command()
        await other.accept_command()
        await world.settle(started, Outcome.ACCEPTED)

        assert (
            await find_successors(world.engine, world.org, accepted.work, limits=world.limits)
        ).refs == []
