"""A Runtime that speaks Temporal, the worker that answers it, and what both leave behind."""

import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from sqlalchemy import Row
from sqlalchemy.ext.asyncio import AsyncEngine
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.client import (
    Client,
    WithStartWorkflowOperation,
    WorkflowHandle,
    WorkflowUpdateFailedError,
)
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.exceptions import ApplicationError

from oncefence.activities.contracts import HandoffReceipt, SignedHandover, SignedRejection
from oncefence.app.api import make_api
from oncefence.app.client import RuntimeClient
from oncefence.app.doors import Doors
from oncefence.app.temporal_client import TemporalRuntimeClient
from oncefence.domain.command import Handover, Receipt
from oncefence.domain.handoff import EffectHandoffKey, TrustedRuntimeWorkScope
from oncefence.domain.ids import dispatch_work_id
from oncefence.domain.signature import HandoffVerb, read_claim
from oncefence.storage.phases.authenticate import authenticate
from oncefence.storage.phases.register_runtime import register_runtime
from oncefence.workflows.handoff import (
    ACCEPT,
    HANDOFF_WORKFLOW,
    REJECT_IF_UNACCEPTED,
    handoff_workflow_id,
)
from tests.providers.simulated import Simulated
from tests.support.dialect import simulated_provider
from tests.support.servers import Database
from tests.support.station import ProviderWorld, Station, make_station, new_queue, working
from tests.support.world import Accepted, scope_of

Message = SignedHandover | SignedRejection


@dataclass(frozen=True, kw_only=True)
class Gate:
    """A Runtime that signs, and the station whose worker answers it."""

    station: Station
    world: ProviderWorld
    private_key: Ed25519PrivateKey
    door: TemporalRuntimeClient

    def signing_with(
        self, private_key: Ed25519PrivateKey, scope: TrustedRuntimeWorkScope | None = None
    ) -> "Gate":
        """The same Runtime with another key, or as if of another scope."""
        door = TemporalRuntimeClient(
            self.station.client,
            scope or self.world.caller.scope,
            private_key,
            self.station.task_queue,
        )
        return replace(self, private_key=private_key, door=door)

    async def ask(self, handover: Handover, verb: HandoffVerb = HandoffVerb.ACCEPT) -> Receipt:
        """What the door says about `handover` to its own client."""
        if verb is HandoffVerb.REJECT_IF_UNACCEPTED:
            return await self.door.reject(handover.outbox, handover.digest)
        return await self.door.hand_over(
            handover.outbox, handover.operation, handover.subject, handover.digest
        )

    def message(
        self,
        handover: Handover,
        verb: HandoffVerb = HandoffVerb.ACCEPT,
        *,
        signed_for: HandoffVerb | None = None,
    ) -> Message:
        """The signed message of `verb` about `handover`; signed for another verb if told."""
        members = {
            "handoff_key": str(handover.key),
            "payload_digest": handover.digest,
            "outbox_id": handover.outbox,
        }
        made = SignedRejection
        if verb is HandoffVerb.ACCEPT:
            made = SignedHandover
            members |= {"operation": handover.operation, "subject": handover.subject}
        claim = replace(read_claim(verb, **members), verb=signed_for or verb)
        return made(**members, signature=self.private_key.sign(claim.signed_text()).hex())

    async def send(self, message: Message) -> HandoffReceipt:
        """The answer to a bare update, as any client of Temporal may send one."""
        return await self.station.client.execute_update_with_start_workflow(
            ACCEPT if isinstance(message, SignedHandover) else REJECT_IF_UNACCEPTED,
            message,
            start_workflow_operation=WithStartWorkflowOperation(
                HANDOFF_WORKFLOW,
                id=handoff_workflow_id(message.handoff_key),
                task_queue=self.station.task_queue,
                id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            ),
            result_type=HandoffReceipt,
        )

    async def refusal_of(self, message: Message) -> ApplicationError:
        """The failure of a bare update, which has to fail."""
        with pytest.raises(WorkflowUpdateFailedError) as caught:
            await self.send(message)
        assert isinstance(caught.value.cause, ApplicationError), caught.value.cause
        return caught.value.cause

    async def signal(self, key: EffectHandoffKey, name: str, *words: object) -> None:
        """A bare signal, which starts the key's workflow where there is none."""
        await self.station.client.start_workflow(
            HANDOFF_WORKFLOW,
            id=handoff_workflow_id(str(key)),
            task_queue=self.station.task_queue,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            start_signal=name,
            start_signal_args=words,
        )

    def workflow(self, key: EffectHandoffKey) -> WorkflowHandle[Any, Any]:
        """The newest workflow of a key."""
        return self.station.client.get_workflow_handle(handoff_workflow_id(str(key)))

    async def history(self, key: EffectHandoffKey) -> list[HistoryEvent]:
        """What Temporal keeps of that workflow."""
        return list((await self.workflow(key).fetch_history()).events)

    async def reset(self, key: EffectHandoffKey) -> None:
        """The button `Reset` on that workflow, to its first finished task."""
        first = next(
            event
            for event in await self.history(key)
            if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED
        )
        described = await self.workflow(key).describe()
        await self.station.client.workflow_service.reset_workflow_execution(
            ResetWorkflowExecutionRequest(
                namespace=self.station.client.namespace,
                workflow_execution=WorkflowExecution(
                    workflow_id=described.id, run_id=described.run_id
                ),
                reason="a test",
                request_id=str(uuid.uuid4()),
                workflow_task_finish_event_id=first.event_id,
            )
        )

    async def rows(self, table: str, where: str = "true") -> Sequence[Row[Any]]:
        """The rows of the world's org in a table."""
        return await self.world.sql(
            f"SELECT * FROM oncefence.{table} WHERE org_id = :org AND {where}"
        )


def command_of(handover: Handover, receipt: Receipt) -> Accepted:
    """The command that a receipt names, by its identities."""
    assert receipt.command, "it was accepted"
    assert receipt.execution, "it was accepted"
    return Accepted(
        handover=handover,
        receipt=receipt,
        command=receipt.command,
        execution=receipt.execution,
        work=dispatch_work_id(receipt.command, 1),
    )


@asynccontextmanager
async def gate(
    store: Database,
    client: Client,
    simulator: Simulated,
    *,
    engine: AsyncEngine | None = None,
    timeout_seconds: float = 30.0,
) -> AsyncIterator[Gate]:
    """A world whose Runtime is registered with a key, and a worker for it (over `engine`)."""
    world = await ProviderWorld.on(store, simulated_provider(simulator))
    private_key = Ed25519PrivateKey.generate()
    scope = scope_of(world.org, capability="temporal")
    world.credential = await register_runtime(
        world.engine,
        world.ring,
        scope,
        actor="tests",
        public_key=private_key.public_key().public_bytes_raw(),
    )
    caller = await authenticate(world.engine, world.ring, world.credential)
    assert caller is not None, "a registered credential is known"
    world.caller = caller
    async with working(make_station(world, client, new_queue(), engine=engine)) as station:
        door = TemporalRuntimeClient(
            client, scope, private_key, station.task_queue, timeout_seconds=timeout_seconds
        )
        yield Gate(station=station, world=world, private_key=private_key, door=door)


@asynccontextmanager
async def http_door(here: Gate) -> AsyncIterator[RuntimeClient]:
    """The Python client of the HTTP door, over the same store and for the same Runtime."""

    async def announce(ref: object) -> None:
        raise AssertionError(f"a question announces nothing: {ref}")

    world = here.world
    doors = Doors(engine=world.engine, ring=world.ring, limits=world.limits, announce=announce)
    transport = httpx.ASGITransport(app=make_api(doors))
    async with RuntimeClient("http://door", world.credential, transport=transport) as http:
        yield http
