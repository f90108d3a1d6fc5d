"""The sweep's workflow: one activity, started by a schedule."""

from temporalio import workflow

from oncefence.activities.contracts import RUN_SWEEP, SweepReport
from oncefence.workflows import policies

SWEEP_WORKFLOW = "SweepWorkflow"


@workflow.defn(name=SWEEP_WORKFLOW)
class SweepWorkflow:
    """One pass over what is overdue."""

    @workflow.run
    async def run(self) -> SweepReport:
        """Nudge one page."""
        report: SweepReport = await workflow.execute_activity(
            RUN_SWEEP,
            result_type=SweepReport,
            start_to_close_timeout=policies.SWEEP_TIMEOUT,
            retry_policy=policies.SWEEP,
        )
        return report
