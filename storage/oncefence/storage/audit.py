"""Sole writer of `audit`: who did what, in the transaction in which it was done."""

from sqlalchemy import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from oncefence.domain.ids import OrgId
from oncefence.storage.tables import audit

ADD = insert(audit)


async def add(
    connection: AsyncConnection,
    org: OrgId,
    *,
    actor: str,
    act: str,
    subject_kind: str,
    subject_id: str,
    note: str | None = None,
    expected_version: str | None = None,
) -> None:
    """Add one row; there is no other way to change this table."""
    await connection.execute(
        ADD,
        {
            "org_id": org,
            "actor": actor,
            "act": act,
            "subject_kind": subject_kind,
            "subject_id": subject_id,
            "note": note,
            "expected_version": expected_version,
        },
    )
