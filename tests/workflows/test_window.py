"""The admission window on a real Temporal: a few workflows open, and everything done."""

import itertools
from collections.abc import Sequence

from temporalio.client import Client, WorkflowExecutionStatus

from oncefence.domain.claim import ClaimVerdict
from oncefence.domain.limits import Limits
from oncefence.domain.pause import PauseScope, PauseState
from oncefence.storage.phases.list_pauses import find_held_classes
from oncefence.storage.phases.pause_work import pause_work
from oncefence.storage.phases.resume_work import resume_work
from oncefence.workflows.schedules import ensure_search_attributes
from tests.providers.simulated import Simulated
from tests.support.dialect import Form, simulated_provider
from tests.support.servers import Database
from tests.support.station import (
    ProviderWorld,
    Station,
    make_station,
    new_queue,
    working,
)
from tests.support.world import Accepted
from tests.workflows.watching import changes

# Nothing is scaled here: a nudge must count for as long as the item waits for its claim.
TWO = Limits(admission_window=2)


async def announce(station: Station, accepted: Accepted) -> None:
    """As a door does it when its answer has left."""
    await station.context.window.announce(
        await station.ref(accepted.work), station.announcer.announce
    )


async def open_at_once(station: Station, commands: Sequence[Accepted]) -> int:
    """
    How many of these items, which have ended, had a workflow at one moment.

    From the start of the workflow to the end of the item: the workflow itself is there for a
    moment longer, to hear of it.
    """
    moments = []
    for each in commands:
        started = (await station.workflow(each.work).describe()).start_time
        moments += [(started, 1), ((await station.world.item(each.work)).changed_at, -1)]
    moments.sort()
    return max(itertools.accumulate(change for _, change in moments))


class TestWindow:
    async def test_never_has_a_third_open_and_needs_no_sweep(
        self, database: Database, temporal_client: Client, simulator: Simulated
    ) -> None:
        """The end of each opens the next, until all is done (C393)."""
        world = await ProviderWorld.on(database, simulated_provider(simulator), limits=TWO)
        station = make_station(world, temporal_client, new_queue())
        commands = [await world.accept_in(Form.LOCAL, f"lead-{n}") for n in range(8)]
        await ensure_search_attributes(temporal_client)
        for each in commands:
            await announce(station, each)
        statuses = [await station.workflow_status(each.work) for each in commands]
        assert statuses == [WorkflowExecutionStatus.RUNNING] * 2 + [None] * 6, "the rest waits"

        async with working(station):
            assert set(await world.settled(*commands, within_s=60)) == {"succeeded"}

            assert await open_at_once(station, commands) == 2
        assert [changes(simulator, each) for each in commands] == [1] * 8

    async def test_opens_what_a_pause_held_when_it_ends(
        self, database: Database, temporal_client: Client, simulator: Simulated
    ) -> None:
        """Paused work has no workflow, and after the resume all of it runs (C57)."""
        world = await ProviderWorld.on(database, simulated_provider(simulator), limits=TWO)
        station = make_station(world, temporal_client, new_queue())
        async with working(station):
            given = await pause_work(
                world.engine, PauseScope(org=world.org), actor="olga", note="for a test"
            )
            commands = [await world.accept_in(Form.LOCAL, f"lead-{n}") for n in range(5)]
            for each in commands:
                await announce(station, each)
            assert [await station.workflow_status(each.work) for each in commands] == [None] * 5
            # Whoever is told nevertheless looks once, and goes.
            await station.announce(commands[0])
            report = await station.workflow(commands[0].work).result()
            assert report["verdict"] == ClaimVerdict.PAUSED

            await resume_work(
                world.engine,
                world.org,
                given.pause.pause,
                ramp_seconds=0,
                actor="olga",
                note="for a test",
                expected_version=PauseState.IN_FORCE,
            )
            for org, queue_class in await find_held_classes(
                world.engine, world.org, given.pause.pause
            ):
                await station.context.window.open(org, queue_class)

            assert set(await world.settled(*commands, within_s=60)) == {"succeeded"}

        assert [changes(simulator, each) for each in commands] == [1] * 5

    async def test_runs_all_of_it_through_a_slow_start(
        self, database: Database, temporal_client: Client, simulator: Simulated
    ) -> None:
        """Who may not run yet waits for its turn by itself, and is not forgotten."""
        world = await ProviderWorld.on(database, simulated_provider(simulator), limits=TWO)
        station = make_station(world, temporal_client, new_queue())
        given = await pause_work(
            world.engine, PauseScope(org=world.org), actor="olga", note="for a test"
        )
        commands = [await world.accept_in(Form.LOCAL, f"lead-{n}") for n in range(4)]
        await resume_work(
            world.engine,
            world.org,
            given.pause.pause,
            ramp_seconds=3,
            actor="olga",
            note="for a test",
            expected_version=PauseState.IN_FORCE,
        )

        async with working(station):
            for each in commands:
                await announce(station, each)

            assert set(await world.settled(*commands, within_s=60)) == {"succeeded"}
