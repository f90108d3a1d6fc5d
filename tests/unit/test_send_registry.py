"""A run belongs to its process: whoever awaits it may come twice, or go away."""

import asyncio
import uuid
from collections.abc import Awaitable

import pytest

from oncefence.activities.contracts import RunResult, Step
from oncefence.activities.process_context import (
    HANDED_BACK,
    NOT_BEGUN,
    STILL_OUT,
    Drained,
    SendRegistry,
)
from oncefence.domain.ids import OrgId, WorkId

ORG, WORK = OrgId("acme"), WorkId(uuid.UUID(int=1))
DONE = RunResult(step=Step.FINISHED, verdict="settled")


class Sending:
    """A run that counts its beginnings and ends when it is let go."""

    def __init__(self) -> None:
        self.begun = 0
        self.let_go = asyncio.Event()

    async def run(self) -> RunResult:
        self.begun += 1
        await self.let_go.wait()
        return DONE


async def result_of(run: Awaitable[RunResult]) -> RunResult:
    return await asyncio.wait_for(run, 5)


class TestSendRegistry:
    async def test_lets_a_second_run_of_an_item_join_the_first(self) -> None:
        """A re-run in the same process awaits the send that is under way (C388)."""
        registry, sending = SendRegistry(), Sending()
        first = registry.join_or_start(ORG, WORK, sending.run)
        await asyncio.sleep(0)

        second = registry.join_or_start(ORG, WORK, sending.run)
        sending.let_go.set()

        assert [await result_of(first), await result_of(second)] == [DONE, DONE]
        assert sending.begun == 1

    async def test_runs_other_items_and_a_later_run_on_their_own(self) -> None:
        """Joining is about one item while it is being run, and about nothing else."""
        registry, sending = SendRegistry(), Sending()
        sending.let_go.set()

        for org, work in ((ORG, WORK), (ORG, WorkId(uuid.UUID(int=2))), (OrgId("other"), WORK)):
            await result_of(registry.join_or_start(org, work, sending.run))
        await result_of(registry.join_or_start(ORG, WORK, sending.run))

        assert sending.begun == 4
        assert registry.open_runs == 0

    async def test_does_not_let_a_cancelled_awaiter_take_the_run_along(self) -> None:
        """Temporal cancels activities, and a send that has begun must settle (C387)."""
        registry, sending = SendRegistry(), Sending()
        awaiter = asyncio.ensure_future(result_of(registry.join_or_start(ORG, WORK, sending.run)))
        await asyncio.sleep(0.01)
        awaiter.cancel()
        with pytest.raises(asyncio.CancelledError):
            await awaiter

        again = registry.join_or_start(ORG, WORK, sending.run)
        sending.let_go.set()

        assert await result_of(again) == DONE
        assert sending.begun == 1

    async def test_drains_what_is_under_way_and_says_what_is_left(self) -> None:
        """A process that ends waits for its sends as long as it is told to (C58, C387)."""
        registry, sending = SendRegistry(), Sending()
        registry.join_or_start(ORG, WORK, sending.run)

        assert await registry.drain(timeout_seconds=0.01) == 1
        asyncio.get_running_loop().call_later(0.01, sending.let_go.set)
        assert await registry.drain(timeout_seconds=5) == 0


class TestStop:
    """A process that stops begins nothing, and says what became of what it had begun."""

    async def test_begins_no_run_and_joins_one_that_is_under_way(self) -> None:
        """What was not claimed is not claimed any more; what was is let come to its end (C58)."""
        registry, sending, other = SendRegistry(), Sending(), Sending()
        under_way = registry.join_or_start(ORG, WORK, sending.run)
        await asyncio.sleep(0)
        registry.begin_drain()

        refused = await result_of(registry.join_or_start(ORG, WorkId(uuid.UUID(int=2)), other.run))
        joined = registry.join_or_start(ORG, WORK, other.run)
        sending.let_go.set()
        drained = await registry.stop(within_seconds=5, hand_back_seconds=0)

        assert refused is NOT_BEGUN
        assert [await result_of(under_way), await result_of(joined)] == [DONE, DONE]
        assert (sending.begun, other.begun) == (1, 0)
        assert drained == Drained(finished=1, handed_back=1, left=0)

    async def test_has_a_claim_handed_back_once_the_time_is_up(self) -> None:
        """Whoever can give the claim back is told when to, and is waited for (C58)."""
        registry = SendRegistry()

        async def run() -> RunResult:
            await registry.handing_back()
            await asyncio.sleep(0.01)
            return RunResult(step=Step.WAIT, verdict=HANDED_BACK)

        awaited = registry.join_or_start(ORG, WORK, run, can_hand_back=True)
        drained = await registry.stop(within_seconds=0.01, hand_back_seconds=5)

        assert drained == Drained(finished=0, handed_back=1, left=0)
        assert (await result_of(awaited)).verdict == HANDED_BACK

    async def test_leaves_a_send_that_outlasts_it_and_tells_its_awaiter(self) -> None:
        """The workflow goes on elsewhere, where SQL says until when the send is out (C388)."""
        registry, sending = SendRegistry(), Sending()
        awaited = registry.join_or_start(ORG, WORK, sending.run)

        drained = await registry.stop(within_seconds=0.01, hand_back_seconds=60)
        told = await result_of(awaited)
        sending.let_go.set()

        assert drained == Drained(finished=0, handed_back=0, left=1)
        assert told is STILL_OUT
        assert await registry.drain(timeout_seconds=5) == 0

    async def test_passes_on_how_a_run_failed(self) -> None:
        """A failure is the awaiter's to judge, and counts as an end."""
        registry = SendRegistry()

        async def run() -> RunResult:
            raise LookupError("a test")

        awaited = registry.join_or_start(ORG, WORK, run)
        drained = await registry.stop(within_seconds=5, hand_back_seconds=0)

        with pytest.raises(LookupError):
            await result_of(awaited)
        assert drained == Drained(finished=1, handed_back=0, left=0)
