"""Ending a pause: at once, or by a slow start."""

from dataclasses import dataclass

from sqlalchemy.ext.asyncio import AsyncEngine

from oncefence.domain.errors import ActRefused, NoSuchTarget, VersionMoved
from oncefence.domain.ids import OrgId, PauseId
from oncefence.domain.operator import Act
from oncefence.domain.pause import RAMP_SECONDS_MAX, PauseState
from oncefence.storage import audit, pauses
from oncefence.storage.engine import run_phase
from oncefence.storage.phases.pause_work import Pause, pause_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed:
    """The pause that is over, and whether this act ended it."""

    pause: Pause
    is_new: bool


async def resume_work(
    engine: AsyncEngine,
    org: OrgId,
    pause: PauseId,
    *,
    ramp_seconds: float,
    actor: str,
    note: str,
    expected_version: str,
) -> Resumed:
    """
    Let go what the pause holds; other pauses that hold the same go on.

    While the ramp lasts, as much of a window runs at once as the part of it that is over; a ramp
    of 0 is none. Nobody is woken here: whoever ends a pause reads whom it held after COMMIT.
    The same act of the same operator again, after a lost answer, finds what it did.

    Raises:
        NoSuchTarget: There is no such pause.
        VersionMoved: Somebody ended it since it was looked at.
        ActRefused: The ramp is no time, or too long a one.
        StoreUnavailable: Ask again: it may be over.
    """
    if not 0 <= ramp_seconds <= RAMP_SECONDS_MAX:
        raise ActRefused(
            act=Act.RESUME,
            subject=f"pause {pause}",
            verdict="ramp_out_of_range",
            remedy=f"give the slow start from 0 to {RAMP_SECONDS_MAX:.0f} seconds",
        )

    async def transaction() -> Resumed:
        async with engine.begin() as connection:
            await pauses.take_alone(connection)
            row = await pauses.lock(connection, org, pause)
            if row is None:
                raise NoSuchTarget(
                    kind="pause", name=str(pause), remedy="see `oncefence work pauses`"
                )
            before = pause_of(row)
            done_before = (actor, note, ramp_seconds)
            if (before.resumed_by, before.resumed_note, before.ramp_seconds) == done_before:
                return Resumed(pause=before, is_new=False)
            if before.state != expected_version or before.state is not PauseState.IN_FORCE:
                raise VersionMoved(
                    subject=f"pause {pause}", expected=expected_version, found=before.state
                )
            ended = await pauses.resume(
                connection, org, pause, actor=actor, note=note, ramp_seconds=ramp_seconds
            )
            await audit.add(
                connection,
                org,
                actor=actor,
                act=Act.RESUME,
                subject_kind="pause",
                subject_id=str(pause),
                note=note,
                expected_version=expected_version,
            )
            return Resumed(pause=pause_of(ended), is_new=True)

    return await run_phase("resume_work", transaction)
