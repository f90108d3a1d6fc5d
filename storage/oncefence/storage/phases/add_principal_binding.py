"""A principal binding with its first generation and a sealed static token."""

from sqlalchemy.ext.asyncio import AsyncEngine

from oncefence.domain.errors import Refused
from oncefence.domain.ids import BindingGenerationId, OrgId, PrincipalBindingId, named_id
from oncefence.domain.redaction import Secret
from oncefence.storage import audit, binding_generations, principal_bindings, token_versions
from oncefence.storage.engine import constraint_name, run_phase
from oncefence.storage.sealing import KeyRing


class BindingNameTaken(Refused):
    """The org has a principal binding of this name."""

    def __str__(self) -> str:
        return "this org has a principal binding of that name; choose another name"


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
) -> PrincipalBindingId:
    """
    Make the binding; the token is stored sealed for exactly this generation and version.

    Raises:
        BindingNameTaken: The org has one of this name.
    """
    binding = PrincipalBindingId(named_id("principal-binding", org, name))
    generation = BindingGenerationId(named_id("generation", org, name, 1))
    key, wrapped, key_id = ring.new_key("generation", org, binding, generation)

    async def transaction() -> None:
        async with engine.begin() as connection:
            await principal_bindings.add(
                connection,
                {
                    "org_id": org,
                    "binding_id": binding,
                    "name": name,
                    "provider": provider,
                    "kind": "shared",
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
                    "key_id": key_id,
                    "token_version": 1,
                },
            )
            await token_versions.add(
                connection,
                {
                    "org_id": org,
                    "generation_id": generation,
                    "version": 1,
                    "ciphertext": key.seal(
                        token.reveal().encode(), "access_token", org, binding, generation, 1
                    ),
                },
            )
            await audit.add(
                connection,
                org,
                actor=actor,
                act="binding.add",
                subject_kind="principal_binding",
                subject_id=str(binding),
                note=f"{name} at {provider}",
            )

    try:
        await run_phase("add_principal_binding", transaction)
    except Exception as error:
        if constraint_name(error) in ("principal_bindings_pkey", "one_binding_per_name"):
            raise BindingNameTaken from None
        raise
    return binding
