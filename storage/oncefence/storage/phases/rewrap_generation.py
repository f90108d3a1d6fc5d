"""
Wrapping one generation's data key anew, which is a new version of its tokens (C297).

What is sealed names the wrapping key, so the tokens are sealed anew, and under a new data key:
whoever had the old wrapping key and a copy of the old row opens nothing of the new one.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncEngine

from oncefence.domain.ids import BindingGenerationId, OrgId
from oncefence.storage import audit, authorization_grants, binding_generations, token_versions
from oncefence.storage.engine import one_statement, run_phase
from oncefence.storage.sealed_tokens import GenerationKey, TokenField
from oncefence.storage.sealing import KeyRing

ACT: Final = "keys.rewrap"
# None before the first one: every org's name is greater than an empty text.
FROM_THE_BEGINNING: Final = ("", UUID(int=0))

FIND = text(
    """
    SELECT g.org_id, g.generation_id FROM oncefence.binding_generations AS g
     WHERE g.wrapped_key IS NOT NULL AND g.key_id <> :current
       AND (g.org_id, g.generation_id) > (:after_org, CAST(:after_generation AS uuid))
     ORDER BY g.org_id, g.generation_id LIMIT :batch
    """
)
LOCK = text(
    """
    SELECT g.* FROM oncefence.binding_generations AS g
     WHERE g.org_id = :org AND g.generation_id = :generation
       AND g.wrapped_key IS NOT NULL AND g.key_id <> :current
       FOR NO KEY UPDATE SKIP LOCKED
    """
)
LOCK_GRANT = text(
    """
    SELECT a.open_refresh IS NOT NULL OR a.state = 'refresh_unknown' AS is_awaited
      FROM oncefence.authorization_grants AS a
     WHERE a.org_id = :org AND a.generation_id = :generation FOR UPDATE
    """
)
VERSION = text(
    """
    SELECT t.* FROM oncefence.token_versions AS t
     WHERE t.org_id = :org AND t.generation_id = :generation AND t.version = :version
    """
)


class Rewrapped(StrEnum):
    """What became of one generation."""

    DONE = "done"
    AWAITED = "awaited"
    """The answer of a renewal may still come, for the version that the renewal began with."""

    HELD = "held"
    """Somebody holds its row just then, or it is done already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRef:
    """A generation by its names."""

    org: OrgId
    generation: BindingGenerationId


async def find_generations_to_rewrap(
    engine: AsyncEngine, ring: KeyRing, after: GenerationRef | None, *, rows_max: int = 500
) -> list[GenerationRef]:
    """Those under another key than the ring's current one, in order, `after` the last one seen."""

    async def transaction() -> list[GenerationRef]:
        org, generation = FROM_THE_BEGINNING if after is None else (after.org, after.generation)
        async with one_statement(engine).connect() as connection:
            found = await connection.execute(
                FIND,
                {
                    "current": ring.current_id,
                    "after_org": org,
                    "after_generation": generation,
                    "batch": rows_max,
                },
            )
            return [
                GenerationRef(
                    org=OrgId(row.org_id), generation=BindingGenerationId(row.generation_id)
                )
                for row in found
            ]

    return await run_phase("find_generations_to_rewrap", transaction)


async def rewrap_generation(
    engine: AsyncEngine, ring: KeyRing, ref: GenerationRef, *, actor: str
) -> Rewrapped:
    """
    The generation's tokens are a version of their own under the ring's current key, or say why not.

    An open renewal is not disturbed: its answer belongs to the version that it began with. Again
    after a lost answer finds the generation done.

    Raises:
        ConfigurationRefused: The ring lacks the key that it is under. Nothing was written.
    """
    named = {"org": ref.org, "generation": ref.generation}

    async def transaction() -> Rewrapped:
        async with engine.begin() as connection:
            asked = named | {"current": ring.current_id}
            row = (await connection.execute(LOCK, asked)).one_or_none()
            if row is None:
                return Rewrapped.HELD
            if (await connection.execute(LOCK_GRANT, named)).scalar():
                return Rewrapped.AWAITED
            before = (
                await connection.execute(VERSION, named | {"version": row.token_version})
            ).one()
            version = row.token_version + 1
            key, wrapped = GenerationKey.made(ring, ref.org, row.binding_id, ref.generation)
            await token_versions.add(
                connection,
                {
                    "org_id": ref.org,
                    "generation_id": ref.generation,
                    "version": version,
                    # The token is as old as it was: when it is renewed goes by its life.
                    "made_at": before.made_at,
                    "expires_at": before.expires_at,
                    "refresh_expires_at": before.refresh_expires_at,
                    "made_because": "rewrap",
                    **_sealed_anew(ring, key, row, before),
                },
            )
            await binding_generations.rewrap(
                connection,
                ref.org,
                ref.generation,
                wrapped_key=wrapped,
                key_id=key.key_id,
                token_version=version,
            )
            await authorization_grants.follow_rewrap(
                connection, ref.org, ref.generation, version=row.token_version
            )
            await audit.add(
                connection,
                ref.org,
                actor=actor,
                act=ACT,
                subject_kind="generation",
                subject_id=str(ref.generation),
                note=f"under key {key.key_id}",
                expected_version=str(row.token_version),
            )
            return Rewrapped.DONE

    return await run_phase("rewrap_generation", transaction)


def _sealed_anew(
    ring: KeyRing, key: GenerationKey, row: Row[Any], before: Row[Any]
) -> dict[str, bytes | None]:
    """The columns of both tokens of a version, sealed under `key` as those of the next one."""
    old = GenerationKey.opened(
        ring, row.wrapped_key, row.key_id, row.org_id, row.binding_id, row.generation_id
    )

    def moved(field: TokenField, sealed: bytes | None) -> bytes | None:
        if sealed is None:
            return None
        return key.seal(field, before.version + 1, old.open(field, before.version, sealed))

    return {
        "ciphertext": moved(TokenField.ACCESS, before.ciphertext),
        "refresh_ciphertext": moved(TokenField.REFRESH, before.refresh_ciphertext),
    }
