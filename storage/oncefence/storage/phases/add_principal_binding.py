"""A principal binding with its first generation and a sealed static token."""

from sqlalchemy.ext.asyncio import AsyncEngine

from oncefence.domain.errors import Refused
from oncefence.domain.grant import GrantRotation
from oncefence.domain.ids import BindingGenerationId, OrgId, PrincipalBindingId, derived_id
from oncefence.domain.redaction import Secret
from oncefence.storage import (
    audit,
    authorization_grants,
    binding_generations,
    principal_bindings,
    token_versions,
)
from oncefence.storage.engine import constraint_name, run_phase, sqlstate
from oncefence.storage.sealed_tokens import GenerationKey, TokenField
from oncefence.storage.sealing import KeyRing


class BindingNameTaken(Refused):
    """The org has a principal binding of this name."""

    def __str__(self) -> str:
        return "this org has a principal binding of that name; choose another name"


class BindingKindTaken(Refused):
    """The name is that of accounts of another kind, or at another provider."""

    def __str__(self) -> str:
        return (
            "this org has principal bindings of that name which are of another kind or provider;"
            " choose another name"
        )


async def add_principal_binding(
    engine: AsyncEngine,
    ring: KeyRing,
    org: OrgId,
    *,
    name: str,
    provider: str,
    base_url: str,
    is_local: bool,
    token: Secret,
    actor: str,
    user: str | None = None,
) -> PrincipalBindingId:
    """
    Make the binding; the token is stored sealed for exactly this generation and version.

    It is the organisation's own, or with a `user` that person's (C281).

    Raises:
        BindingNameTaken: The org has one of this name, or that user has.
        BindingKindTaken: The name is one of the organisation's, or of users, and this is not.
    """
    binding = principal_bindings.binding_id(org, name, user)
    generation = BindingGenerationId(derived_id(binding, "generation", 1))
    key, wrapped = GenerationKey.made(ring, org, binding, generation)

    async def transaction() -> None:
        async with engine.begin() as connection:
            await principal_bindings.add(
                connection,
                {
                    "org_id": org,
                    "binding_id": binding,
                    "name": name,
                    "provider": provider,
                    "kind": "shared" if user is None else "per_user",
                    "subject": user,
                    "base_url": base_url,
                    "is_local": is_local,
                },
            )
            await binding_generations.add(
                connection,
                {
                    "org_id": org,
                    "generation_id": generation,
                    "binding_id": binding,
                    "ordinal": 1,
                    "state": "current",
                    "wrapped_key": wrapped,
                    "key_id": key.key_id,
                    "token_version": 1,
                },
            )
            await authorization_grants.add(connection, org, generation, GrantRotation.NONE)
            await token_versions.add(
                connection,
                {
                    "org_id": org,
                    "generation_id": generation,
                    "version": 1,
                    "ciphertext": key.seal(TokenField.ACCESS, 1, token),
                },
            )
            await audit.add(
                connection,
                org,
                actor=actor,
                act="binding.add",
                subject_kind="principal_binding",
                subject_id=str(binding),
                note=f"{name} at {provider}" + ("" if user is None else f" of {user}"),
            )

    try:
        await run_phase("add_principal_binding", transaction)
    except Exception as error:
        if constraint_name(error) in ("principal_bindings_pkey", "one_binding_per_name"):
            raise BindingNameTaken from None
        if sqlstate(error) == principal_bindings.ANOTHER_KIND:
            raise BindingKindTaken from None
        raise
    return binding
