"""One WorkItem of any family: wait until it is due, run it once, and wait again or end."""

from datetime import datetime, timedelta

from temporalio import workflow
from temporalio.common import SearchAttributeKey
from temporalio.exceptions import FailureError, is_cancelled_exception

from oncefence.activities.contracts import (
    FUSED_DEADLINE_MS_MAX,
    RUN_ATTEMPT,
    RUN_LOOKUP,
    RUN_WORK,
    RunRequest,
    RunResult,
    Step,
    WorkInput,
    WorkReport,
)
from oncefence.workflows import policies

WORK_ITEM_WORKFLOW = "WorkItemWorkflow"
WAKE = "wake"

ORG = SearchAttributeKey.for_keyword("OncefenceOrg")
FAMILY = SearchAttributeKey.for_keyword("OncefenceFamily")
STATUS = SearchAttributeKey.for_keyword("OncefenceExecutionStatus")

# Effects and lookups have a run of their own, because their claim or their end writes more than the
# item; all others are handlers of the one run.
_RUNS = {
    "effect.dispatch": RUN_ATTEMPT,
    "connected.deliver": RUN_ATTEMPT,
    "effect.lookup": RUN_LOOKUP,
}


def workflow_id(work_id: str) -> str:
    """The id of an item's workflow; every door and the sweep compute the same one."""
    return f"work/{work_id}"


@workflow.defn(name=WORK_ITEM_WORKFLOW)
class WorkItemWorkflow:
    """
    The time of one WorkItem.

    Cancelling, terminating or resetting it changes no fact and cancels no work: the item is in
    the database, and a workflow for it is started again (C382).
    """

    def __init__(self) -> None:
        self._is_woken = False
        self._failures = 0

    @workflow.signal(name=WAKE)
    def wake(self) -> None:
        """Look again now; a wake too many costs one read."""
        self._is_woken = True

    @workflow.run
    async def run(self, item: WorkInput) -> WorkReport:
        """Run the item until it is terminal."""
        due = item.run_after
        while True:
            await self._rest(due)
            self._is_woken = False
            result = await self._run_once(item)
            if result is None:
                pauses = policies.PAUSE_SECONDS
                pause = pauses[min(self._failures, len(pauses)) - 1]
                due = workflow.now() + timedelta(seconds=pause)
            elif result.step is Step.FINISHED:
                if result.execution_status is not None:
                    workflow.upsert_search_attributes([STATUS.value_set(result.execution_status)])
                return WorkReport(
                    verdict=result.verdict,
                    item_state=result.item_state,
                    execution_status=result.execution_status,
                )
            elif result.step is Step.BLOCKED and workflow.patched(policies.HELD_BACK_ENDS):
                if not self._is_woken:
                    # Nobody polls for a lane or a pause: a wake starts the item anew.
                    return WorkReport(
                        verdict=result.verdict, item_state=None, execution_status=None
                    )
            else:
                # Two clocks are never equal: without a least pause, a lease that the database
                # still sees and this clock no longer does would be asked about in a hot loop.
                least = workflow.now() + policies.LEAST_PAUSE
                due = max(result.until or least, least)
            if workflow.info().get_current_history_length() > policies.EVENTS_MAX:
                return WorkReport(verdict="parked", item_state=None, execution_status=None)

    async def _rest(self, due: datetime | None) -> None:
        if due is None:
            return
        seconds = (due - workflow.now()).total_seconds()
        if seconds <= 0 or self._is_woken:
            return
        try:
            await workflow.wait_condition(lambda: self._is_woken, timeout=seconds)
        except TimeoutError:
            return

    async def _run_once(self, item: WorkInput) -> RunResult | None:
        request = RunRequest(
            org_id=item.org_id,
            work_id=item.work_id,
            deadline_ms=item.deadline_ms,
            as_of=workflow.now(),
            family=item.family,
        )
        run = _RUNS.get(item.family, RUN_WORK)
        within = timedelta(seconds=item.start_to_close_seconds)
        try:
            if item.deadline_ms <= FUSED_DEADLINE_MS_MAX:
                result: RunResult = await workflow.execute_local_activity(
                    run,
                    request,
                    result_type=RunResult,
                    start_to_close_timeout=within,
                    retry_policy=policies.DISPATCH,
                )
            else:
                result = await workflow.execute_activity(
                    run,
                    request,
                    result_type=RunResult,
                    start_to_close_timeout=within,
                    schedule_to_start_timeout=policies.SCHEDULE_TO_START,
                    retry_policy=policies.DISPATCH,
                )
        except FailureError as error:
            # The failure of a local activity comes bare, a regular one's in an ActivityError.
            if is_cancelled_exception(error):
                raise
            # Nothing is concluded from a failure: whether something was sent is in SQL, and
            # the next run reads it there.
            self._failures += 1
            return None
        self._failures = 0
        return result
