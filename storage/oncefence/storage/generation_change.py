"""
One generation of a binding after another: rows of several tables, inside a phase's transaction.

The lock of the newest generation is the phase's, and was taken before it decided.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection

from oncefence.domain.authorization import Authority, Flow, Retirement
from oncefence.domain.grant import GrantRotation, GrantState, MadeBecause
from oncefence.domain.ids import BindingGenerationId, OrgId, PrincipalBindingId
from oncefence.domain.redaction import Secret
from oncefence.storage import (
    authorization_grants,
    binding_generations,
    token_versions,
    work_items,
)
from oncefence.storage.phases.begin_refresh import due_after
from oncefence.storage.sealing import KeyRing

NOW = text("SELECT clock_timestamp()")


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTokens:
    """What a person or a provider gave; how long it is good for is counted from now."""

    access: Secret
    refresh: Secret | None = None
    lifetime_s: int | None = None
    """None of a token that ends with nothing."""

    refresh_lifetime_s: int | None = None

    async def ends(self, connection: AsyncConnection) -> tuple[datetime | None, datetime | None]:
        """When the access token and the refresh token end, by the database's clock."""
        now = (await connection.execute(NOW)).scalar_one()
        access, refresh = self.lifetime_s, self.refresh_lifetime_s
        return (
            None if access is None else now + timedelta(seconds=access),
            None if refresh is None else now + timedelta(seconds=refresh),
        )


async def follow(
    connection: AsyncConnection,
    ring: KeyRing,
    org: OrgId,
    binding: PrincipalBindingId,
    *,
    newest: Row[Any] | None,
    because: Retirement,
    authority: Authority,
    rotation: GrantRotation,
    tokens: NewTokens,
    is_same_account: bool = False,
) -> BindingGenerationId:
    """
    The next generation of the binding is current, with its grant and its first version.

    What pinned the one before is never sent to this one's account (C282, C284). Links go on only
    where the account is proven to be the same, or where somebody says so with `is_same_account`.
    """
    ordinal = 1 if newest is None else newest.ordinal + 1
    identity = ordinal
    if newest is not None and (
        is_same_account
        or (
            authority.is_proven
            and (newest.issuer, newest.account) == (authority.issuer, authority.account)
        )
    ):
        identity = newest.identity_ordinal
    if newest is not None and newest.state == "current":
        before = BindingGenerationId(newest.generation_id)
        await binding_generations.retire(connection, org, before, because=because, keeps_key=False)
        await end_grant(connection, org, before, binding=binding)
    generation = BindingGenerationId(uuid4())
    _, wrapped, key_id = ring.new_key("generation", org, binding, generation)
    await binding_generations.add(
        connection,
        {
            "org_id": org,
            "generation_id": generation,
            "binding_id": binding,
            "ordinal": ordinal,
            "identity_ordinal": identity,
            "state": "current",
            "wrapped_key": wrapped,
            "key_id": key_id,
            "token_version": 1,
            "flow": authority.flow.value,
            "pack_grant": authority.pack_grant,
            "issuer": authority.issuer,
            "client_id": authority.client_id,
            "account": authority.account,
            "installation": authority.installation,
            "scopes": sorted(authority.scopes),
            "base_url": authority.base_url,
        },
    )
    await authorization_grants.add(connection, org, generation, rotation)
    expires_at, refresh_expires_at = await tokens.ends(connection)
    await token_versions.activate_version(
        connection,
        ring,
        org,
        binding,
        generation,
        access=tokens.access,
        refresh=tokens.refresh,
        expires_at=expires_at,
        refresh_expires_at=refresh_expires_at,
        because=MadeBecause.ADDED if authority.flow is Flow.BEARER else MadeBecause.CONNECTED,
    )
    return generation


async def end_grant(
    connection: AsyncConnection,
    org: OrgId,
    generation: BindingGenerationId,
    *,
    binding: PrincipalBindingId,
) -> None:
    """
    Nothing is renewed for a generation that ended; a renewal that is out stays on record.

    What waited for its back-off is due now, to end: it holds its lanes until then.
    """
    row = await authorization_grants.lock(connection, org, generation)
    if row is not None:
        await _release(connection, binding, row)
        await authorization_grants.stand(
            connection,
            row,
            GrantState.REVOKED,
            open_refresh=row.open_refresh,
            suspect_version=row.suspect_version,
        )


async def renew(
    connection: AsyncConnection,
    ring: KeyRing,
    org: OrgId,
    generation: BindingGenerationId,
    *,
    binding: PrincipalBindingId,
    tokens: NewTokens,
) -> None:
    """
    The generation goes on with these tokens, and its grant is healthy.

    A renewal whose answer is still out finds that the version moved on, and what waited for a
    back-off of the tokens before is due now.
    """
    expires_at, refresh_expires_at = await tokens.ends(connection)
    await token_versions.activate_version(
        connection,
        ring,
        org,
        binding,
        generation,
        access=tokens.access,
        refresh=tokens.refresh,
        expires_at=expires_at,
        refresh_expires_at=refresh_expires_at,
        because=MadeBecause.REAUTHORIZED,
    )
    row = await authorization_grants.lock(connection, org, generation)
    assert row is not None, "whoever is authorised anew has a grant"
    await _release(connection, binding, row)
    await authorization_grants.repair(connection, org, generation)


async def _release(
    connection: AsyncConnection, binding: PrincipalBindingId, grant: Row[Any]
) -> None:
    # It waits for no item, so it may come after the locks that items are locked before.
    if grant.not_before is not None:
        await work_items.release(
            connection,
            OrgId(grant.org_id),
            binding,
            waits_until=due_after(grant.not_before),
            due=None,
        )


def authority_of(row: Row[Any]) -> Authority:
    """What a generation's row stands for."""
    return Authority(
        flow=Flow(row.flow),
        pack_grant=row.pack_grant,
        issuer=row.issuer,
        client_id=row.client_id,
        account=row.account,
        installation=row.installation,
        scopes=frozenset(row.scopes),
        base_url=row.base_url,
    )
