"""Sole writer of `executions`, but for the SQL of the hot phases."""

from typing import Any

from sqlalchemy import Row, bindparam, func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from oncefence.domain.execution import EXECUTION
from oncefence.domain.ids import ExecutionId, OrgId
from oncefence.storage.tables import executions

_THIS = (
    executions.c.org_id == bindparam("of_org"),
    executions.c.execution_id == bindparam("of_execution"),
)

LOCK = select(executions).where(*_THIS).with_for_update()
MOVE = (
    update(executions)
    .where(*_THIS, executions.c.status == bindparam("of_status"))
    .values(
        status=bindparam("target"),
        via=bindparam("trigger"),
        settlements=executions.c.settlements + bindparam("settles"),
        failure_class=bindparam("why"),
        settled_by=bindparam("who"),
        evidence_grade=bindparam("grade"),
        changed_at=func.clock_timestamp(),
    )
)


async def lock(connection: AsyncConnection, org: OrgId, execution: ExecutionId) -> Row[Any]:
    """The row, locked until COMMIT."""
    return (await connection.execute(LOCK, {"of_org": org, "of_execution": execution})).one()


async def move(
    connection: AsyncConnection,
    row: Row[Any],
    *,
    target: str,
    trigger: str,
    failure_class: str | None = None,
    settled_by: str | None = None,
    evidence_grade: str | None = None,
) -> None:
    """
    Move the locked `row` to `target` by `trigger`.

    Raises:
        InvalidTransition: The lifecycle has no such move.
    """
    EXECUTION.check(row.status, target, trigger)
    await connection.execute(
        MOVE,
        {
            "of_org": row.org_id,
            "of_execution": row.execution_id,
            "of_status": row.status,
            "target": target,
            "trigger": trigger,
            "settles": int(target in EXECUTION.final),
            "why": failure_class,
            "who": settled_by,
            "grade": evidence_grade,
        },
    )
