"""Telling Temporal of items: who is next, and no more at once than the window has room."""

import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from oncefence.domain.claim import ClaimVerdict
from oncefence.domain.errors import StoreUnavailable
from oncefence.domain.ids import OrgId, WorkId
from oncefence.domain.limits import Limits
from oncefence.storage.claims import NotStarted
from oncefence.storage.engine import Store
from oncefence.storage.phases.find_room import Room, find_room
from oncefence.storage.phases.find_successors import find_successors
from oncefence.storage.phases.find_work import DueWork, WorkRef
from oncefence.storage.phases.note_nudges import (
    give_back_place,
    note_nudges,
    take_back_nudges,
)
from oncefence.storage.phases.open_window import open_window

log = logging.getLogger(__name__)

Wake = Callable[[WorkRef], Awaitable[None]]


async def wake_all(wake: Wake, refs: Iterable[WorkRef]) -> set[WorkRef]:
    """Nudge these items' workflows, and say which were; a lost nudge is the sweep's."""
    woken = set()
    for ref in refs:
        try:
            await wake(ref)
            woken.add(ref)
        except Exception as error:  # noqa: BLE001  # a hint, never a fact
            log.warning("wake failed by %s", type(error).__name__, extra={"work_id": str(ref.work)})
    return woken


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionWindow:
    """
    How this process opens workflows of items: in order, and a window of each class at most (C393).

    All of it is hints, given after COMMIT; what one of them misses, the sweep makes up for.
    """

    engine: Store
    limits: Limits
    wake: Wake

    async def announce(self, ref: WorkRef, start: Wake) -> bool:
        """
        Have a new item started by `start`, where it is its turn; says whether it was its turn.

        Where the class has a backlog, whoever is next in it is woken instead.
        """
        found = await find_room(self.engine, ref.org, ref.work, limits=self.limits)
        match found and found.room:
            case Room.AMONG_FIRST:
                await self._start_with_care(ref, start)
                return True
            case Room.IN_TURN:
                assert found is not None, "its room was read"
                return ref in await self.open(ref.org, found.queue_class)
            case _:
                return False

    async def _start_with_care(self, ref: WorkRef, start: Wake) -> None:
        """Noted first, so that its end looks for whoever waits behind it."""
        opened = [DueWork(ref=ref, ownership_epoch=0, nudges=0)]
        await note_nudges(self.engine, opened, limits=self.limits)
        try:
            await start(ref)
        except Exception:
            await take_back_nudges(self.engine, opened, limits=self.limits)
            raise

    async def open(self, org: OrgId, queue_class: str) -> set[WorkRef]:
        """Wake the next of the class, as far as there is room, and say who was woken."""
        chosen = await open_window(self.engine, org, queue_class, limits=self.limits)
        woken = await wake_all(self.wake, [item.ref for item in chosen])
        missed = [item for item in chosen if item.ref not in woken]
        await take_back_nudges(self.engine, missed, limits=self.limits)
        return woken

    async def wake_successors(self, org: OrgId, work: WorkId) -> None:
        """Wake whoever the end of `work` makes room for; of a silent store, the sweep does."""
        try:
            found = await find_successors(self.engine, org, work, limits=self.limits)
            await wake_all(self.wake, found.refs)
            for queue_class in found.full:
                await self.open(org, queue_class)
        except StoreUnavailable:
            log.warning("successors not read", extra={"work_id": str(work)})

    async def give_back_place(self, org: OrgId, work: WorkId, found: NotStarted) -> None:
        """
        Have the next opened where an item that was woken is held back until somebody acts.

        Kept, its place would count as taken until its nudge is too old to count: whoever lifts
        the obstacle before that would find the window full of items that nobody runs.
        """
        is_parked = found.verdict is ClaimVerdict.CREDENTIAL_HELD and found.until is None
        if not is_parked and found.verdict not in (
            ClaimVerdict.LANE_BLOCKED,
            ClaimVerdict.PAUSED,
        ):
            return
        try:
            queue_class = await give_back_place(self.engine, org, work)
            if queue_class is not None:
                await self.open(org, queue_class)
        except StoreUnavailable:
            log.warning("place not given back", extra={"work_id": str(work)})
