"""Reading one execution as its caller may see it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncEngine

from oncefence.domain.effect import Disposition, Outcome
from oncefence.domain.handoff import TrustedRuntimeWorkScope
from oncefence.domain.ids import CommandId, ExecutionId
from oncefence.domain.settlement import Effect
from oncefence.storage.engine import one_statement, run_phase

# The handoff's scope stands in the WHERE: another scope of the same org finds nothing, as if
# there were nothing.
READ = text(
    """
    SELECT e.execution_id, e.command_id, h.handoff_key, c.operation, e.status, e.via, e.attempt,
           e.failure_class, e.settled_by, e.evidence_grade, e.accepted_at, e.changed_at,
           a.outcomes, a.dispositions, p.completion_id, p.settlement,
           p.status AS settled_as, p.supersedes, p.contract
      FROM oncefence.executions AS e
      JOIN oncefence.commands AS c ON c.org_id = e.org_id AND c.command_id = e.command_id
      JOIN oncefence.handoffs AS h ON h.org_id = e.org_id AND h.command_id = e.command_id
      LEFT JOIN oncefence.completions AS p
        ON p.org_id = e.org_id AND p.execution_id = e.execution_id AND p.settlement = e.settlements
      CROSS JOIN LATERAL (
        SELECT coalesce(array_agg(t.outcome ORDER BY t.ordinal), '{}') AS outcomes,
               coalesce(array_agg(t.disposition ORDER BY t.ordinal), '{}') AS dispositions
          FROM oncefence.effect_attempts AS t
         WHERE t.org_id = e.org_id AND t.command_id = e.command_id
           AND t.started_at IS NOT NULL) AS a
     WHERE e.org_id = :org AND e.execution_id = :execution
       AND h.installation = :installation AND h.capability = :capability
       AND h.work_binding_digest = :work_binding_digest
    """
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionSeen:
    """The completion of an execution's newest settlement (C99)."""

    completion: str
    settlement: int
    status: str
    supersedes: str | None
    contract: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionSeen:
    """An execution with what its attempts say of the effect; nothing of a provider's answer."""

    execution: ExecutionId
    command: CommandId
    handoff_key: str
    operation: str
    status: str
    via: str
    attempts: int
    last_outcome: str | None
    failure_class: str | None
    settled_by: str | None
    evidence_grade: str | None
    effect: Effect | None
    accepted_at: datetime
    changed_at: datetime
    completion: CompletionSeen | None


async def read_execution(
    engine: AsyncEngine, scope: TrustedRuntimeWorkScope, execution: ExecutionId
) -> ExecutionSeen | None:
    """The execution, if it came of a handoff of this very scope; otherwise None."""

    async def transaction() -> ExecutionSeen | None:
        async with one_statement(engine).connect() as connection:
            row = (
                await connection.execute(
                    READ,
                    {
                        "org": scope.org,
                        "execution": execution,
                        "installation": scope.installation,
                        "capability": scope.capability,
                        "work_binding_digest": scope.work_binding_digest,
                    },
                )
            ).one_or_none()
        if row is None:
            return None
        return ExecutionSeen(
            execution=ExecutionId(row.execution_id),
            command=CommandId(row.command_id),
            handoff_key=row.handoff_key,
            operation=row.operation,
            status=row.status,
            via=row.via,
            attempts=row.attempt,
            last_outcome=row.outcomes[-1] if row.outcomes else None,
            failure_class=row.failure_class,
            settled_by=row.settled_by,
            evidence_grade=row.evidence_grade,
            effect=proven_effect(row.status, row.outcomes, row.dispositions),
            accepted_at=row.accepted_at,
            changed_at=row.changed_at,
            completion=_completion(row),
        )

    return await run_phase("read_execution", transaction)


def _completion(row: Row[Any]) -> CompletionSeen | None:
    if row.completion_id is None:
        return None
    return CompletionSeen(
        completion=row.completion_id,
        settlement=row.settlement,
        status=row.settled_as,
        supersedes=row.supersedes,
        contract=row.contract,
    )


def proven_effect(
    status: str, outcomes: Sequence[str | None], dispositions: Sequence[str | None]
) -> Effect | None:
    """
    What a failed execution proves of its effect (C68), from its attempts in their order.

    The weakest word wins: what a person said, or what was only looked for, says more than the
    attempts around it about how much is really known.
    """
    if status != "failed":
        return None
    if Disposition.PERSON in dispositions:
        return Effect.PERSON
    if Disposition.NOT_FOUND in dispositions:
        return Effect.NOT_FOUND
    if Outcome.REJECTED in outcomes or Disposition.REFUSED in dispositions:
        return Effect.REFUSED_BY_PROVIDER
    return Effect.NONE_PROVEN
