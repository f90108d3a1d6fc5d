"""Publishing: a compiled view becomes the next immutable revision of its name."""

from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from oncefence.catalog.view import IntegrationBindingView
from oncefence.domain.errors import ActRefused, VersionMoved
from oncefence.domain.ids import InstallationId, OrgId, named_id
from oncefence.storage import audit, binding_views, view_activations
from oncefence.storage.engine import run_phase
from oncefence.storage.phases.activate_view import SUBJECT_KIND, make_current

FIRST_NOTE: Final = "the first revision of its name"
AT_ONCE_NOTE: Final = "activated when it was published"

WAS_CURRENT = text(
    "SELECT EXISTS (SELECT FROM oncefence.view_activations WHERE org_id = :org"
    " AND installation = :installation AND name = :name AND view_id = :view)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """The revision that holds this content, whether it was made just now, and what is current."""

    name: str
    revision: int
    digest: str
    is_new: bool
    current_revision: int

    @property
    def is_current(self) -> bool:
        """Whether new commands are accepted under it."""
        return self.revision == self.current_revision


async def publish_view(
    engine: AsyncEngine,
    org: OrgId,
    installation: InstallationId,
    view: IntegrationBindingView,
    *,
    actor: str,
    activate: bool = False,
    note: str | None = None,
    expected_current: int | None = None,
) -> Publication:
    """
    Make `view` the next revision; the content of the newest revision again publishes nothing.

    The first revision of a name is current at once. A later one is with `activate`, and else
    waits for its activation. What was rolled back is not brought back by publishing it again:
    a script that publishes what it always does must not undo what a person did.

    Raises:
        VersionMoved: Another revision than `expected_current` is current. Nothing was written.
        ActRefused: It is to be activated, and was rolled back. Likewise.
        StoreUnavailable: Ask again: it may be published.
    """

    async def transaction() -> Publication:
        async with engine.begin() as connection:
            await view_activations.serialise(connection, org)
            current = await view_activations.current(connection, org, installation, view.name)
            _refuse_moved(view.name, current, expected_current)
            newest = await binding_views.newest(connection, org, installation, view.name)
            is_new = newest is None or newest.digest != view.digest
            if is_new:
                newest = await _add(connection, org, installation, view, newest, actor=actor)
            assert newest is not None, "it was there, or was added just now"
            if current is None or (activate and current.view_id != newest.view_id):
                if not is_new:
                    await _refuse_rolled_back(connection, org, installation, view.name, newest)
                await make_current(
                    connection,
                    org,
                    installation,
                    view.name,
                    newest,
                    after=current,
                    actor=actor,
                    note=note or (FIRST_NOTE if current is None else AT_ONCE_NOTE),
                )
                current = newest
            return Publication(
                name=view.name,
                revision=newest.revision,
                digest=view.digest,
                is_new=is_new,
                current_revision=current.revision,
            )

    return await run_phase("publish_view", transaction)


def _refuse_moved(name: str, current: Row[Any] | None, expected: int | None) -> None:
    found = 0 if current is None else current.revision
    if expected is not None and expected != found:
        raise VersionMoved(subject=f"binding {name}", expected=str(expected), found=str(found))


async def _refuse_rolled_back(
    connection: AsyncConnection,
    org: OrgId,
    installation: InstallationId,
    name: str,
    newest: Row[Any],
) -> None:
    place = {"org": org, "installation": installation, "name": name, "view": newest.view_id}
    if (await connection.execute(WAS_CURRENT, place)).scalar_one():
        raise ActRefused(
            act="activation",
            subject=f"{name} revision {newest.revision}",
            verdict="rolled_back",
            remedy="it was current, and an older revision was activated since; if it is to be "
            "used again, say so with `oncefence catalog activate`",
        )


async def _add(
    connection: AsyncConnection,
    org: OrgId,
    installation: InstallationId,
    view: IntegrationBindingView,
    newest: Row[Any] | None,
    *,
    actor: str,
) -> Row[Any]:
    revision = 1 if newest is None else newest.revision + 1
    names = sorted(view.operations)
    view_id = named_id("view", org, installation, view.name, revision)
    added = await binding_views.add(
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
            "pack_digest": view.pack_digest,
            "binding_digest": view.binding_digest,
            "follows_digest": None if newest is None else newest.digest,
            "published_by": actor,
        },
    )
    await audit.add(
        connection,
        org,
        actor=actor,
        act="catalog.publish",
        subject_kind=SUBJECT_KIND,
        subject_id=str(view_id),
        note=f"{view.name} revision {revision}, digest {view.digest}",
    )
    return added
