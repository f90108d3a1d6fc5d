"""Workflows that were changed as nobody may change them: they do something before all else."""

from datetime import timedelta

from temporalio import workflow

from oncefence.activities.contracts import HandoffReport, SweepReport, WorkInput, WorkReport
from oncefence.workflows.handoff import HANDOFF_WORKFLOW, HandoffWorkflow
from oncefence.workflows.sweep import SWEEP_WORKFLOW, SweepWorkflow
from oncefence.workflows.work_item import WORK_ITEM_WORKFLOW, WorkItemWorkflow


async def greet() -> None:
    """An activity that no worker has and no history knows."""
    await workflow.execute_activity("greet", start_to_close_timeout=timedelta(seconds=1))


@workflow.defn(name=WORK_ITEM_WORKFLOW)
class PoliteWorkItem(WorkItemWorkflow):
    @workflow.run
    async def run(self, item: WorkInput) -> WorkReport:
        await greet()
        return await super().run(item)


@workflow.defn(name=SWEEP_WORKFLOW)
class PoliteSweep(SweepWorkflow):
    @workflow.run
    async def run(self) -> SweepReport:
        await greet()
        return await super().run()


@workflow.defn(name=HANDOFF_WORKFLOW)
class PoliteHandoff(HandoffWorkflow):
    @workflow.run
    async def run(self) -> HandoffReport:
        await greet()
        return await super().run()


CHANGED = (PoliteWorkItem, PoliteSweep, PoliteHandoff)
