"""Sole writer of `token_versions`: sealed tokens, each version written once (C280, C296)."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import bindparam, exists, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from oncefence.domain.grant import MadeBecause
from oncefence.domain.ids import BindingGenerationId, OrgId, PrincipalBindingId
from oncefence.domain.redaction import Secret
from oncefence.storage import binding_generations
from oncefence.storage.sealed_tokens import GenerationKey, TokenField
from oncefence.storage.sealing import KeyRing
from oncefence.storage.tables import token_versions

ADD = insert(token_versions)
IS_THERE = select(
    exists().where(
        token_versions.c.org_id == bindparam("of_org"),
        token_versions.c.generation_id == bindparam("of_generation"),
        token_versions.c.version == bindparam("of_version"),
    )
)


async def add(connection: AsyncConnection, values: Mapping[str, Any]) -> None:
    """Add one row."""
    await connection.execute(ADD, values)


async def activate_version(
    connection: AsyncConnection,
    ring: KeyRing,
    org: OrgId,
    binding: PrincipalBindingId,
    generation: BindingGenerationId,
    *,
    access: Secret,
    refresh: Secret | None,
    expires_at: datetime | None,
    refresh_expires_at: datetime | None,
    because: MadeBecause,
) -> int:
    """
    Add the next version of the generation's tokens and have the generation go on to it.

    Of a generation that is new it is the first, which its row names already. The row is locked from
    here to COMMIT, so call this before its grant is locked, or with the generation locked already.
    `refresh` is the refresh token from now on: one that a reply left out is handed over again.

    Returns:
        The version that is used from COMMIT on.

    Raises:
        ConfigurationRefused: The key ring is not the one that the data key was wrapped with.
    """
    row = await binding_generations.lock_tokens(connection, org, generation)
    # A statement after the lock: in the one that locks, what was added meanwhile is not seen.
    there = await connection.execute(
        IS_THERE, {"of_org": org, "of_generation": generation, "of_version": row.token_version}
    )
    has_token = there.scalar_one()
    version = int(row.token_version) + int(has_token)
    key = GenerationKey.opened(ring, row.wrapped_key, row.key_id, org, binding, generation)
    await add(
        connection,
        {
            "org_id": org,
            "generation_id": generation,
            "version": version,
            "ciphertext": key.seal(TokenField.ACCESS, version, access),
            "refresh_ciphertext": (
                None if refresh is None else key.seal(TokenField.REFRESH, version, refresh)
            ),
            "expires_at": expires_at,
            "refresh_expires_at": refresh_expires_at,
            "made_because": because.value,
        },
    )
    if has_token:
        await binding_generations.go_on_to(connection, org, generation, version)
    return version
