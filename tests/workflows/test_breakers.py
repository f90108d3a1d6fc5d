"""A provider that goes dark and comes back, through the whole of the kernel (C304 to C307)."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from temporalio.client import Client

from oncefence.app.local_postgres import LocalPostgres
from oncefence.domain.breaker import RULES, BreakerKey, BreakerState
from oncefence.storage.phases.bring_forward import bring_forward
from oncefence.storage.phases.override_breaker import override_breaker
from tests.providers.simulated import Simulated
from tests.storage.breaking import let_pass, of_binding, standing
from tests.support import servers
from tests.support.dialect import simulated_provider
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
from tests.support.world import Accepted
from tests.workflows.scenes import SLOW, postpone
from tests.workflows.watching import TIMER_STARTED, patches, seen

pytestmark = pytest.mark.asyncio(loop_scope="module")

OF_CLASS = BreakerKey(provider="hubspot", endpoint_class="crm.objects.write")


@pytest_asyncio.fixture(loop_scope="module")
async def alone(postgres: LocalPostgres) -> AsyncIterator[Database]:
    """A database of the test's own: a provider's breaker is that of all orgs in it."""
    async with servers.fresh_database(postgres) as fresh:
        yield fresh


async def state(world: ProviderWorld) -> str | None:
    row = await standing(world.database, of_binding(world))
    return None if row is None else row.state


async def in_the_dark(
    station: Station, simulator: Simulated, fault: str, count: int = RULES.failures_max
) -> list[Accepted]:
    """So many commands, each of which the provider reads and answers by `fault`."""
    world = station.world
    commands = []
    for number in range(count):
        subject = f"dark-{number}"
        await world.link(subject)
        simulator.script(contact=world.remote_ids[subject], fault=fault)
        commands.append(await station.submit(subject))
    return commands


class TestADarkProvider:
    async def test_gets_no_further_request_until_a_read_shows_that_it_lives(
        self, alone: Database, client: Client, simulator: Simulated
    ) -> None:
        """Each one would be one more unknown; and a lookup can do no harm (C306, C307)."""
        world = await ProviderWorld.on(alone, simulated_provider(simulator), limits=SLOW)
        async with working(make_station(world, client, new_queue())) as station:
            lost = await in_the_dark(station, simulator, "reset_before_answer")
            for each in lost:
                await world.in_status(each, "unknown")
            assert await state(world) == "open"

            waiting = await station.submit("lead-behind")
            await seen(station, waiting.work, TIMER_STARTED)
            assert await world.states(waiting) == ("pending", "accepted")
            assert patches(simulator, waiting) == 0

            await let_pass(alone, of_binding(world), 31)
            lookup = await world.lookup_work(lost[0])
            assert lookup is not None
            await postpone(world, lookup)
            await station.wake(lookup)
            await until_in(world, "ramp", "closed")
            await postpone(world, waiting.work)
            await station.wake(waiting.work)

            assert await world.settled(waiting) == ["succeeded"]
            assert (await world.item(waiting.work)).attempt == 1

    async def test_is_sent_what_waited_when_a_person_says_that_it_is_back(
        self, alone: Database, client: Client, simulator: Simulated
    ) -> None:
        """Nothing that waited is lost, failed or sent twice (C3, C51)."""
        world = await ProviderWorld.on(alone, simulated_provider(simulator), limits=SLOW)
        async with working(make_station(world, client, new_queue())) as station:
            for each in await in_the_dark(station, simulator, "lost_answer"):
                await world.in_status(each, "unknown")
            waiting = [await station.submit(f"lead-{number}") for number in range(5)]
            for each in waiting:
                await seen(station, each.work, TIMER_STARTED)
            row = await standing(alone, of_binding(world))
            assert row is not None

            await override_breaker(
                world.engine,
                of_binding(world),
                BreakerState.CLOSED,
                actor="olga",
                note="they are back",
                expected_version=str(row.version),
            )
            for org, queue_class in await bring_forward(world.engine, of_binding(world)):
                await station.context.window.open(org, queue_class)

            assert await world.settled(*waiting) == ["succeeded"] * 5
            assert [patches(simulator, each) for each in waiting] == [1] * 5

    async def test_is_told_from_an_account_whose_credential_is_refused(
        self, alone: Database, client: Client, simulator: Simulated
    ) -> None:
        """A 401 is the account's own, and stops nobody's sends (C305)."""
        world = await ProviderWorld.on(alone, simulated_provider(simulator), limits=SLOW)
        async with working(make_station(world, client, new_queue())) as station:
            (refused,) = await in_the_dark(station, simulator, "unauthorized_401", count=1)
            await seen_attempt(world, refused)

            assert await state(world) is None

    async def test_of_one_org_does_not_stop_another(
        self, alone: Database, client: Client, simulator: Simulated
    ) -> None:
        """However much one account fails, the provider's breaker stays closed (C305)."""
        ill = await ProviderWorld.on(alone, simulated_provider(simulator), limits=SLOW)
        well = await ProviderWorld.on(alone, simulated_provider(simulator), limits=FAST)
        async with working(make_station(ill, client, new_queue())) as station:
            for each in await in_the_dark(station, simulator, "reset_before_answer"):
                await ill.in_status(each, "unknown")
        assert await state(ill) == "open"

        async with working(make_station(well, client, new_queue())) as station:
            fine = await station.submit("lead-well")

            assert await well.settled(fine) == ["succeeded"]
        row = await standing(alone, OF_CLASS)
        assert row is not None
        assert row.state == "closed"


async def until_in(world: ProviderWorld, *states: str) -> None:
    async def is_there() -> bool:
        return await state(world) in states

    await until(is_there, what=f"a breaker in {states}")


async def seen_attempt(world: ProviderWorld, accepted: Accepted) -> None:
    async def is_settled() -> bool:
        attempts = await world.attempts(accepted)
        return any(each.outcome is not None for each in attempts)

    await until(is_settled, what="a settled attempt")
