"""Reading the published revisions: which one is current, and what still runs by each."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from oncefence.domain.errors import NoSuchTarget
from oncefence.domain.ids import InstallationId, OrgId, ViewId
from oncefence.storage.engine import run_phase

# What is live is counted by the index of what is not settled, never over all commands.
VIEWS = text(
    """
    WITH live AS (
        SELECT c.view_id, count(*) AS commands
          FROM oncefence.executions AS e
          JOIN oncefence.commands AS c ON c.org_id = e.org_id AND c.command_id = e.command_id
         WHERE e.org_id = :org AND e.status NOT IN ('succeeded', 'failed', 'cancelled')
         GROUP BY c.view_id
    ), waiting AS (
        SELECT w.view_id, count(*) AS items
          FROM oncefence.work_items AS w
         WHERE w.org_id = :org AND w.queue_class >= ''
           AND w.state IN ('pending', 'processing', 'retry') AND w.command_id IS NULL
         GROUP BY w.view_id
    )
    SELECT v.view_id, v.installation, v.name, v.revision, v.digest, v.pack_digest,
           v.binding_digest, v.follows_digest, v.principal_binding, v.operations,
           v.published_at, v.published_by, a.activated_at, a.activated_by, a.note,
           a.view_id IS NOT NULL AS was_activated,
           v.view_id = (SELECT n.view_id FROM oncefence.view_activations AS n
                         WHERE n.org_id = v.org_id AND n.installation = v.installation
                           AND n.name = v.name
                         ORDER BY n.ordinal DESC LIMIT 1) AS is_current,
           coalesce(l.commands, 0) AS live_commands, coalesce(q.items, 0) AS live_items
      FROM oncefence.binding_views AS v
      LEFT JOIN LATERAL (
           SELECT i.view_id, i.activated_at, i.activated_by, i.note
             FROM oncefence.view_activations AS i
            WHERE i.org_id = v.org_id AND i.installation = v.installation AND i.name = v.name
              AND i.view_id = v.view_id
            ORDER BY i.ordinal DESC LIMIT 1) AS a ON true
      LEFT JOIN live AS l ON l.view_id = v.view_id
      LEFT JOIN waiting AS q ON q.view_id = v.view_id
     WHERE v.org_id = :org
       AND (CAST(:installation AS text) IS NULL OR v.installation = :installation)
       AND (CAST(:name AS text) IS NULL OR v.name = :name)
     ORDER BY v.installation, v.name, v.revision DESC
    """
)
KNOWN = text(
    "SELECT EXISTS (SELECT FROM oncefence.org_keys WHERE org_id = :org)"
    " OR EXISTS (SELECT FROM oncefence.principal_bindings WHERE org_id = :org)"
    " OR EXISTS (SELECT FROM oncefence.binding_views WHERE org_id = :org)"
)


class ViewState(StrEnum):
    """How a revision stands to new commands."""

    CURRENT = "current"
    """They are accepted under it."""

    PUBLISHED = "published"
    """They never were: it waits for its activation."""

    SUPERSEDED = "superseded"
    """They were, until another one was activated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedView:
    """One revision, its lineage, its times, and what is still to be done by it."""

    view: ViewId
    installation: InstallationId
    name: str
    revision: int
    state: ViewState
    digest: str
    pack_digest: str
    binding_digest: str
    follows_digest: str | None
    principal: str
    operations: Sequence[str]
    published_at: datetime
    published_by: str
    activated_at: datetime | None
    """The last time that it was made current."""
    activated_by: str | None
    activation_note: str | None
    live_commands: int
    """Commands that pin it and are not settled."""
    live_items: int
    """Likewise items that are about no command."""


async def list_views(
    engine: AsyncEngine,
    org: OrgId,
    *,
    installation: InstallationId | None = None,
    name: str | None = None,
) -> Sequence[ListedView]:
    """
    The revisions of these bindings, the newest of each name first.

    Raises:
        NoSuchTarget: There is no such org.
    """

    async def transaction() -> Sequence[ListedView]:
        async with engine.begin() as connection:
            await refuse_unknown_org(connection, org)
            rows = await connection.execute(
                VIEWS, {"org": org, "installation": installation, "name": name}
            )
            return [listed(row) for row in rows.all()]

    return await run_phase("list_views", transaction)


async def refuse_unknown_org(connection: AsyncConnection, org: OrgId) -> None:
    """An org begins with its first Runtime, account or published binding."""
    if not (await connection.execute(KNOWN, {"org": org})).scalar_one():
        raise NoSuchTarget(
            kind="org",
            name=org,
            remedy="nobody registered a Runtime, added an account or published a binding there; "
            "see that --org is spelt as it was then",
        )


def listed(row: Row[Any]) -> ListedView:
    """The revision that a row of VIEWS is."""
    state = ViewState.SUPERSEDED if row.was_activated else ViewState.PUBLISHED
    return ListedView(
        view=ViewId(row.view_id),
        installation=InstallationId(row.installation),
        name=row.name,
        revision=row.revision,
        state=ViewState.CURRENT if row.is_current else state,
        digest=row.digest,
        pack_digest=row.pack_digest,
        binding_digest=row.binding_digest,
        follows_digest=row.follows_digest,
        principal=row.principal_binding,
        operations=tuple(row.operations),
        published_at=row.published_at,
        published_by=row.published_by,
        activated_at=row.activated_at,
        activated_by=row.activated_by,
        activation_note=row.note,
        live_commands=row.live_commands,
        live_items=row.live_items,
    )
