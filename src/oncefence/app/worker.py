"""The two processes that a replica runs: a worker with its doors, or the doors alone."""

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final

import uvicorn
from temporalio.client import Client
from temporalio.service import RPCError

from oncefence.activities.process_context import ProcessContext
from oncefence.app.api import Doors, make_api
from oncefence.app.bootstrap import (
    WorkAnnouncer,
    connect_temporal,
    keep_namespace,
    make_announcer,
    make_context,
    make_worker,
    open_store,
)
from oncefence.app.config import Settings
from oncefence.domain.errors import ConfigurationRefused
from oncefence.storage.engine import Store
from oncefence.storage.sealing import KeyRing

log = logging.getLogger(__name__)

_NAMESPACE_PERIOD_SECONDS: Final = 60.0
# The longest send deadline of a fused attempt and its settling; a longer one goes on being
# settled as lost by whoever comes next.
_DRAIN_SECONDS: Final = 30.0


class _DoorServer(uvicorn.Server):
    """uvicorn without signal handlers of its own: the process decides when its doors close."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals alone."""
        yield


async def run_worker(settings: Settings) -> None:
    """
    Run the worker and its doors until a signal asks to stop.

    The first signal closes the doors, takes no more work and lets sends under way finish; the
    second stops at once, which is safe at any moment.

    Raises:
        ConfigurationRefused: Something that it needs is missing or wrong.
    """
    ring = KeyRing.load(settings.key_file)
    async with open_store(settings) as engine:
        client = await connect_temporal(settings)
        await keep_namespace(client, settings)
        announcer = make_announcer(client, settings)
        context = make_context(engine, ring, announcer, settings.limits)
        stop = _stop_event()
        keeper = asyncio.create_task(_keep_namespace(client, settings))
        try:
            async with (
                make_worker(client, settings.task_queue, context),
                _doors(settings, engine, ring, announcer),
            ):
                await stop.wait()
        finally:
            keeper.cancel()
            await _drain(context)


async def run_doors(settings: Settings) -> None:
    """
    Run the doors alone until a signal asks to stop.

    Raises:
        ConfigurationRefused: Something that they need is missing or wrong.
    """
    ring = KeyRing.load(settings.key_file)
    async with open_store(settings) as engine:
        client = await connect_temporal(settings)
        announcer = make_announcer(client, settings)
        stop = _stop_event()
        async with _doors(settings, engine, ring, announcer):
            await stop.wait()


@asynccontextmanager
async def _doors(
    settings: Settings, engine: Store, ring: KeyRing, announcer: WorkAnnouncer
) -> AsyncIterator[None]:
    doors = Doors(engine=engine, ring=ring, limits=settings.limits, announce=announcer.announce)
    server = _DoorServer(
        uvicorn.Config(
            make_api(doors),
            host=settings.listen_host,
            port=settings.listen_port,
            log_config=None,
            # Its lines would hold handoff keys, which are in the paths.
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=10,
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


def _stop_event() -> asyncio.Event:
    stop = asyncio.Event()

    def on_signal() -> None:
        if stop.is_set():
            # The second one: nothing needs tidying, every fact is in the database.
            os._exit(1)
        stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    return stop


async def _keep_namespace(client: Client, settings: Settings) -> None:
    while True:
        await asyncio.sleep(_NAMESPACE_PERIOD_SECONDS)
        try:
            await keep_namespace(client, settings)
        except RPCError as error:
            log.warning("namespace not kept", extra={"reason": error.status.name})


async def _drain(context: ProcessContext) -> None:
    left = await context.runs.drain(timeout_seconds=_DRAIN_SECONDS)
    if left:
        log.warning("stopping with runs under way; they settle as lost", extra={"count": left})
