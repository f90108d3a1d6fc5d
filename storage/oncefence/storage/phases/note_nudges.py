"""Noting which items the sweep nudged, so that the next nudge of each keeps its distance."""

from collections.abc import Sequence
from datetime import timedelta

from sqlalchemy.ext.asyncio import AsyncEngine

from oncefence.domain.limits import Limits
from oncefence.storage import work_nudges
from oncefence.storage.engine import run_phase
from oncefence.storage.phases.find_work import DueWork


async def note_nudges(engine: AsyncEngine, given: Sequence[DueWork], *, limits: Limits) -> None:
    """Note these nudges; a crash before this only means that they are given again."""
    if not given:
        return

    async def transaction() -> None:
        async with engine.begin() as connection:
            for item in given:
                wait = timedelta(seconds=limits.nudge_wait_seconds(item.nudges))
                await work_nudges.note(
                    connection,
                    org=item.ref.org,
                    work=item.ref.work,
                    run_after=item.ref.run_after,
                    ownership_epoch=item.ownership_epoch,
                    nudges=item.nudges + 1,
                    wait=wait,
                )

    await run_phase("note_nudges", transaction)
