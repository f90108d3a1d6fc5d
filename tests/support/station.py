"""
A worker of the program in the test's own process, a provider in another, and a world between.

Whatever a test leaves out is as in production; whatever it replaces, it names.
"""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from sqlalchemy import Row
from sqlalchemy.ext.asyncio import AsyncEngine
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowHandle
from temporalio.service import RPCError

from oncefence.activities.process_context import ProcessContext
from oncefence.activities.work import WorkHandler
from oncefence.app.bootstrap import WorkAnnouncer, make_context, make_worker
from oncefence.catalog.view import IntegrationBindingView
from oncefence.domain.command import Handover
from oncefence.domain.handoff import EffectHandoffKey, payload_digest
from oncefence.domain.ids import LinkId, OrgId, OutboxId, WorkId
from oncefence.domain.limits import Limits
from oncefence.domain.redaction import Secret
from oncefence.storage.phases.add_principal_binding import add_principal_binding
from oncefence.storage.phases.adopt_link import adopt_link
from oncefence.storage.phases.authenticate import authenticate
from oncefence.storage.phases.find_work import WorkRef
from oncefence.storage.phases.publish_view import publish_view
from oncefence.storage.phases.register_runtime import register_runtime
from oncefence.storage.phases.stage_payload import stage_payload
from oncefence.storage.sealing import KeyRing
from oncefence.workflows.schedules import ensure_search_attributes
from oncefence.workflows.starting import WorkStarter
from oncefence.workflows.work_item import workflow_id
from tests.support.dialect import Form, Provider
from tests.support.servers import Database
from tests.support.world import INSTALLATION, Accepted, World, scope_of

T = TypeVar("T")

SETTLED = ("succeeded", "failed", "cancelled", "needs_attention")

FAST = Limits(time_scale=0.0001, lease_margin_seconds=30_000)
"""The five lookup waits pass in three seconds; a lease outlives its send deadline by three."""

BRIEF = replace(FAST, lease_margin_seconds=5_000, start_to_close_margin_seconds=0.5)
"""A lease outlives its send deadline by half a second, and an activity that by as much again."""


async def until(
    claim: Callable[[], Awaitable[T]], *, within_s: float = 20.0, what: str = "the condition"
) -> T:
    """What the claim returns as soon as that is true; fails when it is not in time."""
    loop = asyncio.get_running_loop()
    give_up_at = loop.time() + within_s
    while True:
        found = await claim()
        if found:
            return found
        assert loop.time() < give_up_at, f"{what} did not come true within {within_s} s"
        await asyncio.sleep(0.02)


# --- a world on such a provider --------------------------------------------------------------


class ProviderWorld(World):
    """A world whose account is at a provider that answers."""

    provider: Provider
    view: IntegrationBindingView
    remote_ids: dict[str, str]

    @classmethod
    async def on(
        cls,
        database: Database,
        provider: Provider,
        *,
        limits: Limits = FAST,
        ring: KeyRing | None = None,
        view: IntegrationBindingView | None = None,
        token: str | None = None,
    ) -> "ProviderWorld":
        """A world of its own: registered, published and bound to `provider`."""
        name = OrgId(f"org-{uuid.uuid4().hex[:12]}")
        ring = ring or KeyRing({"test-key": uuid.uuid4().bytes * 2})
        engine = database.app_engine
        credential = await register_runtime(engine, ring, scope_of(name), actor="tests")
        caller = await authenticate(engine, ring, credential)
        assert caller is not None, "a registered credential is known"
        view = view or provider.dialect.view()
        await publish_view(engine, name, INSTALLATION, view, actor="tests")
        binding = await add_principal_binding(
            engine,
            ring,
            name,
            name=view.principal,
            provider=view.pack,
            base_url=provider.base_url,
            is_local=True,
            token=Secret(token or provider.dialect.token),
            actor="tests",
        )
        world = cls(
            database=database,
            org=name,
            ring=ring,
            caller=caller,
            credential=credential,
            binding=binding,
            limits=limits,
        )
        world.provider, world.view, world.remote_ids = provider, view, {}
        return world

    async def link(self, subject: str) -> LinkId:
        """The link of `subject` to a record of the provider, made when it is first asked for."""
        if subject not in self.links:
            operation = next(iter(self.view.operations.values()))
            # A record is made by a call that blocks, and sends must go on meanwhile.
            remote_id = await asyncio.to_thread(self.provider.make_record)
            self.links[subject] = await adopt_link(
                self.engine,
                self.org,
                binding_name=self.view.principal,
                local_object=operation.local_object,
                subject=subject,
                remote_object=operation.remote_object,
                remote_id=remote_id,
                actor="tests",
            )
            self.remote_ids[subject] = remote_id
        return self.links[subject]

    async def offer(
        self,
        subject: str = "lead-1",
        *,
        title: str = "Director",
        outbox: str | None = None,
        form: Form = Form.LOCAL,
        also: Mapping[str, object] | None = None,
    ) -> Handover:
        """A handover that could be accepted: link adopted, payload staged."""
        await self.link(subject)
        operation = self.provider.dialect.operation_of(form)
        local_field = self.view.operation(operation).fields[0].local
        payload = json.dumps({local_field: title, **(also or {})}).encode()
        digest = payload_digest(payload)
        await stage_payload(self.engine, self.ring, self.caller, digest, payload)
        entry = OutboxId(outbox or uuid.uuid4().hex)
        return Handover(
            key=EffectHandoffKey.for_outbox(self.caller.scope, entry),
            outbox=entry,
            digest=digest,
            operation=operation,
            subject=subject,
        )

    async def accept_in(
        self, form: Form, subject: str = "lead-1", *, title: str = "Director"
    ) -> Accepted:
        """An accepted command on `subject`; nobody is told of it."""
        handover = await self.offer(subject, title=title, form=form)
        receipt = await self.accept(handover)
        assert receipt.command is not None, "it was accepted"
        assert receipt.execution is not None, "it was accepted"
        assert receipt.work is not None, "it was accepted"
        return Accepted(
            handover=handover,
            receipt=receipt,
            command=receipt.command,
            execution=receipt.execution,
            work=receipt.work,
        )

    async def attempts(self, accepted: Accepted) -> Sequence[Row[Any]]:
        """The command's effect attempts, oldest first."""
        return await self.of_command("effect_attempts", accepted)

    async def lookup_work(self, accepted: Accepted) -> WorkId | None:
        """The command's lookup item, if it has one."""
        rows = await self.sql(
            "SELECT work_id FROM oncefence.work_items WHERE org_id = :org"
            " AND command_id = :command AND family = 'effect.lookup'",
            command=accepted.command,
        )
        return WorkId(rows[0][0]) if rows else None

    async def status(self, accepted: Accepted) -> str:
        """The execution's status."""
        return str((await self.execution(accepted)).status)

    async def settled(self, *commands: Accepted, within_s: float = 20.0) -> list[str]:
        """The final statuses of these commands, when all have one."""

        found: list[str] = []

        async def are_settled() -> bool:
            found[:] = [await self.status(each) for each in commands]
            return all(status in SETTLED for status in found)

        try:
            await until(are_settled, within_s=within_s)
        except AssertionError as failure:
            raise AssertionError(f"after {within_s} s these commands were {found}") from failure
        return found

    async def in_status(self, accepted: Accepted, status: str, *, within_s: float = 20.0) -> None:
        """The execution has come to `status`."""

        async def is_there() -> bool:
            return await self.status(accepted) == status

        await until(is_there, within_s=within_s, what=f"status {status}")


# --- a process -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Station:
    """What one process has: its Client, its announcer and its context."""

    world: ProviderWorld
    client: Client
    task_queue: str
    announcer: WorkAnnouncer
    context: ProcessContext

    async def ref(self, work: WorkId) -> WorkRef:
        """The item as a door or a sweep would name it."""
        row = await self.world.item(work)
        return WorkRef(
            org=self.world.org,
            work=work,
            family=row.family,
            deadline_ms=row.deadline_ms,
            run_after=row.run_after,
        )

    async def announce(self, accepted: Accepted) -> None:
        """Temporal is told of the command."""
        await self.announcer.announce(await self.ref(accepted.work))

    async def wake(self, work: WorkId) -> None:
        """The item's workflow looks again, or begins."""
        await self.announcer.wake(await self.ref(work))

    async def submit(
        self, subject: str = "lead-1", *, title: str = "Director", form: Form = Form.LOCAL
    ) -> Accepted:
        """An accepted command that Temporal was told of."""
        accepted = await self.world.accept_in(form, subject, title=title)
        await self.announce(accepted)
        return accepted

    def workflow(self, work: WorkId, run_id: str | None = None) -> WorkflowHandle[Any, Any]:
        """The workflow of an item."""
        return self.client.get_workflow_handle(workflow_id(str(work)), run_id=run_id)

    async def workflow_status(self, work: WorkId) -> WorkflowExecutionStatus | None:
        """How the item's newest workflow stands; None where there was never one."""
        try:
            return (await self.workflow(work).describe()).status
        except RPCError:
            return None


def make_station(
    world: ProviderWorld,
    client: Client,
    task_queue: str,
    *,
    engine: AsyncEngine | None = None,
    limits: Limits | None = None,
    **replaced: Any,  # fields of the context, of whatever type they are
) -> Station:
    """A process without a worker; `replaced` are fields of its context."""
    limits = limits or world.limits
    announcer = WorkAnnouncer(
        starter=WorkStarter(client=client, task_queue=task_queue), limits=limits
    )
    context = make_context(engine or world.engine, world.ring, announcer, limits)
    return Station(
        world=world,
        client=client,
        task_queue=task_queue,
        announcer=announcer,
        context=replace(context, **replaced),
    )


@asynccontextmanager
async def working(station: Station, handlers: Iterable[WorkHandler] = ()) -> AsyncIterator[Station]:
    """The station with its worker running; every send is over when it ends."""
    await ensure_search_attributes(station.client)
    async with make_worker(station.client, station.task_queue, station.context, handlers):
        yield station
    assert await station.context.runs.drain(timeout_seconds=20) == 0, "a send did not end"


def new_queue() -> str:
    """A task queue that nobody else uses."""
    return f"test-{uuid.uuid4()}"
