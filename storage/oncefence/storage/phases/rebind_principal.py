"""Another token under the same name, handed over by a person: another generation (C282)."""

from sqlalchemy.ext.asyncio import AsyncEngine

from oncefence.domain.authorization import Authority, Flow, Retirement
from oncefence.domain.grant import GrantRotation
from oncefence.domain.ids import BindingGenerationId, OrgId
from oncefence.domain.operator import Act
from oncefence.domain.redaction import Secret
from oncefence.storage import audit, binding_generations, principal_bindings
from oncefence.storage.engine import run_phase
from oncefence.storage.generation_change import NewTokens, follow
from oncefence.storage.phases.begin_authorization import refuse_moved
from oncefence.storage.phases.disconnect_binding import no_such_binding
from oncefence.storage.sealing import KeyRing


async def rebind_principal(
    engine: AsyncEngine,
    ring: KeyRing,
    org: OrgId,
    name: str,
    *,
    subject: str | None,
    pack_grant: str | None,
    token: Secret,
    expected_version: str,
    actor: str,
    note: str,
    is_same_account: bool = False,
) -> BindingGenerationId:
    """
    The binding speaks for whomever this token is of; nothing proves that it is the same account.

    So its links end with the generation, unless whoever acts says that it is (C282).

    Raises:
        NoSuchTarget: There is no such binding.
        VersionMoved: It is not as the operator saw it.
        StoreUnavailable: It may be done: look at its version before asking again.
    """

    async def transaction() -> BindingGenerationId:
        async with engine.begin() as connection:
            binding = principal_bindings.binding_id(org, name, subject)
            newest = await binding_generations.lock_newest(connection, org, binding)
            if newest is None:
                raise no_such_binding(name)
            refuse_moved(name, newest, expected_version)
            generation = await follow(
                connection,
                ring,
                org,
                binding,
                newest=newest,
                because=Retirement.REBOUND,
                authority=Authority(flow=Flow.BEARER, pack_grant=pack_grant),
                rotation=GrantRotation.NONE,
                tokens=NewTokens(access=token),
                is_same_account=is_same_account,
            )
            await audit.add(
                connection,
                org,
                actor=actor,
                act=Act.REBIND_BINDING,
                subject_kind="principal_binding",
                subject_id=f"{binding}/{generation}",
                note=note,
                expected_version=expected_version,
            )
            return generation

    return await run_phase("rebind_principal", transaction)
