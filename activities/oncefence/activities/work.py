"""
The one run of every family that has no run of its own: claim, handler, end.

A family is a handler. It says what to do with an item that it holds and how that ends; claims,
leases, renewal, retries, lanes, cancellation and fences are done here, once for all of them.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import Final, Protocol
from uuid import UUID, uuid4

from temporalio import activity

from oncefence.activities.boundary import at_boundary
from oncefence.activities.contracts import RUN_WORK, RunRequest, RunResult, Step
from oncefence.activities.not_started import rest
from oncefence.activities.process_context import (
    HANDED_BACK,
    NOT_BEGUN,
    AgeingTime,
    ProcessContext,
)
from oncefence.activities.until_answered import until_answered
from oncefence.domain.claim import ClaimEnd, ClaimVerdict, WorkEnd, failure_class_of
from oncefence.domain.errors import ConfigurationRefused, FenceLost, StoreUnavailable
from oncefence.domain.ids import LeaseToken, OrgId, WorkId
from oncefence.domain.work_item import EFFECTS, LOOKUP
from oncefence.storage.claims import NotStarted
from oncefence.storage.phases.claim_work import ClaimedWork, claim_work
from oncefence.storage.phases.renew_work import renew_work
from oncefence.storage.phases.settle_work import WorkSettled, settle_work

log = logging.getLogger(__name__)

_PATIENCE_SECONDS: Final = 60.0
# The store may come back long after the handler has done what cannot be done twice.
_KEEP_END_SECONDS: Final = 3600.0
# Two renewals may fail before the lease ends.
_RENEWALS_PER_LEASE: Final = 3
# By its own token, so that another process takes it at once and no claim counts as lost (C58).
_UNFINISHED: Final = WorkEnd(
    end=ClaimEnd.DEFER, wait_seconds=0, summary="handed back by a process that stops"
)


class WorkHandler(Protocol):
    """One family of work; the port through which it adapts to the kernel (C41)."""

    @property
    def family(self) -> str:
        """The name of the family, as its items carry it."""

    async def run(self, work: ClaimedWork) -> WorkEnd:
        """
        Do the work of an item that this process holds, and say how its claim ends.

        It may take longer than the item's deadline: the claim is renewed meanwhile. It is
        cancelled where the claim is lost or somebody asked for the item to be cancelled. Who
        has sent something by then holds the cancellation up and gives an end all the same, and
        that end counts: one that lets itself be cancelled says that nothing was sent (C55).
        What it writes names `work.fence`. An error that it raises counts as a failed attempt.
        """


class WorkActivity:
    """Runs the items of the registered families of this process."""

    def __init__(self, context: ProcessContext, handlers: Iterable[WorkHandler]) -> None:
        self._context = context
        self._handlers = _by_family(handlers)

    @activity.defn(name=RUN_WORK)
    async def run_work(self, request: RunRequest) -> RunResult:
        """Run the item once, or join the run of it that is under way in this process."""
        org, work = OrgId(request.org_id), WorkId(UUID(request.work_id))
        handler = self._handlers.get(request.family)
        if handler is None:
            # Not claimed, so that a process that has the handler can.
            return rest(NotStarted(verdict=ClaimVerdict.NEEDS_NEWER_ENGINE, until=None))
        time = AgeingTime(request.as_of)
        return await at_boundary(
            self._context.runs.join_or_start(
                org,
                work,
                lambda: self._context.measures.run(
                    handler.family, self._run(org, work, handler, time)
                ),
                can_hand_back=True,
            )
        )

    async def _run(
        self, org: OrgId, work: WorkId, handler: WorkHandler, time: AgeingTime
    ) -> RunResult:
        context, token = self._context, LeaseToken(uuid4())
        if context.runs.is_draining:
            return NOT_BEGUN
        claimed = await until_answered(
            lambda: claim_work(
                context.engine,
                org,
                work,
                family=handler.family,
                as_of=time.now(),
                owner=context.owner,
                token=token,
                limits=context.limits,
                may_claim=not context.runs.is_draining,
            ),
            patience_seconds=_PATIENCE_SECONDS,
        )
        context.measures.claim(handler.family, claimed)
        if isinstance(claimed, NotStarted):
            await context.window.give_back_place(org, work, claimed)
            resting = rest(claimed)
            if resting.step is Step.FINISHED:
                # Ended in its claim, or by somebody whose wake may be lost.
                await self._context.window.wake_successors(org, work)
            return resting
        try:
            end, settled = await self._held(claimed, lambda: handler.run(claimed), time)
        except FenceLost:
            # Somebody took this process for dead; what has become of the item is in SQL.
            context.measures.fence_lost(handler.family)
            return RunResult(step=Step.WAIT, verdict="fence_lost")
        if settled.next_due is not None:
            return RunResult(
                step=Step.WAIT,
                verdict=HANDED_BACK if end is _UNFINISHED else end.end,
                until=settled.next_due,
                item_state=settled.item_state,
                failure_class=settled.failure_class,
            )
        await self._context.window.wake_successors(org, work)
        return RunResult(
            step=Step.FINISHED,
            verdict=end.end,
            item_state=settled.item_state,
            failure_class=settled.failure_class,
        )

    async def _held(
        self, claimed: ClaimedWork, run: Callable[[], Awaitable[WorkEnd]], time: AgeingTime
    ) -> tuple[WorkEnd, WorkSettled]:
        """What the handler's end came to, with its claim kept until that is known."""
        runs, is_unwanted = self._context.runs, asyncio.Event()
        handling = asyncio.ensure_future(run())
        keeping = asyncio.ensure_future(self._keep(claimed, is_unwanted))
        others = [asyncio.ensure_future(each) for each in (is_unwanted.wait(), runs.handing_back())]
        try:
            await asyncio.wait((handling, keeping, *others), return_when=asyncio.FIRST_COMPLETED)
            is_stopped = not handling.done()
            if is_stopped:
                handling.cancel()
                # What has sent something takes its time, and keeps the claim for as long.
                await asyncio.wait((handling,))
                if keeping.done():
                    # Raises: the claim is lost, and whatever the handler says comes too late.
                    keeping.result()
            if not (is_stopped and handling.cancelled()):
                end = _end_of(handling, claimed)
            elif is_unwanted.is_set():
                end = WorkEnd(end=ClaimEnd.ACKNOWLEDGE_CANCEL)
            else:
                end = _UNFINISHED
            return end, await self._settle(claimed, end, time)
        finally:
            for task in (handling, keeping, *others):
                task.cancel()
                with suppress(asyncio.CancelledError, Exception):
                    await task

    async def _settle(self, claimed: ClaimedWork, end: WorkEnd, time: AgeingTime) -> WorkSettled:
        context = self._context
        return await until_answered(
            lambda: settle_work(
                context.engine, claimed.fence, end, as_of=time.now(), limits=context.limits
            ),
            patience_seconds=_KEEP_END_SECONDS,
        )

    async def _keep(self, claimed: ClaimedWork, is_unwanted: asyncio.Event) -> None:
        """
        Renew the claim until cancelled, and say when somebody wants the item to be cancelled.

        Raises:
            FenceLost: Somebody took the item.
        """
        limits = self._context.limits
        lease = claimed.deadline_ms / 1000 + limits.lease_margin_scaled_seconds
        while True:
            await asyncio.sleep(lease / _RENEWALS_PER_LEASE)
            try:
                renewed = await renew_work(
                    self._context.engine,
                    claimed.fence,
                    deadline_ms=claimed.deadline_ms,
                    limits=limits,
                )
            except StoreUnavailable:
                # Until somebody takes the item, it is held: the next turn says.
                log.warning("not renewed", extra={"work_id": str(claimed.fence.work)})
                continue
            self._context.measures.renewal(claimed.family)
            if renewed.is_cancel_requested:
                is_unwanted.set()


def _by_family(handlers: Iterable[WorkHandler]) -> Mapping[str, WorkHandler]:
    known: dict[str, WorkHandler] = {}
    for handler in handlers:
        family = handler.family
        if family in known or family in EFFECTS | {LOOKUP}:
            raise ConfigurationRefused(
                setting=f"handler of family {family!r}",
                reason="the family has a run already",
                remedy="Register one handler for each family, and none for those of the kernel",
            )
        known[family] = handler
    return known


def _end_of(handling: "asyncio.Future[WorkEnd]", claimed: ClaimedWork) -> WorkEnd:
    # Cancelled by nobody here: something that it waited for was.
    error = asyncio.CancelledError() if handling.cancelled() else handling.exception()
    if error is None:
        return handling.result()
    if isinstance(error, FenceLost):
        raise error
    log.warning(
        "handler of %s failed by %s",
        claimed.family,
        type(error).__name__,
        exc_info=error,
        extra={"work_id": str(claimed.fence.work)},
    )
    # The text of an error may hold anything; its name is a classification.
    return WorkEnd(end=ClaimEnd.RETRY, failure_class=failure_class_of(error))
