"""Reading one org's audit rows, the newest first, for a screen."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from oncefence.domain.ids import OrgId
from oncefence.storage.engine import one_statement, run_phase

LIST = text(
    "SELECT a.sequence, a.at, a.actor, a.act, a.subject_kind, a.subject_id, a.note,"
    " a.expected_version, encode(a.digest, 'hex') AS digest"
    " FROM oncefence.audit AS a"
    " WHERE a.org_id = :org AND (CAST(:before AS bigint) IS NULL OR a.sequence < :before)"
    " ORDER BY a.sequence DESC LIMIT :rows_max"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRow:
    """One act as it is on record; `digest` binds it to every row before it."""

    sequence: int
    at: datetime
    actor: str
    act: str
    subject_kind: str
    subject_id: str
    note: str | None
    expected_version: str | None
    digest: str


async def list_audit(
    engine: AsyncEngine, org: OrgId, *, rows_max: int, before: int | None = None
) -> Sequence[AuditRow]:
    """The newest rows of `org`, or the newest `before` a sequence."""

    async def transaction() -> Sequence[AuditRow]:
        async with one_statement(engine).connect() as connection:
            values = {"org": org, "before": before, "rows_max": rows_max}
            rows = (await connection.execute(LIST, values)).all()
        return [AuditRow(**row._mapping) for row in rows]  # noqa: SLF001  # a public name of SQLAlchemy's Row

    return await run_phase("list_audit", transaction)
