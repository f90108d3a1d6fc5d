"""What came of a revocation; once the authorisation has ended its tokens never open again."""

from typing import Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncEngine

from oncefence.domain.authorization import RevocationOutcome
from oncefence.domain.ids import BindingGenerationId, OrgId
from oncefence.storage import binding_generations, revocations
from oncefence.storage.engine import run_phase


async def settle_revocation(
    engine: AsyncEngine,
    org: OrgId,
    revocation: UUID,
    *,
    outcome: RevocationOutcome,
    failure_class: str | None,
    response_status: int | None,
    phases: dict[str, Any],
) -> None:
    """
    Write what came of the call; where it ended nothing the key is kept, to try again.

    Idempotent: a revocation that is settled stays as it is.
    """

    async def transaction() -> None:
        async with engine.begin() as connection:
            row = await revocations.settle(
                connection,
                org,
                revocation,
                outcome=outcome.value,
                failure_class=failure_class,
                response_status=response_status,
                phases=phases,
            )
            if row is not None and outcome is RevocationOutcome.REVOKED:
                await binding_generations.erase_key(
                    connection, org, BindingGenerationId(row.generation_id)
                )

    await run_phase("settle_revocation", transaction)
