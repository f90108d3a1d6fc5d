"""Whatever is pressed in Temporal, in whatever state: no second send, and the work goes on."""

import asyncio
from collections import Counter

import pytest
from temporalio.client import Client
from temporalio.worker import Worker

from oncefence.simulator.ledger import Kind
from oncefence.workflows.work_item import WorkItemWorkflow
from tests.providers.simulated import Simulated
from tests.support.dialect import Form, Provider, simulated_provider
from tests.support.servers import Database
from tests.support.station import ProviderWorld, Station, make_station, new_queue, working
from tests.support.world import Accepted
from tests.workflows.buttons import BUTTONS, ActivityButtons
from tests.workflows.scenes import SLOW, STATES, Scene, facts, over
from tests.workflows.test_sweep import swept
from tests.workflows.watching import changes, patches

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def world_of(store: Database, simulator: Simulated) -> ProviderWorld:
    """A world whose regular sends have half a minute."""
    provider: Provider = simulated_provider(simulator)
    view = provider.dialect.view(local_ms=8_000, regular_ms=30_000)
    return await ProviderWorld.on(store, provider, limits=SLOW, view=view)


def sent_once_an_attempt(simulator: Simulated, accepted: Accepted) -> bool:
    """No attempt of the command has put more than one request on the wire."""
    sent = Counter(
        row.attempt
        for row in simulator.ledger.rows
        if row.kind is Kind.READ and row.method == "PATCH" and row.command == str(accepted.command)
    )
    return max(sent.values(), default=0) <= 1


class TestWorkflowButtons:
    """Reset, Terminate, Cancel and Signal."""

    @pytest.mark.parametrize("state", STATES)
    async def test_change_no_fact_and_send_nothing(
        self, store: Database, client: Client, simulator: Simulated, state: str
    ) -> None:
        """Effect identity is in SQL, so that Temporal may forget or repeat what it likes (C382)."""
        world = await world_of(store, simulator)
        async with swept(make_station(world, client, new_queue())) as station:
            await asyncio.gather(
                *(
                    pressed(station, simulator, state, button, form)
                    for button in BUTTONS
                    for form in Form
                )
            )


class TestActivityButtons:
    """What can be pressed at a regular attempt."""

    async def test_a_paused_attempt_is_sent_once_when_it_is_unpaused(
        self, store: Database, client: Client, simulator: Simulated
    ) -> None:
        """A pause before a worker has it holds the send back and changes no fact (C382)."""
        world = await world_of(store, simulator)
        station = make_station(world, client, new_queue())
        async with Worker(client, task_queue=station.task_queue, workflows=[WorkItemWorkflow]):
            accepted = await station.submit("lead-1", form=Form.REGULAR)
            press = ActivityButtons(station, accepted.work)
            await press.is_pending()
            await press.pause()
            await press.is_pending(is_paused=True)

        async with working(station):
            elsewhere = await station.submit("lead-2", form=Form.REGULAR)
            assert await world.settled(elsewhere) == ["succeeded"]
            assert await world.states(accepted) == ("pending", "accepted")
            assert patches(simulator, accepted) == 0

            await press.unpause()

            assert await world.settled(accepted) == ["succeeded"]
            assert await station.workflow(accepted.work).result()
        assert (patches(simulator, accepted), changes(simulator, accepted)) == (1, 1)

    @pytest.mark.parametrize("button", ["pause", "pause and unpause", "reset", "retry"])
    async def test_pressed_in_flight_causes_no_second_send(
        self, store: Database, client: Client, simulator: Simulated, button: str
    ) -> None:
        """The mark guards against a second run, and the process owns the first (C385, C387)."""
        world = await world_of(store, simulator)
        async with swept(make_station(world, client, new_queue())) as station:
            scene = await STATES["in flight"](station, simulator, "lead-1", Form.REGULAR)
            press = ActivityButtons(station, scene.accepted.work)
            before = await facts(world, scene)
            match button:
                case "reset":
                    await press.reset()
                case "retry":
                    await press.retry_for_ever(start_to_close_seconds=1)
                    await press.is_pending(attempt=2)
                case _:
                    await press.pause()
                    if button == "pause and unpause":
                        await press.unpause()
            assert await facts(world, scene) == before

            await scene.go_on()

            await over(station, scene)
            accepted = scene.accepted
            (attempt,) = await world.attempts(accepted)
            assert (attempt.settled_as, attempt.outcome) == ("starter", "ACCEPTED")
            assert (patches(simulator, accepted), changes(simulator, accepted)) == (1, 1)
            report = await station.workflow(accepted.work).result()
            assert report["execution_status"] in ("succeeded", None)


async def pressed(
    station: Station, simulator: Simulated, state: str, button: str, form: Form
) -> None:
    """A command in a state has the button pressed at all its workflows, and goes on to its end."""
    world = station.world
    scene: Scene = await STATES[state](station, simulator, f"{button}-{form}", form)
    accepted = scene.accepted
    before = await facts(world, scene), patches(simulator, accepted)

    for work in scene.works:
        await BUTTONS[button](station, scene, work)

    after = await facts(world, scene), patches(simulator, accepted)
    assert after == before, (button, form)
    await scene.go_on()
    await over(station, scene)
    assert patches(simulator, accepted) == scene.patches, (button, form)
    assert changes(simulator, accepted) == scene.changes, (button, form)
    assert sent_once_an_attempt(simulator, accepted), (button, form)
    assert len(await world.attempts(accepted)) == scene.patches, (button, form)
