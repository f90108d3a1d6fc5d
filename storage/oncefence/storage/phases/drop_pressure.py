"""Dropping the reading of the pressure: whoever asks is told that there is none."""

from sqlalchemy.ext.asyncio import AsyncEngine

from oncefence.domain.operator import EVERY_ORG, Act
from oncefence.storage import audit, work_pressure
from oncefence.storage.engine import run_phase
from oncefence.storage.phases.rebuild_pressure import ViewOrder
from oncefence.storage.work_pressure import VIEW


async def drop_pressure(engine: AsyncEngine, order: ViewOrder) -> int:
    """
    The revision that says so; the sweep leaves it alone until somebody rebuilds it.

    Raises:
        VersionMoved: It was rebuilt or dropped since whoever orders it looked. Nothing changed.
    """

    async def transaction() -> int:
        async with engine.begin() as connection:
            revision, _ = await work_pressure.take_turn(connection)
            work_pressure.refuse_moved(revision, order.expected_version)
            dropped = await work_pressure.drop(connection)
            await audit.add(
                connection,
                EVERY_ORG,
                actor=order.actor,
                act=Act.DROP_VIEWS,
                subject_kind="view",
                subject_id=VIEW,
                note=order.note,
                expected_version=order.expected_version,
            )
            return dropped

    return await run_phase("drop_pressure", transaction)
