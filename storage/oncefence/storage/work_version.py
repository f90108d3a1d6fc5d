"""What an operator saw of an item, against what it is (C406)."""

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from oncefence.domain.errors import VersionMoved
from oncefence.domain.ids import OrgId, WorkId

VERSION = text(
    "SELECT oncefence.work_version(w) FROM oncefence.work_items AS w"
    " WHERE w.org_id = :org AND w.work_id = :work"
)


async def refuse_moved(
    connection: AsyncConnection, org: OrgId, work: WorkId, expected: str
) -> None:
    """
    Return where the locked item is at the version that the operator names.

    Raises:
        VersionMoved: It changed since it was looked at. Nothing was written.
    """
    found = await connection.execute(VERSION, {"org": org, "work": work})
    version = found.scalar_one()
    if version != expected:
        raise VersionMoved(subject=f"item {work}", expected=expected, found=version)
