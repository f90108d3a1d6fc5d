"""A send that is under way belongs to its process, whatever is done to its workflow."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
import pytest_asyncio
from temporalio.client import Client, WorkflowExecutionStatus

from oncefence.activities.contracts import Step
from oncefence.app.local_postgres import LocalPostgres
from oncefence.domain.limits import Limits
from oncefence.storage.sealing import KeyRing
from oncefence.workflows.schedules import SWEEP_SCHEDULE
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
from tests.workflows.watching import (
    TIMER_STARTED,
    Held,
    changes,
    held_submission,
    patches,
    reset,
    results,
    seen,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module")
async def own_store(postgres: LocalPostgres) -> AsyncIterator[Database]:
    """One in which all is sealed with the ring that its process reads; with less it refuses."""
    async with servers.fresh_database(postgres) as fresh:
        yield fresh


class TestButtons:
    """What an operator may press in the middle of a send."""

    @pytest.mark.parametrize("button", ["terminate", "cancel", "reset"])
    async def test_causes_no_second_send_and_loses_no_answer(
        self, store: Database, client: Client, simulator: Simulated, button: str
    ) -> None:
        """The process owns the send; a workflow only watches it (C382, C387)."""
        world = await ProviderWorld.on(store, simulated_provider(simulator))
        async with working(make_station(world, client, new_queue())) as station:
            await asyncio.gather(
                *(press_in_the_middle(station, simulator, button, form) for form in Form)
            )


class TestSecondProcess:
    """Somebody else runs the item while it is being sent."""

    async def test_finds_the_send_in_flight_and_never_sends(
        self, store: Database, client: Client, simulator: Simulated
    ) -> None:
        """The mark is the only guard, and it guards against every process (C385, C388)."""
        world = await ProviderWorld.on(store, simulated_provider(simulator))
        async with (
            working(make_station(world, client, new_queue())) as first,
            working(make_station(world, client, new_queue())) as second,
        ):
            accepted, held = await held_submission(first, simulator, "lead-1")
            await first.workflow(accepted.work).terminate("a test")

            await second.wake(accepted.work)
            await seen(second, accepted.work, TIMER_STARTED)

            (run,) = await results(second, accepted.work)
            lease_until = (await world.item(accepted.work)).lease_until
            assert (run.step, run.until) == (Step.IN_FLIGHT, lease_until)
            held.release()
            assert await world.settled(accepted) == ["succeeded"]
            await second.wake(accepted.work)
            report = await second.workflow(accepted.work).result()
            assert report["verdict"] == "finished"
            (attempt,) = await world.attempts(accepted)
            assert attempt.lease_owner == first.context.owner
            assert patches(simulator, accepted) == 1

    async def test_settles_as_lost_what_a_killed_process_had_sent(
        self, own_store: Database, client: Client, simulator: Simulated, tmp_path: Path
    ) -> None:
        """After kill -9 the provider is asked what happened, and nothing is sent again (C261)."""
        keys = tmp_path / "keys.json"
        KeyRing.make_file(keys)
        provider = simulated_provider(simulator)
        # A worker that reads its environment has no margin of a test's own.
        limits = Limits(time_scale=FAST.time_scale)
        world = await ProviderWorld.on(
            own_store,
            provider,
            limits=limits,
            ring=KeyRing.load(keys),
            view=provider.dialect.view(local_ms=3_000),
        )
        station = make_station(world, client, new_queue())
        with worker_process(own_store, station, keys) as process:
            applied, _ = await held_submission(station, simulator, "lead-1", hold_at="commit")
            not_applied, _ = await held_submission(station, simulator, "lead-2")
            os.kill(process.pid, signal.SIGKILL)
            process.wait(timeout=10)

        async with working(station):
            statuses = await world.settled(applied, not_applied, within_s=30)

        assert statuses == ["succeeded", "failed"]
        for accepted, changed, disposition in (
            (applied, 1, "applied"),
            (not_applied, 0, "not_found"),
        ):
            (attempt,) = await world.attempts(accepted)
            assert (attempt.settled_as, attempt.disposition) == ("lost", disposition)
            lease = timedelta(seconds=3 + limits.lease_margin_scaled_seconds)
            assert attempt.settled_at - attempt.started_at >= lease
            assert patches(simulator, accepted) == 1
            assert changes(simulator, accepted) == changed
        await client.get_schedule_handle(f"{SWEEP_SCHEDULE}-{station.task_queue}").delete()


async def press_in_the_middle(
    station: Station, simulator: Simulated, button: str, form: Form
) -> None:
    """A command is sent, a button is pressed, the provider goes on, and all is well."""
    world = station.world
    subject = f"{button}-{form}"
    await world.link(subject)
    held = Held(simulator, world.remote_ids[subject])
    accepted = await station.submit(subject, form=form)
    await held.is_there()
    workflow = station.workflow(accepted.work)
    sent_by = (await workflow.describe()).run_id
    match button:
        case "terminate":
            await workflow.terminate("a test")
        case "cancel":
            await workflow.cancel()
        case "reset":
            await reset(station, accepted.work)

    async def is_over() -> bool:
        state = (await station.workflow(accepted.work, run_id=sent_by).describe()).status
        return state is not WorkflowExecutionStatus.RUNNING

    await until(is_over, what=f"the end of the workflow by {button}")
    assert await world.status(accepted) == "running"
    if button != "reset":
        await station.wake(accepted.work)

    held.release()

    assert await world.settled(accepted) == ["succeeded"]
    report = await station.workflow(accepted.work).result()
    assert report["execution_status"] in ("succeeded", None)
    (attempt,) = await world.attempts(accepted)
    assert (attempt.settled_as, attempt.outcome) == ("starter", "ACCEPTED")
    assert patches(simulator, accepted) == 1


WORKER = """
import asyncio
from oncefence.app.config import Settings
from oncefence.app.worker import run_worker
asyncio.run(run_worker(Settings.from_environment()))
"""


@contextmanager
def worker_process(
    store: Database, station: Station, keys: Path
) -> Iterator["subprocess.Popen[bytes]"]:
    """The program's own worker on the station's queue, as an operating-system process."""
    process = subprocess.Popen(
        [sys.executable, "-c", WORKER],
        env={
            "PATH": os.environ["PATH"],
            "ONCEFENCE_DATABASE_URL": store.app_url,
            "ONCEFENCE_TEMPORAL_ADDRESS": station.client.service_client.config.target_host,
            "ONCEFENCE_KEY_FILE": str(keys),
            "ONCEFENCE_TASK_QUEUE": station.task_queue,
            "ONCEFENCE_TIME_SCALE": str(FAST.time_scale),
            "ONCEFENCE_LISTEN": "127.0.0.1:0",
        },
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait(timeout=10)
