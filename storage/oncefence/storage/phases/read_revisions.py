"""Reading the revisions of one binding with their contents, to be compared."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from oncefence.catalog.view import IntegrationBindingView
from oncefence.domain.errors import NoSuchTarget
from oncefence.domain.ids import InstallationId, OrgId
from oncefence.storage.engine import run_phase
from oncefence.storage.phases.list_views import (
    VIEWS,
    ListedView,
    ViewState,
    listed,
    refuse_unknown_org,
)

CONTENTS = text(
    "SELECT revision, content FROM oncefence.binding_views WHERE org_id = :org"
    " AND installation = :installation AND name = :name AND revision = ANY (:revisions)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRevision:
    """One revision with its content."""

    listed: ListedView
    content: IntegrationBindingView


async def read_revisions(
    engine: AsyncEngine,
    org: OrgId,
    installation: InstallationId,
    name: str | None,
    wanted: Sequence[int | None],
) -> Sequence[ReadRevision]:
    """
    The `wanted` revisions of the binding, in that order; None is the one that is current.

    Without a name it is the only binding of the installation.

    Raises:
        NoSuchTarget: There is no such org, binding or revision, or several bindings and no name.
    """

    async def transaction() -> Sequence[ReadRevision]:
        async with engine.begin() as connection:
            await refuse_unknown_org(connection, org)
            place = {"org": org, "installation": installation, "name": name}
            rows = (await connection.execute(VIEWS, place)).all()
            views = _of_one_name([listed(row) for row in rows], installation, name)
            chosen = [_chosen(views, revision) for revision in wanted]
            contents = await connection.execute(
                CONTENTS,
                place | {"name": chosen[0].name, "revisions": [each.revision for each in chosen]},
            )
            texts = {row.revision: row.content for row in contents.all()}
            return [
                ReadRevision(
                    listed=each, content=IntegrationBindingView.from_json(texts[each.revision])
                )
                for each in chosen
            ]

    return await run_phase("read_revisions", transaction)


def _of_one_name(
    views: Sequence[ListedView], installation: InstallationId, name: str | None
) -> Mapping[int, ListedView]:
    names = sorted({each.name for each in views})
    if not names:
        raise NoSuchTarget(
            kind="published binding",
            name=name or f"of {installation}",
            remedy="see what there is with `oncefence catalog list`",
        )
    if len(names) > 1:
        raise NoSuchTarget(
            kind="single binding of installation",
            name=installation,
            remedy=f"it has {', '.join(names)}; say which one with --name",
        )
    return {each.revision: each for each in views}


def _chosen(views: Mapping[int, ListedView], revision: int | None) -> ListedView:
    if revision is None:
        return next(each for each in views.values() if each.state is ViewState.CURRENT)
    if revision not in views:
        newest = max(views)
        raise NoSuchTarget(
            kind=f"revision of {views[newest].name}",
            name=str(revision),
            remedy=f"its newest is {newest}; see them with `oncefence catalog list`",
        )
    return views[revision]
