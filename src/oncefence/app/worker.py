"""The two processes that a replica runs: a worker with its doors, or the doors alone."""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from time import monotonic
from typing import Final

import uvicorn
from temporalio.client import Client
from temporalio.service import RPCError
from temporalio.worker import Worker

from oncefence.activities.process_context import Drained, SendRegistry
from oncefence.activities.work import WorkHandler
from oncefence.app.api import Doors, make_api
from oncefence.app.bootstrap import (
    connect_temporal,
    keep_namespace,
    make_announcer,
    make_context,
    make_worker,
    open_store,
)
from oncefence.app.config import Settings
from oncefence.app.doors import Connecting
from oncefence.app.metrics import ProcessMetrics
from oncefence.domain.errors import ConfigurationRefused
from oncefence.storage.phases.find_work import WorkRef
from oncefence.storage.sealing import KeyRing

log = logging.getLogger(__name__)

Announce = Callable[[WorkRef], Awaitable[None]]

_NAMESPACE_PERIOD_SECONDS: Final = 60.0
# After the drain's own bound: for one statement that gives a claim back, for telling Temporal,
# and for requests that are at a door just then.
_HAND_BACK_SECONDS: Final = 5.0
_TELL_SECONDS: Final = 5.0
_DOOR_SECONDS: Final = 5
_STOPPED_AT_ONCE: Final = 1


class _DoorServer(uvicorn.Server):
    """uvicorn without signal handlers of its own: the process decides when its doors close."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals alone."""
        yield


async def run_worker(settings: Settings, handlers: Iterable[WorkHandler] = ()) -> Drained:
    """
    Run the worker and its doors until a signal asks to stop, and say what became of its runs.

    The first signal stops claiming at that moment and lets what is under way come to its end
    within `ONCEFENCE_DRAIN_SECONDS`; what is not at its end by then gives its claim back, but for
    sends on the wire. The doors stay open meanwhile, and are not ready. The second signal stops
    at once, which is safe at any moment. `handlers` are the families beside dispatch and lookup.

    Raises:
        ConfigurationRefused: Something that it needs is missing or wrong.
    """
    ring = KeyRing.load(settings.key_file)
    async with open_store(settings, ring) as engine:
        client = await connect_temporal(settings)
        await keep_namespace(client, settings)
        announcer = make_announcer(client, settings)
        metrics = ProcessMetrics(announcer.starter.eager)
        context = make_context(
            engine,
            ring,
            announcer,
            settings.limits,
            metrics.measures,
            egress_proxy=settings.egress_proxy,
        )
        runs = context.runs

        async def announce(ref: WorkRef) -> None:
            # Eagerly started, it would be given to this very process.
            await (announcer.wake(ref) if runs.is_draining else announcer.announce(ref))

        doors = Doors(
            engine=engine,
            ring=ring,
            limits=settings.limits,
            announce=announce,
            is_stopping=lambda: runs.is_draining,
            metrics=metrics,
            connecting=_connecting(settings),
        )
        worker = make_worker(
            client,
            settings.task_queue,
            context,
            handlers,
            # Longer than the drain: how a run ends is for this process to say, and not the SDK.
            graceful_seconds=settings.drain_seconds + _HAND_BACK_SECONDS + _TELL_SECONDS,
        )
        stop = _stop_event(runs.begin_drain)
        async with _opened(doors, settings):
            keeper = asyncio.create_task(_keep_namespace(client, settings))
            working = asyncio.create_task(worker.run())
            try:
                await _until_stopped_or_done(stop, working)
            finally:
                keeper.cancel()
                stopping_since = monotonic()
                drained = await _drained(worker, working, runs, settings.drain_seconds)
    _tell_the_end(drained, monotonic() - stopping_since)
    return drained


async def run_doors(settings: Settings) -> None:
    """
    Run the doors alone until a signal asks to stop.

    Raises:
        ConfigurationRefused: Something that they need is missing or wrong.
    """
    ring = KeyRing.load(settings.key_file)
    async with open_store(settings, ring) as engine:
        client = await connect_temporal(settings)
        stop = _stop_event(lambda: None)
        announcer = make_announcer(client, settings)
        doors = Doors(
            engine=engine,
            ring=ring,
            limits=settings.limits,
            announce=announcer.announce,
            is_stopping=stop.is_set,
            metrics=ProcessMetrics(announcer.starter.eager),
            connecting=_connecting(settings),
        )
        async with _opened(doors, settings):
            await stop.wait()
    log.info("stopped")


def _connecting(settings: Settings) -> Connecting:
    """How accounts are connected through the doors of a process with these settings."""
    return Connecting(
        public_url=settings.public_url,
        pack_folders=settings.pack_folders,
        egress_proxy=settings.egress_proxy,
    )


@asynccontextmanager
async def _opened(doors: Doors, settings: Settings) -> AsyncIterator[None]:
    server = _DoorServer(
        uvicorn.Config(
            make_api(doors),
            host=settings.listen_host,
            port=settings.listen_port,
            log_config=None,
            # Its lines would hold handoff keys, which are in the paths.
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=_DOOR_SECONDS,
        )
    )
    serving = asyncio.create_task(server.serve())
    while not server.started:
        if serving.done():
            # uvicorn ends by SystemExit where the address is taken; it has logged why.
            raise ConfigurationRefused(
                setting="ONCEFENCE_LISTEN",
                reason=f"the doors cannot listen on {settings.listen}",
                remedy="Stop what listens there, or choose another port",
            )
        await asyncio.sleep(0.01)
    log.info("doors are open", extra={"listen": settings.listen})
    try:
        yield
    finally:
        server.should_exit = True
        await serving


def _stop_event(at_first: Callable[[], None]) -> asyncio.Event:
    """Set by the first signal, after `at_first`."""
    stop = asyncio.Event()

    def on_signal() -> None:
        if stop.is_set():
            # Nothing needs tidying: every fact is in the database.
            log.warning("stopped at once; what was on the wire settles as lost")
            sys.stderr.flush()
            os._exit(_STOPPED_AT_ONCE)
        at_first()
        stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    return stop


async def _until_stopped_or_done(stop: asyncio.Event, working: asyncio.Task[None]) -> None:
    """Return on a signal; a worker that ends by itself ends by its error."""
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait((stopping, working), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if working.done():
        await working


async def _keep_namespace(client: Client, settings: Settings) -> None:
    while True:
        await asyncio.sleep(_NAMESPACE_PERIOD_SECONDS)
        try:
            await keep_namespace(client, settings)
        except RPCError as error:
            log.warning("namespace not kept", extra={"reason": error.status.name})


async def _drained(
    worker: Worker, working: asyncio.Task[None], runs: SendRegistry, drain_seconds: float
) -> Drained:
    """Let what is under way end, have the workflows told, and say what became of it."""
    log.info("stopping", extra={"count": runs.open_runs})
    # At once, so that no task of Temporal is taken any more; it ends when the runs have.
    leaving = asyncio.create_task(worker.shutdown())
    drained = await runs.stop(within_seconds=drain_seconds, hand_back_seconds=_HAND_BACK_SECONDS)
    _, late = await asyncio.wait((leaving, working), timeout=_TELL_SECONDS)
    if late:
        log.warning("Temporal was not told of everything; it finds out by its own timeouts")
    return drained


def _tell_the_end(drained: Drained, seconds: float) -> None:
    """The last line of the log, once everything is closed."""
    log.log(
        logging.WARNING if drained.left else logging.INFO,
        "stopped",
        extra={
            "finished": drained.finished,
            "handed_back": drained.handed_back,
            "left": drained.left,
            "seconds": round(seconds, 3),
        },
    )
