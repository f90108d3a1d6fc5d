"""The mark of an authorisation: from its COMMIT on the provider's code may be spent (C286)."""

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Row
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from oncefence.domain.authorization import Flow, RequestAct, state_hash
from oncefence.domain.ids import OrgId, PrincipalBindingId
from oncefence.domain.redaction import Secret
from oncefence.storage import authorization_requests, provider_apps
from oncefence.storage.engine import run_phase
from oncefence.storage.sealing import KeyRing


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenAuthorization:
    """A request that is used by this, with all that its one call needs."""

    org: OrgId
    request: UUID
    act: RequestAct
    flow: Flow
    binding: PrincipalBindingId
    name: str
    provider: str
    base_url: str
    is_local: bool
    pack_grant: str
    grant_content: Mapping[str, Any]
    client_id: str
    installation: str | None
    redirect_uri: str | None
    used_at: datetime
    client_secret: Secret
    verifier: Secret | None = field(repr=False)


async def take_authorization(
    engine: AsyncEngine, ring: KeyRing, state: str
) -> TakenAuthorization | None:
    """
    Use the request that a browser came back with, whose one use this is.

    None where the state is nobody's, was used, or has expired, or where its app is gone: nothing
    tells which. After a lost answer it is used, perhaps; nothing was sent, and the person starts
    again.
    """
    wanted = state_hash(state)

    async def transaction() -> TakenAuthorization | None:
        async with engine.begin() as connection:
            row = await authorization_requests.lock_of_state(connection, wanted)
            if row is None or not hmac.compare_digest(bytes(row.state_hash), wanted):
                return None
            return await _take(connection, ring, row)

    return await run_phase("take_authorization", transaction)


async def take_own_authorization(
    engine: AsyncEngine, ring: KeyRing, org: OrgId, request: UUID
) -> TakenAuthorization | None:
    """Use a request that needs no browser; otherwise the same."""

    async def transaction() -> TakenAuthorization | None:
        async with engine.begin() as connection:
            row = await authorization_requests.lock(connection, org, request)
            if row is None or row.state_hash is not None:
                return None
            return await _take(connection, ring, row)

    return await run_phase("take_own_authorization", transaction)


async def _take(
    connection: AsyncConnection, ring: KeyRing, row: Row[Any]
) -> TakenAuthorization | None:
    org = OrgId(row.org_id)
    app = await provider_apps.find(
        connection,
        org,
        provider=row.provider,
        pack_grant=row.pack_grant,
        client_id=row.client_id,
    )
    if app is None:
        return None
    used_at = await authorization_requests.use(connection, org, row.request_id)
    if used_at is None:
        return None
    verifier = None
    if row.wrapped_key is not None:
        key = ring.unwrap(row.wrapped_key, row.key_id, "authorization", org, row.request_id)
        verifier = Secret(
            key.open(row.verifier_ciphertext, "verifier", org, row.request_id).decode()
        )
    return TakenAuthorization(
        org=org,
        request=row.request_id,
        act=RequestAct(row.act),
        flow=Flow(row.flow),
        binding=PrincipalBindingId(row.binding_id),
        name=row.name,
        provider=row.provider,
        base_url=row.base_url,
        is_local=row.is_local,
        pack_grant=row.pack_grant,
        grant_content=row.grant_content,
        client_id=row.client_id,
        installation=row.installation,
        redirect_uri=row.redirect_uri,
        used_at=used_at,
        client_secret=provider_apps.open_secret(ring, app),
        verifier=verifier,
    )
