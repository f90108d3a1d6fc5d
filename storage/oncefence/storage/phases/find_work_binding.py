"""From a work scope to the binding that is registered for it, and the key that it signs with."""

from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from oncefence.domain.handoff import TrustedRuntimeWorkScope
from oncefence.storage.engine import one_statement, run_phase
from oncefence.storage.phases.authenticate import Caller
from oncefence.storage.sealing import KeyRing

FIND = text(
    "SELECT b.public_key, k.wrapped_key, k.key_id"
    " FROM oncefence.runtime_work_bindings AS b"
    " JOIN oncefence.org_keys AS k ON k.org_id = b.org_id"
    " WHERE b.org_id = :org AND b.installation = :installation"
    " AND b.capability = :capability AND b.work_binding_digest = :digest"
)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class WorkBinding:
    """A registered scope that somebody names, who has proven nothing yet."""

    scope: TrustedRuntimeWorkScope
    public_key: bytes | None
    """Ed25519, raw; None where the Runtime signs nothing."""

    wrapped_org_key: bytes
    key_id: str

    def caller(self, ring: KeyRing) -> Caller:
        """The caller of this scope; made only once a signature under `public_key` was verified."""
        key = ring.unwrap(self.wrapped_org_key, self.key_id, "org", self.scope.org)
        return Caller(scope=self.scope, org_key=key)


async def find_work_binding(
    engine: AsyncEngine, scope: TrustedRuntimeWorkScope
) -> WorkBinding | None:
    """The binding of exactly this scope; None where none is registered."""

    async def transaction() -> WorkBinding | None:
        async with one_statement(engine).connect() as connection:
            row = (
                await connection.execute(
                    FIND,
                    {
                        "org": scope.org,
                        "installation": scope.installation,
                        "capability": scope.capability,
                        "digest": scope.work_binding_digest,
                    },
                )
            ).one_or_none()
        if row is None:
            return None
        return WorkBinding(
            scope=scope,
            public_key=row.public_key,
            wrapped_org_key=row.wrapped_key,
            key_id=row.key_id,
        )

    return await run_phase("find_work_binding", transaction)
