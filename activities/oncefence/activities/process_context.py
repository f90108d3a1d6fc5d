"""What one process brings to all of its activities, made once at start."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from time import monotonic
from typing import Any, Final
from uuid import UUID

from temporalio import activity

from oncefence.activities.contracts import RunResult, Step
from oncefence.activities.egress_proxy import EgressProxy
from oncefence.activities.measures import Measures
from oncefence.activities.waking import AdmissionWindow, wake_all
from oncefence.domain.claim import ClaimVerdict
from oncefence.domain.ids import OrgId, WorkId
from oncefence.domain.limits import Limits
from oncefence.storage.engine import Store
from oncefence.storage.phases.find_work import WorkRef
from oncefence.storage.phases.read_view import ViewShelf
from oncefence.storage.sealing import KeyRing

log = logging.getLogger(__name__)

_Key = tuple[OrgId, WorkId]


class AgeingTime:
    """
    The workflow's time, carried on while an activity runs.

    Differences alone are taken from the activity's own times: in a local activity the absolute
    ones are the worker's wall clock (C202).
    """

    def __init__(self, as_of: datetime) -> None:
        self._as_of = as_of
        if activity.in_activity():
            info = activity.info()
            self._as_of += info.started_time - info.current_attempt_scheduled_time
        self._started = monotonic()

    def now(self) -> datetime:
        """The time that the workflow would tell if it could be asked."""
        return self._as_of + timedelta(seconds=monotonic() - self._started)


NOT_BEGUN: Final = RunResult(step=Step.WAIT, verdict="draining")
"""Of a run that was asked for after its process began to stop: nothing was claimed."""

STILL_OUT: Final = RunResult(step=Step.IN_FLIGHT, verdict="left")
"""Of a run that outlasts its process: whoever runs the item next reads in SQL until when."""

HANDED_BACK: Final = "handed_back"
"""The verdict of a run that gave its claim back, unfinished, by its own token."""

_WITHOUT_A_CLAIM: Final = (HANDED_BACK, NOT_BEGUN.verdict, ClaimVerdict.NOT_MARKED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained:
    """
    What became of the runs of a process that stopped.

    `finished` came to their own end, `handed_back` were not begun or gave their claim back, and
    `left` are still out: whatever they sent settles as lost, and a lookup finds out.
    """

    finished: int
    handed_back: int
    left: int


class SendRegistry:
    """
    The runs that this process owns, by item.

    From the mark to the end of settling nothing that Temporal does may interrupt a send: the
    activity only waits for the task here, and a re-run in the same process joins it (C387, C388).
    A process that stops begins no run any more, and waits here for those that it began (C58).
    """

    def __init__(self) -> None:
        self._tasks: dict[_Key, asyncio.Task[RunResult]] = {}
        self._awaited: set[asyncio.Future[RunResult]] = set()
        self._is_draining = False
        self._handing_back = asyncio.Event()
        self._finished = 0
        self._handed_back: set[_Key] = set()
        self._returnable: set[asyncio.Task[RunResult]] = set()

    def join_or_start(
        self,
        org: OrgId,
        work: WorkId,
        run: Callable[[], Coroutine[Any, Any, RunResult]],
        *,
        can_hand_back: bool = False,
    ) -> "asyncio.Future[RunResult]":
        """
        The run of this item that is under way, or a new one; shielded from its awaiter.

        Once the process stops there are no new ones: the workflow is told so at once, and what
        it does next it does elsewhere. One that can hand back its claim waits for `handing_back`.
        """
        key, loop = (org, work), asyncio.get_running_loop()
        awaited: asyncio.Future[RunResult] = loop.create_future()
        task = self._tasks.get(key)
        if task is None and self._is_draining:
            self._handed_back.add(key)
            awaited.set_result(NOT_BEGUN)
            return awaited
        if task is None:
            task = loop.create_task(run(), name=f"run {work}")
            self._tasks[key] = task
            if can_hand_back:
                self._returnable.add(task)
                task.add_done_callback(self._returnable.discard)
            task.add_done_callback(lambda done: self._forget(key, done))
        self._awaited.add(awaited)
        awaited.add_done_callback(self._awaited.discard)
        task.add_done_callback(lambda done: _tell(awaited, done))
        return awaited

    def _forget(self, key: _Key, task: "asyncio.Task[RunResult]") -> None:
        self._tasks.pop(key, None)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            # Its awaiter may be gone; without this line nobody would ever read of it.
            log.warning("run ended by %s", type(error).__name__, extra={"work_id": str(key[1])})
        if self._is_draining:
            if error is None and task.result().verdict in _WITHOUT_A_CLAIM:
                self._handed_back.add(key)
            else:
                self._finished += 1

    @property
    def open_runs(self) -> int:
        """How many runs are under way."""
        return len(self._tasks)

    @property
    def is_draining(self) -> bool:
        """Whether the process stops: what has not claimed its item yet does not claim it now."""
        return self._is_draining

    def begin_drain(self) -> None:
        """From here on nothing begins; what is under way goes on."""
        self._is_draining = True

    async def handing_back(self) -> None:
        """Return when the time of the drain is up: a claim that can be given back is, now."""
        await self._handing_back.wait()

    async def drain(self, *, timeout_seconds: float) -> int:
        """Wait for the runs under way; says how many were still open when the time was up."""
        if self._tasks:
            await asyncio.wait(tuple(self._tasks.values()), timeout=timeout_seconds)
        return len(self._tasks)

    async def stop(self, *, within_seconds: float, hand_back_seconds: float) -> Drained:
        """
        Begin nothing, wait for what is under way, and have the rest hand back what it can.

        What is on the wire cannot be handed back. Past `within_seconds` and the moment that
        handing back takes, whoever awaits it is told, and it is left.
        """
        self.begin_drain()
        await self.drain(timeout_seconds=within_seconds)
        self._handing_back.set()
        if self._returnable:
            await asyncio.wait(tuple(self._returnable), timeout=hand_back_seconds)
        for awaited in tuple(self._awaited):
            if not awaited.done():
                awaited.set_result(STILL_OUT)
        return Drained(
            finished=self._finished, handed_back=len(self._handed_back), left=len(self._tasks)
        )


def _tell(awaited: "asyncio.Future[RunResult]", task: "asyncio.Task[RunResult]") -> None:
    """Pass on the end of a run to one who waits for it, unless that one has gone."""
    if awaited.done():
        return
    if task.cancelled():
        awaited.cancel()
    elif (error := task.exception()) is not None:
        awaited.set_exception(error)
    else:
        awaited.set_result(task.result())


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessContext:
    """Store, keys, limits, the process's own nonce, and how to wake a workflow."""

    engine: Store
    ring: KeyRing
    limits: Limits
    owner: UUID
    """Drawn at start: a host name could come back, and a nonce cannot."""

    wake: Callable[[WorkRef], Awaitable[None]]
    views: ViewShelf
    runs: SendRegistry = field(default_factory=SendRegistry)
    measures: Measures = field(default_factory=Measures)
    egress_proxy: EgressProxy | None = None
    """The only way out, where one is set."""

    @property
    def window(self) -> AdmissionWindow:
        """The admission window over this process's store and wake."""
        return AdmissionWindow(engine=self.engine, limits=self.limits, wake=self.wake)

    async def wake_all(self, refs: Iterable[WorkRef]) -> set[WorkRef]:
        """Nudge these items' workflows, and say which were; a lost nudge is the sweep's."""
        return await wake_all(self.wake, refs)
