"""The mark of a revocation: the call that ends an authorisation at its provider (C295)."""

from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID, uuid4

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from oncefence.domain.ids import BindingGenerationId, OrgId, PrincipalBindingId
from oncefence.domain.redaction import Secret
from oncefence.storage import provider_apps, revocations
from oncefence.storage.engine import run_phase
from oncefence.storage.sealed_tokens import GenerationKey, TokenField
from oncefence.storage.sealing import KeyRing

# Locked as a renewal locks it, so that of the two one sees the other.
ENDED = text(
    """
    SELECT g.generation_id, g.binding_id, g.token_version, g.wrapped_key, g.key_id, g.pack_grant,
           g.client_id, b.provider, b.base_url, b.is_local, t.ciphertext, t.refresh_ciphertext,
           (SELECT r.lease_until FROM oncefence.token_refreshes AS r
             WHERE r.org_id = g.org_id AND r.generation_id = g.generation_id
               AND r.settled_at IS NULL AND r.lease_until > clock_timestamp()) AS renewed_until
      FROM oncefence.binding_generations AS g
      JOIN oncefence.principal_bindings AS b
        ON b.org_id = g.org_id AND b.binding_id = g.binding_id
      JOIN oncefence.token_versions AS t ON t.org_id = g.org_id
       AND t.generation_id = g.generation_id AND t.version = g.token_version
     WHERE g.org_id = :org AND g.generation_id = :generation AND g.state = 'retired'
       FOR UPDATE OF g
    """
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BegunRevocation:
    """A marked revocation, with all that its one call needs."""

    org: OrgId
    revocation: UUID
    generation: BindingGenerationId
    provider: str
    base_url: str
    is_local: bool
    client_id: str | None
    client_secret: Secret | None
    access: Secret = field(repr=False)
    refresh: Secret | None = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RevocationHeld:
    """A renewal is on the wire: what it brings is to be revoked, and not what it used up."""

    until: datetime


async def begin_revocation(
    engine: AsyncEngine,
    ring: KeyRing,
    org: OrgId,
    binding: PrincipalBindingId,
    generation: BindingGenerationId,
    *,
    actor: str,
    note: str,
) -> BegunRevocation | RevocationHeld | None:
    """
    Mark the revocation of an ended generation's newest tokens.

    None where they cannot be opened any more, or the generation has not ended. Made again after
    a lost answer it is another row: to end twice what is ended does nothing.
    """
    revocation = uuid4()

    async def transaction() -> BegunRevocation | RevocationHeld | None:
        async with engine.begin() as connection:
            found = await connection.execute(ENDED, {"org": org, "generation": generation})
            row = found.one_or_none()
            if row is None or row.wrapped_key is None:
                return None
            if row.renewed_until is not None:
                return RevocationHeld(until=row.renewed_until)
            app = None
            if row.pack_grant is not None and row.client_id is not None:
                app = await provider_apps.find(
                    connection,
                    org,
                    provider=row.provider,
                    pack_grant=row.pack_grant,
                    client_id=row.client_id,
                )
            key = GenerationKey.opened(ring, row.wrapped_key, row.key_id, org, binding, generation)
            access = key.open(TokenField.ACCESS, row.token_version, row.ciphertext)
            refresh = None
            if row.refresh_ciphertext is not None:
                refresh = key.open(TokenField.REFRESH, row.token_version, row.refresh_ciphertext)
            await revocations.add(
                connection,
                {
                    "org_id": org,
                    "revocation_id": revocation,
                    "generation_id": generation,
                    "token_version": row.token_version,
                    "made_by": actor,
                    "note": note,
                },
            )
            return BegunRevocation(
                org=org,
                revocation=revocation,
                generation=generation,
                provider=row.provider,
                base_url=row.base_url,
                is_local=row.is_local,
                client_id=row.client_id,
                client_secret=None if app is None else provider_apps.open_secret(ring, app),
                access=access,
                refresh=refresh,
            )

    return await run_phase("begin_revocation", transaction)
