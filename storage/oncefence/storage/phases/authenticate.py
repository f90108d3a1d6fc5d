"""From a bearer credential to the work scope, and the org key that goes with it."""

from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from oncefence.domain.handoff import TrustedRuntimeWorkScope
from oncefence.domain.ids import CapabilityId, InstallationId, OrgId, WorkBindingDigest
from oncefence.storage.engine import one_statement, run_phase
from oncefence.storage.phases.register_runtime import credential_hash
from oncefence.storage.sealing import DataKey, KeyRing

FIND = text(
    "SELECT b.org_id, b.installation, b.capability, b.work_binding_digest,"
    " k.wrapped_key, k.key_id"
    " FROM oncefence.runtime_work_bindings AS b"
    " JOIN oncefence.org_keys AS k ON k.org_id = b.org_id"
    " WHERE b.credential_hash = :hash"
)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Caller:
    """Who calls: a scope that only the credential can give, and the key of its org."""

    scope: TrustedRuntimeWorkScope
    org_key: DataKey


async def authenticate(engine: AsyncEngine, ring: KeyRing, credential: str) -> Caller | None:
    """The caller that the credential belongs to; None where it belongs to nobody."""

    async def transaction() -> Caller | None:
        async with one_statement(engine).connect() as connection:
            row = (
                await connection.execute(FIND, {"hash": credential_hash(credential)})
            ).one_or_none()
        if row is None:
            return None
        return Caller(
            scope=TrustedRuntimeWorkScope(
                org=OrgId(row.org_id),
                installation=InstallationId(row.installation),
                capability=CapabilityId(row.capability),
                work_binding_digest=WorkBindingDigest(row.work_binding_digest),
            ),
            org_key=ring.unwrap(row.wrapped_key, row.key_id, "org", row.org_id),
        )

    return await run_phase("authenticate", transaction)
