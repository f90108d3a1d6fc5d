"""Sole writer of `revocations`: calls that end an authorisation at its provider, and their end."""

from typing import Any
from uuid import UUID

from sqlalchemy import Result, Row, bindparam, func, insert, update
from sqlalchemy.ext.asyncio import AsyncConnection

from oncefence.domain.ids import OrgId
from oncefence.storage.tables import revocations

ADD = insert(revocations)
SETTLE = (
    update(revocations)
    .where(
        revocations.c.org_id == bindparam("of_org"),
        revocations.c.revocation_id == bindparam("of_revocation"),
        revocations.c.settled_at.is_(None),
    )
    .values(
        settled_at=func.clock_timestamp(),
        outcome=bindparam("with_outcome"),
        failure_class=bindparam("with_class"),
        response_status=bindparam("with_status"),
        phases=bindparam("with_phases"),
    )
    .returning(revocations.c.generation_id)
)


async def add(connection: AsyncConnection, values: dict[str, Any]) -> None:
    """Add one row: the mark that its call may be on the wire."""
    await connection.execute(ADD, values)


async def settle(
    connection: AsyncConnection,
    org: OrgId,
    revocation: UUID,
    *,
    outcome: str,
    failure_class: str | None,
    response_status: int | None,
    phases: dict[str, Any],
) -> Row[Any] | None:
    """The generation of a revocation that was open until now; None where it is settled."""
    settled: Result[Any] = await connection.execute(
        SETTLE,
        {
            "of_org": org,
            "of_revocation": revocation,
            "with_outcome": outcome,
            "with_class": failure_class,
            "with_status": response_status,
            "with_phases": phases,
        },
    )
    return settled.one_or_none()
