"""Sole writer of `effect_attempts`, but for the SQL of the hot phases."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row, bindparam, func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from oncefence.domain.effect import Disposition, Outcome
from oncefence.domain.ids import AttemptId, CommandId, EvidenceId, OrgId, WorkId
from oncefence.storage.tables import effect_attempts

_THIS = (
    effect_attempts.c.org_id == bindparam("of_org"),
    effect_attempts.c.attempt_id == bindparam("of_attempt"),
)

LOCK = select(effect_attempts).where(*_THIS).with_for_update()
LOCK_OPEN = (
    select(effect_attempts)
    .where(
        effect_attempts.c.org_id == bindparam("of_org"),
        effect_attempts.c.work_id == bindparam("of_work"),
        effect_attempts.c.started_at.is_not(None),
        effect_attempts.c.settled_at.is_(None),
    )
    .with_for_update()
)
LOCK_DOUBTS = (
    select(effect_attempts)
    .where(
        effect_attempts.c.org_id == bindparam("of_org"),
        effect_attempts.c.command_id == bindparam("of_command"),
        effect_attempts.c.may_have_applied,
        effect_attempts.c.disposition.is_distinct_from(Disposition.NO_EFFECT_PROOF.value),
    )
    .order_by(effect_attempts.c.ordinal)
    .with_for_update()
)
SETTLE_AS_LOST = (
    update(effect_attempts)
    .where(*_THIS, effect_attempts.c.settled_at.is_(None))
    .values(
        settled_at=func.clock_timestamp(),
        settled_as="lost",
        outcome=Outcome.OUTCOME_UNKNOWN.value,
        may_have_applied=True,
        failure_class="attempt_lost",
    )
)
DISPOSE = (
    update(effect_attempts)
    .where(*_THIS)
    .values(
        disposition=bindparam("how"),
        disposition_evidence_id=bindparam("proof"),
        disposed_at=func.clock_timestamp(),
    )
)


async def lock(connection: AsyncConnection, org: OrgId, attempt: AttemptId) -> Row[Any] | None:
    """The row, locked until COMMIT; None where there is none."""
    return (await connection.execute(LOCK, {"of_org": org, "of_attempt": attempt})).one_or_none()


async def lock_open(connection: AsyncConnection, org: OrgId, work: WorkId) -> Row[Any] | None:
    """The started and unsettled attempt of an item, locked; None where nothing is open."""
    return (await connection.execute(LOCK_OPEN, {"of_org": org, "of_work": work})).one_or_none()


async def lock_doubts(
    connection: AsyncConnection, org: OrgId, command: CommandId
) -> Sequence[Row[Any]]:
    """The attempts of a command that may have applied without proof of the contrary, locked."""
    found = await connection.execute(LOCK_DOUBTS, {"of_org": org, "of_command": command})
    return found.all()


async def settle_as_lost(connection: AsyncConnection, row: Row[Any]) -> None:
    """The locked open attempt is settled as unknown: its starter is gone."""
    await connection.execute(SETTLE_AS_LOST, {"of_org": row.org_id, "of_attempt": row.attempt_id})


async def dispose(
    connection: AsyncConnection,
    row: Row[Any],
    disposition: Disposition,
    evidence: EvidenceId | None = None,
) -> None:
    """
    Write what became of the locked attempt that may have applied.

    Once; only `not_found` can later become a proof of no effect.
    """
    await connection.execute(
        DISPOSE,
        {
            "of_org": row.org_id,
            "of_attempt": row.attempt_id,
            "how": disposition.value,
            "proof": evidence,
        },
    )
