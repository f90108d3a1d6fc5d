"""
Processes of the program without a Temporal: who runs an item is told so by the test.

A life ends where its coroutine is left hanging: what it opened stays open, as after a kill.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from oncefence.activities import attempt as attempt_activity
from oncefence.activities.attempt import AttemptActivity
from oncefence.activities.contracts import RunRequest, RunResult
from oncefence.activities.process_context import ProcessContext
from oncefence.app.bootstrap import make_context
from oncefence.domain.ids import WorkId
from oncefence.storage.phases.find_work import WorkRef
from tests.support.world import World

T = TypeVar("T")


class Process:
    """One start of the program, with the nonce that it drew."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.woken: list[WorkRef] = []
        self.context: ProcessContext = make_context(world.engine, world.ring, self, world.limits)  # type: ignore[arg-type]  # wakes nobody
        self.attempts = AttemptActivity(self.context)

    def with_context(self, context: ProcessContext) -> "Process":
        """This process with another context; it wakes through it as before."""
        self.context, self.attempts = context, AttemptActivity(context)
        return self

    async def wake(self, ref: WorkRef) -> None:
        self.woken.append(ref)

    async def dispatch(self, work: WorkId) -> RunResult:
        """One run of a dispatch item, as its workflow asks for it."""
        row = await self.world.item(work)
        return await self.attempts.run_attempt(
            RunRequest(
                org_id=self.world.org,
                work_id=str(work),
                deadline_ms=row.deadline_ms,
                as_of=max(await self.world.now(), row.run_after),
                family=row.family,
            )
        )


class Death:
    """The end of a life at one call of the attempt: before it, or after it came to its end."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, call: str, *, is_after: bool) -> None:
        self.reached = asyncio.Event()
        self._patch, self._call, self._is_after = monkeypatch, call, is_after
        self._real: Callable[..., Awaitable[Any]] = getattr(attempt_activity, call)
        monkeypatch.setattr(attempt_activity, call, self._die)

    async def _die(self, *asked: object, **named: object) -> object:
        # Only the first that comes here dies.
        self._patch.setattr(attempt_activity, self._call, self._real)
        if self._is_after:
            await self._real(*asked, **named)
        self.reached.set()
        return await asyncio.Event().wait()

    async def of(self, run: Awaitable[T]) -> None:
        """`run` until it is dead; it is never heard of again."""
        life = asyncio.ensure_future(run)
        await asyncio.wait_for(self.reached.wait(), 20)
        life.cancel()
