"""Ending a claim of any family that has no settlement of its own."""

import random
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy.ext.asyncio import AsyncEngine

from oncefence.domain.backoff import retry_delay_seconds
from oncefence.domain.claim import ClaimEnd, WorkEnd
from oncefence.domain.errors import FenceLost
from oncefence.domain.fence import Fence
from oncefence.domain.limits import Limits
from oncefence.domain.settlement import FailureClass
from oncefence.storage import work_items
from oncefence.storage.engine import run_phase

_TARGETS = {
    ClaimEnd.FINISH: ("succeeded", "finish"),
    ClaimEnd.SKIP: ("skipped", "skip"),
    ClaimEnd.DEFER: ("retry", "defer"),
    ClaimEnd.RETRY: ("retry", "defer"),
    ClaimEnd.GIVE_UP: ("dead", "give_up"),
    ClaimEnd.ACKNOWLEDGE_CANCEL: ("cancelled", "acknowledge_cancel"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkSettled:
    """Where the item stands now; `next_due` is set where it waits."""

    item_state: str
    next_due: datetime | None
    failure_class: str | None


async def settle_work(
    engine: AsyncEngine, fence: Fence, end: WorkEnd, *, as_of: datetime, limits: Limits
) -> WorkSettled:
    """
    End the claim; again, after a lost answer, is the same (C53, C54).

    A failure past the ceiling of attempts gives the item up. A retry keeps a least distance in
    the row itself, so that no claimant of whatever age comes back at once. An item whose
    cancellation was asked for waits for no other run: what would put it back ends it.

    Raises:
        FenceLost: Somebody else holds the item or ended it. Nothing was written.
        StoreUnavailable: Ask again: it may be settled.
    """

    async def transaction() -> WorkSettled:
        async with engine.begin() as connection:
            item = await work_items.lock(connection, fence.org, fence.work)
            if item is not None and item.left_by == fence.token and item.lease_token is None:
                # This very claim left it, and the answer to that was lost.
                return WorkSettled(
                    item_state=item.state,
                    next_due=item.run_after if item.state == "retry" else None,
                    failure_class=item.failure_class,
                )
            if item is None:
                raise FenceLost(verb=end.end)
            target, trigger = _TARGETS[end.end]
            attempt, failure, due = item.attempt, end.failure_class, None
            is_again = target == "retry"
            if end.end is ClaimEnd.RETRY:
                attempt += 1
                if attempt >= limits.attempts_max:
                    target, trigger = _TARGETS[ClaimEnd.GIVE_UP]
                    failure = FailureClass.ATTEMPTS_EXHAUSTED
            if is_again and item.cancel_requested_at is not None:
                target, trigger = _TARGETS[ClaimEnd.ACKNOWLEDGE_CANCEL]
                # It ends because somebody wanted it to, and so it is no dead letter.
                failure = None
            if target == "retry":
                # By another clock than the one that the claim was made by, now may be before it.
                due = max(as_of, item.run_after) + timedelta(
                    seconds=_wait_seconds(end, attempt, limits)
                )
            await work_items.leave(
                connection,
                fence,
                target=target,
                trigger=trigger,
                due=due,
                failure_class=failure,
                summary=end.summary,
                attempt=attempt,
            )
            return WorkSettled(item_state=target, next_due=due, failure_class=failure)

    return await run_phase("settle_work", transaction)


def _wait_seconds(end: WorkEnd, attempt: int, limits: Limits) -> float:
    wait = end.wait_seconds
    if wait is None:
        wait = retry_delay_seconds(
            attempts_made=attempt,
            jitter=random.random(),  # noqa: S311  # spreads load, hides nothing
        )
    return max(wait, limits.retry_spacing_scaled_seconds) if end.end is ClaimEnd.RETRY else wait
