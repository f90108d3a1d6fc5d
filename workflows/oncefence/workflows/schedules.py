"""What the workers themselves keep in a namespace: its search attributes and its schedule."""

from datetime import timedelta

from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest
from temporalio.client import (
    Client,
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleAlreadyRunningError,
    ScheduleIntervalSpec,
    ScheduleOverlapPolicy,
    SchedulePolicy,
    ScheduleSpec,
)
from temporalio.service import RPCError, RPCStatusCode

from oncefence.workflows.sweep import SWEEP_WORKFLOW
from oncefence.workflows.work_item import FAMILY, ORG, STATUS

SWEEP_SCHEDULE = "oncefence-sweep"


async def ensure_search_attributes(client: Client) -> None:
    """Register the attributes that item workflows carry; those that are there stay."""
    try:
        await client.operator_service.add_search_attributes(
            AddSearchAttributesRequest(
                namespace=client.namespace,
                search_attributes={
                    key.name: IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD
                    for key in (ORG, FAMILY, STATUS)
                },
            )
        )
    except RPCError as error:
        if error.status is not RPCStatusCode.ALREADY_EXISTS:
            raise


async def ensure_sweep_schedule(client: Client, task_queue: str, period: timedelta) -> None:
    """
    Have the sweep run each `period`; one that is there is left as it is.

    Overlap is skipped: a slow sweep is not helped by a second one.
    """
    try:
        await client.create_schedule(
            f"{SWEEP_SCHEDULE}-{task_queue}",
            Schedule(
                action=ScheduleActionStartWorkflow(
                    SWEEP_WORKFLOW, id=f"sweep/{task_queue}", task_queue=task_queue
                ),
                spec=ScheduleSpec(intervals=[ScheduleIntervalSpec(every=period)]),
                policy=SchedulePolicy(overlap=ScheduleOverlapPolicy.SKIP),
            ),
        )
    except ScheduleAlreadyRunningError:
        return
