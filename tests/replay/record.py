"""
Records the histories that the replay test replays: `python -m tests.replay.record [NAME ...]`.

Each is of a real run on real servers in real time. Record one anew only together with a change
that is meant to break it: histories like it may be open in Temporal when the change is installed.
"""

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.contrib.pydantic import pydantic_data_converter

from oncefence.app.local_temporal import NAMESPACE, LocalTemporal
from oncefence.app.temporal_client import HandoffRefused
from oncefence.domain.handoff import EffectHandoffKey
from oncefence.domain.ids import OutboxId, WorkId
from oncefence.domain.limits import Limits
from oncefence.domain.signature import HandoffVerb
from oncefence.workflows.handoff import ACCEPT_WITHOUT_RECEIPT
from oncefence.workflows.sweep import SWEEP_WORKFLOW
from oncefence.workflows.work_item import WAKE
from tests.providers.simulated import Simulated, simulator_at
from tests.support import servers
from tests.support.dialect import Form, simulated_provider
from tests.support.servers import Database
from tests.support.station import (
    BRIEF,
    FAST,
    ProviderWorld,
    Station,
    make_station,
    new_queue,
    until,
    working,
)
from tests.workflows.gate import Gate, gate
from tests.workflows.scenes import SLOW, postpone, waiting_for_its_time, waiting_to_retry
from tests.workflows.store_link import linked_engine
from tests.workflows.watching import (
    MARKER,
    TIMED_OUT,
    TIMER_STARTED,
    held_submission,
    reset,
    seen,
)

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "tests" / "data" / "histories"

Handle = WorkflowHandle[Any, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """The servers of one recording session."""

    store: Database
    client: Client
    simulator: Simulated

    @asynccontextmanager
    async def station(
        self, limits: Limits = FAST, *, local_ms: int = 2_000, regular_ms: int = 9_000
    ) -> AsyncIterator[Station]:
        """A world of its own and its worker."""
        provider = simulated_provider(self.simulator)
        view = provider.dialect.view(local_ms=local_ms, regular_ms=regular_ms)
        world = await ProviderWorld.on(self.store, provider, limits=limits, view=view)
        async with working(make_station(world, self.client, new_queue())) as station:
            yield station

    @asynccontextmanager
    async def gate(self) -> AsyncIterator[Gate]:
        """A Runtime that signs, and the worker that answers it."""
        async with gate(self.store, self.client, self.simulator) as here:
            yield here


async def ended(handle: Handle) -> Handle:
    """The handle of a workflow whose history is complete."""
    try:
        await handle.result()
    except WorkflowFailureError:
        return handle  # cancelled, as it was recorded to be
    return handle


# --- items -----------------------------------------------------------------------------------


def success(form: Form) -> "Recording":
    async def record(stage: Stage) -> Handle:
        async with stage.station() as station:
            accepted = await station.submit(form=form)
            return await ended(station.workflow(accepted.work))

    return record


def retry_after_429(form: Form) -> "Recording":
    async def record(stage: Stage) -> Handle:
        async with stage.station(SLOW) as station:
            scene = await waiting_to_retry(station, stage.simulator, "lead-1", form)
            await scene.go_on()
            await station.wake(scene.accepted.work)
            return await ended(station.workflow(scene.accepted.work))

    return record


def unknown(form: Form, *, is_lookup: bool) -> "Recording":
    async def record(stage: Stage) -> Handle:
        async with stage.station() as station:
            await station.world.link("lead-1")
            contact = station.world.remote_ids["lead-1"]
            stage.simulator.script(contact=contact, fault="garbled")
            accepted = await station.submit(form=form)
            await station.world.settled(accepted)
            work = await station.world.lookup_work(accepted) if is_lookup else accepted.work
            assert work is not None
            return await ended(station.workflow(work))

    return record


def store_away(form: Form) -> "Recording":
    async def record(stage: Stage) -> Handle:
        provider = simulated_provider(stage.simulator)
        view = provider.dialect.view(local_ms=1_000, regular_ms=8_001)
        world = await ProviderWorld.on(stage.store, provider, limits=BRIEF, view=view)
        async with linked_engine(stage.store.app_url) as (engine, link):
            station = make_station(world, stage.client, new_queue(), engine=engine)
            async with working(station):
                link.cut()
                accepted = await station.submit(form=form)
                await seen(station, accepted.work, FAILURES[form])
                link.mend()
                return await ended(station.workflow(accepted.work))

    return record


FAILURES = {Form.LOCAL: MARKER, Form.REGULAR: TIMED_OUT}


async def ladder(stage: Stage) -> Handle:
    """A lookup that comes to no end in five tries, and leaves the command to a person."""
    async with stage.station(local_ms=500) as station:
        await station.world.link("lead-1")
        stage.simulator.script(contact=station.world.remote_ids["lead-1"], fault="overwritten")
        accepted = await station.submit()
        assert await station.world.settled(accepted) == ["needs_attention"]
        lookup = await station.world.lookup_work(accepted)
        assert lookup is not None
        return await ended(station.workflow(lookup))


async def lane_blocked(stage: Stage) -> Handle:
    """An item behind another one: its workflow ends until that one's end wakes it."""
    async with stage.station(replace(FAST, sweep_period_seconds=600_000)) as station:
        _, held = await held_submission(station, stage.simulator, "lead-1")
        behind = await station.submit("lead-1", title="Chief")
        blocked = await ended(station.workflow(behind.work))
        held.release()
        await station.world.settled(behind)
        return blocked


async def in_flight(stage: Stage) -> Handle:
    """A second process finds the item in flight, and later finished."""
    async with stage.station(local_ms=8_000) as first, AsyncExitStack() as stack:
        station = make_station(first.world, stage.client, new_queue())
        second = await stack.enter_async_context(working(station))
        accepted, held = await held_submission(first, stage.simulator, "lead-1")
        await first.workflow(accepted.work).terminate("a recording")
        await second.wake(accepted.work)
        await seen(second, accepted.work, TIMER_STARTED)
        held.release()
        await first.world.settled(accepted)
        await second.wake(accepted.work)
        return await ended(second.workflow(accepted.work))


async def attempt_lost(stage: Stage) -> Handle:
    """The attempt of a starter that is gone is settled as lost."""
    async with stage.station() as station:
        world = station.world
        accepted = await world.accept_in(Form.LOCAL)
        await world.start(accepted)
        await world.expire_lease(accepted.work)
        await station.announce(accepted)
        return await ended(station.workflow(accepted.work))


async def cannot_proceed(stage: Stage) -> Handle:
    """The link moved before anything was sent."""
    async with stage.station() as station:
        accepted = await station.world.accept_in(Form.LOCAL)
        await station.world.change_link("lead-1")
        await station.announce(accepted)
        return await ended(station.workflow(accepted.work))


async def waiting(station: Station, stage: Stage) -> WorkId:
    """An item that is due in an hour, and whose workflow waits for that."""
    scene = await waiting_for_its_time(station, stage.simulator, "lead-1", Form.LOCAL)
    return scene.accepted.work


async def woken_early(stage: Stage) -> Handle:
    """An item is brought forward while its workflow waits."""
    async with stage.station() as station:
        work = await waiting(station, stage)
        await postpone(station.world, work)
        await station.wake(work)
        return await ended(station.workflow(work))


async def not_due(stage: Stage) -> Handle:
    """A workflow that was told of no due time asks, waits, and runs by its own timer."""
    async with stage.station() as station:
        accepted = await station.world.accept_in(Form.LOCAL)
        early = await station.ref(accepted.work)
        await postpone(station.world, accepted.work, timedelta(seconds=1))
        await station.announcer.announce(early)
        return await ended(station.workflow(accepted.work))


async def cancelled(stage: Stage) -> Handle:
    """The button `Cancel` while it waits."""
    async with stage.station() as station:
        work = await waiting(station, stage)
        await station.workflow(work).cancel()
        return await ended(station.workflow(work))


async def after_reset(stage: Stage) -> Handle:
    """The button `Reset` after the end: the item is run again and found finished."""
    async with stage.station() as station:
        accepted = await station.submit()
        await ended(station.workflow(accepted.work))
        await reset(station, accepted.work)
        return await ended(station.workflow(accepted.work))


async def junk_signals(stage: Stage) -> Handle:
    """Signals that nobody sends, while it waits."""
    async with stage.station() as station:
        work = await waiting(station, stage)
        for name, words in (("no-such-signal", ({"a": 1},)), (WAKE, (7, "x"))):
            await station.workflow(work).signal(name, args=words)
        await seen(station, work, TIMER_STARTED, times=2)
        await postpone(station.world, work)
        await station.wake(work)
        return await ended(station.workflow(work))


# --- the sweep and the door ------------------------------------------------------------------


async def sweep(stage: Stage) -> Handle:
    """One pass that finds an item."""
    async with stage.station() as station:
        accepted = await station.world.accept_in(Form.LOCAL)
        handle: Handle = await station.client.start_workflow(
            SWEEP_WORKFLOW, id="sweep/recorded", task_queue=station.task_queue
        )
        await station.world.settled(accepted)
        return await ended(handle)


async def handoff_accepted(stage: Stage) -> Handle:
    """A receipt for a signed handoff."""
    async with stage.gate() as here:
        handover = await here.world.offer()
        await here.ask(handover)
        return await ended(here.workflow(handover.key))


async def handoff_rejected(stage: Stage) -> Handle:
    """A receipt for a rejection."""
    async with stage.gate() as here:
        handover = await here.world.offer()
        await here.ask(handover, HandoffVerb.REJECT_IF_UNACCEPTED)
        return await ended(here.workflow(handover.key))


async def handoff_conflict(stage: Stage) -> Handle:
    """The key returns with another payload."""
    async with stage.gate() as here:
        handover = await here.world.offer()
        await here.ask(handover)
        await ended(here.workflow(handover.key))
        await is_refused(here, await here.world.offer(title="Chief", outbox=handover.outbox))
        return await ended(here.workflow(handover.key))


async def handoff_both(stage: Stage) -> Handle:
    """Acceptance and rejection, asked of one workflow while the store is silent."""
    async with (
        linked_engine(stage.store.app_url) as (engine, link),
        gate(stage.store, stage.client, stage.simulator, engine=engine) as here,
    ):
        handover = await here.world.offer()
        link.cut()
        asking = [asyncio.create_task(here.ask(handover, verb)) for verb in HandoffVerb]

        async def both_are_taken() -> bool:
            kinds = [event.event_type for event in await here.history(handover.key)]
            return kinds.count(EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED) == 2

        await until(both_are_taken, what="both questions in the history")
        link.mend()
        # Whoever is second is told so, by a receipt or by a refusal.
        await asyncio.gather(*asking, return_exceptions=True)
        return await ended(here.workflow(handover.key))


async def handoff_by_signal(stage: Stage) -> Handle:
    """Junk, and then a handoff that asks for no receipt."""
    async with stage.gate() as here:
        handover = await here.world.offer()
        await here.signal(handover.key, "no-such-signal", {"a": 1})
        await here.signal(handover.key, ACCEPT_WITHOUT_RECEIPT, 7, "x")
        await here.signal(handover.key, ACCEPT_WITHOUT_RECEIPT, here.message(handover))
        return await ended(here.workflow(handover.key))


async def handoff_idle(stage: Stage) -> Handle:
    """Nobody asks anything that can be read, until patience ends."""
    async with stage.gate() as here:
        key = EffectHandoffKey.for_outbox(here.world.caller.scope, OutboxId("nothing"))
        await here.signal(key, "no-such-signal")
        return await ended(here.workflow(key))


async def handoff_cancelled(stage: Stage) -> Handle:
    """The button `Cancel` while it waits to be asked."""
    async with stage.gate() as here:
        key = EffectHandoffKey.for_outbox(here.world.caller.scope, OutboxId("cancelled"))
        await here.signal(key, "no-such-signal")

        async def waits() -> bool:
            return TIMER_STARTED in [event.event_type for event in await here.history(key)]

        await until(waits, what="a workflow that waits")
        await here.workflow(key).cancel()
        return await ended(here.workflow(key))


async def is_refused(here: Gate, handover: Any) -> None:
    """The door answers with a refusal."""
    try:
        await here.ask(handover)
    except HandoffRefused:
        return
    raise AssertionError("it was to be refused")


Recording = Callable[[Stage], Awaitable[Handle]]

RECORDINGS: dict[str, Recording] = {
    "item-local-success": success(Form.LOCAL),
    "item-regular-success": success(Form.REGULAR),
    "item-local-retry-after-429": retry_after_429(Form.LOCAL),
    "item-regular-retry-after-429": retry_after_429(Form.REGULAR),
    "item-local-unknown": unknown(Form.LOCAL, is_lookup=False),
    "item-regular-unknown": unknown(Form.REGULAR, is_lookup=False),
    "item-lookup-success": unknown(Form.LOCAL, is_lookup=True),
    "item-lookup-ladder-to-a-person": ladder,
    "item-held-back": lane_blocked,
    "item-in-flight-elsewhere": in_flight,
    "item-attempt-lost": attempt_lost,
    "item-cannot-proceed": cannot_proceed,
    "item-local-store-away": store_away(Form.LOCAL),
    "item-regular-store-away": store_away(Form.REGULAR),
    "item-woken-early": woken_early,
    "item-not-due": not_due,
    "item-cancelled": cancelled,
    "item-reset-after-its-end": after_reset,
    "item-junk-signals": junk_signals,
    "sweep": sweep,
    "handoff-accepted": handoff_accepted,
    "handoff-rejected": handoff_rejected,
    "handoff-conflict": handoff_conflict,
    "handoff-accepted-and-rejected": handoff_both,
    "handoff-by-signal-after-junk": handoff_by_signal,
    "handoff-idle": handoff_idle,
    "handoff-cancelled": handoff_cancelled,
}

OF_EARLIER_VERSIONS = frozenset(("item-lane-blocked-and-woken",))
"""Recorded by workflows of which some may still be open; nothing of today records them."""


async def record_all(
    names: list[str], postgres: Any, temporal: LocalTemporal, simulator: Simulated
) -> None:
    """Record these, one after the other."""
    # Not the machine's name, which would be the default.
    client = await Client.connect(
        temporal.address,
        namespace=NAMESPACE,
        data_converter=pydantic_data_converter,
        identity="recorder",
    )
    for name in names:
        async with servers.fresh_database(postgres) as store:
            stage = Stage(store=store, client=client, simulator=simulator)
            handle = await RECORDINGS[name](stage)
            history = await handle.fetch_history()
        # Stack traces name the folder that this tree happened to be in.
        text = history.to_json().replace(f"{ROOT}/", "")
        (FOLDER / f"{name}.json").write_text(text + "\n", encoding="utf-8")
        sys.stderr.write(f"{name}: {len(history.events)} events\n")


def main(names: list[str]) -> None:
    """Record the histories of these names, or all of them."""
    strangers = sorted(set(names) - set(RECORDINGS))
    if strangers:
        sys.exit(f"no such recording: {', '.join(strangers)}; there are {', '.join(RECORDINGS)}")
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (
        servers.postgres_with_template() as postgres,
        servers.temporal() as temporal,
        tempfile.TemporaryDirectory() as folder,
        simulator_at(Path(folder) / "ledger.jsonl") as simulator,
    ):
        asyncio.run(record_all(names or list(RECORDINGS), postgres, temporal, simulator))


if __name__ == "__main__":
    main(sys.argv[1:])
