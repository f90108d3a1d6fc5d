"""Disconnecting an account: from the COMMIT of this on nothing is begun in its name (C295)."""

from dataclasses import dataclass

from sqlalchemy.ext.asyncio import AsyncEngine

from oncefence.domain.authorization import Retirement
from oncefence.domain.errors import NoSuchTarget
from oncefence.domain.ids import BindingGenerationId, OrgId, PrincipalBindingId
from oncefence.domain.operator import Act
from oncefence.storage import audit, binding_generations, principal_bindings
from oncefence.storage.engine import run_phase
from oncefence.storage.generation_change import end_grant
from oncefence.storage.phases.begin_authorization import refuse_moved, version_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Disconnected:
    """The generation that has ended, and whether this act ended it."""

    binding: PrincipalBindingId
    generation: BindingGenerationId
    provider: str
    pack_grant: str | None
    version: str
    """The version of the binding now."""

    is_new: bool
    has_key: bool
    """Whether its tokens can still be opened, to be revoked at the provider."""


async def disconnect_binding(
    engine: AsyncEngine,
    org: OrgId,
    name: str,
    *,
    subject: str | None,
    keeps_key: bool,
    expected_version: str,
    actor: str,
    note: str,
) -> Disconnected:
    """
    End the current generation; without `keeps_key` its tokens never open again.

    What waits with it ends as `binding_generation_stale`; what is on the wire goes on to its end.
    One that is disconnected stays so, and its key is kept no longer than this says.

    Raises:
        NoSuchTarget: There is no such binding, or it was never connected.
        VersionMoved: It is not as the operator saw it.
        StoreUnavailable: Ask again: it may be disconnected.
    """

    async def transaction() -> Disconnected:
        async with engine.begin() as connection:
            bound = await principal_bindings.find(connection, org, name, subject)
            binding = principal_bindings.binding_id(org, name, subject)
            newest = await binding_generations.lock_newest(connection, org, binding)
            if bound is None or newest is None:
                raise no_such_binding(name)
            refuse_moved(name, newest, expected_version)
            generation, is_new = BindingGenerationId(newest.generation_id), False
            if newest.state == "current":
                is_new = True
                await binding_generations.retire(
                    connection,
                    org,
                    generation,
                    because=Retirement.DISCONNECTED,
                    keeps_key=keeps_key,
                )
                await end_grant(connection, org, generation, binding=binding)
            elif not keeps_key:
                await binding_generations.erase_key(connection, org, generation)
            await audit.add(
                connection,
                org,
                actor=actor,
                act=Act.DISCONNECT_BINDING,
                subject_kind="principal_binding",
                subject_id=f"{binding}/{generation}",
                note=note,
                expected_version=expected_version,
            )
            now = await binding_generations.lock_newest(connection, org, binding)
            assert now is not None, "generations are kept"
            return Disconnected(
                binding=binding,
                generation=generation,
                provider=bound.provider,
                pack_grant=newest.pack_grant,
                version=version_of(now),
                is_new=is_new,
                has_key=now.wrapped_key is not None,
            )

    return await run_phase("disconnect_binding", transaction)


def no_such_binding(name: str) -> NoSuchTarget:
    """The refusal of a binding that the org does not have."""
    return NoSuchTarget(kind="principal binding", name=name, remedy="see `oncefence binding list`")
