"""Reading who may act, for a screen."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from oncefence.domain.ids import OperatorId, OrgId
from oncefence.domain.operator import Role
from oncefence.storage.engine import one_statement, run_phase

LIST = text(
    "SELECT o.operator_id, o.name, o.roles, o.orgs, o.made_at, o.revoked_at"
    " FROM oncefence.operators AS o"
    " WHERE o.revoked_at IS NULL OR :with_revoked"
    " ORDER BY o.name, o.made_at, o.operator_id"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedOperator:
    """An operator as it is listed; never its token or the hash of it."""

    operator: OperatorId
    name: str
    roles: frozenset[Role]
    orgs: frozenset[OrgId]
    made_at: datetime
    revoked_at: datetime | None


async def list_operators(
    engine: AsyncEngine, *, with_revoked: bool = False
) -> Sequence[ListedOperator]:
    """Every live operator, by name; with those that were revoked where asked for."""

    async def transaction() -> Sequence[ListedOperator]:
        async with one_statement(engine).connect() as connection:
            rows = (await connection.execute(LIST, {"with_revoked": with_revoked})).all()
        return [
            ListedOperator(
                operator=OperatorId(row.operator_id),
                name=row.name,
                roles=frozenset(map(Role, row.roles)),
                orgs=frozenset(map(OrgId, row.orgs)),
                made_at=row.made_at,
                revoked_at=row.revoked_at,
            )
            for row in rows
        ]

    return await run_phase("list_operators", transaction)
