"""Publishing: a compiled view becomes the next immutable revision of its name."""

from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from oncefence.catalog.view import IntegrationBindingView
from oncefence.domain.ids import InstallationId, OrgId, named_id
from oncefence.storage import audit, binding_views
from oncefence.storage.engine import run_phase

# One publication at a time per org: the next revision is read and written under this lock.
SERIALISE = text("SELECT pg_advisory_xact_lock(hashtextextended('publish:' || :org, 0))")
NEWEST = text(
    "SELECT revision, digest FROM oncefence.binding_views"
    " WHERE org_id = :org AND installation = :installation AND name = :name"
    " ORDER BY revision DESC LIMIT 1"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """The revision that now stands, and whether it was made just now."""

    name: str
    revision: int
    digest: str
    is_new: bool


async def publish_view(
    engine: AsyncEngine,
    org: OrgId,
    installation: InstallationId,
    view: IntegrationBindingView,
    *,
    actor: str,
) -> Publication:
    """Make `view` the current revision; the same content again publishes nothing."""

    async def transaction() -> Publication:
        async with engine.begin() as connection:
            await connection.execute(SERIALISE, {"org": org})
            newest = (
                await connection.execute(
                    NEWEST, {"org": org, "installation": installation, "name": view.name}
                )
            ).one_or_none()
            if newest is not None and newest.digest == view.digest:
                return Publication(
                    name=view.name, revision=newest.revision, digest=view.digest, is_new=False
                )
            revision = 1 if newest is None else newest.revision + 1
            names = sorted(view.operations)
            view_id = named_id("view", org, installation, view.name, revision)
            await binding_views.add(
                connection,
                {
                    "org_id": org,
                    "view_id": view_id,
                    "installation": installation,
                    "name": view.name,
                    "revision": revision,
                    "digest": view.digest,
                    "operations": names,
                    "local_objects": [view.operations[name].local_object for name in names],
                    "principal_binding": view.principal,
                    "content": view.to_json(),
                },
            )
            await audit.add(
                connection,
                org,
                actor=actor,
                act="catalog.publish",
                subject_kind="binding_view",
                subject_id=str(view_id),
                note=f"{view.name} revision {revision}, digest {view.digest}",
            )
            return Publication(name=view.name, revision=revision, digest=view.digest, is_new=True)

    return await run_phase("publish_view", transaction)
