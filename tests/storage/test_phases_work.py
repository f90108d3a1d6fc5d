"""The phases of every family that is a handler alone: add, claim, renew, settle."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from uuid import uuid4

import pytest

from oncefence.activities.work import WorkActivity
from oncefence.domain.claim import ClaimEnd, ClaimVerdict, WorkEnd
from oncefence.domain.errors import ConfigurationRefused, FenceLost, NoSuchTarget
from oncefence.domain.fence import Fence
from oncefence.domain.ids import LeaseToken, ViewId, WorkId, family_work_id
from oncefence.domain.limits import Limits
from oncefence.storage.claims import NotStarted
from oncefence.storage.phases.add_work import AddedWork, NewWork, add_work
from oncefence.storage.phases.claim_work import ClaimedWork, claim_work
from oncefence.storage.phases.publish_view import publish_view
from oncefence.storage.phases.renew_work import Renewed, renew_work
from oncefence.storage.phases.settle_work import WorkSettled, settle_work
from tests.conformance.toy import TOY, Toy
from tests.storage.racing import all_at_once, barrier, waiting
from tests.storage.test_lease_clock import while_a_moment_passes
from tests.support.world import INSTALLATION, World, example_view, seconds

pytestmark = pytest.mark.asyncio(loop_scope="module")

IN_LANE_A = "INSERT INTO oncefence.lanes (org_id, lane_key, sequence) VALUES ($1, 'a', 1)"
FAILED = WorkEnd(end=ClaimEnd.RETRY, failure_class="NotYet", wait_seconds=0)


async def new_work(world: World, subject: str = "one", **terms: object) -> NewWork:
    (view,) = await world.sql("SELECT view_id FROM oncefence.binding_views WHERE org_id = :org")
    new = NewWork(
        org=world.org,
        family=TOY,
        subject_kind="toy",
        subject_id=subject,
        view=ViewId(view.view_id),
        definition="toy.count",
        queue_class="toys",
        deadline_ms=1_000,
    )
    return replace(new, **terms)  # type: ignore[arg-type]  # terms are the test's


async def add(world: World, subject: str = "one", **terms: object) -> WorkId:
    return (await add_work(world.engine, await new_work(world, subject, **terms))).ref.work


async def try_to_claim(world: World, work: WorkId, **named: object) -> ClaimedWork | NotStarted:
    told = {"family": TOY, "token": LeaseToken(uuid4()), **named}
    as_of = max(await world.now(), (await world.item(work)).run_after)
    return await claim_work(
        world.engine, world.org, work, as_of=as_of, owner=uuid4(), limits=world.limits, **told
    )  # type: ignore[arg-type]  # named by the test


async def claimed(world: World, work: WorkId) -> ClaimedWork:
    found = await try_to_claim(world, work)
    assert isinstance(found, ClaimedWork), found
    return found


async def settle(world: World, fence: Fence, end: WorkEnd) -> WorkSettled:
    return await settle_work(world.engine, fence, end, as_of=await world.now(), limits=world.limits)


class TestAnItem:
    async def test_is_all_that_it_was_said_to_be(self, world: World) -> None:
        """Definition and revision are those of one view, and nothing of them changes (C42)."""
        new = await new_work(
            world,
            provider="hubspot",
            binding=world.binding,
            source_lane="a",
            target_lane="b",
            payload_schema_version=3,
            run_after=await world.now() + timedelta(hours=1),
        )

        added = await add_work(world.engine, new)

        row = await world.item(new.work)
        (view,) = await world.sql("SELECT * FROM oncefence.binding_views WHERE org_id = :org")
        assert added == AddedWork(ref=added.ref, is_new=True)
        assert (added.ref.work, added.ref.run_after) == (new.work, new.run_after)
        assert (row.state, row.via, row.run_after) == ("pending", "create", new.run_after)
        assert (row.installation, row.view_digest, row.view_revision) == (
            view.installation,
            view.digest,
            view.revision,
        )
        assert (row.provider, row.binding_id, row.definition) == (
            "hubspot",
            world.binding,
            "toy.count",
        )
        assert (row.source_lane, row.source_sequence) == ("a", 1)
        assert (row.target_lane, row.target_sequence) == ("b", 1)
        assert (row.payload_schema_version, row.engine_capability) == (3, new.engine_capability)
        assert (row.command_id, row.execution_id) == (None, None)

    async def test_is_made_once(self, world: World) -> None:
        """Its identity is computed, and its place in its lane drawn once (C384, C221)."""
        new = await new_work(world, source_lane="a")
        first = await add_work(world.engine, new)

        again = await add_work(world.engine, replace(new, run_after=await world.now()))

        assert again == AddedWork(ref=first.ref, is_new=False)
        assert await world.count("work_items") == 1
        assert (await world.item(await add(world, "two", source_lane="a"))).source_sequence == 2

    async def test_is_made_once_by_many_at_once(self, world: World) -> None:
        """Who comes second finds it, and draws nothing (C221)."""
        new = await new_work(world, source_lane="a", target_lane="a")

        ends = await all_at_once(
            world.database,
            [add_work(world.engine, new) for _ in range(10)],
            IN_LANE_A,
            world.org,
        )

        added = [end for end in ends if isinstance(end, AddedWork)]
        assert sorted(each.is_new for each in added) == [False] * 9 + [True], ends
        assert len({each.ref for each in added}) == 1
        (lane,) = await world.sql("SELECT sequence FROM oncefence.lanes WHERE org_id = :org")
        assert lane.sequence == 1

    async def test_that_waits_for_one_lane_keeps_nobody_from_another(self, world: World) -> None:
        """Lanes are drawn in the order of their names, so nobody waits in a ring (C221)."""
        behind = await new_work(world, source_lane="b", target_lane="a")
        async with barrier(world.database, IN_LANE_A, world.org, commits=False):
            adding = asyncio.create_task(add_work(world.engine, behind))
            await waiting(world.database, 1)

            async with asyncio.timeout(10):
                alone = await add(world, "alone", source_lane="b")

        assert (await adding).is_new
        places = [(await world.item(each)).source_sequence for each in (alone, behind.work)]
        assert places == [1, 2]

    async def test_of_a_command_is_the_one_active_item_of_its_family(self, world: World) -> None:
        """Another occasion has its item when the one before it has ended (C52)."""
        accepted = await world.accept_command()
        new = await new_work(world, command=accepted.command, execution=accepted.execution)
        first = await add_work(world.engine, new)

        second = await add_work(world.engine, replace(new, ordinal=2))

        assert (second.ref.work, second.is_new) == (first.ref.work, False)
        await settle(world, (await claimed(world, new.work)).fence, WorkEnd(end=ClaimEnd.FINISH))
        third = await add_work(world.engine, replace(new, ordinal=2))
        assert third.is_new

    async def test_of_another_occasion_or_org_is_another(self, world: World) -> None:
        """The parts of its name cannot be cut in two ways (C384)."""
        names = {
            family_work_id(world.org, TOY, "toy", "a", 1),
            family_work_id(world.org, TOY, "toy", "a", 2),
            family_work_id(world.org, TOY, "toy", "1:a", 1),
            family_work_id(world.org, TOY, "other", "a", 1),
        }
        assert len(names) == 4

    async def test_is_of_the_revision_that_it_names(self, world: World) -> None:
        """A revision that is published meanwhile is another one's (C42, C519)."""
        new = await new_work(world)
        (pinned,) = await world.sql("SELECT * FROM oncefence.binding_views WHERE org_id = :org")
        await publish_view(
            world.engine,
            world.org,
            INSTALLATION,
            example_view(is_sensitive=True),
            actor="tests",
            activate=True,
        )

        await add_work(world.engine, new)

        row = await world.item(new.work)
        assert (row.view_id, row.view_digest, row.view_revision) == (
            pinned.view_id,
            pinned.digest,
            pinned.revision,
        )

    async def test_needs_a_view_of_its_own_org(self, world: World, other_world: World) -> None:
        """And says what to do where there is none."""
        foreign = (await new_work(other_world)).view

        with pytest.raises(NoSuchTarget, match="publish it"):
            await add(world, view=foreign)

        assert await world.count("work_items") == 0

    @pytest.mark.parametrize("terms", [{"deadline_ms": 0}, {"ordinal": 0}], ids=str)
    async def test_has_a_deadline_and_a_number(
        self, world: World, terms: dict[str, object]
    ) -> None:
        """A lease of nothing would be over before it began."""
        with pytest.raises(ValueError, match="deadline"):
            await new_work(world, **terms)


class TestAClaim:
    async def test_tells_the_handler_what_it_holds(self, world: World) -> None:
        """And no more: what belongs to the claim stays with the kernel."""
        work = await add(world, payload_schema_version=2)

        found = await claimed(world, work)

        assert (found.family, found.subject_kind, found.subject_id) == (TOY, "toy", "one")
        assert (found.definition, found.payload_schema_version) == ("toy.count", 2)
        assert (found.attempts_made, found.fence.epoch) == (0, 1)

    async def test_of_another_family_finds_no_such_item(self, world: World) -> None:
        """A dispatch has a claim of its own, which writes more than the item (C41)."""
        accepted = await world.accept_command()

        found = await try_to_claim(world, accepted.work)

        assert found == NotStarted(verdict=ClaimVerdict.NO_SUCH_ITEM, until=None)
        assert await world.states(accepted) == ("pending", "accepted")

    async def test_that_is_poison_says_how_often_it_was_lost(self, world: World) -> None:
        """An operator sees what it was given up for (C56)."""
        world.limits = Limits(claims_lost_max=1)
        work = await add(world)
        await claimed(world, work)
        await world.expire_lease(work)

        await try_to_claim(world, work)

        row = await world.item(work)
        assert (row.failure_class, row.summary) == ("poison", "1 claims of it ended by expiry")

    async def test_that_was_ended_in_its_place_is_told_so(self, world: World) -> None:
        """Its own end did not happen, so it is no repeat of one (C54)."""
        world.limits = Limits(claims_lost_max=1)
        work = await add(world)
        held = await claimed(world, work)
        await world.expire_lease(work)
        await try_to_claim(world, work)

        for end in (WorkEnd(end=ClaimEnd.FINISH), WorkEnd(end=ClaimEnd.GIVE_UP, failure_class="x")):
            with pytest.raises(FenceLost):
                await settle(world, held.fence, end)


class TestARenewal:
    async def test_that_waited_for_the_row_is_a_whole_one(self, world: World) -> None:
        """Its lease begins when the row is held, and not when it was asked for (C204)."""
        work = await add(world)
        held = await claimed(world, work)
        began = await world.now()

        renewed = await while_a_moment_passes(
            world,
            work,
            renew_work(world.engine, held.fence, deadline_ms=600_000, limits=world.limits),
        )

        assert isinstance(renewed, Renewed)
        whole = seconds(600 + world.limits.lease_margin_scaled_seconds)
        assert renewed.lease_until > began + seconds(0.5) + whole


class TestAnEnd:
    @pytest.mark.parametrize(
        ("end", "state"),
        [
            (WorkEnd(end=ClaimEnd.FINISH, summary="done"), "succeeded"),
            (WorkEnd(end=ClaimEnd.SKIP), "skipped"),
            (WorkEnd(end=ClaimEnd.DEFER, wait_seconds=60), "retry"),
            (WorkEnd(end=ClaimEnd.RETRY, failure_class="NotYet"), "retry"),
            (WorkEnd(end=ClaimEnd.GIVE_UP, failure_class="Never"), "dead"),
            (WorkEnd(end=ClaimEnd.ACKNOWLEDGE_CANCEL), "cancelled"),
        ],
        ids=lambda each: getattr(each, "end", each),
    )
    async def test_again_is_the_same(self, world: World, end: WorkEnd, state: str) -> None:
        """The answer to its COMMIT was lost (C53, C172)."""
        work = await add(world)
        held = await claimed(world, work)
        first = await settle(world, held.fence, end)
        row = await world.item(work)

        again = await settle(world, held.fence, end)

        assert first == again
        assert (first.item_state, row.state, row.left_by) == (state, state, held.fence.token)
        assert first.next_due == (row.run_after if state == "retry" else None)
        assert await world.item(work) == row

    async def test_of_a_failure_counts_and_keeps_its_distance(self, world: World) -> None:
        """In the row, so that no claimant of whatever age comes back at once (C250)."""
        work = await add(world)
        as_of = await world.now()

        settled = await settle(world, (await claimed(world, work)).fence, FAILED)

        row = await world.item(work)
        assert (row.attempt, row.failure_class) == (1, "NotYet")
        assert settled.next_due is not None
        assert settled.next_due >= as_of + seconds(world.limits.retry_spacing_scaled_seconds)

    async def test_of_the_last_failure_is_the_end(self, world: World) -> None:
        """What always fails stops at the ceiling, and says of what (C51)."""
        world.limits = Limits(attempts_max=2)
        work = await add(world)
        await settle(world, (await claimed(world, work)).fence, FAILED)

        settled = await settle(world, (await claimed(world, work)).fence, FAILED)

        assert settled == WorkSettled(
            item_state="dead", next_due=None, failure_class="attempts_exhausted"
        )
        assert (await world.item(work)).attempt == 2

    async def test_that_waits_is_no_failure(self, world: World) -> None:
        """However often it waits (C51)."""
        world.limits = Limits(attempts_max=1)
        work = await add(world)
        for _ in range(3):
            wait = WorkEnd(end=ClaimEnd.DEFER, wait_seconds=0)
            await settle(world, (await claimed(world, work)).fence, wait)

        assert (await world.item(work)).attempt == 0

    async def test_by_a_clock_that_lags_is_never_due_before_it_was(self, world: World) -> None:
        """Two processes have two clocks, and the row lets nothing be due earlier (C200)."""
        work = await add(world)
        held = await claimed(world, work)
        run_after = (await world.item(work)).run_after

        settled = await settle_work(
            world.engine,
            held.fence,
            WorkEnd(end=ClaimEnd.DEFER, wait_seconds=1),
            as_of=run_after - timedelta(seconds=5),
            limits=world.limits,
        )

        assert settled.next_due == run_after + seconds(1)

    async def test_of_no_item_is_lost(self, world: World) -> None:
        """Of whatever org: nothing is told of what is not there."""
        stranger = Fence(org=world.org, work=WorkId(uuid4()), token=LeaseToken(uuid4()), epoch=1)

        with pytest.raises(FenceLost):
            await settle(world, stranger, WorkEnd(end=ClaimEnd.FINISH))


class TestHandlers:
    @pytest.mark.parametrize(
        "families", [(TOY, TOY), ("effect.dispatch",), ("effect.lookup",)], ids=str
    )
    async def test_are_one_for_each_family(self, world: World, families: tuple[str, ...]) -> None:
        """A second one would be passed over, and those of the kernel have runs of their own."""
        with pytest.raises(ConfigurationRefused, match="has a run already"):
            WorkActivity(None, [Toy(family=family) for family in families])  # type: ignore[arg-type]  # refused before it is used


async def test_an_open_attempt_keeps_any_claim_out(world: World) -> None:
    """Even one that names the right family by mistake of a handler: the database holds it (C50)."""
    accepted, _ = await world.a_running_command()
    await world.expire_lease(accepted.work)

    with pytest.raises(Exception, match="nothing in the open"):
        await try_to_claim(world, accepted.work, family="effect.dispatch")

    assert await world.states(accepted) == ("processing", "running")
