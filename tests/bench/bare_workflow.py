"""The floor's workflow: one bare HTTP activity. Passed through the sandbox, like the program's."""

from datetime import timedelta
from typing import Final

from temporalio import workflow
from temporalio.common import RetryPolicy

BARE_WORKFLOW: Final = "BareWorkflow"
BARE_PATCH: Final = "bare_patch"


@workflow.defn(name=BARE_WORKFLOW)
class BareWorkflow:
    """What somebody would write who leaves everything to Temporal."""

    @workflow.run
    async def run(self, contact: str) -> int:
        """The status of one PATCH."""
        status: int = await workflow.execute_activity(
            BARE_PATCH,
            contact,
            result_type=int,
            start_to_close_timeout=timedelta(seconds=10),
            retry_policy=RetryPolicy(maximum_attempts=1),
        )
        return status
