"""The sweep: items that are due and that nobody seems to run get a nudge; old bytes go."""

from temporalio import activity

from oncefence.activities.boundary import at_boundary
from oncefence.activities.contracts import RUN_SWEEP, SweepReport
from oncefence.activities.process_context import ProcessContext
from oncefence.storage.phases.erase_staged import erase_staged
from oncefence.storage.phases.expire_refreshes import expire_refreshes
from oncefence.storage.phases.find_work import find_due_work
from oncefence.storage.phases.note_nudges import note_nudges
from oncefence.storage.phases.rebuild_pressure import rebuild_pressure

PAGE = 200


class SweepActivity:
    """
    Nudges what is overdue.

    Whether an item has no workflow, a lost one or a slow one need not be told apart: a nudge
    starts what is missing and wakes what is there, and running an item twice is safe.
    """

    def __init__(self, context: ProcessContext) -> None:
        self._context = context

    @activity.defn(name=RUN_SWEEP)
    async def run_sweep(self) -> SweepReport:
        """Nudge one page of overdue items, oldest first."""
        return await at_boundary(self._sweep())

    async def _sweep(self) -> SweepReport:
        context = self._context
        due = await find_due_work(context.engine, page=PAGE, limits=context.limits)
        woken = await context.wake_all(item.ref for item in due)
        # Only a nudge that was given puts off the next one.
        given = [item for item in due if item.ref in woken]
        await note_nudges(context.engine, given, limits=context.limits)
        await expire_refreshes(context.engine)
        await erase_staged(context.engine)
        await rebuild_pressure(context.engine)
        return SweepReport(nudged=len(given))
