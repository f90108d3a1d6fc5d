"""Making known what we are to a provider: an app's id, and the secret that proves it."""

from dataclasses import dataclass
from uuid import UUID, uuid4

from sqlalchemy.ext.asyncio import AsyncEngine

from oncefence.domain.authorization import Flow
from oncefence.domain.ids import OrgId
from oncefence.domain.operator import Act
from oncefence.domain.redaction import Secret
from oncefence.storage import audit, provider_apps
from oncefence.storage.engine import run_phase
from oncefence.storage.sealing import KeyRing


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedApp:
    """The new row, and the one whose secret it replaces, if there was one."""

    app: UUID
    replaced: UUID | None


async def add_provider_app(
    engine: AsyncEngine,
    ring: KeyRing,
    org: OrgId,
    *,
    provider: str,
    pack_grant: str,
    flow: Flow,
    client_id: str,
    secret: Secret,
    actor: str,
    note: str,
) -> AddedApp:
    """
    From now on `org` (or every org, `*`, that has none of its own) is this app to the provider.

    Of a client that is known already the secret is exchanged: its accounts are renewed with the
    new one. Accounts that were connected as another client stay with that one. After a lost
    answer it is safe to add it again.

    Raises:
        StoreUnavailable: Ask again: it may be there.
    """
    app = uuid4()
    values = {
        "org_id": org,
        "app_id": app,
        "provider": provider,
        "pack_grant": pack_grant,
        "flow": flow.value,
        "client_id": client_id,
        "made_by": actor,
        "note": note,
        **provider_apps.sealed(ring, org, app, secret),
    }

    async def transaction() -> AddedApp:
        async with engine.begin() as connection:
            replaced = await provider_apps.retire(
                connection, org, provider=provider, pack_grant=pack_grant, client_id=client_id
            )
            await provider_apps.add(connection, values)
            await audit.add(
                connection,
                org,
                actor=actor,
                act=Act.ADD_APP,
                subject_kind="provider_app",
                subject_id=f"{provider}/{pack_grant}/{client_id}/{app}",
                note=note,
                expected_version=None if replaced is None else str(replaced),
            )
            return AddedApp(app=app, replaced=replaced)

    return await run_phase("add_provider_app", transaction)
