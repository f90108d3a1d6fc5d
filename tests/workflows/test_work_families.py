"""A family that is a handler alone, on a real Temporal: everything else is the kernel's."""

import asyncio
import io
import json
import logging
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import pairwise
from uuid import uuid4

import pytest
import structlog
from temporalio.client import Client

from oncefence.activities import work as work_activity
from oncefence.activities.contracts import RunResult
from oncefence.app.logs import configure_logs
from oncefence.domain.claim import ClaimEnd, ClaimVerdict, WorkEnd
from oncefence.domain.ids import LeaseToken, WorkId
from oncefence.domain.limits import Limits
from oncefence.storage.claims import NotStarted
from oncefence.storage.phases.claim_work import ClaimedWork, claim_work
from tests.conformance.toy import Act, Toy, toy_item
from tests.support.servers import Database
from tests.support.station import Station, make_station, new_queue, until, working
from tests.support.world import World, seconds
from tests.workflows.watching import TIMER_STARTED, events, results

pytestmark = pytest.mark.asyncio(loop_scope="module")

QUICK = Limits(
    attempts_max=3,
    retry_spacing_seconds=0.05,
    lease_margin_seconds=0.3,
    start_to_close_margin_seconds=5,
)
"""A claim of an item with a deadline of 300 ms is renewed each fifth of a second."""
BRIEF_MS = 300
SECRET = "card 4111 of ann@example.org"


@asynccontextmanager
async def at_work(
    store: Database,
    client: Client,
    *,
    limits: Limits = QUICK,
    queue: str | None = None,
    **acts: Act,
) -> AsyncIterator[tuple[Station, Toy]]:
    """A worker with the toy family, in a world of its own."""
    toy = Toy(acts=acts)
    world = await World.make(store, org=f"org-{new_queue()[5:17]}", limits=limits)
    station = make_station(world, client, queue or new_queue())
    async with working(station, [toy]):
        yield station, toy


async def begin(station: Station, subject: str, **terms: object) -> WorkId:
    """An item of the family that Temporal was told of."""
    ref = await toy_item(station.world, subject, **terms)
    await station.announcer.announce(ref)
    return ref.work


async def in_state(station: Station, work: WorkId, *states: str) -> str:
    """The state of the item, when it is one of these."""

    async def is_there() -> str | None:
        state = (await station.world.item(work)).state
        return state if state in states else None

    return await until(is_there, what=f"state {states}") or ""


async def ended(station: Station, work: WorkId) -> str:
    """The state in which the item ended, when its workflow has ended as well."""
    state = await in_state(station, work, "succeeded", "skipped", "dead", "cancelled")
    await station.workflow(work).result()
    return state


def ending(*ends: WorkEnd) -> Act:
    """A handler that ends so at its first run, so at its second, and so at every later one."""
    left = list(ends)

    async def act(work: ClaimedWork) -> WorkEnd:
        return left.pop(0) if len(left) > 1 else left[0]

    return act


FAILS = WorkEnd(end=ClaimEnd.RETRY, failure_class="NotYet", wait_seconds=0)
DONE = WorkEnd(end=ClaimEnd.FINISH, summary="counted to ten")


class TestAnEnd:
    @pytest.mark.parametrize(
        ("end", "state"),
        [
            (DONE, "succeeded"),
            (WorkEnd(end=ClaimEnd.SKIP, summary="counted before"), "skipped"),
            (WorkEnd(end=ClaimEnd.GIVE_UP, failure_class="Uncountable"), "dead"),
        ],
        ids=lambda each: getattr(each, "end", each),
    )
    @pytest.mark.parametrize("deadline_ms", [1_000, 9_000], ids=["local", "regular"])
    async def test_is_the_handlers_word(
        self, store: Database, client: Client, end: WorkEnd, state: str, deadline_ms: int
    ) -> None:
        """Claim, lease and fence are not its business (C41)."""
        async with at_work(store, client, one=ending(end)) as (station, toy):
            work = await begin(station, "one", deadline_ms=deadline_ms)

            assert await ended(station, work) == state

            row = await station.world.item(work)
            assert (row.summary, row.failure_class) == (end.summary, end.failure_class)
            assert (row.lease_token, row.ownership_epoch, row.claims_lost) == (None, 1, 0)
            (run,) = toy.runs
            assert (run.subject_id, run.fence.epoch, run.attempts_made) == ("one", 1, 0)

    async def test_that_defers_comes_back_at_its_time(
        self, store: Database, client: Client
    ) -> None:
        """A wait is no failure, and no attempt is spent on it (C51, C513)."""
        defer = WorkEnd(end=ClaimEnd.DEFER, wait_seconds=0.3)
        async with at_work(store, client, one=ending(defer, DONE)) as (station, toy):
            work = await begin(station, "one")

            assert await ended(station, work) == "succeeded"

            assert (await station.world.item(work)).attempt == 0
            ran = [run for run in await results(station, work) if run.verdict != "not_due"]
            assert [run.verdict for run in ran] == ["defer", "finish"]
            assert len(toy.runs) == 2

    async def test_that_fails_is_tried_again_and_given_up_at_the_ceiling(
        self, store: Database, client: Client
    ) -> None:
        """Each failure counts, and no run follows the one before it at once (C51, C250)."""
        began: list[float] = []

        async def act(work: ClaimedWork) -> WorkEnd:
            began.append(asyncio.get_running_loop().time())
            return FAILS

        spaced = replace(QUICK, retry_spacing_seconds=0.25)
        async with at_work(store, client, limits=spaced, one=act) as (station, toy):
            work = await begin(station, "one")

            assert await ended(station, work) == "dead"

            row = await station.world.item(work)
            assert (row.attempt, row.failure_class) == (QUICK.attempts_max, "attempts_exhausted")
            assert [run.attempts_made for run in toy.runs] == [0, 1, 2]
            assert all(later - sooner >= 0.2 for sooner, later in pairwise(began))

    async def test_without_a_wait_of_its_own_backs_off(
        self, store: Database, client: Client
    ) -> None:
        """The wait is drawn from a window that grows with each failure (C250, C480)."""
        fails = WorkEnd(end=ClaimEnd.RETRY, failure_class="NotYet")
        async with at_work(store, client, one=ending(fails)) as (station, _):
            work = await begin(station, "one")
            await in_state(station, work, "retry")

            row = await station.world.item(work)
            waits = row.run_after - row.changed_at
            assert row.attempt >= 1
            assert seconds(0) < waits <= seconds(2.0**row.attempt + 1)


class TestALongRun:
    async def test_is_renewed_until_it_ends(self, store: Database, client: Client) -> None:
        """It takes longer than its lease, and nobody takes the item from it (C53)."""
        let_go = asyncio.Event()

        async def act(work: ClaimedWork) -> WorkEnd:
            await let_go.wait()
            return DONE

        async with at_work(store, client, one=act) as (station, toy):
            work = await begin(station, "one", deadline_ms=BRIEF_MS)
            await in_state(station, work, "processing")
            first = (await station.world.item(work)).lease_until

            async def is_past_its_first_lease() -> bool:
                row = await station.world.item(work)
                return bool(first < await station.world.now() < row.lease_until)

            await until(is_past_its_first_lease, what="a renewal")
            let_go.set()

            assert await ended(station, work) == "succeeded"
            row = await station.world.item(work)
            assert (row.ownership_epoch, row.claims_lost, len(toy.runs)) == (1, 0, 1)

    async def test_is_cancelled_when_somebody_asks(self, store: Database, client: Client) -> None:
        """Handler first, then item; whoever stands behind it in the lane runs (C55, C515)."""
        stopped: list[str] = []

        async def act(work: ClaimedWork) -> WorkEnd:
            try:
                await asyncio.Event().wait()
            finally:
                stopped.append((await station.world.item(work.fence.work)).state)
            raise AssertionError("nobody sets it")

        async with at_work(store, client, one=act) as (station, toy):
            work = await begin(station, "one", deadline_ms=BRIEF_MS, target_lane="a lane")
            behind = await begin(station, "two", target_lane="a lane")
            await in_state(station, work, "processing")

            await ask_to_cancel(station.world, work)

            assert await ended(station, work) == "cancelled"
            assert stopped == ["processing"]
            assert await ended(station, behind) == "succeeded"
            assert [run.subject_id for run in toy.runs] == ["one", "two"]

    async def test_that_has_sent_something_holds_the_cancellation_up(
        self, store: Database, client: Client
    ) -> None:
        """Its own end counts, because it alone knows what it did (C55)."""

        async def act(work: ClaimedWork) -> WorkEnd:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                return DONE
            raise AssertionError("nobody sets it")

        async with at_work(store, client, one=act) as (station, _):
            work = await begin(station, "one", deadline_ms=BRIEF_MS)
            await in_state(station, work, "processing")

            await ask_to_cancel(station.world, work)

            assert await ended(station, work) == "succeeded"

    async def test_that_lost_its_claim_is_stopped_and_writes_nothing(
        self, store: Database, client: Client
    ) -> None:
        """Its handler is told, and what the other one does with the item stands (C54, C510)."""
        told = asyncio.Event()

        async def act(work: ClaimedWork) -> WorkEnd:
            if work.fence.epoch > 1:
                return DONE
            try:
                await asyncio.Event().wait()
            finally:
                told.set()
            raise AssertionError("nobody sets it")

        async with at_work(store, client, one=act) as (station, toy):
            work = await begin(station, "one", deadline_ms=BRIEF_MS)
            await in_state(station, work, "processing")

            taken = await taken_over(station, work)

            await asyncio.wait_for(told.wait(), 20)
            row = await station.world.item(work)
            assert (row.state, row.lease_token) == ("processing", taken.fence.token)
            # The other one is silent in its turn, and its lease ends.
            await station.world.expire_lease(work)
            assert await ended(station, work) == "succeeded"
            row = await station.world.item(work)
            assert (row.ownership_epoch, row.claims_lost) == (3, 2)
            assert [run.fence.epoch for run in toy.runs] == [1, 3]


async def taken_over(station: Station, work: WorkId) -> ClaimedWork:
    """The lease ended while its holder was frozen, and another process claimed the item."""
    world = station.world

    async def has_it() -> ClaimedWork | None:
        if (await world.item(work)).state == "processing":
            await world.expire_lease(work)
        found = await claim_work(
            world.engine,
            world.org,
            work,
            family="toy.count",
            as_of=await world.now(),
            owner=uuid4(),
            token=LeaseToken(uuid4()),
            limits=Limits(),
        )
        return found if isinstance(found, ClaimedWork) else None

    found = await until(has_it, what="a claim of another process")
    assert found is not None
    return found


async def ask_to_cancel(world: World, work: WorkId) -> None:
    await world.sql(
        "UPDATE oncefence.work_items SET cancel_requested_at = clock_timestamp()"
        " WHERE org_id = :org AND work_id = :work AND state = 'processing'",
        work=work,
    )


class TestAHandlerThatRaises:
    @pytest.fixture
    def log(self) -> Iterator[io.StringIO]:
        root = logging.getLogger()
        handlers, level = root.handlers[:], root.level
        written = io.StringIO()
        configure_logs(stream=written)
        yield written
        root.handlers[:], root.level = handlers, level
        structlog.reset_defaults()

    async def test_is_tried_again_and_its_words_are_kept_nowhere(
        self, store: Database, client: Client, log: io.StringIO
    ) -> None:
        """An error's text may hold anybody's data: its class is all that is kept (C380, C517)."""

        async def act(work: ClaimedWork) -> WorkEnd:
            if work.attempts_made:
                return DONE
            raise LookupError(SECRET)

        async with at_work(store, client, one=act) as (station, _):
            work = await begin(station, "one")
            await in_state(station, work, "retry", "succeeded")
            await bring_forward(station, work)

            assert await ended(station, work) == "succeeded"

            assert (await station.world.item(work)).attempt == 1
            history = (await station.workflow(work).fetch_history()).to_json()
            row = str(await station.world.item(work))
            first = (await results(station, work))[0]
            assert (first.verdict, first.failure_class) == ("retry", "LookupError")
            told = [json.loads(line) for line in log.getvalue().splitlines()]
            assert any("failed by LookupError" in line["event"] for line in told)
            for kept in (history, row, log.getvalue()):
                assert SECRET not in kept

    async def test_by_a_cancelled_call_of_its_own_has_failed_as_well(
        self, store: Database, client: Client
    ) -> None:
        """Nobody cancelled the run itself, so nothing is acknowledged and no claim is lost."""

        async def act(work: ClaimedWork) -> WorkEnd:
            if work.attempts_made:
                return DONE
            raise asyncio.CancelledError

        async with at_work(store, client, one=act) as (station, _):
            work = await begin(station, "one")
            await in_state(station, work, "retry", "succeeded")
            await bring_forward(station, work)

            assert await ended(station, work) == "succeeded"
            row = await station.world.item(work)
            assert (row.attempt, row.claims_lost) == (1, 0)


async def bring_forward(station: Station, work: WorkId) -> None:
    """Whoever waits for the back-off need not."""
    await station.world.sql(
        "UPDATE oncefence.work_items SET run_after = clock_timestamp()"
        " WHERE org_id = :org AND work_id = :work AND state = 'retry'",
        work=work,
    )
    await station.wake(work)


class TestAnUnknownFamily:
    async def test_is_left_for_a_process_that_has_its_handler(
        self, store: Database, client: Client
    ) -> None:
        """In a rolling deploy the older worker takes nothing that it cannot run (C59)."""
        queue = new_queue()
        world = await World.make(store, org=f"org-{queue[5:17]}", limits=QUICK)
        station = make_station(world, client, queue)
        async with working(station):
            work = await begin(station, "one")
            report = await station.workflow(work).result()
        assert report["verdict"] == ClaimVerdict.NEEDS_NEWER_ENGINE
        assert (await world.item(work)).ownership_epoch == 0

        async with working(make_station(world, client, queue), [Toy()]):
            await station.wake(work)
            assert await ended(station, work) == "succeeded"

    async def test_is_not_run_by_the_handler_of_another(
        self, store: Database, client: Client
    ) -> None:
        """What a workflow was told of the family is a hint; the item's own row decides (C41)."""
        async with at_work(store, client) as (station, toy):
            accepted = await station.world.accept_command()
            ref = await station.ref(accepted.work)

            await station.announcer.announce(replace(ref, family=toy.family))

            report = await station.workflow(accepted.work).result()
            assert report["verdict"] == ClaimVerdict.NO_SUCH_ITEM
            assert toy.runs == []
            assert await station.world.states(accepted) == ("pending", "accepted")


class TestAnItemBehindAnother:
    async def test_ends_its_workflow_and_is_started_by_the_end_of_the_first(
        self, store: Database, client: Client
    ) -> None:
        """Nobody polls: no timer, and no run in between (C228)."""
        let_go = asyncio.Event()

        async def act(work: ClaimedWork) -> WorkEnd:
            await let_go.wait()
            return DONE

        async with at_work(store, client, one=act) as (station, toy):
            first = await begin(station, "one", source_lane="a lane")
            second = await begin(station, "two", source_lane="a lane")
            held_back = await station.workflow(second).describe()
            report = await station.workflow(second, run_id=held_back.run_id).result()
            assert report["verdict"] == ClaimVerdict.LANE_BLOCKED

            let_go.set()

            assert [await ended(station, each) for each in (first, second)] == ["succeeded"] * 2
            runs = await runs_of(station, second)
            assert [[run.verdict for run in each] for each in runs] == [
                [ClaimVerdict.LANE_BLOCKED],
                ["finish"],
            ]
            assert await timers(station, second) == 0
            assert [run.subject_id for run in toy.runs] == ["one", "two"]

    @pytest.mark.parametrize("deadline_ms", [1_000, 9_000], ids=["local", "regular"])
    async def test_does_not_lose_a_wake_that_comes_while_it_ends(
        self,
        store: Database,
        client: Client,
        monkeypatch: pytest.MonkeyPatch,
        deadline_ms: int,
    ) -> None:
        """The lane was freed after it had looked and before its workflow was over (C228, C394)."""
        first_may_end, second_may_end, has_looked = (asyncio.Event() for _ in range(3))

        async def act(work: ClaimedWork) -> WorkEnd:
            await first_may_end.wait()
            return DONE

        async def claim_and_wait(*asked: object, **named: object) -> ClaimedWork | NotStarted:
            found = await claim_work(*asked, **named)  # type: ignore[arg-type]  # handed on
            if isinstance(found, NotStarted) and found.verdict is ClaimVerdict.LANE_BLOCKED:
                has_looked.set()
                await second_may_end.wait()
            return found

        monkeypatch.setattr(work_activity, "claim_work", claim_and_wait)
        async with at_work(store, client, one=act) as (station, _):
            first = await begin(station, "one", source_lane="a lane")
            await in_state(station, first, "processing")
            second = await begin(station, "two", source_lane="a lane", deadline_ms=deadline_ms)
            await asyncio.wait_for(has_looked.wait(), 20)

            first_may_end.set()
            assert await ended(station, first) == "succeeded"
            second_may_end.set()

            assert await ended(station, second) == "succeeded"
            assert await timers(station, second) == 0

    async def test_is_started_when_the_first_dies_in_its_claim(
        self, store: Database, client: Client
    ) -> None:
        """What is poison is ended by who would have claimed it, and makes room too (C56, C228)."""
        async with at_work(store, client, limits=replace(QUICK, claims_lost_max=1)) as (station, _):
            world = station.world
            first = (await toy_item(world, "one", source_lane="a lane")).work
            await taken_over(station, first)
            second = await begin(station, "two", source_lane="a lane")
            assert (await station.workflow(second).result())["verdict"] == "lane_blocked"
            await world.expire_lease(first)

            await station.wake(first)

            assert await ended(station, first) == "dead"
            assert await ended(station, second) == "succeeded"


async def runs_of(station: Station, work: WorkId) -> Sequence[Sequence[RunResult]]:
    """What each workflow of the item came to, oldest first."""
    found = [
        (each.start_time, each.run_id)
        async for each in station.client.list_workflows(f"WorkflowId = 'work/{work}'")
    ]
    return [await results(station, work, run_id=run) for _, run in sorted(found)]


async def timers(station: Station, work: WorkId) -> int:
    """How many timers the item's newest workflow has ever started."""
    return sum(each.event_type == TIMER_STARTED for each in await events(station, work))
