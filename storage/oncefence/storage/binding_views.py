"""Sole writer of `binding_views`: published views, only ever followed by a next revision."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Result, Row, bindparam, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from oncefence.domain.ids import InstallationId, OrgId
from oncefence.storage.tables import binding_views

ADD = insert(binding_views).returning(
    binding_views.c.view_id, binding_views.c.revision, binding_views.c.digest
)
_OF_NAME = (
    select(binding_views.c.view_id, binding_views.c.revision, binding_views.c.digest)
    .where(
        binding_views.c.org_id == bindparam("of_org"),
        binding_views.c.installation == bindparam("of_installation"),
        binding_views.c.name == bindparam("of_name"),
    )
    .order_by(binding_views.c.revision.desc())
    .limit(1)
)
NEWEST = _OF_NAME
OF_REVISION = _OF_NAME.where(binding_views.c.revision == bindparam("of_revision"))


async def newest(
    connection: AsyncConnection, org: OrgId, installation: InstallationId, name: str
) -> Row[Any] | None:
    """The revision that was published last, whether it is current or not."""
    found: Result[Any] = await connection.execute(
        NEWEST, {"of_org": org, "of_installation": installation, "of_name": name}
    )
    return found.one_or_none()


async def of_revision(
    connection: AsyncConnection,
    org: OrgId,
    installation: InstallationId,
    name: str,
    revision: int,
) -> Row[Any] | None:
    """That revision of the name."""
    found: Result[Any] = await connection.execute(
        OF_REVISION,
        {
            "of_org": org,
            "of_installation": installation,
            "of_name": name,
            "of_revision": revision,
        },
    )
    return found.one_or_none()


async def add(connection: AsyncConnection, values: Mapping[str, Any]) -> Row[Any]:
    """Add one row."""
    added: Result[Any] = await connection.execute(ADD, values)
    return added.one()
