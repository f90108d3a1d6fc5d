"""The Temporal server is killed and its database deleted while commands are in every state."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from itertools import product
from pathlib import Path

import pytest
from temporalio.client import Client
from temporalio.service import RPCError

from oncefence.app import worker
from oncefence.app.bootstrap import keep_namespace
from oncefence.app.config import Settings
from oncefence.app.local_temporal import LocalTemporal
from oncefence.storage.phases.audit_invariants import audit_invariants
from tests.providers.simulated import Simulated
from tests.support import servers
from tests.support.dialect import Form, simulated_provider
from tests.support.servers import Database
from tests.support.station import (
    ProviderWorld,
    Station,
    make_station,
    new_queue,
    until,
    working,
)
from tests.workflows.scenes import SLOW, STATES, Scene, facts, over
from tests.workflows.test_sweep import ATTRIBUTES, attributes_of, schedule_of, settings_of
from tests.workflows.watching import changes, patches

pytestmark = pytest.mark.asyncio(loop_scope="module")

HELD = ("in flight", "behind another", "looking")
PATIENT = {("in flight", Form.REGULAR), ("behind another", Form.REGULAR)}
"""Held by the provider, with half a minute to wait for its answer; others have a few seconds."""


async def test_everything_goes_on_from_sql_alone(
    store: Database,
    simulator: Simulated,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A lost cluster costs time: no fact, no second send, and nobody's hand (C5, C382, C392)."""
    monkeypatch.setattr(worker, "_NAMESPACE_PERIOD_SECONDS", 0.2)
    provider = simulated_provider(simulator)
    view = provider.dialect.view(local_ms=8_000, regular_ms=30_000)
    world = await ProviderWorld.on(store, provider, limits=SLOW, view=view)
    with servers.own_folder() as folder, LocalTemporal(folder) as server:
        client = await servers.connect(server)
        station = make_station(world, client, new_queue())
        settings = settings_of(station)
        await keep_namespace(client, settings)
        async with namespace_kept(client, settings), working(station):
            names = list(product(STATES, Form))
            scenes: dict[tuple[str, Form], Scene] = {}
            # The held ones last, and all at once: their time is short.
            for group in (
                [name for name in names if name[0] not in HELD],
                [name for name in names if name[0] in HELD],
            ):
                arranged = await asyncio.gather(
                    *(
                        STATES[state](station, simulator, f"{state}-{form}".replace(" ", "-"), form)
                        for state, form in group
                    )
                )
                scenes |= zip(group, arranged, strict=True)
            told = len([run async for run in client.list_workflows()])

            server.kill()
            forget(folder)
            untold = [await world.accept_in(form, f"untold-{form}") for form in Form]
            for name, scene in scenes.items():
                if name[0] in HELD and name not in PATIENT:
                    await scene.go_on()
            resting = {
                name: await facts(world, scene)
                for name, scene in scenes.items()
                if name[0] not in HELD or name in PATIENT
            }
            address = server.address
            server.start()

            await namespace_is_whole(station)
            assert (server.address, told >= len(scenes)) == (address, True)
            for name, was in resting.items():
                assert await facts(world, scenes[name]) == was, name
                await scenes[name].go_on()
            for scene in scenes.values():
                await over(station, scene)
            assert await world.settled(*untold) == ["succeeded"] * len(untold)

    for name, scene in scenes.items():
        assert patches(simulator, scene.accepted) == scene.patches, name
        assert changes(simulator, scene.accepted) == scene.changes, name
        for other in scene.others:
            assert (patches(simulator, other), changes(simulator, other)) == (1, 1), name
    assert [patches(simulator, accepted) for accepted in untold] == [1, 1]
    assert (await audit_invariants(world.engine)).violations == 0


@asynccontextmanager
async def namespace_kept(client: Client, settings: Settings) -> AsyncIterator[None]:
    """What a worker process does beside its work, until the end."""
    keeping = asyncio.create_task(worker._keep_namespace(client, settings))
    try:
        yield
        assert not keeping.done(), "it goes on through an outage"
    finally:
        keeping.cancel()
        with suppress(asyncio.CancelledError):
            await keeping


def forget(folder: Path) -> None:
    """Nothing is left of what the server knew."""
    files = list(folder.glob("temporal.db*"))
    assert files, "the server kept its state in a file"
    for file in files:
        file.unlink()


async def namespace_is_whole(station: Station) -> None:
    """The empty server has the attributes and the sweep again, made by nobody but the worker."""

    async def is_so() -> bool:
        try:
            await schedule_of(station).describe()
        except RPCError:
            return False
        return await attributes_of(station.client) == ATTRIBUTES

    await until(is_so, what="attributes and schedule on the empty server")
