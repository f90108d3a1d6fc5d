"""Sole writer of `lanes`, but for the SQL of acceptance: places are drawn, and never given back."""

from collections.abc import Iterable

from sqlalchemy import bindparam
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from oncefence.domain.ids import OrgId
from oncefence.storage.tables import lanes

DRAW = (
    insert(lanes)
    .values(org_id=bindparam("of_org"), lane_key=bindparam("of_lane"), sequence=1)
    .on_conflict_do_update(
        index_elements=[lanes.c.org_id, lanes.c.lane_key], set_={"sequence": lanes.c.sequence + 1}
    )
    .returning(lanes.c.sequence)
)


async def draw(
    connection: AsyncConnection, org: OrgId, lane_keys: Iterable[str | None]
) -> dict[str, int]:
    """
    The next place in each of the lanes; None is no lane.

    Each lane's row is locked until COMMIT, so an earlier place is visible before a later one is
    drawn (C221). In the order of their names, as acceptance draws them: two that draw in the
    same lanes wait for each other and never in a ring.
    """
    drawn = {}
    for lane_key in sorted({key for key in lane_keys if key is not None}):
        found = await connection.execute(DRAW, {"of_org": org, "of_lane": lane_key})
        drawn[lane_key] = found.scalar_one()
    return drawn
