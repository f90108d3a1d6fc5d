"""Telling Temporal what an operator's act let go on, after the answer to it has left."""

import asyncio
from collections.abc import Iterable
from typing import Final

import structlog

from oncefence.app.doors import Doors
from oncefence.domain.ids import OrgId, WorkId
from oncefence.storage.phases.find_work import WorkRef

HINT_SECONDS_MAX: Final = 30.0

log = structlog.get_logger("oncefence.doors")


async def tell_of(
    doors: Doors,
    *,
    new: Iterable[WorkRef] = (),
    taken_back: WorkRef | None = None,
    ended: tuple[OrgId, WorkId] | None = None,
) -> None:
    """
    Have each of `new` run where it is its turn, and whoever the end of `ended` makes room for.

    What is `taken_back` has its place in the admission window already, and is told at once.

    A hint, given after COMMIT: what it misses, the sweep finds.
    """
    try:
        async with asyncio.timeout(HINT_SECONDS_MAX):
            if taken_back is not None:
                await doors.announce(taken_back)
            for ref in new:
                await doors.window.announce(ref, doors.announce)
            if ended is not None:
                await doors.window.wake_successors(*ended)
    except Exception as error:  # noqa: BLE001  # logged; the sweep repairs a missed hint
        log.warning("hint_failed", error=type(error).__name__)
