"""The buttons of Temporal, pressed as its page or its program would press them."""

import uuid
from collections.abc import Awaitable, Callable, Sequence

from google.protobuf.duration_pb2 import Duration
from google.protobuf.field_mask_pb2 import FieldMask
from temporalio.api.activity.v1 import ActivityOptions
from temporalio.api.common.v1 import Payload, Payloads, RetryPolicy, WorkflowExecution
from temporalio.api.enums.v1 import EventType
from temporalio.api.workflowservice.v1 import (
    PauseActivityRequest,
    ResetActivityRequest,
    ResetWorkflowExecutionRequest,
    SignalWorkflowExecutionRequest,
    UnpauseActivityRequest,
    UpdateActivityOptionsRequest,
)
from temporalio.client import WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from oncefence.activities.contracts import RUN_ATTEMPT
from oncefence.domain.ids import WorkId
from oncefence.workflows.work_item import WAKE
from tests.support.station import Station, until
from tests.workflows.scenes import Scene
from tests.workflows.watching import TASK_COMPLETED, events, seen

TASK_STARTED = EventType.EVENT_TYPE_WORKFLOW_TASK_STARTED
TASK_FAILED = EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED
SIGNALED = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED

JUNK: Sequence[tuple[str, tuple[object, ...]]] = (
    ("no-such-signal", ()),
    ("no-such-signal", ({"a": 1}, None)),
    ("__no such \N{SNOWMAN}", (None,)),
    (WAKE, (7,)),
    (WAKE, ("x", 2, None)),
    (WAKE, (b"\xff",)),
    (WAKE, ({"name": WAKE},)),
)
UNREADABLE = Payload(metadata={"encoding": b"no/such"}, data=b"\xff\xfe")

Button = Callable[[Station, Scene, WorkId], Awaitable[None]]


async def is_open(station: Station, work: WorkId) -> bool:
    """Whether the item's newest workflow runs."""
    return await station.workflow_status(work) is WorkflowExecutionStatus.RUNNING


def is_over(error: RPCError) -> bool:
    """Whether Temporal refused because the workflow has closed, or is closing this moment."""
    return error.status in {RPCStatusCode.NOT_FOUND, RPCStatusCode.RESOURCE_EXHAUSTED}


async def taken(press: Callable[[], Awaitable[None]]) -> None:
    """The button is pressed, or there is none any more; a busy server takes it the next time."""

    async def is_so() -> bool:
        try:
            await press()
        except RPCError as error:
            if error.status is RPCStatusCode.RESOURCE_EXHAUSTED:
                return False
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
        return True

    await until(is_so, what="a button that is taken")


async def closed(station: Station, work: WorkId) -> None:
    """The item's newest workflow has ended."""

    async def is_so() -> bool:
        return not await is_open(station, work)

    await until(is_so, what="the end of the workflow")


async def reset_to_every_event(station: Station, scene: Scene, work: WorkId) -> None:
    """Each event that Temporal takes as a place to go back to, one after the other."""
    # There is nowhere to go back to before the first task is over or has reported on its way.
    await seen(station, work, TASK_COMPLETED)
    first = await station.workflow(work).describe()
    history = await station.workflow(work, first.run_id).fetch_history()
    places = 0
    for event in history.events:
        try:
            await station.client.workflow_service.reset_workflow_execution(
                ResetWorkflowExecutionRequest(
                    namespace=station.client.namespace,
                    workflow_execution=WorkflowExecution(workflow_id=first.id, run_id=first.run_id),
                    reason="a test",
                    request_id=str(uuid.uuid4()),
                    workflow_task_finish_event_id=event.event_id,
                )
            )
        except RPCError as error:
            # Temporal goes back to the end of a task and to nothing else, and takes nothing
            # while the workflow of the reset before is closing.
            if error.status is not RPCStatusCode.INVALID_ARGUMENT and not is_over(error):
                raise
            continue
        places += 1
        # A task with a held run in it ends with that run, so that its start has to do.
        await has_gone_on(station, work, TASK_STARTED if scene.is_held else TASK_COMPLETED)
    assert places > 0, "there is a place to go back to in every history"


async def terminate(station: Station, scene: Scene, work: WorkId) -> None:
    """Terminate; a closed workflow has no such button any more."""
    await taken(lambda: station.workflow(work).terminate("a test"))
    await closed(station, work)


async def cancel(station: Station, scene: Scene, work: WorkId) -> None:
    """Cancel, and wait until the workflow has ended by it."""
    await taken(lambda: station.workflow(work).cancel())
    await closed(station, work)


async def signal_junk(station: Station, scene: Scene, work: WorkId) -> None:
    """Signals that nobody sends, with arguments that nobody takes; the workflow has read them."""
    workflow = station.workflow(work)
    try:
        for name, words in JUNK:
            await workflow.signal(name, args=words)
        await station.client.workflow_service.signal_workflow_execution(
            SignalWorkflowExecutionRequest(
                namespace=station.client.namespace,
                workflow_execution=WorkflowExecution(workflow_id=workflow.id),
                signal_name=WAKE,
                input=Payloads(payloads=[UNREADABLE]),
            )
        )
    except RPCError as error:
        if not is_over(error):
            raise
        await closed(station, work)
        return
    if not scene.is_held:
        await has_gone_on(station, work, TASK_COMPLETED, after=SIGNALED)


BUTTONS: dict[str, Button] = {
    "reset": reset_to_every_event,
    "terminate": terminate,
    "cancel": cancel,
    "junk": signal_junk,
}


async def has_gone_on(
    station: Station,
    work: WorkId,
    kind: "EventType.ValueType",
    *,
    after: "EventType.ValueType" = TASK_FAILED,
) -> None:
    """The newest history has an event of this kind after the last one of the other, or an end."""

    async def is_so() -> bool:
        kinds = [event.event_type for event in await events(station, work)]
        last = len(kinds) - 1 - kinds[::-1].index(after) if after in kinds else 0
        return kind in kinds[last:] or not await is_open(station, work)

    await until(is_so, what="that the workflow has gone on")


class ActivityButtons:
    """What can be pressed at the regular attempt of one item while it is pending."""

    def __init__(self, station: Station, work: WorkId) -> None:
        self._station = station
        self._service = station.client.workflow_service
        self._place = {
            "namespace": station.client.namespace,
            "execution": WorkflowExecution(workflow_id=station.workflow(work).id),
            "type": RUN_ATTEMPT,
        }
        self._work = work

    async def pause(self) -> None:
        await self._service.pause_activity(PauseActivityRequest(**self._place, reason="a test"))

    async def unpause(self) -> None:
        await self._service.unpause_activity(
            UnpauseActivityRequest(**self._place, reset_attempts=True)
        )

    async def reset(self) -> None:
        await self._service.reset_activity(ResetActivityRequest(**self._place))

    async def retry_for_ever(self, *, start_to_close_seconds: int) -> None:
        """Give the attempt so little time that it times out, and any number of attempts."""
        await self._service.update_activity_options(
            UpdateActivityOptionsRequest(
                **self._place,
                activity_options=ActivityOptions(
                    start_to_close_timeout=Duration(seconds=start_to_close_seconds),
                    retry_policy=RetryPolicy(
                        initial_interval=Duration(nanos=100_000_000),
                        backoff_coefficient=1.0,
                        maximum_attempts=0,
                    ),
                ),
                update_mask=FieldMask(
                    paths=[
                        "start_to_close_timeout",
                        "retry_policy.initial_interval",
                        "retry_policy.backoff_coefficient",
                        "retry_policy.maximum_attempts",
                    ]
                ),
            )
        )

    async def is_pending(self, *, attempt: int = 1, is_paused: bool = False) -> None:
        """Temporal counts that many attempts of it, and has it paused if told."""

        async def is_so() -> bool:
            described = await self._station.workflow(self._work).describe()
            pending = described.raw_description.pending_activities
            return any(each.attempt >= attempt and each.paused >= is_paused for each in pending)

        await until(is_so, what=f"attempt {attempt} of the activity")
