"""What is compared: our effect in both forms, and the bare HTTP activity, started both ways."""

import asyncio
from dataclasses import dataclass
from itertools import count
from typing import Final, Protocol

import httpx
from temporalio import activity
from temporalio.client import Client, WorkflowHandle
from temporalio.worker import Worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from oncefence.activities.contracts import WorkReport
from oncefence.activities.waking import AdmissionWindow
from oncefence.app.bootstrap import WorkAnnouncer
from oncefence.domain.command import Handover
from oncefence.domain.handoff import EffectHandoffKey
from oncefence.domain.ids import OutboxId
from oncefence.storage.engine import Store
from oncefence.storage.phases.accept_handoff import accept_handoff
from oncefence.storage.phases.find_work import WorkRef
from oncefence.storage.sealing import KeyRing
from oncefence.workflows import policies
from oncefence.workflows.work_item import workflow_id
from tests.bench.account import Account
from tests.bench.bare_workflow import BARE_PATCH, BARE_WORKFLOW, BareWorkflow
from tests.support.dialect import Form

_numbers = count(1)
# Nothing here waits for anything but the machine; whoever takes longer waits for something else.
_SECONDS_MAX: Final = 60
_PATH: Final = "/crm/v3/objects/contacts/"


class NotDone(Exception):
    """An effect or a bare activity did not end as it must: the figures would mean nothing."""


class Side(Protocol):
    """One of the things that are compared."""

    @property
    def name(self) -> str:
        """How the report calls it."""

    async def once(self) -> WorkflowHandle[object, object]:
        """Do it once, from the beginning until its end is known; its workflow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """Ours: accepted, announced, sent and settled."""

    form: Form
    client: Client
    engine: Store
    ring: KeyRing
    announcer: WorkAnnouncer
    account: Account

    @property
    def name(self) -> str:
        return f"effect, {self.form}"

    async def once(self) -> WorkflowHandle[object, object]:
        account = self.account
        contact = next(account.contacts)
        outbox = OutboxId(f"bench-{next(_numbers)}")
        receipt = await accept_handoff(
            self.engine,
            self.ring,
            account.caller,
            Handover(
                key=EffectHandoffKey.for_outbox(account.caller.scope, outbox),
                outbox=outbox,
                digest=contact.digest,
                operation=account.operations[self.form],
                subject=contact.subject,
            ),
            self.announcer.limits,
        )
        if receipt.work is None or receipt.due is None or receipt.deadline_ms is None:
            raise NotDone(f"{self.name}: the handoff came to {receipt.admission}")
        # As the doors do it once their answer has left.
        ref = WorkRef(
            org=account.caller.scope.org,
            work=receipt.work,
            family="effect.dispatch",
            deadline_ms=receipt.deadline_ms,
            run_after=receipt.due,
        )
        if receipt.has_room:
            await self.announcer.announce(ref)
        else:
            await AdmissionWindow(
                engine=self.engine, limits=self.announcer.limits, wake=self.announcer.announce
            ).announce(ref, self.announcer.announce)
        handle = self.client.get_workflow_handle(
            workflow_id(str(receipt.work)), result_type=WorkReport
        )
        report = await self._end_of(handle)
        if report.execution_status != "succeeded":
            raise NotDone(f"{self.name}: {report.verdict}, execution {report.execution_status}")
        return handle

    async def _end_of(self, handle: WorkflowHandle[object, WorkReport]) -> WorkReport:
        try:
            async with asyncio.timeout(_SECONDS_MAX):
                return await handle.result()
        except TimeoutError:
            raise NotDone(
                f"{self.name}: {handle.id} has not ended after {_SECONDS_MAX} s; the log says why"
            ) from None


@dataclass(kw_only=True)
class Bare:
    """The floor: a workflow with one bare HTTP activity."""

    client: Client
    task_queue: str
    account: Account
    is_eager: bool
    eager_given: int = 0
    done: int = 0

    @property
    def name(self) -> str:
        return "bare activity, eagerly started" if self.is_eager else "bare activity"

    async def once(self) -> WorkflowHandle[object, object]:
        handle = await self.client.start_workflow(
            BARE_WORKFLOW,
            next(self.account.contacts).remote_id,
            id=f"bare/{next(_numbers)}",
            task_queue=self.task_queue,
            result_type=int,
            request_eager_start=self.is_eager,
        )
        self.eager_given += bool(getattr(handle, "__temporal_eagerly_started", False))
        status = await handle.result()
        if status != 200:
            raise NotDone(f"{self.name}: the provider answered {status}")
        self.done += 1
        return handle


class BareActivity:
    """One PATCH through a client with a pool, and nothing else."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    @activity.defn(name=BARE_PATCH)
    async def patch(self, contact: str) -> int:
        """The status of the answer."""
        response = await self._client.patch(
            _PATH + contact, json={"properties": {"jobtitle": "Director of everything"}}
        )
        return response.status_code


def bare_client(base_url: str, token: str, *, in_flight: int) -> httpx.AsyncClient:
    """A pooled client, as large as it needs to be never to wait for a connection."""
    return httpx.AsyncClient(
        base_url=base_url,
        headers={"Authorization": f"Bearer {token}", "Accept": "application/json"},
        limits=httpx.Limits(max_connections=2 * in_flight, max_keepalive_connections=2 * in_flight),
        trust_env=False,
    )


def bare_worker(client: Client, task_queue: str, http: httpx.AsyncClient) -> Worker:
    """A Worker with the settings of the program's own."""
    return Worker(
        client,
        task_queue=task_queue,
        workflows=[BareWorkflow],
        activities=[BareActivity(http).patch],
        workflow_runner=SandboxedWorkflowRunner(
            restrictions=SandboxRestrictions.default.with_passthrough_modules(
                "tests.bench.bare_workflow"
            )
        ),
        sticky_queue_schedule_to_start_timeout=policies.STICKY_TIMEOUT,
    )
