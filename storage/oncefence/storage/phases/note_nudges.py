"""Noting which items were nudged, so that the next nudge of each keeps its distance (C390)."""

from collections.abc import Sequence
from datetime import timedelta

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from oncefence.domain.ids import OrgId, WorkId
from oncefence.domain.limits import Limits
from oncefence.storage import work_nudges
from oncefence.storage.engine import run_phase
from oncefence.storage.phases.find_work import DueWork

CLASS = text("SELECT queue_class FROM oncefence.work_items WHERE org_id = :org AND work_id = :work")


async def note_nudge(connection: AsyncConnection, item: DueWork, *, limits: Limits) -> None:
    """Note one more nudge of the item, in the transaction of the phase that gives it."""
    await work_nudges.note(
        connection,
        org=item.ref.org,
        work=item.ref.work,
        run_after=item.ref.run_after,
        ownership_epoch=item.ownership_epoch,
        nudges=item.nudges + 1,
        wait=timedelta(seconds=limits.nudge_wait_seconds(item.nudges)),
    )


async def note_nudges(engine: AsyncEngine, given: Sequence[DueWork], *, limits: Limits) -> None:
    """Note these nudges; a crash before this only means that they are given again."""
    if not given:
        return

    async def transaction() -> None:
        async with engine.begin() as connection:
            for item in given:
                await note_nudge(connection, item, limits=limits)

    await run_phase("note_nudges", transaction)


async def take_back_nudges(
    engine: AsyncEngine, missed: Sequence[DueWork], *, limits: Limits
) -> None:
    """
    Note that these nudges, though noted, never reached Temporal.

    They do not count, and the next may follow one grace later, when the sweep would give its first:
    however long Temporal is away, it finds them once it is back. Not sooner, or everybody who
    comes meanwhile would try in vain.
    """
    if not missed:
        return

    async def transaction() -> None:
        async with engine.begin() as connection:
            for item in missed:
                await work_nudges.note(
                    connection,
                    org=item.ref.org,
                    work=item.ref.work,
                    run_after=item.ref.run_after,
                    ownership_epoch=item.ownership_epoch,
                    nudges=item.nudges,
                    wait=timedelta(seconds=limits.sweep_grace_scaled_seconds),
                )

    await run_phase("take_back_nudges", transaction)


async def give_back_place(engine: AsyncEngine, org: OrgId, work: WorkId) -> str | None:
    """
    An item that was nudged found itself held back, and is not open any more.

    Gives the class whose place is free; None where the item held none.
    """

    async def transaction() -> str | None:
        async with engine.begin() as connection:
            if not await work_nudges.forget(connection, org, work):
                return None
            found = await connection.execute(CLASS, {"org": org, "work": work})
            return str(found.scalar_one())

    return await run_phase("give_back_place", transaction)
