"""Sole writer of `lookups`: one row per read of the provider, none of them an attempt."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import bindparam, func, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from oncefence.domain.ids import OrgId, WorkId
from oncefence.storage.tables import lookups

ADD = insert(lookups)
TRIES = select(func.count(lookups.c.try_)).where(
    lookups.c.org_id == bindparam("of_org"), lookups.c.work_id == bindparam("of_work")
)


async def add(connection: AsyncConnection, values: Mapping[str, Any]) -> None:
    """Keep one lookup."""
    await connection.execute(ADD, values)


async def tries_spent(connection: AsyncConnection, org: OrgId, work: WorkId) -> int:
    """How many of the five tries a lookup item has spent."""
    spent = (await connection.execute(TRIES, {"of_org": org, "of_work": work})).scalar_one()
    return int(spent)
