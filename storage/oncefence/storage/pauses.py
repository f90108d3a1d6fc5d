"""Sole writer of `pauses`: what is held back, by whom and why, and how it was let go."""

from typing import Any, Final
from uuid import uuid4

from sqlalchemy import Result, Row, bindparam, func, insert, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from oncefence.domain.ids import OrgId, PauseId
from oncefence.domain.pause import PauseScope
from oncefence.storage.tables import pauses

# Every claim holds it shared from before it looks at pauses to its COMMIT. So whoever takes it
# whole sees the end of the claims under way, and what is written under it holds for all others.
PATIENCE: Final = text("SET LOCAL lock_timeout = '1s'")
ALONE: Final = text("SELECT pg_advisory_xact_lock(hashtextextended('pauses', 0))")

IN_FORCE = select(pauses).where(
    pauses.c.org_id == bindparam("of_org"),
    pauses.c.provider.is_not_distinct_from(bindparam("of_provider")),
    pauses.c.definition.is_not_distinct_from(bindparam("of_definition")),
    pauses.c.binding_id.is_not_distinct_from(bindparam("of_binding")),
    pauses.c.resumed_at.is_(None),
)
LOCK = (
    select(pauses)
    .where(
        pauses.c.org_id == bindparam("of_org"),
        pauses.c.pause_id == bindparam("of_pause"),
    )
    .with_for_update()
)
ADD = insert(pauses).returning(pauses)
RESUME = (
    update(pauses)
    .where(
        pauses.c.org_id == bindparam("of_org"),
        pauses.c.pause_id == bindparam("of_pause"),
        pauses.c.resumed_at.is_(None),
    )
    .values(
        resumed_by=bindparam("actor"),
        resumed_note=bindparam("why"),
        resumed_at=func.clock_timestamp(),
        ramp_seconds=bindparam("ramp"),
    )
    .returning(pauses)
)


async def take_alone(connection: AsyncConnection) -> None:
    """
    No claim is under way from here to COMMIT, nor another pause or resume.

    Whoever waits here holds every claim up, so the wait is short: a process that stands still
    inside a claim must not stop the others. That is silence of the store, and is asked again.
    """
    await connection.execute(PATIENCE)
    await connection.execute(ALONE)


async def in_force(connection: AsyncConnection, scope: PauseScope) -> Row[Any] | None:
    """The pause of exactly this scope that holds now."""
    found = await connection.execute(
        IN_FORCE,
        {
            "of_org": scope.org,
            "of_provider": scope.provider,
            "of_definition": scope.definition,
            "of_binding": scope.binding,
        },
    )
    return found.one_or_none()


async def lock(connection: AsyncConnection, org: OrgId, pause: PauseId) -> Row[Any] | None:
    """The pause, locked until COMMIT; None where there is none."""
    return (await connection.execute(LOCK, {"of_org": org, "of_pause": pause})).one_or_none()


async def add(connection: AsyncConnection, scope: PauseScope, *, actor: str, note: str) -> Row[Any]:
    """A new pause, in force."""
    added: Result[Any] = await connection.execute(
        ADD,
        {
            "org_id": scope.org,
            "pause_id": uuid4(),
            "provider": scope.provider,
            "definition": scope.definition,
            "binding_id": scope.binding,
            "paused_by": actor,
            "paused_note": note,
        },
    )
    return added.one()


async def resume(
    connection: AsyncConnection,
    org: OrgId,
    pause: PauseId,
    *,
    actor: str,
    note: str,
    ramp_seconds: float,
) -> Row[Any]:
    """End the locked pause, and begin its slow start."""
    ended: Result[Any] = await connection.execute(
        RESUME,
        {
            "of_org": org,
            "of_pause": pause,
            "actor": actor,
            "why": note,
            "ramp": ramp_seconds,
        },
    )
    return ended.one()
