"""From an operator's token to the operator."""

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from oncefence.domain.ids import OrgId
from oncefence.domain.operator import Operator, Role
from oncefence.domain.redaction import Secret
from oncefence.storage.engine import one_statement, run_phase
from oncefence.storage.operators import token_hash

FIND = text(
    "SELECT o.name, o.roles, o.orgs FROM oncefence.operators AS o"
    " WHERE o.token_hash = :hash AND o.revoked_at IS NULL"
)


async def authenticate_operator(engine: AsyncEngine, token: Secret) -> Operator | None:
    """The operator whose token this is; None where it is nobody's, or was revoked (C407)."""

    async def transaction() -> Operator | None:
        async with one_statement(engine).connect() as connection:
            row = (await connection.execute(FIND, {"hash": token_hash(token)})).one_or_none()
        if row is None:
            return None
        return Operator(
            name=row.name,
            roles=frozenset(map(Role, row.roles)),
            orgs=frozenset(map(OrgId, row.orgs)),
        )

    return await run_phase("authenticate_operator", transaction)
