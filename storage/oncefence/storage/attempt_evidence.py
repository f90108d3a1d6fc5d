"""Sole writer of `attempt_evidence`: late answers, kept whatever they say."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import bindparam, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from oncefence.storage.tables import attempt_evidence

# The same piece told twice is one row: its id is derived from what it says.
ADD = insert(attempt_evidence).on_conflict_do_nothing().returning(attempt_evidence.c.evidence_id)
OF_ATTEMPT = (
    select(attempt_evidence)
    .where(
        attempt_evidence.c.org_id == bindparam("of_org"),
        attempt_evidence.c.attempt_id == bindparam("of_attempt"),
    )
    .order_by(attempt_evidence.c.recorded_at)
)


async def add(connection: AsyncConnection, values: Mapping[str, Any]) -> bool:
    """Keep one piece of evidence; says whether it is new."""
    return (await connection.execute(ADD, values)).scalar_one_or_none() is not None
