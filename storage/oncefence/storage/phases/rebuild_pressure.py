"""Counting depth and age of what waits anew: by the sweep each period, or as an operator's act."""

from dataclasses import dataclass

from sqlalchemy.ext.asyncio import AsyncEngine

from oncefence.domain.operator import EVERY_ORG, Act
from oncefence.storage import audit, work_pressure
from oncefence.storage.engine import run_phase
from oncefence.storage.work_pressure import VIEW, Built


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewOrder:
    """Who wants a read model rebuilt or dropped, why, and which revision they saw (C406)."""

    actor: str
    note: str
    expected_version: str


async def rebuild_pressure(engine: AsyncEngine, order: ViewOrder | None = None) -> Built | None:
    """
    The next revision of the pressure, counted in one snapshot (C26).

    It locks no row that a claim or a settlement needs. Two at once take turns. Without an order
    it is the sweep's refresh, which leaves what somebody dropped as it is: None.

    Raises:
        VersionMoved: It was rebuilt or dropped since whoever orders it looked. Nothing changed.
    """

    async def transaction() -> Built | None:
        async with engine.begin() as connection:
            revision, is_dropped = await work_pressure.take_turn(connection)
            if order is None:
                return None if is_dropped else await work_pressure.fill(connection)
            work_pressure.refuse_moved(revision, order.expected_version)
            built = await work_pressure.fill(connection)
            await audit.add(
                connection,
                EVERY_ORG,
                actor=order.actor,
                act=Act.REBUILD_VIEWS,
                subject_kind="view",
                subject_id=VIEW,
                note=order.note,
                expected_version=order.expected_version,
            )
            return built

    return await run_phase("rebuild_pressure", transaction)
