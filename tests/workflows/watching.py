"""What the tests look at: a workflow's history, and what the simulator read of a command."""

import uuid
from datetime import UTC, datetime

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.service import RPCError, RPCStatusCode

from oncefence.activities.contracts import RunResult
from oncefence.domain.ids import WorkId
from oncefence.simulator.ledger import Kind
from tests.providers.simulated import Simulated
from tests.support.station import ProviderWorld, Station, until
from tests.support.world import Accepted

TIMER_STARTED = EventType.EVENT_TYPE_TIMER_STARTED
TIMER_FIRED = EventType.EVENT_TYPE_TIMER_FIRED
TASK_COMPLETED = EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED
TIMED_OUT = EventType.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT
MARKER = EventType.EVENT_TYPE_MARKER_RECORDED


async def events(
    station: Station, work: WorkId, *, run_id: str | None = None
) -> list[HistoryEvent]:
    """A history of an item's workflow, the newest unless told; empty where there was none."""
    try:
        return list((await station.workflow(work, run_id).fetch_history()).events)
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return []
        raise


async def seen(
    station: Station, work: WorkId, kind: "EventType.ValueType", *, times: int = 1
) -> list[HistoryEvent]:
    """The events of one kind, when there are that many."""

    async def found() -> list[HistoryEvent]:
        of_kind = [each for each in await events(station, work) if each.event_type == kind]
        return of_kind if len(of_kind) >= times else []

    return await until(found, what=f"{times} events of kind {kind}")


async def results(station: Station, work: WorkId, *, run_id: str | None = None) -> list[RunResult]:
    """What each run as a local activity came to, in order."""
    found = []
    for event in await events(station, work, run_id=run_id):
        details = event.marker_recorded_event_attributes.details
        if "result" in details:
            (result,) = await station.client.data_converter.decode(
                details["result"].payloads, [RunResult]
            )
            found.append(result)
    return found


def time_of(event: HistoryEvent) -> datetime:
    """When an event happened by its workflow's own clock."""
    return event.event_time.ToDatetime(UTC)


async def reset(station: Station, work: WorkId) -> None:
    """The button `Reset` on the item's workflow, to its first finished task."""
    (first, *_) = await seen(station, work, TASK_COMPLETED)
    described = await station.workflow(work).describe()
    await station.client.workflow_service.reset_workflow_execution(
        ResetWorkflowExecutionRequest(
            namespace=station.client.namespace,
            workflow_execution=WorkflowExecution(workflow_id=described.id, run_id=described.run_id),
            reason="a test",
            request_id=str(uuid.uuid4()),
            workflow_task_finish_event_id=first.event_id,
        )
    )


def patches(simulator: Simulated, accepted: Accepted) -> int:
    """How many requests to change something the provider read for the command."""
    return sum(
        row.kind is Kind.READ and row.method == "PATCH" and row.command == str(accepted.command)
        for row in simulator.ledger.rows
    )


def reads(simulator: Simulated, contact: str) -> int:
    """How many lookups of the contact the provider read."""
    return sum(
        row.kind is Kind.READ and row.method == "GET" and row.contact == contact
        for row in simulator.ledger.rows
    )


def changes(simulator: Simulated, accepted: Accepted) -> int:
    """How many changes the provider applied for the command."""
    return len(simulator.ledger.changes_by_command().get(str(accepted.command), []))


class Held:
    """A request that the simulator has read and neither applied nor answered, until released."""

    def __init__(self, simulator: Simulated, contact: str, **rule: object) -> None:
        self._simulator = simulator
        self._contact = contact
        self._name = f"hold-{uuid.uuid4().hex}"
        simulator.script(contact=contact, hold=self._name, **rule)

    async def is_there(self) -> None:
        """The request has come and waits."""

        async def waits() -> bool:
            return any(
                row.kind is Kind.HELD and row.note == self._name
                for row in self._simulator.ledger.rows
            )

        await until(waits, what=f"a request for {self._contact}")

    def release(self) -> None:
        """The provider goes on with it."""
        self._simulator.admin("/release", {"hold": self._name})


async def held_submission(
    station: Station, simulator: Simulated, subject: str, **rule: object
) -> tuple[Accepted, Held]:
    """A command whose request the provider holds; see `Held` for the rule."""
    world: ProviderWorld = station.world
    await world.link(subject)
    held = Held(simulator, world.remote_ids[subject], **rule)
    accepted = await station.submit(subject)
    await held.is_there()
    return accepted, held
