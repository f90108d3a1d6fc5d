"""Attacks on the kernel: who is gone holds nothing, and what was said is not forgotten."""

import asyncio
import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg
import pytest
from sqlalchemy import text

from oncefence.activities.contracts import RunRequest
from oncefence.activities.process_context import ProcessContext
from oncefence.activities.work import WorkActivity
from oncefence.domain.claim import ENGINE_CAPABILITY, ClaimEnd, ClaimVerdict, WorkEnd
from oncefence.domain.effect import Outcome
from oncefence.domain.errors import StoreUnavailable, VersionMoved
from oncefence.domain.ids import LeaseToken, WorkId
from oncefence.domain.limits import Limits
from oncefence.domain.lookup import Verdict
from oncefence.domain.operator import Role
from oncefence.domain.pause import PauseScope
from oncefence.storage.claims import NotStarted
from oncefence.storage.driver_connection import driver_connection
from oncefence.storage.engine import make_engine, run_phase
from oncefence.storage.phases.add_operator import add_operator
from oncefence.storage.phases.claim_work import ClaimedWork, claim_work
from oncefence.storage.phases.find_work import WorkRef, find_due_work
from oncefence.storage.phases.open_window import open_window
from oncefence.storage.phases.pause_work import Pause, pause_work
from oncefence.storage.phases.read_view import ViewShelf
from oncefence.storage.phases.resume_work import resume_work
from oncefence.storage.phases.settle_work import WorkSettled, settle_work
from oncefence.storage.phases.start_attempt import Started
from tests.storage.racing import barrier
from tests.support.backlog import pile_up
from tests.support.doors import open_door
from tests.support.repairs import FAMILY, Repairs
from tests.support.servers import Database
from tests.support.world import World, an_end

pytestmark = pytest.mark.asyncio(loop_scope="module")

LIMITS = Limits(admission_window=2, sweep_grace_seconds=0)
CLAIM = (
    "SELECT oncefence.claim_work($1, $2, clock_timestamp(), gen_random_uuid(), gen_random_uuid(),"
    f" interval '60 s', 5, {ENGINE_CAPABILITY}, 32, true)"
)
START_V1 = (
    "SELECT verdict FROM oncefence.start_attempt_v1(:org, :work, clock_timestamp(),"
    f" gen_random_uuid(), gen_random_uuid(), interval '60 s', 5, {ENGINE_CAPABILITY}, true)"
)
A_NUMBER = text(
    "SELECT CAST(:number AS integer) AS number, pg_sleep(CAST(:wait AS double precision)) AS waited"
)


async def verdict(world: World, ref: WorkRef) -> str:
    found = await claim_work(
        world.engine,
        ref.org,
        ref.work,
        family=ref.family,
        as_of=await world.now(),
        owner=uuid4(),
        token=LeaseToken(uuid4()),
        limits=LIMITS,
    )
    return found.verdict if isinstance(found, NotStarted) else "claimed"


async def held_by_nobody_alive(world: World, refs: Sequence[WorkRef], definition: str) -> Pause:
    """They are claimed, then paused, and then their holders die and the leases end."""
    for ref in refs:
        assert await verdict(world, ref) == "claimed"
    given = await pause_work(
        world.engine, PauseScope(org=world.org, definition=definition), actor="ada", note="why"
    )
    for ref in refs:
        await world.expire_lease(ref.work)
    return given.pause


async def resume(world: World, pause: Pause, *, ramp_seconds: float = 0) -> None:
    await resume_work(
        world.engine,
        world.org,
        pause.pause,
        ramp_seconds=ramp_seconds,
        actor="ada",
        note="why",
        expected_version="in_force",
    )


async def swept(world: World) -> list[WorkId]:
    due = await find_due_work(world.engine, page=1_000, limits=LIMITS)
    return [item.ref.work for item in due if item.ref.org == world.org]


class TestWhatIsPausedAndWhoseHolderIsGone:
    async def test_takes_no_place_of_what_may_run(self, world: World) -> None:
        """A pause of days must not keep for days what it is not about."""
        await held_by_nobody_alive(
            world, await pile_up(world, 2, queue_class="one", definition="held"), "held"
        )
        (free,) = await pile_up(world, 1, queue_class="one", definition="free")

        opened = await open_window(world.engine, world.org, "one", limits=LIMITS)
        assert free.work in [*(item.ref.work for item in opened), *await swept(world)]

    async def test_is_nudged_when_that_is_over_and_not_in_vain_before(self, world: World) -> None:
        """Else it is run each minute for nothing, or its nudges back off past the end (C389)."""
        refs = await pile_up(world, 1, queue_class="two")
        pause = await held_by_nobody_alive(world, refs, "record.applied")

        before = await swept(world)
        await resume(world, pause)

        assert (before, await swept(world)) == ([], [refs[0].work])

    async def test_is_not_counted_by_a_slow_start(self, world: World) -> None:
        """Two of them would wait for each other, and all others for them, till the ramp is over."""
        refs = await pile_up(world, 3, queue_class="three")
        pause = await held_by_nobody_alive(world, refs[:2], "record.applied")
        await resume(world, pause, ramp_seconds=86_400)

        assert [await verdict(world, ref) for ref in refs].count("claimed") == 1


class TestAProcessThatIsFrozen:
    async def test_inside_a_claim_stops_nobody_when_somebody_pauses(self, store: Database) -> None:
        """A pause that waits for that claim must not have all claims of all orgs wait for it."""
        world, other = await World.make(store), await World.make(store)
        (mine,), (theirs,) = await pile_up(world, 1), await pile_up(other, 1)
        async with barrier(store, CLAIM, mine.org, mine.work, commits=False):
            pausing = asyncio.ensure_future(
                pause_work(world.engine, PauseScope(org=world.org), actor="ada", note="an incident")
            )
            await asyncio.wait((pausing,), timeout=0.5)
            claiming = asyncio.ensure_future(verdict(other, theirs))
            done, _ = await asyncio.wait((claiming,), timeout=4)
        await asyncio.gather(pausing, claiming, return_exceptions=True)

        assert done, "it waited for as long as the frozen process did"

    @pytest.mark.parametrize(
        "setting", ["idle_in_transaction_session_timeout", "transaction_timeout"]
    )
    async def test_inside_a_transaction_is_put_out_by_the_server(
        self, store: Database, setting: str
    ) -> None:
        """
        Its locks would else be held for as long as it is frozen: items, lanes, audit heads.

        Between the two halves of a statement a session is not idle, so that needs a bound too.
        """
        engine = make_engine(store.app_url, size=1)
        async with engine.connect() as connection:
            shown = await connection.execute(
                text("SELECT setting::integer FROM pg_settings WHERE name = :setting"),
                {"setting": setting},
            )
            milliseconds = shown.scalar_one()
        await engine.dispose()

        assert 0 < milliseconds <= 60_000


class TestAReplay:
    async def test_is_not_sent_once_the_first_send_is_known_to_have_applied(
        self, world: World
    ) -> None:
        """The word came after the replay and before its mark, under which all doubts are read."""
        repairs = Repairs(world=world)
        accepted, started, lookup_work = await world.an_unknown_command()
        for _ in range(5):
            await world.look(lookup_work, Verdict.NOT_FOUND)
        await world.tell(started, an_end(Outcome.RETRYABLE_PRE_DISPATCH))
        again = await repairs.again(accepted, await repairs.replay(accepted.work))
        await world.tell(started, an_end(Outcome.ACCEPTED, response_status=200))
        assert len(await world.of_command("contradictions", accepted)) == 1

        assert not isinstance(await world.try_to_start(again), Started)

    @pytest.mark.parametrize("made_up", ["99999999999999999-aa", "1-aa"])
    async def test_of_a_plan_that_nobody_made_is_not_handed_out_by_the_refusal(
        self, world: World, made_up: str
    ) -> None:
        """Whoever guesses is told to look, and not what to say."""
        repairs = Repairs(world=world)
        await repairs.a_refused_command()
        with pytest.raises(VersionMoved) as refused:
            await repairs.begin(made_up)

        told = [word for word in str(refused.value).split() if word.startswith(made_up[:-2])]
        for digest in told:
            with pytest.raises(VersionMoved):
                await repairs.begin(digest)


@dataclass(kw_only=True)
class Stubborn:
    """A handler that has sent something: it holds up its cancellation, and then tells its end."""

    begun: asyncio.Event = field(default_factory=asyncio.Event)
    was_cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    may_end: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def family(self) -> str:
        return FAMILY

    async def run(self, work: ClaimedWork) -> WorkEnd:
        self.begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.was_cancelled.set()
            await self.may_end.wait()
        return WorkEnd(end=ClaimEnd.FINISH)


class Quick:
    """A handler that is done at once."""

    family = FAMILY

    async def run(self, work: ClaimedWork) -> WorkEnd:
        return WorkEnd(end=ClaimEnd.FINISH)


async def nobody(ref: WorkRef) -> None:
    """Nobody is told."""


def context_of(world: World) -> ProcessContext:
    return ProcessContext(
        engine=world.engine,
        ring=world.ring,
        limits=world.limits,
        owner=uuid4(),
        wake=nobody,
        views=ViewShelf(world.engine),
    )


async def request_for(world: World, work: WorkId) -> RunRequest:
    return RunRequest(
        org_id=world.org,
        work_id=str(work),
        deadline_ms=1_000,
        as_of=await world.now(),
        family=FAMILY,
    )


class TestACancellation:
    async def test_that_its_holder_holds_up_takes_no_claim_from_it(self, world: World) -> None:
        """It has sent something: an item recorded as cancelled would deny that (C55)."""
        world.limits = Limits(lease_margin_seconds=0.2)
        repairs, handler = Repairs(world=world), Stubborn()
        work = await repairs.a_waiting_item()
        activity = WorkActivity(context_of(world), [handler])
        running = asyncio.ensure_future(activity.run_work(await request_for(world, work)))
        await handler.begun.wait()
        await repairs.cancel(work)
        await asyncio.wait_for(handler.was_cancelled.wait(), 10)
        lease_until = (await world.item(work)).lease_until
        async with asyncio.timeout(10):
            while await world.now() <= lease_until:
                await asyncio.sleep(0.05)

        found = await repairs.try_to_hold(work)
        handler.may_end.set()
        await running

        assert isinstance(found, NotStarted)
        assert found.verdict == ClaimVerdict.IN_FLIGHT
        assert (await world.item(work)).state == "succeeded"

    async def test_by_the_end_of_a_failed_run_leaves_no_dead_letter(self, world: World) -> None:
        """An operator wanted it gone; a replay of all that failed must not bring it back."""
        repairs = Repairs(world=world)
        claimed = await repairs.a_held_item()
        await repairs.cancel(claimed.fence.work)
        await repairs.end(claimed, ClaimEnd.RETRY)
        quiet = await repairs.a_held_item()
        await repairs.cancel(quiet.fence.work)
        world.limits = Limits(attempts_max=1)
        await repairs.end(quiet, ClaimEnd.RETRY)

        assert await repairs.dead_letters() == set()


class TestAProcessThatStops:
    async def test_claims_nothing_more_when_a_silent_store_comes_back(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It asks again for a minute, and the signal came meanwhile (C58)."""
        work = await Repairs(world=world).a_waiting_item()
        context = context_of(world)

        async def silent_at_first(*args: Any, **named: Any) -> ClaimedWork | NotStarted:
            if not context.runs.is_draining:
                context.runs.begin_drain()
                raise StoreUnavailable(verb="claim_work", reason="Silence")
            return await claim_work(*args, **named)

        monkeypatch.setattr("oncefence.activities.work.claim_work", silent_at_first)
        handler = Stubborn()
        running = asyncio.ensure_future(
            WorkActivity(context, [handler]).run_work(await request_for(world, work))
        )
        begun = asyncio.ensure_future(handler.begun.wait())
        await asyncio.wait((running, begun), timeout=10, return_when=asyncio.FIRST_COMPLETED)
        is_begun = handler.begun.is_set()
        handler.may_end.set()
        await context.runs.stop(within_seconds=0, hand_back_seconds=10)
        await running
        begun.cancel()

        assert not is_begun
        assert (await world.item(work)).ownership_epoch == 0


async def test_the_end_that_a_handler_gave_outlasts_a_store_that_is_away_for_minutes(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it did is done: forgotten, it would be done again (C31)."""
    work = await Repairs(world=world).a_waiting_item()
    clock = {"now": 0.0}

    async def away_for_minutes(*args: Any, **named: Any) -> WorkSettled:
        clock["now"] += 70
        if clock["now"] < 300:
            raise StoreUnavailable(verb="settle_work", reason="Silence")
        return await settle_work(*args, **named)

    monkeypatch.setattr("oncefence.activities.work.settle_work", away_for_minutes)
    monkeypatch.setattr("oncefence.activities.until_answered.boot_clock", lambda: clock["now"])
    monkeypatch.setattr("oncefence.activities.until_answered._PAUSE_SECONDS", 0.001)
    with suppress(Exception):
        await WorkActivity(context_of(world), [Quick()]).run_work(await request_for(world, work))

    assert (await world.item(work)).state == "succeeded"


async def test_a_pause_holds_those_who_still_start_by_the_older_function(world: World) -> None:
    """Older workers run on through a rolling deploy, and nothing of the scope begins (C57)."""
    accepted = await world.accept_command()
    await pause_work(world.engine, PauseScope(org=world.org), actor="ada", note="an incident")

    (row,) = await world.sql(START_V1, work=accepted.work)

    assert row.verdict != "started"


@pytest.mark.parametrize("named", ["family", "provider", "definition", "failure_class"])
async def test_a_word_that_no_text_can_hold_is_bad_input(
    store: Database, world: World, tmp_path: Path, named: str
) -> None:
    """One clear message, and no failure of the server's own."""
    added = await add_operator(
        store.app_engine,
        name=f"op-{uuid4().hex[:8]}",
        roles=frozenset((Role.VIEWER,)),
        orgs=frozenset((world.org,)),
        actor="tests",
        note="for a test",
    )
    async with open_door(store.app_engine, tmp_path) as door:
        answer = await door.client(added.token.reveal()).get(f"/v1/operator/work?{named}=%00")

    assert answer.status_code == 422, answer.text


async def test_rows_are_never_mixed_by_tasks_that_are_cancelled(store: Database) -> None:
    """However a statement was cut short, its connection never answers somebody else."""
    engine = make_engine(store.app_url, size=3)
    chance = random.Random(5)

    async def ask(number: int) -> int:
        async def phase() -> int:
            async with driver_connection(engine) as connection:
                row = await connection.one(
                    A_NUMBER, {"number": number, "wait": chance.random() * 0.01}
                )
                return int(row.number)

        return await run_phase("ask", phase)

    answers: dict[int, int] = {}
    for batch in range(5):
        tasks = {
            number: asyncio.ensure_future(ask(number))
            for number in range(batch * 20, batch * 20 + 20)
        }
        for task in tasks.values():
            if chance.random() < 0.4:
                asyncio.get_running_loop().call_later(chance.random() * 0.04, task.cancel)
        ends = await asyncio.gather(*tasks.values(), return_exceptions=True)
        for number, end in zip(tasks, ends, strict=True):
            if not isinstance(end, asyncio.CancelledError):
                assert not isinstance(end, BaseException), end
                answers[number] = end
    async with asyncio.timeout(10):
        watcher = await asyncpg.connect(store.app_url)
        left_open = await watcher.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            " AND state LIKE 'idle in transaction%'"
        )
        await watcher.close()
    await engine.dispose()

    assert answers == {number: number for number in answers}
    assert len(answers) > 20
    assert left_open == 0
