"""The sweep: SQL alone is enough to resume whatever Temporal does not know or has lost."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import (
    ListSearchAttributesRequest,
    RemoveSearchAttributesRequest,
)
from temporalio.client import Client, ScheduleHandle

from oncefence.activities.contracts import SweepReport
from oncefence.app.bootstrap import keep_namespace
from oncefence.app.config import Settings
from oncefence.workflows.schedules import SWEEP_SCHEDULE
from oncefence.workflows.sweep import SWEEP_WORKFLOW
from oncefence.workflows.work_item import FAMILY, ORG, STATUS
from tests.providers.simulated import Simulated
from tests.support import servers
from tests.support.dialect import Form, simulated_provider
from tests.support.servers import Database
from tests.support.station import (
    FAST,
    ProviderWorld,
    Station,
    make_station,
    new_queue,
    until,
    working,
)
from tests.workflows.watching import changes, patches

ATTRIBUTES = {ORG.name, FAMILY.name, STATUS.name}


def settings_of(station: Station) -> Settings:
    """The settings of a worker on the station's queue, with time as the tests have it."""
    return Settings.from_environment(
        {
            "ONCEFENCE_TASK_QUEUE": station.task_queue,
            "ONCEFENCE_TIME_SCALE": str(FAST.time_scale),
        }
    )


@asynccontextmanager
async def swept(station: Station) -> AsyncIterator[Station]:
    """The station with its worker and with what its worker keeps in the namespace."""
    await keep_namespace(station.client, settings_of(station))
    try:
        async with working(station):
            yield station
    finally:
        await schedule_of(station).delete()


def schedule_of(station: Station) -> ScheduleHandle:
    """The schedule of the station's sweep."""
    return station.client.get_schedule_handle(f"{SWEEP_SCHEDULE}-{station.task_queue}")


async def sweep(station: Station) -> int:
    """How many items one sweep nudged."""
    report = await station.client.execute_workflow(
        SWEEP_WORKFLOW,
        id=f"sweep/{station.task_queue}/{new_queue()}",
        task_queue=station.task_queue,
        result_type=SweepReport,
    )
    return int(report.nudged)


async def attributes_of(client: Client) -> set[str]:
    """The search attributes of ours that the namespace has."""
    found = await client.operator_service.list_search_attributes(
        ListSearchAttributesRequest(namespace=client.namespace)
    )
    keyword = IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD
    return {name for name, kind in found.custom_attributes.items() if kind == keyword} & ATTRIBUTES


class TestSweep:
    """What it starts, and what it leaves alone."""

    async def test_starts_an_item_that_temporal_was_never_told_of(
        self, database: Database, temporal_client: Client, simulator: Simulated
    ) -> None:
        """The start after acceptance is a hint, and losing it loses nothing (C394)."""
        world = await ProviderWorld.on(database, simulated_provider(simulator))
        accepted = await world.accept_in(Form.LOCAL)

        async with swept(make_station(world, temporal_client, new_queue())):
            assert await world.settled(accepted) == ["succeeded"]

        assert changes(simulator, accepted) == 1

    async def test_has_the_attempt_of_a_dead_starter_settled_as_lost(
        self, database: Database, temporal_client: Client, simulator: Simulated
    ) -> None:
        """A mark whose process is gone becomes an unknown and then an answer (C391)."""
        world = await ProviderWorld.on(database, simulated_provider(simulator))
        accepted = await world.accept_in(Form.LOCAL)
        started = await world.start(accepted)
        async with swept(make_station(world, temporal_client, new_queue())) as station:
            assert await sweep(station) == 0, "its lease runs"
            await world.expire_lease(accepted.work)

            assert await world.settled(accepted) == ["failed"]

        attempt = await world.attempt(started.attempt)
        assert (attempt.settled_as, attempt.disposition) == ("lost", "not_found")
        assert patches(simulator, accepted) == 0

    async def test_nudges_nothing_behind_a_blocked_lane(
        self, database: Database, temporal_client: Client, simulator: Simulated
    ) -> None:
        """A nudge that the mark would refuse costs a workflow and helps nobody (C389)."""
        world = await ProviderWorld.on(database, simulated_provider(simulator))
        async with working(make_station(world, temporal_client, new_queue())) as station:
            first = await world.accept_in(Form.LOCAL, "lead-1")
            started = await world.start(first)
            behind = await world.accept_in(Form.LOCAL, "lead-1")
            assert await sweep(station) == 0, "the first is in flight"

            lookup = await world.lose(started)
            await world.sql(
                "UPDATE oncefence.work_items SET run_after = clock_timestamp() + interval '1 hour'"
                " WHERE org_id = :org AND work_id = :lookup",
                lookup=lookup,
            )
            assert await sweep(station) == 0, "the first is in doubt"

            assert await station.workflow_status(behind.work) is None
            elsewhere = await world.accept_in(Form.LOCAL, "lead-2")
            assert await sweep(station) == 1
            assert await world.settled(elsewhere) == ["succeeded"]
            assert (await world.states(behind)) == ("pending", "accepted")

    async def test_resumes_everything_on_a_temporal_that_knows_nothing(
        self, database: Database, temporal_client: Client, simulator: Simulated
    ) -> None:
        """The loss of the whole cluster costs time and no fact (C382, C392)."""
        world = await ProviderWorld.on(database, simulated_provider(simulator))
        before = make_station(world, temporal_client, new_queue())
        async with working(before):
            done = await before.submit("lead-0")
            await world.settled(done)
        # Told of, and never run: the old cluster is not there any more.
        commands = [await before.submit(f"lead-{number}") for number in range(1, 6)]

        with servers.temporal() as empty:
            client = await servers.connect(empty)
            async with swept(make_station(world, client, new_queue())):
                assert set(await world.settled(*commands)) == {"succeeded"}

        assert [changes(simulator, each) for each in (done, *commands)] == [1] * 6


class TestNamespace:
    """What the workers keep in Temporal."""

    async def test_is_made_again_when_it_is_gone(
        self, database: Database, temporal_client: Client, simulator: Simulated
    ) -> None:
        """Whatever an operator deletes is back within the minute, and twice is the same (C392)."""
        world = await ProviderWorld.on(database, simulated_provider(simulator))
        station = make_station(world, temporal_client, new_queue())
        settings = settings_of(station)
        await keep_namespace(temporal_client, settings)
        await keep_namespace(temporal_client, settings)
        await schedule_of(station).delete()
        await temporal_client.operator_service.remove_search_attributes(
            RemoveSearchAttributesRequest(
                namespace=temporal_client.namespace, search_attributes=sorted(ATTRIBUTES)
            )
        )
        assert await attributes_of(temporal_client) == set()

        await keep_namespace(temporal_client, settings)

        async def is_whole() -> bool:
            return await attributes_of(temporal_client) == ATTRIBUTES

        await until(is_whole, what="the search attributes")
        described = await schedule_of(station).describe()
        (interval,) = described.schedule.spec.intervals
        assert interval.every.total_seconds() == FAST.sweep_period_scaled_seconds
        async with working(station):
            assert await world.settled(await world.accept_in(Form.LOCAL)) == ["succeeded"]
        await schedule_of(station).delete()
