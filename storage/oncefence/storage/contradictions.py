"""Sole writer of `contradictions`: evidence that says otherwise than what stands."""

from sqlalchemy import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from oncefence.domain.ids import EvidenceId, ExecutionId, OrgId
from oncefence.storage.tables import contradictions

ADD = insert(contradictions)


async def add(
    connection: AsyncConnection,
    org: OrgId,
    evidence: EvidenceId,
    execution: ExecutionId,
    execution_status: str,
) -> None:
    """List the evidence for a person; it changes no state."""
    await connection.execute(
        ADD,
        {
            "org_id": org,
            "evidence_id": evidence,
            "execution_id": execution,
            "execution_status": execution_status,
        },
    )
