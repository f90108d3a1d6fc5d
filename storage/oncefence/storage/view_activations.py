"""Sole writer of `view_activations`: under which revision new commands are accepted, since when."""

from typing import Any, Final

from sqlalchemy import Result, Row, and_, bindparam, insert, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from oncefence.domain.ids import InstallationId, OrgId, ViewId
from oncefence.storage.tables import binding_views, view_activations

# One publication or activation at a time per org: what is newest and what is current is read, and
# what follows from it written, under this lock.
SERIALISE: Final = text("SELECT pg_advisory_xact_lock(hashtextextended('publish:' || :org, 0))")

_VIEWS = binding_views.alias("v")
_REPLACED = binding_views.alias("r")
CURRENT = (
    select(
        view_activations.c.ordinal,
        view_activations.c.view_id,
        _VIEWS.c.revision,
        _VIEWS.c.digest,
        _REPLACED.c.revision.label("replaced_revision"),
    )
    .join(
        _VIEWS,
        and_(
            _VIEWS.c.org_id == view_activations.c.org_id,
            _VIEWS.c.view_id == view_activations.c.view_id,
        ),
    )
    .outerjoin(
        _REPLACED,
        and_(
            _REPLACED.c.org_id == view_activations.c.org_id,
            _REPLACED.c.view_id == view_activations.c.replaces,
        ),
    )
    .where(
        view_activations.c.org_id == bindparam("of_org"),
        view_activations.c.installation == bindparam("of_installation"),
        view_activations.c.name == bindparam("of_name"),
    )
    .order_by(view_activations.c.ordinal.desc())
    .limit(1)
)
ADD = insert(view_activations)


async def serialise(connection: AsyncConnection, org: OrgId) -> None:
    """Until COMMIT nobody else publishes or activates in this org."""
    await connection.execute(SERIALISE, {"org": org})


async def current(
    connection: AsyncConnection, org: OrgId, installation: InstallationId, name: str
) -> Row[Any] | None:
    """The newest activation of the name, with its revision; None where there never was one."""
    found: Result[Any] = await connection.execute(
        CURRENT, {"of_org": org, "of_installation": installation, "of_name": name}
    )
    return found.one_or_none()


async def add(
    connection: AsyncConnection,
    org: OrgId,
    installation: InstallationId,
    name: str,
    view: ViewId,
    *,
    after: Row[Any] | None,
    actor: str,
    note: str,
) -> None:
    """Make `view` the current one of its name, in the place of what `current` gave."""
    await connection.execute(
        ADD,
        {
            "org_id": org,
            "installation": installation,
            "name": name,
            "ordinal": 1 if after is None else after.ordinal + 1,
            "view_id": view,
            "replaces": None if after is None else after.view_id,
            "activated_by": actor,
            "note": note,
        },
    )
