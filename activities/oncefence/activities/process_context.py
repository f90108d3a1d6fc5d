"""What one process brings to all of its activities, made once at start."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from time import monotonic
from typing import Any
from uuid import UUID

from temporalio import activity

from oncefence.activities.contracts import RunResult
from oncefence.domain.ids import OrgId, WorkId
from oncefence.domain.limits import Limits
from oncefence.storage.engine import Store
from oncefence.storage.phases.find_work import WorkRef
from oncefence.storage.phases.read_view import ViewShelf
from oncefence.storage.sealing import KeyRing

log = logging.getLogger(__name__)


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


class SendRegistry:
    """
    The runs that this process owns, by item.

    From the mark to the end of settling nothing that Temporal does may interrupt a send: the
    activity only waits for the task here, and a re-run in the same process joins it (C387, C388).
    """

    def __init__(self) -> None:
        self._tasks: dict[tuple[OrgId, WorkId], asyncio.Task[RunResult]] = {}

    def join_or_start(
        self, org: OrgId, work: WorkId, run: Callable[[], Coroutine[Any, Any, RunResult]]
    ) -> "asyncio.Future[RunResult]":
        """The run of this item that is under way, or a new one; shielded from its awaiter."""
        key = (org, work)
        task = self._tasks.get(key)
        if task is None:
            task = asyncio.get_running_loop().create_task(run(), name=f"run {work}")
            self._tasks[key] = task
            task.add_done_callback(lambda done: self._forget(key, done))
        return asyncio.shield(task)

    def _forget(self, key: tuple[OrgId, WorkId], task: "asyncio.Task[RunResult]") -> None:
        self._tasks.pop(key, None)
        if not task.cancelled() and task.exception() is not None:
            # Its awaiter may be gone; without this line nobody would ever read of it.
            log.warning(
                "run ended by %s", type(task.exception()).__name__, extra={"work_id": str(key[1])}
            )

    @property
    def open_runs(self) -> int:
        """How many runs are under way."""
        return len(self._tasks)

    async def drain(self, *, timeout_seconds: float) -> int:
        """Wait for the runs under way; says how many were still open when the time was up."""
        if self._tasks:
            await asyncio.wait(tuple(self._tasks.values()), timeout=timeout_seconds)
        return len(self._tasks)


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

    async def wake_all(self, refs: Iterable[WorkRef]) -> set[WorkRef]:
        """Nudge these items' workflows, and say which were; a lost nudge is the sweep's."""
        woken = set()
        for ref in refs:
            try:
                await self.wake(ref)
                woken.add(ref)
            except Exception as error:  # noqa: BLE001  # a hint, never a fact
                log.warning(
                    "wake failed by %s", type(error).__name__, extra={"work_id": str(ref.work)}
                )
        return woken
