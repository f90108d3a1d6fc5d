"""Activating: from COMMIT on, what is handed over is accepted under this revision."""

from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Row
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from oncefence.domain.errors import NoSuchTarget, VersionMoved
from oncefence.domain.ids import InstallationId, OrgId, ViewId
from oncefence.storage import audit, binding_views, view_activations
from oncefence.storage.engine import run_phase

SUBJECT_KIND: Final = "binding_view"


@dataclass(frozen=True, slots=True, kw_only=True)
class Activation:
    """The revision that is current now, the one before it, and whether this act made it so."""

    name: str
    revision: int
    digest: str
    replaced_revision: int | None
    is_new: bool


async def activate_view(
    engine: AsyncEngine,
    org: OrgId,
    installation: InstallationId,
    name: str,
    revision: int,
    *,
    expected_current: int,
    actor: str,
    note: str,
) -> Activation:
    """
    Have new commands accepted under `revision`, newer or older than the one that is current.

    What was accepted before keeps the revision that it pinned (C561). The same act again, after a
    lost answer, finds what it did.

    Raises:
        NoSuchTarget: The installation has no binding of that name, or that has no such revision.
        VersionMoved: Another revision than `expected_current` is current. Nothing was written.
        StoreUnavailable: Ask again: it may be activated.
    """

    async def transaction() -> Activation:
        async with engine.begin() as connection:
            await view_activations.serialise(connection, org)
            wanted = await _wanted(connection, org, installation, name, revision)
            current = await view_activations.current(connection, org, installation, name)
            assert current is not None, "a name has a current revision from its first one on"
            is_new = current.view_id != wanted.view_id
            # What it replaced stands for what was expected, where this very act was done before.
            expectable = (current.revision,) if is_new else (revision, current.replaced_revision)
            if expected_current not in expectable:
                raise VersionMoved(
                    subject=f"binding {name}",
                    expected=str(expected_current),
                    found=str(current.revision),
                )
            if is_new:
                await make_current(
                    connection,
                    org,
                    installation,
                    name,
                    wanted,
                    after=current,
                    actor=actor,
                    note=note,
                )
            return Activation(
                name=name,
                revision=revision,
                digest=wanted.digest,
                replaced_revision=current.revision if is_new else current.replaced_revision,
                is_new=is_new,
            )

    return await run_phase("activate_view", transaction)


async def make_current(
    connection: AsyncConnection,
    org: OrgId,
    installation: InstallationId,
    name: str,
    view: Row[Any],
    *,
    after: Row[Any] | None,
    actor: str,
    note: str,
) -> None:
    """Put `view` in the place of `after`, with its audit row; inside the caller's transaction."""
    await view_activations.add(
        connection,
        org,
        installation,
        name,
        ViewId(view.view_id),
        after=after,
        actor=actor,
        note=note,
    )
    await audit.add(
        connection,
        org,
        actor=actor,
        act="catalog.activate",
        subject_kind=SUBJECT_KIND,
        subject_id=str(view.view_id),
        note=note,
        expected_version=None if after is None else str(after.revision),
    )


async def _wanted(
    connection: AsyncConnection,
    org: OrgId,
    installation: InstallationId,
    name: str,
    revision: int,
) -> Row[Any]:
    found = await binding_views.of_revision(connection, org, installation, name, revision)
    if found is not None:
        return found
    newest = await binding_views.newest(connection, org, installation, name)
    if newest is None:
        raise NoSuchTarget(
            kind="published binding",
            name=name,
            remedy="see what there is with `oncefence catalog list`",
        )
    raise NoSuchTarget(
        kind=f"revision of {name}",
        name=str(revision),
        remedy=f"its newest is {newest.revision}; see them with `oncefence catalog list`",
    )
