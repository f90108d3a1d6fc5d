"""The admission window: a backlog waits in SQL, in order, and never in the way of the others."""

import asyncio
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from uuid import uuid4

import asyncpg
import pytest

from oncefence.activities.waking import AdmissionWindow
from oncefence.domain.claim import ClaimEnd, WorkEnd
from oncefence.domain.command import Handover
from oncefence.domain.effect import Outcome
from oncefence.domain.ids import LeaseToken, OrgId, WorkId
from oncefence.domain.limits import Limits
from oncefence.domain.lookup import Verdict
from oncefence.storage.phases.claim_work import ClaimedWork, claim_work
from oncefence.storage.phases.find_room import Room, find_room
from oncefence.storage.phases.find_successors import find_successors
from oncefence.storage.phases.find_work import WorkRef, find_due_work
from oncefence.storage.phases.open_window import open_window
from oncefence.storage.phases.settle_work import settle_work
from tests.storage.racing import barrier, waiting
from tests.support.backlog import pile_up
from tests.support.servers import Database
from tests.support.world import World, seconds

pytestmark = pytest.mark.asyncio(loop_scope="module")

TWO = Limits(admission_window=2, sweep_grace_seconds=0)
CLASS = "records"


@dataclass(kw_only=True)
class Processes:
    """
    The processes of a deployment without Temporal: whatever it is told of stands in one line.

    All else is real: who is told comes of the store, and each is claimed and ended there.
    """

    world: World
    limits: Limits
    line: deque[WorkRef] = field(default_factory=deque)
    is_temporal_away: bool = False
    ended: Counter[OrgId] = field(default_factory=Counter)
    refused: list[str] = field(default_factory=list)
    open_max: Counter[OrgId] = field(default_factory=Counter)

    @property
    def window(self) -> AdmissionWindow:
        return AdmissionWindow(engine=self.world.engine, limits=self.limits, wake=self.wake)

    async def wake(self, ref: WorkRef) -> None:
        if self.is_temporal_away:
            raise ConnectionError
        if ref not in self.line:
            self.line.append(ref)
            count = Counter(each.org for each in self.line)[ref.org]
            self.open_max[ref.org] = max(self.open_max[ref.org], count)

    async def announce(self, refs: Sequence[WorkRef]) -> None:
        for ref in refs:
            await self.window.announce(ref, self.wake)

    async def claim(self, ref: WorkRef) -> ClaimedWork | None:
        claimed = await claim_work(
            self.world.engine,
            ref.org,
            ref.work,
            family=ref.family,
            as_of=await self.world.now(),
            owner=uuid4(),
            token=LeaseToken(uuid4()),
            limits=self.limits,
        )
        if isinstance(claimed, ClaimedWork):
            return claimed
        self.refused.append(claimed.verdict)
        return None

    async def end(self, claimed: ClaimedWork) -> None:
        await self.settle(claimed)
        await self.window.wake_successors(claimed.fence.org, claimed.fence.work)

    async def settle(self, claimed: ClaimedWork) -> None:
        fence = claimed.fence
        await settle_work(
            self.world.engine,
            fence,
            WorkEnd(end=ClaimEnd.FINISH),
            as_of=await self.world.now(),
            limits=self.limits,
        )
        self.ended[fence.org] += 1

    async def run_next(self) -> None:
        claimed = await self.claim(self.line.popleft())
        if claimed is not None:
            await self.end(claimed)

    async def run_all(self) -> None:
        while self.line:
            await self.run_next()


def works(refs: Sequence[WorkRef]) -> list[WorkId]:
    return [ref.work for ref in refs]


async def opened(world: World, limits: Limits = TWO, queue_class: str = CLASS) -> list[WorkId]:
    """Whom the window opens now, in its order."""
    chosen = await open_window(world.engine, world.org, queue_class, limits=limits)
    return [item.ref.work for item in chosen]


async def due_now(world: World, limits: Limits = TWO) -> list[WorkId]:
    """What the sweep would nudge of this org."""
    found = await find_due_work(world.engine, page=1000, limits=limits)
    return [item.ref.work for item in found if item.ref.org == world.org]


async def room_of(world: World, ref: WorkRef, limits: Limits = TWO) -> Room | None:
    found = await find_room(world.engine, ref.org, ref.work, limits=limits)
    return None if found is None else found.room


async def forget_nudges(world: World) -> None:
    """The nudges that were noted are too old to count."""
    await world.sql(
        "UPDATE oncefence.work_nudges SET next_nudge_at = clock_timestamp() WHERE org_id = :org"
    )


class TestFairness:
    async def test_ten_thousand_of_one_org_do_not_hold_up_the_ten_of_others(
        self, database: Database
    ) -> None:
        """Whoever comes after a flood waits for a window of it, and not for the flood (C57)."""
        limits = Limits()
        big = await World.make(database)
        flood = await pile_up(big, 10_000, age=seconds(60))
        processes = Processes(world=big, limits=limits)
        await processes.announce(flood[:40])
        small = []
        for _ in range(9):
            other = await World.make(database)
            small.append(other.org)
            await processes.announce(await pile_up(other, 10))
        assert Counter(ref.org for ref in processes.line) == {
            big.org: limits.admission_window,
            **dict.fromkeys(small, 10),
        }

        turns = 0
        while sum(processes.ended[org] for org in small) < 90:
            await processes.run_next()
            turns += 1

        assert turns <= 90 + 2 * limits.admission_window
        assert processes.ended[big.org] == turns - 90
        assert processes.open_max[big.org] == limits.admission_window
        assert processes.refused == []

    async def test_after_the_loss_of_everything_the_sweep_starts_each_class_again(
        self, database: Database
    ) -> None:
        """One page holds a window of the flood and all of the others, the first of each first."""
        limits = Limits(sweep_grace_seconds=0)
        big = await World.make(database)
        flood = await pile_up(big, 10_000, age=seconds(60))
        others = [await World.make(database) for _ in range(9)]
        for other in others:
            await pile_up(other, 10)

        page = await find_due_work(big.engine, page=200, limits=limits)

        assert {item.ref.org for item in page[:10]} == {big.org, *(each.org for each in others)}
        of_flood = [item.ref.work for item in page if item.ref.org == big.org]
        assert of_flood == works(flood[: limits.admission_window])
        assert len(page) == limits.admission_window + 90

    async def test_a_backlog_is_driven_by_its_own_ends(self, world: World) -> None:
        """No sweep comes, and all of it runs, in its order and a window at once (C393)."""
        backlog = await pile_up(world, 60)
        processes = Processes(world=world, limits=TWO)
        await processes.announce(backlog)
        told: list[WorkId] = []

        while processes.line:
            told.append(processes.line[0].work)
            await processes.run_next()

        assert told == works(backlog)
        assert processes.open_max[world.org] == TWO.admission_window
        assert processes.refused == []


class TestRoom:
    async def test_is_for_the_first_of_a_class(self, world: World) -> None:
        """Without a backlog acceptance starts what it accepts."""
        first, second, third = await pile_up(world, 3)

        three = Limits(admission_window=3)
        assert [await room_of(world, ref, three) for ref in (first, second, third)] == [
            Room.AMONG_FIRST
        ] * 3

    async def test_is_none_where_a_window_is_open(self, world: World) -> None:
        """What comes on top waits in SQL alone."""
        first, second, third = await pile_up(world, 3)
        assert await room_of(world, third) is Room.IN_TURN
        assert await opened(world) == [first.work, second.work]

        assert await room_of(world, third) is Room.NONE

    async def test_is_for_whoever_is_next_and_not_for_who_comes_last(self, world: World) -> None:
        """A newcomer jumps no queue: it has the window opened, in its order."""
        backlog = await pile_up(world, 4)
        processes = Processes(world=world, limits=TWO)

        assert not await processes.window.announce(backlog[-1], processes.wake)

        assert list(processes.line) == backlog[:2]

    async def test_is_not_for_what_a_claim_would_refuse(self, world: World) -> None:
        """A workflow that finds its lane taken costs a run and helps nobody."""
        first, behind = await pile_up(world, 2, source="one")

        assert await room_of(world, first) is Room.AMONG_FIRST
        assert await room_of(world, behind) is Room.HELD_BACK

    async def test_is_not_asked_for_what_is_over(self, world: World) -> None:
        """An answer that came late finds its item ended."""
        accepted, started = await world.a_running_command()
        await world.settle(started, Outcome.ACCEPTED)

        assert await find_room(world.engine, world.org, accepted.work, limits=TWO) is None

    async def test_is_counted_for_each_class_of_each_org(self, world: World) -> None:
        """A backlog at one endpoint, or of one tenant, is nobody else's."""
        other = await World.make(world.database)
        await pile_up(world, 5)
        await opened(world)
        (elsewhere,) = await pile_up(world, 1, queue_class="contacts")
        (of_other,) = await pile_up(other, 1)

        assert await room_of(world, elsewhere) is Room.AMONG_FIRST
        assert await room_of(other, of_other) is Room.AMONG_FIRST

    async def test_is_given_to_a_window_of_those_that_come_at_once(self, world: World) -> None:
        """Asked after COMMIT, each counts all that were before it: never a third is of two."""
        offers = [await world.offer(f"lead-{number}") for number in range(12)]

        async def accepted(offer: Handover) -> Room:
            receipt = await world.accept(offer)
            assert receipt.work is not None
            found = await find_room(world.engine, world.org, receipt.work, limits=TWO)
            assert found is not None
            return found.room

        found = Counter(await asyncio.gather(*(accepted(offer) for offer in offers)))

        assert found[Room.AMONG_FIRST] <= TWO.admission_window
        assert found[Room.AMONG_FIRST] + found[Room.IN_TURN] == len(offers)


class TestTheLastOfABacklog:
    @pytest.mark.parametrize("by", ["announcement", "the window"])
    async def test_is_opened_though_all_before_it_end_at_once(self, world: World, by: str) -> None:
        """Each of them sees too few alive for a backlog; whoever was opened with care looks."""
        processes = Processes(world=world, limits=TWO)
        if by == "announcement":
            for _ in range(2):
                await processes.announce(await pile_up(world, 1))
            held = [await processes.claim(processes.line.popleft()) for _ in range(2)]
            (last,) = await pile_up(world, 1)
            await processes.announce([last])
        else:
            *_, last = await pile_up(world, 3)
            await processes.window.open(world.org, CLASS)
            held = [await processes.claim(processes.line.popleft()) for _ in range(2)]
        assert list(processes.line) == []
        claims = [claimed for claimed in held if claimed is not None]
        assert len(claims) == 2
        for claimed in claims:
            await processes.settle(claimed)

        for claimed in claims:
            await processes.window.wake_successors(world.org, claimed.fence.work)

        assert list(processes.line) == [last]


class TestOpening:
    async def test_fills_the_window_once(self, world: World) -> None:
        """What is nudged and not yet claimed is open."""
        backlog = await pile_up(world, 5)

        assert await opened(world) == works(backlog[:2])
        assert await opened(world) == []

    async def test_counts_what_somebody_holds(self, world: World) -> None:
        """A claim takes the place that the nudge had, and does not add one."""
        backlog = await pile_up(world, 5)
        processes = Processes(world=world, limits=TWO)
        await opened(world)
        held = await processes.claim(backlog[0])
        assert held is not None
        assert await opened(world) == []

        await processes.end(held)

        assert list(processes.line) == [backlog[2]]

    async def test_counts_what_waits_briefly_for_another_try(self, world: World) -> None:
        """Its workflow is open: a provider that fails gets the same few, and not the next."""
        backlog = await pile_up(world, 5)
        processes = Processes(world=world, limits=TWO)
        await opened(world)
        for ref in backlog[:2]:
            held = await processes.claim(ref)
            assert held is not None
            await settle_work(
                world.engine,
                held.fence,
                WorkEnd(end=ClaimEnd.RETRY, wait_seconds=60, failure_class="unreachable"),
                as_of=await world.now(),
                limits=TWO,
            )

        assert await opened(world) == []

    async def test_gives_the_place_of_one_that_must_wait_long_to_the_next(
        self, world: World
    ) -> None:
        """A provider may ask for a day of patience with one record; the others do not wait it."""
        backlog = await pile_up(world, 4)
        processes = Processes(world=world, limits=TWO)
        await opened(world)
        held = await processes.claim(backlog[0])
        assert held is not None
        await settle_work(
            world.engine,
            held.fence,
            WorkEnd(end=ClaimEnd.DEFER, wait_seconds=3600),
            as_of=await world.now(),
            limits=TWO,
        )

        assert await opened(world) == [backlog[2].work]

    async def test_passes_over_what_is_blocked(self, world: World) -> None:
        """Whoever stands behind another is woken by its end, and takes no place before."""
        first, *_ = await pile_up(world, 3, source="one", age=seconds(10))
        free = await pile_up(world, 2)

        assert await opened(world) == [first.work, free[0].work]

    async def test_looks_past_any_number_of_blocked_ones_before_it_stands_still(
        self, world: World
    ) -> None:
        """Ever so many behind one doubt hold up nobody outside of their lane."""
        accepted, _, _ = await world.an_unknown_command()
        lane = (await world.item(accepted.work)).source_lane
        await pile_up(
            world, 8 * TWO.admission_window + 1, source=lane, after_place=10, age=seconds(9)
        )
        free = await pile_up(world, 3)
        processes = Processes(world=world, limits=TWO)

        await processes.window.open(world.org, CLASS)
        await processes.run_all()

        assert processes.ended[world.org] == 3
        assert processes.refused == []
        assert await room_of(world, free[0]) is None

    async def test_leaves_alone_what_is_due_later(self, world: World) -> None:
        """The window holds back what may run, and hurries nothing."""
        (later,) = await pile_up(world, 1, age=seconds(-3600))

        assert await opened(world) == []
        assert await due_now(world) == []
        assert await room_of(world, later) is Room.AMONG_FIRST

    async def test_leaves_to_newer_engines_what_is_theirs(self, world: World) -> None:
        """What this process could not claim would only keep a place from others (C59)."""
        newer, older = await pile_up(world, 2)
        connection = await asyncpg.connect(world.database.admin_url)
        try:
            async with connection.transaction():
                await connection.execute("SET LOCAL session_replication_role = replica")
                await connection.execute(
                    "UPDATE oncefence.work_items SET engine_capability = 99"
                    " WHERE org_id = $1 AND work_id = $2",
                    world.org,
                    newer.work,
                )
        finally:
            await connection.close()

        assert await due_now(world) == [older.work]
        assert await opened(world) == [older.work]
        assert await room_of(world, newer) is Room.HELD_BACK

    async def test_opens_one_place_once_where_two_end_at_the_same_moment(
        self, world: World
    ) -> None:
        """Two that counted at once would each give the same place, to two."""
        backlog = await pile_up(world, 5)
        one = replace(TWO, admission_window=1)
        key = f"window:{world.org}:{CLASS}"

        async with barrier(
            world.database,
            "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))",
            key,
            commits=False,
        ):
            racers = [asyncio.create_task(opened(world, one)) for _ in range(4)]
            await waiting(world.database, len(racers))
        found = await asyncio.gather(*racers)

        assert sorted(found) == [[], [], [], [backlog[0].work]]

    async def test_is_repeated_where_temporal_did_not_hear_it(self, world: World) -> None:
        """An outage of Temporal of whatever length costs each item one wait, and it counts none."""
        backlog = await pile_up(world, 3)
        limits = Limits(admission_window=2)
        processes = Processes(world=world, limits=limits, is_temporal_away=True)
        for _ in range(5):
            assert await processes.window.open(world.org, CLASS) == set()
            assert await processes.window.open(world.org, CLASS) == set(), "not tried at once again"
            await forget_nudges(world)
        processes.is_temporal_away = False

        await processes.window.open(world.org, CLASS)

        assert list(processes.line) == backlog[:2]
        nudges = await world.sql("SELECT nudges FROM oncefence.work_nudges WHERE org_id = :org")
        assert [row.nudges for row in nudges] == [1, 1]

    async def test_leaves_to_the_sweep_whom_it_could_not_wake(self, world: World) -> None:
        """One grace later, as if nobody had tried: the sweep runs where Temporal is back (C394)."""
        backlog = await pile_up(world, 3)
        processes = Processes(world=world, limits=TWO, is_temporal_away=True)

        assert await processes.window.open(world.org, CLASS) == set()

        assert await due_now(world) == works(backlog[:2])

    async def test_survives_a_process_that_dies_before_it_woke_anybody(self, world: World) -> None:
        """What was noted and never woken is opened again when the note is too old to count."""
        backlog = await pile_up(world, 3)
        assert await opened(world) == works(backlog[:2])
        assert await due_now(world) == [], "its places are taken for a while"

        await forget_nudges(world)

        assert await due_now(world) == works(backlog[:2])


class TestTheSweep:
    async def test_nudges_no_more_than_there_is_room_for(self, world: World) -> None:
        """The window holds for the sweep as for all others (C389)."""
        backlog = await pile_up(world, 5)
        assert await due_now(world) == works(backlog[:2])
        processes = Processes(world=world, limits=TWO)

        assert await processes.claim(backlog[0]) is not None

        assert await due_now(world) == [backlog[1].work]

    async def test_nudges_nothing_that_the_claim_would_refuse(self, world: World) -> None:
        """Whatever it finds is claimed: heads of lanes, and nothing behind a doubt (C389)."""
        many = replace(TWO, admission_window=100)
        await pile_up(world, 5, source="one")
        await pile_up(world, 5)
        processes = Processes(world=world, limits=many)
        await world.an_unknown_command()
        await world.accept_command(title="behind the doubt")
        found = await find_due_work(world.engine, page=1000, limits=many)
        mine = [item.ref for item in found if item.ref.org == world.org]

        for ref in mine:
            if ref.family != "effect.lookup":
                await processes.claim(ref)

        assert len(mine) == 1 + 5 + 1
        assert processes.refused == []

    async def test_finds_a_claim_whose_holder_is_gone_whatever_the_room(self, world: World) -> None:
        """It has its place already."""
        backlog = await pile_up(world, 5)
        processes = Processes(world=world, limits=TWO)
        for ref in backlog[:2]:
            assert await processes.claim(ref) is not None
        await world.expire_lease(backlog[1].work)

        assert await due_now(world) == [backlog[1].work]


class TestLanes:
    async def test_three_hundred_behind_one_doubt_cost_no_run(self, world: World) -> None:
        """They wait in SQL until it is disposed, and nobody polls for them (C57, C228)."""
        processes = Processes(world=world, limits=Limits(sweep_grace_seconds=0))
        accepted, _, lookup_work = await world.an_unknown_command()
        lane = (await world.item(accepted.work)).source_lane
        behind = await pile_up(world, 300, source=lane, after_place=10)
        await processes.announce(behind)
        assert list(processes.line) == []
        assert await due_now(world, processes.limits) == [lookup_work]
        await processes.window.open(world.org, CLASS)
        assert list(processes.line) == []

        looking = await world.start_looking(lookup_work)
        await world.settle_looking(looking.fence, Verdict.APPLIED)
        await processes.window.wake_successors(world.org, lookup_work)
        told = []
        for _ in range(5):
            told.append(processes.line[0])
            await processes.run_next()

        assert told == behind[:5], "one after the other, each woken by the end of the one before"
        assert len(processes.line) == 1
        assert processes.refused == []

    async def test_a_head_is_woken_when_the_second_of_its_lanes_is_free(self, world: World) -> None:
        """Whoever frees the first of two lanes wakes nobody, and who frees the second does."""
        (in_source,) = await pile_up(world, 1, source="one")
        (in_target,) = await pile_up(world, 1, target="two")
        (behind,) = await pile_up(world, 1, source="one", target="two", after_place=1)
        processes = Processes(world=world, limits=Limits())
        await processes.announce([in_source, in_target, behind])
        assert list(processes.line) == [in_source, in_target]

        await processes.run_next()
        assert list(processes.line) == [in_target]
        await processes.run_next()

        assert list(processes.line) == [behind]

    async def test_a_head_that_nobody_announced_waits_for_the_second_of_its_lanes(
        self, world: World
    ) -> None:
        """In a class without a backlog the end itself says who is next, and asks both lanes."""
        (in_source,) = await pile_up(world, 1, source="one")
        (in_target,) = await pile_up(world, 1, target="two")
        (behind,) = await pile_up(world, 1, source="one", target="two", after_place=1)
        processes = Processes(world=world, limits=Limits())

        for ended, next_ in ((in_source, []), (in_target, [behind])):
            claimed = await processes.claim(ended)
            assert claimed is not None
            await processes.settle(claimed)

            found = await find_successors(
                world.engine, ended.org, ended.work, limits=processes.limits
            )
            assert [ref.work for ref in found.refs] == [ref.work for ref in next_]
