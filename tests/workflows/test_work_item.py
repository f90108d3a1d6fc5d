"""The workflow of one item: it waits, runs, and waits again, and owns no fact."""

from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

import pytest
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError
from temporalio.testing import TimeSkipper

from oncefence.domain.limits import Limits
from oncefence.domain.lookup import WAITS_SECONDS
from oncefence.storage.phases.find_work import WorkRef
from oncefence.workflows import policies
from oncefence.workflows.work_item import WAKE
from tests.providers.simulated import Simulated
from tests.support.dialect import Form, simulated_provider
from tests.support.servers import Database
from tests.support.station import (
    BRIEF,
    FAST,
    ProviderWorld,
    make_station,
    new_queue,
    until,
    working,
)
from tests.workflows.store_link import linked_engine
from tests.workflows.test_sweep import sweep
from tests.workflows.watching import (
    MARKER,
    TIMED_OUT,
    TIMER_FIRED,
    TIMER_STARTED,
    changes,
    events,
    held_submission,
    patches,
    results,
    seen,
    time_of,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

COMPLETED = WorkflowExecutionStatus.COMPLETED
PATIENT = replace(FAST, sweep_period_seconds=600_000)
"""A blocked item looks again after a minute only, so that what comes sooner was woken."""

REAL_WAITS = Limits()


class TestWaiting:
    """The time between runs."""

    @pytest.mark.parametrize("is_told_the_time", [True, False])
    async def test_an_item_runs_when_it_is_due_and_not_before(
        self, store: Database, skipper: TimeSkipper, simulator: Simulated, is_told_the_time: bool
    ) -> None:
        """Due times are the workflow's clock, whether it was told them or reads them (C201)."""
        world = await ProviderWorld.on(store, simulated_provider(simulator), limits=REAL_WAITS)
        async with working(make_station(world, skipper.client, new_queue())) as station:
            accepted = await world.accept_in(Form.LOCAL)
            due = await world.now() + timedelta(hours=5)
            early = await station.ref(accepted.work)
            await postpone(world, accepted.work, due)

            told = replace(early, run_after=due) if is_told_the_time else early
            await station.announcer.announce(told)

            assert await world.settled(accepted) == ["succeeded"]
            (attempt,) = await world.attempts(accepted)
            assert timedelta() <= attempt.started_as_of - due < timedelta(seconds=5)
            await station.workflow(accepted.work).result()
            runs = await results(station, accepted.work)
            assert len(runs) == (1 if is_told_the_time else 2)

    async def test_a_wake_brings_a_waiting_item_forward(
        self, store: Database, client: Client, simulator: Simulated
    ) -> None:
        """Whoever makes an item due earlier need not wait for its old time (C381)."""
        world = await ProviderWorld.on(store, simulated_provider(simulator))
        async with working(make_station(world, client, new_queue())) as station:
            accepted = await world.accept_in(Form.LOCAL)
            soon = (await world.item(accepted.work)).run_after
            await postpone(world, accepted.work, soon + timedelta(hours=1))
            await station.announce(accepted)
            await seen(station, accepted.work, TIMER_STARTED)
            assert await world.attempts(accepted) == []

            await postpone(world, accepted.work, soon)
            await station.wake(accepted.work)

            assert await world.settled(accepted) == ["succeeded"]
            assert changes(simulator, accepted) == 1


class TestUnknownOutcome:
    """What follows a send of which nobody knows the end."""

    async def test_is_looked_up_by_one_workflow(
        self, store: Database, client: Client, simulator: Simulated
    ) -> None:
        """One unknown is one investigation (C261)."""
        world = await ProviderWorld.on(store, simulated_provider(simulator))
        async with working(make_station(world, client, new_queue())) as station:
            await world.link("lead-1")
            simulator.script(contact=world.remote_ids["lead-1"], fault="garbled")

            accepted = await station.submit("lead-1")

            assert await world.settled(accepted) == ["succeeded"]

            async def of_this_org() -> list[tuple[str, WorkflowExecutionStatus | None]]:
                found = [
                    (each.id, each.status)
                    async for each in client.list_workflows(f"OncefenceOrg = '{world.org}'")
                ]
                is_over = all(state is WorkflowExecutionStatus.COMPLETED for _, state in found)
                return found if len(found) > 1 and is_over else []

            ran = await until(of_this_org, what="both workflows in the list")
            lookup = await world.lookup_work(accepted)
            assert sorted(name for name, _ in ran) == sorted(
                [f"work/{accepted.work}", f"work/{lookup}"]
            )

    async def test_keeps_the_five_waits_and_then_asks_a_person(
        self, store: Database, skipper: TimeSkipper, simulator: Simulated
    ) -> None:
        """The ladder is 30 s, 2 min, 10 min, 1 h and 6 h, and it has an end (C262, C270)."""
        provider = simulated_provider(simulator)
        world = await ProviderWorld.on(
            store, provider, limits=REAL_WAITS, view=provider.dialect.view(local_ms=500)
        )
        async with working(make_station(world, skipper.client, new_queue())) as station:
            await world.link("lead-1")
            simulator.script(contact=world.remote_ids["lead-1"], fault="overwritten")

            accepted = await station.submit("lead-1")

            assert await world.settled(accepted) == ["needs_attention"]
            lookup = await world.lookup_work(accepted)
            assert lookup is not None
            await station.workflow(lookup).result()
            waits = [
                event.timer_started_event_attributes.start_to_fire_timeout.ToTimedelta()
                for event in await seen(station, lookup, TIMER_STARTED)
            ]
            assert [round(wait.total_seconds()) for wait in waits] == list(WAITS_SECONDS)
            fired = [time_of(event) for event in await seen(station, lookup, TIMER_FIRED)]
            await station.workflow(accepted.work).result()
            (dispatch,) = await results(station, accepted.work)
            assert dispatch.execution_status == "unknown"
            looked = [run for run in await results(station, lookup) if run.verdict != "not_due"]
            assert [run.verdict for run in looked] == ["inconclusive"] * len(WAITS_SECONDS)
            for run, at in zip(looked, fired[1:], strict=False):
                assert run.until is not None
                assert timedelta() <= at - run.until < timedelta(seconds=1)
            rows = await world.sql(
                "SELECT try AS number, verdict FROM oncefence.lookups WHERE org_id = :org"
                " ORDER BY try"
            )
            assert [tuple(row) for row in rows] == [
                (number, "inconclusive") for number in range(1, 6)
            ]


class TestLane:
    """Two commands of one subject."""

    async def test_lets_the_second_run_after_the_first_by_its_wake(
        self, store: Database, client: Client, simulator: Simulated
    ) -> None:
        """The order of acceptance is the order of the changes, and nobody polls (C228)."""
        world = await ProviderWorld.on(store, simulated_provider(simulator), limits=PATIENT)
        async with working(make_station(world, client, new_queue())) as station:
            first, held = await held_submission(station, simulator, "lead-1")
            second = await station.submit("lead-1", title="Chief")
            report = await station.workflow(second.work).result()
            assert report["verdict"] == "lane_blocked"
            assert TIMER_STARTED not in [
                each.event_type for each in await events(station, second.work)
            ]
            assert await world.attempts(second) == []

            held.release()

            assert await world.settled(first, second) == ["succeeded", "succeeded"]
            in_order = [change.command for change in simulator.ledger.changes()][-2:]
            assert in_order == [str(first.command), str(second.command)]
            assert simulator.title(world.remote_ids["lead-1"]) == "Chief"

    async def test_outlives_a_lost_wake(
        self, store: Database, client: Client, simulator: Simulated
    ) -> None:
        """A wake is a hint: what misses it is the sweep's (C394)."""
        world = await ProviderWorld.on(store, simulated_provider(simulator))
        lost: list[WorkRef] = []

        async def drop(ref: WorkRef) -> None:
            lost.append(ref)

        async with working(make_station(world, client, new_queue(), wake=drop)) as station:
            first, held = await held_submission(station, simulator, "lead-1")
            second = await station.submit("lead-1", title="Chief")
            await station.workflow(second.work).result()
            held.release()
            assert await world.settled(first) == ["succeeded"]

            async def was_dropped() -> bool:
                return second.work in [ref.work for ref in lost]

            await until(was_dropped, what="the wake that is lost")

        # Another process, which tells Temporal of what it finds.
        async with working(make_station(world, client, new_queue())) as station:

            async def is_swept() -> bool:
                return await sweep(station) > 0

            await until(is_swept, what="a sweep that finds it overdue")
            assert await world.settled(second) == ["succeeded"]
            assert [changes(simulator, each) for each in (first, second)] == [1, 1]


class TestStoreAway:
    """The database does not answer for a while."""

    async def test_at_the_start_leads_to_another_run_and_one_send(
        self, store: Database, client: Client, simulator: Simulated
    ) -> None:
        """Nothing is concluded from an activity that failed, in either form (C382)."""
        provider = simulated_provider(simulator)
        view = provider.dialect.view(local_ms=1_000, regular_ms=8_001)
        world = await ProviderWorld.on(store, provider, limits=BRIEF, view=view)
        async with linked_engine(store.app_url) as (engine, link):
            station = make_station(world, client, new_queue(), engine=engine)
            async with working(station):
                link.cut()
                commands = [await station.submit(f"lead-{form}", form=form) for form in Form]
                for accepted, failure in zip(commands, (MARKER, TIMED_OUT), strict=True):
                    (failed, *_) = await seen(station, accepted.work, failure)
                    assert "failure" in str(failed)
                    assert patches(simulator, accepted) == 0

                link.mend()

                assert await world.settled(*commands) == ["succeeded", "succeeded"]
                assert [patches(simulator, accepted) for accepted in commands] == [1, 1]

    async def test_after_the_send_keeps_the_answer_until_it_is_back(
        self, store: Database, client: Client, simulator: Simulated
    ) -> None:
        """An answer in hand is settled late rather than looked up (C106)."""
        world = await ProviderWorld.on(store, simulated_provider(simulator))
        async with linked_engine(store.app_url) as (engine, link):
            station = make_station(world, client, new_queue(), engine=engine)
            async with working(station):
                accepted, held = await held_submission(station, simulator, "lead-1")
                link.cut()
                held.release()

                async def was_turned_away() -> bool:
                    return link.turned_away > 1

                await until(was_turned_away, what="a try to settle")
                assert await world.status(accepted) == "running"
                link.mend()

                assert await world.settled(accepted) == ["succeeded"]
                (attempt,) = await world.attempts(accepted)
                assert (attempt.settled_as, attempt.outcome) == ("starter", "ACCEPTED")
                assert patches(simulator, accepted) == 1


class TestCost:
    """What a workflow may take."""

    async def test_every_start_that_asks_for_it_is_eager(
        self, store: Database, client: Client, simulator: Simulated
    ) -> None:
        """One Client for doors and Worker, or each command waits for a poll (C386)."""
        world = await ProviderWorld.on(store, simulated_provider(simulator))
        async with working(make_station(world, client, new_queue())) as station:
            commands = [await station.submit(f"lead-{number}") for number in range(5)]

            assert set(await world.settled(*commands)) == {"succeeded"}
            eager = station.announcer.starter.eager
            assert eager.given == eager.asked == len(commands)

    async def test_a_workflow_past_its_events_parks_and_another_goes_on(
        self,
        store: Database,
        client: Client,
        simulator: Simulated,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """A history has an end, and a command outlives it (C390)."""
        monkeypatch.setattr(policies, "EVENTS_MAX", 12)
        world = await ProviderWorld.on(store, simulated_provider(simulator))
        async with working(make_station(world, client, new_queue())) as station:
            await world.link("lead-1")
            accepted = await world.accept_in(Form.LOCAL)
            early = await station.ref(accepted.work)
            await postpone(world, accepted.work, early.run_after + timedelta(hours=1))
            await station.announcer.announce(early)
            workflow = station.workflow(accepted.work)

            async def is_parked() -> bool:
                # Each wake costs one look at an item that is not due.
                await workflow.signal(WAKE)
                return await station.workflow_status(accepted.work) is COMPLETED

            with suppress(RPCError):  # a wake of one that has ended meanwhile
                await until(is_parked, what="a history that is long enough")
            assert (await workflow.result())["verdict"] == "parked"
            assert len(await events(station, accepted.work)) > policies.EVENTS_MAX

            await postpone(world, accepted.work, early.run_after)
            await station.wake(accepted.work)

            assert await world.settled(accepted) == ["succeeded"]
            assert changes(simulator, accepted) == 1


async def postpone(world: ProviderWorld, work: object, due: object) -> None:
    """The item becomes due at another time."""
    await world.sql(
        "UPDATE oncefence.work_items SET run_after = :due WHERE org_id = :org AND work_id = :work",
        work=work,
        due=due,
    )
