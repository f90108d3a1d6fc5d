"""The door for scrapers: one effect is seen there, and nothing that was in it (C461, C445)."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import httpx
import pytest
from temporalio.client import Client

from oncefence.app.api import Doors, make_api
from oncefence.app.metrics import ProcessMetrics
from oncefence.domain.ids import OrgId
from oncefence.domain.operator import EVERY_ORG, Role
from oncefence.storage.phases.add_operator import add_operator
from oncefence.storage.phases.rebuild_pressure import rebuild_pressure
from tests.providers.simulated import Simulated, simulator_at
from tests.support.dialect import simulated_provider
from tests.support.servers import Database
from tests.support.station import ProviderWorld, Station, make_station, working

TITLE = "Canary Title 81c1"
SUBJECT = "canary-subject-81c2"


@pytest.fixture(scope="module")
def simulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Simulated]:
    with simulator_at(tmp_path_factory.mktemp("simulator") / "ledger.jsonl") as running:
        yield running


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A process with a worker, and its door for whoever scrapes it."""

    station: Station
    door: httpx.AsyncClient

    async def token(self, org: OrgId = EVERY_ORG, name: str = "scraper") -> str:
        """The token of a new operator who may read this org."""
        added = await add_operator(
            self.station.world.engine,
            name=name,
            roles=frozenset((Role.VIEWER,)),
            orgs=frozenset((org,)),
            actor="tests",
            note="for a test",
        )
        return added.token.reveal()

    async def scrape(self, token: str | None) -> httpx.Response:
        """What the door answers to this token."""
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        return await self.door.get("/metrics", headers=headers)


@pytest.fixture
async def place(
    database: Database, temporal_client: Client, task_queue: str, simulator: Simulated
) -> AsyncIterator[Place]:
    world = await ProviderWorld.on(database, simulated_provider(simulator))
    metrics = ProcessMetrics()
    station = make_station(world, temporal_client, task_queue, measures=metrics.measures)
    doors = Doors(
        engine=world.engine,
        ring=world.ring,
        limits=world.limits,
        announce=station.announcer.announce,
        metrics=metrics,
    )
    transport = httpx.ASGITransport(app=make_api(doors))
    async with (
        working(station),
        httpx.AsyncClient(transport=transport, base_url="http://doors") as door,
    ):
        yield Place(station=station, door=door)


async def test_an_effect_is_seen_and_nothing_that_was_in_it(place: Place) -> None:
    """Whoever watches sees that it was claimed, sent and settled; no payload, token or subject."""
    world = place.station.world
    accepted = await place.station.submit(SUBJECT, title=TITLE)
    # Its end, and not that of the effect: what the run took is told when it is over.
    await place.station.workflow(accepted.work).result()
    waits = await world.accept_command("another-subject", title=TITLE)
    await rebuild_pressure(world.engine)
    token = await place.token()

    answer = await place.scrape(token)

    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    family = 'family="effect.dispatch"'
    provider = world.view.pack
    waiting = f'{family},org="{world.org}",provider="{provider}",state="pending"'
    for line in (
        f'oncefence_claims_total{{{family},verdict="claimed"}} 1.0',
        f'oncefence_attempts_total{{outcome="ACCEPTED",provider="{provider}"}} 1.0',
        f'oncefence_run_duration_seconds_count{{end="settled",{family}}} 1.0',
        f"oncefence_pressure_depth{{{waiting}}} 1.0",
    ):
        assert line in answer.text.splitlines()
    for hidden in (
        TITLE,
        SUBJECT,
        "another-subject",
        token,
        world.provider.dialect.token,
        world.credential,
        str(accepted.command),
        str(accepted.work),
        str(waits.work),
        str(accepted.handover.key),
        world.remote_ids[SUBJECT],
    ):
        assert hidden not in answer.text


async def test_nobody_reads_it_who_may_not_read_every_org(place: Place) -> None:
    """It says whose work waits, so a tenant who reaches the door must not be told (C8)."""
    one_org = await place.token(place.station.world.org, name="of-one-org")

    answers = [
        await place.scrape(token) for token in (None, place.station.world.credential, one_org)
    ]

    assert [answer.status_code for answer in answers] == [401, 401, 403]
    assert not any("oncefence_" in answer.text for answer in answers)
