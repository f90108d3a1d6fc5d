"""How often Temporal itself runs the activity of an attempt."""

import uuid

import pytest
from temporalio import activity
from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from oncefence.activities.contracts import (
    FUSED_DEADLINE_MS_MAX,
    RUN_ATTEMPT,
    RunRequest,
    RunResult,
    Step,
    WorkInput,
)
from oncefence.workflows.work_item import WorkItemWorkflow
from tests.support.station import new_queue

pytestmark = pytest.mark.asyncio(loop_scope="module")


class Failing:
    """An attempt whose first run fails in a way that Temporal would repeat."""

    def __init__(self) -> None:
        self.runs: list[int] = []

    @activity.defn(name=RUN_ATTEMPT)
    async def run_attempt(self, request: RunRequest) -> RunResult:
        self.runs.append(activity.info().attempt)
        if len(self.runs) == 1:
            raise RuntimeError("of no class that anybody foresaw")
        return RunResult(step=Step.FINISHED, verdict="settled")


@pytest.mark.parametrize("deadline_ms", [FUSED_DEADLINE_MS_MAX, FUSED_DEADLINE_MS_MAX + 1])
async def test_an_attempt_is_run_again_by_its_workflow_alone(
    client: Client, deadline_ms: int
) -> None:
    """Scheduler and workflow never both retry one effect, in neither form (C148, C385)."""
    failing, queue = Failing(), new_queue()
    async with Worker(
        client,
        task_queue=queue,
        workflows=[WorkItemWorkflow],
        activities=[failing.run_attempt],
        workflow_runner=UnsandboxedWorkflowRunner(),
    ):
        await client.execute_workflow(
            WorkItemWorkflow.run,
            WorkInput(
                org_id="acme",
                work_id=str(uuid.uuid4()),
                family="effect.dispatch",
                deadline_ms=deadline_ms,
                start_to_close_seconds=5.0,
            ),
            id=f"work/{uuid.uuid4()}",
            task_queue=queue,
        )

    # The second run is the first of an activity of its own.
    assert failing.runs == [1, 1]
