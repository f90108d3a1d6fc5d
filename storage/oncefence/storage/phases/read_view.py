"""Reading a pinned view; immutable, so a process may keep it for as long as it lives."""

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from oncefence.catalog.view import IntegrationBindingView
from oncefence.domain.ids import OrgId, ViewId
from oncefence.storage.engine import one_statement, run_phase

READ = text("SELECT content FROM oncefence.binding_views WHERE org_id = :org AND view_id = :view")


class ViewShelf:
    """The views that this process has read, by org and id."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._views: dict[tuple[OrgId, ViewId], IntegrationBindingView] = {}

    async def view(self, org: OrgId, view: ViewId) -> IntegrationBindingView:
        """The view that a command pinned."""
        known = self._views.get((org, view))
        if known is None:
            known = await self._read(org, view)
            self._views[org, view] = known
        return known

    async def _read(self, org: OrgId, view: ViewId) -> IntegrationBindingView:
        async def transaction() -> str:
            async with one_statement(self._engine).connect() as connection:
                found = await connection.execute(READ, {"org": org, "view": view})
                return str(found.scalar_one())

        return IntegrationBindingView.from_json(await run_phase("read_view", transaction))
