"""Revoking an operator: from the COMMIT on its token opens nothing (C407)."""

from collections.abc import Callable, Iterable

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from oncefence.domain.errors import NoSuchTarget, VersionMoved
from oncefence.domain.ids import OperatorId, OrgId
from oncefence.domain.operator import Act
from oncefence.storage import audit, operators
from oncefence.storage.engine import run_phase

# Locked, so that of two who revoke at once the second finds nobody.
FIND_LIVE = text(
    "SELECT o.operator_id, o.orgs FROM oncefence.operators AS o"
    " WHERE o.name = :name AND o.revoked_at IS NULL FOR UPDATE"
)


async def revoke_operator(
    engine: AsyncEngine,
    *,
    name: str,
    expected_version: str,
    actor: str,
    note: str,
    may_revoke: Callable[[Iterable[OrgId]], bool] = lambda _: True,
) -> OperatorId:
    """
    Revoke the live operator `name`, if whoever asks may revoke over the whole of its scope.

    Its version is its id: a name may be used again, and then stands for somebody else.

    Raises:
        NoSuchTarget: No such operator is live, or it is not theirs to revoke; in the same words.
        VersionMoved: Another operator has this name now.
    """

    async def transaction() -> OperatorId:
        async with engine.begin() as connection:
            row = (await connection.execute(FIND_LIVE, {"name": name})).one_or_none()
            if row is None or not may_revoke(map(OrgId, row.orgs)):
                raise NoSuchTarget(
                    kind="live operator",
                    name=name,
                    remedy="see `oncefence operator list` for those that you may revoke",
                )
            operator = OperatorId(row.operator_id)
            if str(operator) != expected_version:
                raise VersionMoved(
                    subject=f"operator {name}", expected=expected_version, found=str(operator)
                )
            was_live = await operators.revoke(connection, operator)
            assert was_live, "it was found live and is locked"
            for org in sorted(row.orgs):
                await audit.add(
                    connection,
                    OrgId(org),
                    actor=actor,
                    act=Act.REVOKE_OPERATOR,
                    subject_kind="operator",
                    subject_id=f"{name}/{operator}",
                    note=note,
                    expected_version=expected_version,
                )
        return operator

    return await run_phase("revoke_operator", transaction)
