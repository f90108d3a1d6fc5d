"""Pausing: from the COMMIT of this on nothing of the scope is claimed (C57)."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from oncefence.domain.errors import NoSuchTarget
from oncefence.domain.ids import OrgId, PauseId, PrincipalBindingId
from oncefence.domain.operator import Act
from oncefence.domain.pause import PauseScope, PauseState
from oncefence.storage import audit, pauses
from oncefence.storage.engine import run_phase

BINDING = text(
    "SELECT 1 FROM oncefence.principal_bindings WHERE org_id = :org AND binding_id = :binding"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """One pause, with who ended it if somebody did."""

    pause: PauseId
    scope: PauseScope
    state: PauseState
    """Also its version: what an act on it names as expected."""

    paused_by: str
    paused_note: str
    paused_at: datetime
    resumed_by: str | None
    resumed_note: str | None
    resumed_at: datetime | None
    ramp_seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseGiven:
    """The pause that is in force, and whether this act brought it about."""

    pause: Pause
    is_new: bool


async def pause_work(
    engine: AsyncEngine, scope: PauseScope, *, actor: str, note: str
) -> PauseGiven:
    """
    Hold back what is of the scope; what is paused in this very scope stays as it is.

    Claims that were under way are over when this returns: what they began goes on to its own
    end, and no other begins.

    Raises:
        NoSuchTarget: The org has no such binding. Nothing was written.
        StoreUnavailable: Ask again: it may be paused.
    """

    async def transaction() -> PauseGiven:
        async with engine.begin() as connection:
            await _refuse_unknown_binding(connection, scope)
            await pauses.take_alone(connection)
            present = await pauses.in_force(connection, scope)
            if present is not None:
                return PauseGiven(pause=pause_of(present), is_new=False)
            added = await pauses.add(connection, scope, actor=actor, note=note)
            await audit.add(
                connection,
                scope.org,
                actor=actor,
                act=Act.PAUSE,
                subject_kind="pause",
                subject_id=str(added.pause_id),
                note=note,
            )
            return PauseGiven(pause=pause_of(added), is_new=True)

    return await run_phase("pause_work", transaction)


async def _refuse_unknown_binding(connection: AsyncConnection, scope: PauseScope) -> None:
    if scope.binding is None:
        return
    found = await connection.execute(BINDING, {"org": scope.org, "binding": scope.binding})
    if found.first() is None:
        raise NoSuchTarget(
            kind="principal binding",
            name=str(scope.binding),
            remedy="see `oncefence binding`; a pause of nothing would only look like one",
        )


def pause_of(row: Row[Any]) -> Pause:
    """The pause that a row of the table is."""
    return Pause(
        pause=PauseId(row.pause_id),
        scope=PauseScope(
            org=OrgId(row.org_id),
            provider=row.provider,
            definition=row.definition,
            binding=None if row.binding_id is None else PrincipalBindingId(row.binding_id),
        ),
        state=PauseState.IN_FORCE if row.resumed_at is None else PauseState.RESUMED,
        paused_by=row.paused_by,
        paused_note=row.paused_note,
        paused_at=row.paused_at,
        resumed_by=row.resumed_by,
        resumed_note=row.resumed_note,
        resumed_at=row.resumed_at,
        ramp_seconds=row.ramp_seconds,
    )
