"""Reading what we are to providers; never the secret."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from oncefence.domain.ids import OrgId
from oncefence.storage.engine import one_statement, run_phase

APPS = text(
    """
    SELECT a.org_id, a.app_id, a.provider, a.pack_grant, a.flow, a.client_id, a.made_by, a.note,
           a.made_at, a.key_id
      FROM oncefence.provider_apps AS a
     WHERE a.retired_at IS NULL
       AND (CAST(:org AS text) IS NULL OR a.org_id IN (CAST(:org AS text), '*'))
     ORDER BY a.org_id, a.provider, a.pack_grant, a.made_at DESC
    """
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedApp:
    """One live app; of those of one grant the newest connects accounts."""

    org: str
    app: UUID
    provider: str
    pack_grant: str
    flow: str
    client_id: str
    made_by: str
    note: str
    made_at: datetime
    key_id: str


async def list_provider_apps(engine: AsyncEngine, org: OrgId | None) -> Sequence[ListedApp]:
    """The live apps that `org` may be, its own and everybody's; all of them without an org."""

    async def transaction() -> Sequence[ListedApp]:
        async with one_statement(engine).connect() as connection:
            return [
                ListedApp(
                    org=row.org_id,
                    app=row.app_id,
                    provider=row.provider,
                    pack_grant=row.pack_grant,
                    flow=row.flow,
                    client_id=row.client_id,
                    made_by=row.made_by,
                    note=row.note,
                    made_at=row.made_at,
                    key_id=row.key_id,
                )
                for row in (await connection.execute(APPS, {"org": org})).all()
            ]

    return await run_phase("list_provider_apps", transaction)
