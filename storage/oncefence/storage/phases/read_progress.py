"""Reading how far the commands of one org have come, and which of their sends are open now."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from oncefence.domain.ids import OrgId
from oncefence.storage.engine import run_phase
from oncefence.storage.work_items import EFFECT_FAMILIES

# One snapshot, so that no command is seen twice or with another one's attempt.
SNAPSHOT = text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
COMMANDS = text(
    f"""
    SELECT c.command_id, c.outbox_id, c.subject, e.status, e.attempt,
           e.status IN ('accepted', 'retrying') AND EXISTS (
             SELECT FROM oncefence.work_items AS w
               JOIN oncefence.effect_attempts AS a
                 ON a.org_id = w.org_id AND a.command_id <> w.command_id
                AND (a.source_lane = w.source_lane OR a.target_lane = w.target_lane)
               JOIN oncefence.executions AS o
                 ON o.org_id = a.org_id AND o.execution_id = a.execution_id
              WHERE w.org_id = c.org_id AND w.command_id = c.command_id
                AND w.family IN {EFFECT_FAMILIES} AND w.state IN ('pending', 'retry')
                AND a.disposition IS NULL AND o.status = 'needs_attention') AS waits_for_a_person
      FROM oncefence.commands AS c
      JOIN oncefence.executions AS e ON e.org_id = c.org_id AND e.command_id = c.command_id
     WHERE c.org_id = :org
     ORDER BY c.accepted_at, c.command_id
    """  # noqa: S608  # only a constant is joined in
)
OPEN_ATTEMPTS = text(
    "SELECT attempt_id, command_id FROM oncefence.effect_attempts"
    " WHERE org_id = :org AND started_at IS NOT NULL AND settled_at IS NULL"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandProgress:
    """Where one command stands; `waits_for_a_person` where the head of its lane does."""

    command: UUID
    outbox: str
    subject: str
    status: str
    attempts: int
    waits_for_a_person: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Every command of the org, and the command of each attempt that is started and unsettled."""

    commands: Sequence[CommandProgress]
    open_attempts: dict[UUID, UUID]


async def read_progress(engine: AsyncEngine, org: OrgId) -> Progress:
    """All of one moment; nothing is written, and nothing waits for it."""

    async def transaction() -> Progress:
        async with engine.begin() as connection:
            await connection.execute(SNAPSHOT)
            commands = await connection.execute(COMMANDS, {"org": org})
            attempts = await connection.execute(OPEN_ATTEMPTS, {"org": org})
            return Progress(
                commands=[
                    CommandProgress(
                        command=row.command_id,
                        outbox=row.outbox_id,
                        subject=row.subject,
                        status=row.status,
                        attempts=row.attempt,
                        waits_for_a_person=row.waits_for_a_person,
                    )
                    for row in commands
                ],
                open_attempts={row.attempt_id: row.command_id for row in attempts},
            )

    return await run_phase("read_progress", transaction)
