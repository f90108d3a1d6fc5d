"""Asking a worker to stop: nothing begins, what was sent settles, and the rest goes elsewhere."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from temporalio.client import Client

from oncefence.app.processes import free_port
from oncefence.domain.ids import ViewId
from oncefence.domain.limits import Limits
from oncefence.storage.phases.add_work import NewWork, add_work
from oncefence.storage.sealing import KeyRing
from oncefence.workflows.schedules import SWEEP_SCHEDULE
from tests.providers.simulated import Simulated, simulator_at
from tests.support.dialect import Form, simulated_provider
from tests.support.plain_http import NO_TLS
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
from tests.workflows.watching import changes, held_submission, patches

# As a worker has them that reads its environment.
LIMITS = Limits(time_scale=FAST.time_scale)
PATIENT, HASTY = 30.0, 0.3


@dataclass(kw_only=True)
class Worker:
    """The program's own worker, in a process that logs into a file."""

    process: "subprocess.Popen[bytes]"
    log: Path
    url: str

    @property
    def lines(self) -> list[dict[str, Any]]:
        # Of the last one only a part may have been written; the first ones are for people.
        whole = self.log.read_text().split("\n")[:-1]
        return [json.loads(line) for line in whole if line.startswith("{")]

    async def says(self, event: str) -> dict[str, Any]:
        """The line of its log with this event, when it is there."""

        async def found() -> list[dict[str, Any]]:
            return [line for line in self.lines if line["event"] == event]

        return (await until(found, within_s=40, what=f"the line {event!r}"))[0]

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def is_stopping(self, number: signal.Signals = signal.SIGTERM) -> None:
        """It has been asked to stop, and knows."""
        self.send(number)
        await self.says("stopping")

    async def ended(self) -> int:
        """Its exit code, once it has ended."""

        async def has_ended() -> bool:
            return self.process.poll() is not None

        await until(has_ended, within_s=40, what="the end of the worker")
        return int(self.process.returncode)

    async def is_ready(self) -> httpx.Response:
        async with httpx.AsyncClient(trust_env=False, verify=NO_TLS) as client:
            return await client.get(f"{self.url}/readyz")


@dataclass(kw_only=True)
class Place:
    """A world whose key file, database and task queue are known to worker processes."""

    folder: Path
    keys: Path
    store: Database
    client: Client
    simulator: Simulated
    world: ProviderWorld
    task_queue: str = field(default_factory=new_queue)

    @property
    def station(self) -> Station:
        """A process without a worker, on the same queue."""
        return make_station(self.world, self.client, self.task_queue)

    @asynccontextmanager
    async def worker(
        self, *, drain_seconds: float = PATIENT, words: tuple[str, ...] = ()
    ) -> AsyncIterator[Worker]:
        """A worker whose doors are open."""
        port = free_port()
        log = self.folder / f"worker-{port}.log"
        process = self._start(
            words or ("-m", "oncefence.app.cli", "worker"), log, port, drain_seconds
        )
        try:
            worker = Worker(process=process, log=log, url=f"http://127.0.0.1:{port}")
            await worker.says("doors are open")
            yield worker
        finally:
            process.kill()
            process.wait(timeout=10)

    def _start(
        self, words: tuple[str, ...], log: Path, port: int, drain_seconds: float
    ) -> "subprocess.Popen[bytes]":
        with log.open("wb") as file:
            return subprocess.Popen(
                [sys.executable, *words],
                env={
                    "PATH": os.environ["PATH"],
                    "ONCEFENCE_DATABASE_URL": self.store.app_url,
                    "ONCEFENCE_TEMPORAL_ADDRESS": self.client.service_client.config.target_host,
                    "ONCEFENCE_KEY_FILE": str(self.keys),
                    "ONCEFENCE_TASK_QUEUE": self.task_queue,
                    "ONCEFENCE_TIME_SCALE": str(FAST.time_scale),
                    "ONCEFENCE_DRAIN_SECONDS": str(drain_seconds),
                    "ONCEFENCE_LISTEN": f"127.0.0.1:{port}",
                },
                stdout=subprocess.DEVNULL,
                stderr=file,
                start_new_session=True,
            )


@pytest.fixture(scope="module")
def simulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Simulated]:
    with simulator_at(tmp_path_factory.mktemp("simulator") / "ledger.jsonl") as running:
        yield running


@pytest.fixture
async def place(
    database: Database, temporal_client: Client, simulator: Simulated, tmp_path: Path
) -> AsyncIterator[Place]:
    keys = tmp_path / "keys.json"
    KeyRing.make_file(keys)
    world = await ProviderWorld.on(
        database, simulated_provider(simulator), limits=LIMITS, ring=KeyRing.load(keys)
    )
    made = Place(
        folder=tmp_path,
        keys=keys,
        store=database,
        client=temporal_client,
        simulator=simulator,
        world=world,
    )
    yield made
    await temporal_client.get_schedule_handle(f"{SWEEP_SCHEDULE}-{made.task_queue}").delete()


class TestFirstSignal:
    """A request to stop, and time to follow it."""

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    async def test_lets_a_send_under_way_settle(self, place: Place, number: signal.Signals) -> None:
        """What is on the wire is let finish, and the process ends by 0 when it has (C58, C387)."""
        async with place.worker() as worker:
            accepted, held = await held_submission(place.station, place.simulator, "lead-1")
            await worker.is_stopping(number)

            answer = await worker.is_ready()
            held.release()
            code = await worker.ended()

            assert (answer.status_code, answer.json()["code"]) == (503, "draining")
            assert code == 0
            assert await place.world.status(accepted) == "succeeded"
            assert patches(place.simulator, accepted) == 1
            stopped = await worker.says("stopped")
            assert {name: stopped[name] for name in ("finished", "handed_back", "left")} == {
                "finished": 1,
                "handed_back": 0,
                "left": 0,
            }

    async def test_begins_nothing_that_was_not_begun(self, place: Place) -> None:
        """From the signal on no item is claimed, and another worker has them at once (C58)."""
        station, world = place.station, place.world
        async with place.worker() as stopping:
            sent, held = await held_submission(station, place.simulator, "lead-1")
            next_in_lane = await station.submit("lead-1", title="Head")
            await stopping.is_stopping()
            waiting = [await station.submit(f"lead-{number}") for number in range(2, 6)]

            async with place.worker():
                assert await world.settled(*waiting) == ["succeeded"] * 4
                owner = (await world.attempts(waiting[0]))[0].lease_owner
                held.release()
                assert await world.settled(sent, next_in_lane) == ["succeeded"] * 2

                assert await stopping.ended() == 0
                (first,) = await world.attempts(sent)
                assert first.lease_owner != owner
                for each in (*waiting, next_in_lane):
                    (attempt,) = await world.attempts(each)
                    assert attempt.lease_owner == owner
                    assert (await world.item(each.work)).claims_lost == 0

    async def test_leaves_unclaimed_what_nobody_else_takes(self, place: Place) -> None:
        """Nothing holds a lease that nobody uses: what was not begun stands as it was (C58)."""
        station, world = place.station, place.world
        async with place.worker() as worker:
            _, held = await held_submission(station, place.simulator, "lead-1")
            await worker.is_stopping()
            waiting = [await station.submit(f"lead-{number}") for number in range(2, 8)]
            held.release()

            assert await worker.ended() == 0

        for each in waiting:
            item = await world.item(each.work)
            assert (item.state, item.lease_owner, item.ownership_epoch) == ("pending", None, 0)

    async def test_does_not_hand_back_a_send_that_outlasts_the_bound(self, place: Place) -> None:
        """A send is settled or lost, never given to somebody who would send again (C58, C261)."""
        station, world = place.station, place.world
        async with place.worker(drain_seconds=HASTY) as worker:
            applied, _ = await held_submission(station, place.simulator, "lead-1", hold_at="commit")
            not_applied, _ = await held_submission(station, place.simulator, "lead-2")
            await worker.is_stopping()

            assert await worker.ended() == 1
            assert (await worker.says("stopped"))["left"] == 2

        for each in (applied, not_applied):
            assert (await world.item(each.work)).state == "processing"
        async with place.worker():
            assert await world.settled(applied, not_applied, within_s=40) == ["succeeded", "failed"]
        for accepted, changed in ((applied, 1), (not_applied, 0)):
            (attempt,) = await world.attempts(accepted)
            assert (attempt.settled_as, attempt.outcome) == ("lost", "OUTCOME_UNKNOWN")
            assert await world.lookup_work(accepted) is not None
            assert patches(place.simulator, accepted) == 1
            assert changes(place.simulator, accepted) == changed


class TestSecondSignal:
    """No more time."""

    async def test_stops_at_once_and_sends_nothing_twice(self, place: Place) -> None:
        """What was on the wire settles as lost, and its lookup finds what became of it (C261)."""
        station, world = place.station, place.world
        async with place.worker() as worker:
            accepted, _ = await held_submission(
                station, place.simulator, "lead-1", hold_at="commit"
            )
            await worker.is_stopping()
            worker.send(signal.SIGTERM)

            assert await worker.ended() == 1

        assert (await world.item(accepted.work)).state == "processing"
        async with place.worker():
            assert await world.settled(accepted, within_s=40) == ["succeeded"]
        (attempt,) = await world.attempts(accepted)
        assert (attempt.settled_as, attempt.disposition) == ("lost", "applied")
        assert patches(place.simulator, accepted) == 1


FAMILY = "tests.slow"
HANDLER = """
import asyncio, sys
from oncefence.app.cli.store import read_settings
from oncefence.app.logs import configure_logs
from oncefence.app.worker import run_worker
from oncefence.domain.claim import ClaimEnd, WorkEnd
from tests.support.plain_http import NO_TLS

class Handler:
    family = "tests.slow"

    async def run(self, work):
        if sys.argv[1] == "slow":
            print(flush=True)
            await asyncio.Event().wait()
        return WorkEnd(end=ClaimEnd.FINISH)

configure_logs()
asyncio.run(run_worker(read_settings(), [Handler()]))
"""


class TestHandler:
    """An item of a family whose work takes longer than the process has."""

    async def test_gives_its_claim_back_by_its_own_token(self, place: Place) -> None:
        """Another process takes it without the end of a lease, and no claim is lost (C58)."""
        station, world = place.station, place.world
        (view,) = await world.sql("SELECT view_id FROM oncefence.binding_views WHERE org_id = :org")
        added = await add_work(
            world.engine,
            NewWork(
                org=world.org,
                family=FAMILY,
                subject_kind="test",
                subject_id="1",
                view=ViewId(view.view_id),
                definition=FAMILY,
                queue_class=FAMILY,
                # A lease of which nobody here waits for the end.
                deadline_ms=600_000,
            ),
        )
        work = added.ref.work

        async def is_claimed() -> bool:
            return (await world.item(work)).state == "processing"

        async def is_done() -> bool:
            return (await world.item(work)).state == "succeeded"

        async with place.worker(drain_seconds=HASTY, words=("-c", HANDLER, "slow")) as slow:
            await station.announcer.announce(added.ref)
            await until(is_claimed, what="a claim")
            await slow.is_stopping()
            assert await slow.ended() == 0
            assert (await slow.says("stopped"))["handed_back"] == 1

        item = await world.item(work)
        assert (item.state, item.via, item.lease_owner) == ("retry", "defer", None)
        assert (item.claims_lost, item.attempt) == (0, 0)
        async with place.worker(words=("-c", HANDLER, "quick")):
            await until(is_done, what="its end elsewhere")
        assert (await world.item(work)).claims_lost == 0


class TestRefusedRun:
    """A run that reaches a process which has begun to stop and still has tasks of Temporal."""

    async def test_is_done_by_another_process(self, place: Place) -> None:
        """Its workflow looks again at once, and whoever takes it then may claim (C58, C388)."""
        world = place.world
        stopping = make_station(world, place.client, place.task_queue, limits=LIMITS)
        stopping.context.runs.begin_drain()
        async with working(stopping):
            accepted = [
                await stopping.submit(f"lead-{form}", form=form)
                for form in (Form.LOCAL, Form.REGULAR)
            ]

            async def were_refused() -> bool:
                drained = await stopping.context.runs.stop(within_seconds=0, hand_back_seconds=0)
                return drained.handed_back == len(accepted)

            await until(were_refused, what="the refusal of both")
            for each in accepted:
                assert (await world.item(each.work)).ownership_epoch == 0
        async with place.worker():
            assert await world.settled(*accepted) == ["succeeded"] * 2
