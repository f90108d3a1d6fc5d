"""Reading a pinned view; immutable, so a process may keep it for as long as it lives."""

from dataclasses import dataclass
from hashlib import sha256

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from oncefence.catalog.view import IntegrationBindingView
from oncefence.domain.errors import Refused
from oncefence.domain.ids import OrgId, ViewId
from oncefence.storage.engine import one_statement, run_phase

READ = text("SELECT content FROM oncefence.binding_views WHERE org_id = :org AND view_id = :view")


@dataclass(eq=False)
class RevisionMixed(Refused):
    """What was read is not what the command pinned, so nothing is done by it (C561)."""

    view: ViewId
    pinned: str
    found: str

    def __str__(self) -> str:
        return (
            f"view {self.view} has the digest {self.found}, and {self.pinned} is pinned: "
            "nothing is sent by another revision; compare the stored view with its backup"
        )


class ViewShelf:
    """The views that this process has read, by org and id, each with its digest."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._views: dict[tuple[OrgId, ViewId], tuple[str, IntegrationBindingView]] = {}

    async def view(self, org: OrgId, view: ViewId, digest: str) -> IntegrationBindingView:
        """
        The view that a command pinned, by id and digest.

        Raises:
            RevisionMixed: What is stored under the id has another digest.
            StoreUnavailable: Ask again.
        """
        found, known = self._views.get((org, view)) or await self._read(org, view)
        if found != digest:
            raise RevisionMixed(view=view, pinned=digest, found=found)
        self._views[org, view] = found, known
        return known

    async def _read(self, org: OrgId, view: ViewId) -> tuple[str, IntegrationBindingView]:
        async def transaction() -> str:
            async with one_statement(self._engine).connect() as connection:
                found = await connection.execute(READ, {"org": org, "view": view})
                return str(found.scalar_one())

        content = await run_phase("read_view", transaction)
        return sha256(content.encode()).hexdigest(), IntegrationBindingView.from_json(content)
