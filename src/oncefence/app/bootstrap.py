"""
The composition root: what a process of each kind is made of.

One Client per process, made here and given to doors and Worker alike: an eager workflow start is
given only where both use the same one.
"""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import cast
from uuid import uuid4

from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.converter import PayloadConverter
from temporalio.service import RPCError
from temporalio.worker import Worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from oncefence.activities.attempt import AttemptActivity
from oncefence.activities.contracts import WorkInput
from oncefence.activities.handoff import HandoffActivity
from oncefence.activities.http_once import EgressProxy, load_trust
from oncefence.activities.lookup import LookupActivity
from oncefence.activities.measures import Measures
from oncefence.activities.process_context import ProcessContext
from oncefence.activities.sweep import SweepActivity
from oncefence.activities.work import WorkActivity, WorkHandler
from oncefence.app.config import Settings
from oncefence.domain.errors import ConfigurationRefused
from oncefence.domain.limits import Limits
from oncefence.storage.engine import Store, make_engine
from oncefence.storage.phases.check_keys import check_keys
from oncefence.storage.phases.check_store import check_store
from oncefence.storage.phases.find_work import WorkRef
from oncefence.storage.phases.read_view import ViewShelf
from oncefence.storage.sealing import KeyRing
from oncefence.workflows import policies
from oncefence.workflows.handoff import HandoffWorkflow
from oncefence.workflows.schedules import ensure_search_attributes, ensure_sweep_schedule
from oncefence.workflows.starting import WorkStarter
from oncefence.workflows.sweep import SweepWorkflow
from oncefence.workflows.work_item import WorkItemWorkflow

# The two modules that workflows are made of, and nothing wider: passed through, a workflow run
# costs 8 ms less than with a module imported anew inside the sandbox.
_PASSED_THROUGH = ("oncefence.workflows", "oncefence.activities.contracts")


# One payload converter for all: each workflow run makes an instance of the class that it is given,
# and pydantic's validators would be built anew in every one of them.
_PAYLOADS = pydantic_data_converter.payload_converter_class()


def _one_payload_converter() -> PayloadConverter:
    return _PAYLOADS


DATA_CONVERTER = replace(
    pydantic_data_converter,
    payload_converter_class=cast(type[PayloadConverter], _one_payload_converter),
)


@asynccontextmanager
async def open_store(settings: Settings, ring: KeyRing) -> AsyncIterator[Store]:
    """
    An engine on a store that is fit to keep the promise, and of which `ring` opens everything.

    Raises:
        ConfigurationRefused: It is not, or it does not answer.
    """
    engine = make_engine(settings.database_url)
    try:
        await check_store(engine, time_scale=settings.time_scale)
        await check_keys(engine, ring)
        yield engine
    finally:
        await engine.dispose()


async def connect_temporal(settings: Settings) -> Client:
    """
    The process's one Client.

    Raises:
        ConfigurationRefused: No Temporal answers at the address.
    """
    try:
        return await Client.connect(
            settings.temporal_address,
            namespace=settings.temporal_namespace,
            data_converter=DATA_CONVERTER,
        )
    except (RPCError, RuntimeError) as error:
        raise ConfigurationRefused(
            setting="ONCEFENCE_TEMPORAL_ADDRESS",
            reason=f"no Temporal answers at {settings.temporal_address}",
            remedy="Start it, or correct the address; `oncefence up` runs one of its own",
        ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkAnnouncer:
    """Tells Temporal of items: eagerly of new ones, by a wake of all others."""

    starter: WorkStarter
    limits: Limits

    async def announce(self, ref: WorkRef) -> None:
        """Start the workflow of an item that was just accepted."""
        await self.starter.start(self._input(ref))

    async def wake(self, ref: WorkRef) -> None:
        """
        Start the item's workflow, or have the running one look again.

        What was made for later is only started: its workflow knows until when it waits, and a
        wake would cost it a read that finds nothing to do. This process's clock is not asked: a
        wrong one would keep wakes from those that wait.
        """
        if ref.is_ahead:
            await self.starter.start_later(self._input(ref))
        else:
            await self.starter.wake(self._input(ref))

    def _input(self, ref: WorkRef) -> WorkInput:
        return WorkInput(
            org_id=ref.org,
            work_id=str(ref.work),
            family=ref.family,
            deadline_ms=ref.deadline_ms,
            start_to_close_seconds=self.limits.start_to_close_seconds(ref.deadline_ms),
            run_after=ref.run_after,
        )


def make_announcer(client: Client, settings: Settings) -> WorkAnnouncer:
    """The announcer over the process's one Client."""
    return WorkAnnouncer(
        starter=WorkStarter(client=client, task_queue=settings.task_queue),
        limits=settings.limits,
    )


def make_context(
    engine: Store,
    ring: KeyRing,
    announcer: WorkAnnouncer,
    limits: Limits,
    measures: Measures | None = None,
    *,
    egress_proxy: EgressProxy | None = None,
) -> ProcessContext:
    """What this process brings to its activities, under a nonce of its own."""
    load_trust()
    measures = measures or Measures()
    return ProcessContext(
        engine=engine,
        ring=ring,
        limits=limits,
        owner=uuid4(),
        wake=measures.counting(announcer.wake),
        views=ViewShelf(engine),
        measures=measures,
        egress_proxy=egress_proxy,
    )


def make_worker(
    client: Client,
    task_queue: str,
    context: ProcessContext,
    handlers: Iterable[WorkHandler] = (),
    *,
    graceful_seconds: float = 40.0,
) -> Worker:
    """
    The Worker that runs every family, the workflows around them, and a door.

    `handlers` are the families beside dispatch and lookup. While it shuts down, activities are
    not cancelled for `graceful_seconds`.
    """
    handoff = HandoffActivity(context)
    return Worker(
        client,
        task_queue=task_queue,
        workflows=[WorkItemWorkflow, SweepWorkflow, HandoffWorkflow],
        activities=[
            AttemptActivity(context).run_attempt,
            LookupActivity(context).run_lookup,
            WorkActivity(context, handlers).run_work,
            SweepActivity(context).run_sweep,
            handoff.accept,
            handoff.reject,
        ],
        workflow_runner=SandboxedWorkflowRunner(
            restrictions=SandboxRestrictions.default.with_passthrough_modules(*_PASSED_THROUGH)
        ),
        sticky_queue_schedule_to_start_timeout=policies.STICKY_TIMEOUT,
        graceful_shutdown_timeout=timedelta(seconds=graceful_seconds),
    )


async def keep_namespace(client: Client, settings: Settings) -> None:
    """Have the namespace hold what the workers need; a Temporal that lost it gets it again."""
    await ensure_search_attributes(client)
    await ensure_sweep_schedule(
        client,
        settings.task_queue,
        timedelta(seconds=settings.limits.sweep_period_scaled_seconds),
    )
