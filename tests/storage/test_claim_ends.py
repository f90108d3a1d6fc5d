"""How a claim of any family is renewed, and how it ends."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Row

from oncefence.domain.claim import ClaimEnd, WorkEnd
from oncefence.domain.errors import FenceLost
from oncefence.domain.fence import Fence
from oncefence.domain.limits import Limits
from oncefence.domain.settlement import FailureClass
from oncefence.storage.phases.claim_work import ClaimedWork
from oncefence.storage.phases.renew_work import Renewed
from oncefence.storage.phases.settle_work import settle_work
from tests.storage.test_lease_clock import while_a_moment_passes
from tests.storage.unnamed_family import (
    DEADLINE_MS,
    STRANGERS,
    WHOLE_LEASE,
    an_item,
    ask_to_cancel,
    claim,
    end,
    held,
    renew,
    verdict,
)
from tests.support.world import World, seconds

pytestmark = pytest.mark.asyncio(loop_scope="module")


class TestARenewal:
    async def test_gives_a_whole_lease_and_never_a_shorter_one(self, world: World) -> None:
        """A holder that needs longer says so in time (C53)."""
        fence = await held(world)
        before: datetime = (await world.item(fence.work)).lease_until

        assert (await renew(world, fence, deadline_ms=1)).lease_until == before
        renewed = await renew(world, fence, deadline_ms=DEADLINE_MS * 10)
        assert renewed.lease_until > before + timedelta(milliseconds=DEADLINE_MS * 8)
        assert not renewed.is_cancel_requested

    async def test_that_waited_is_a_whole_one(self, world: World) -> None:
        """It begins when the row is held, however long that took (C204)."""
        fence = await held(world)
        began = await world.now()

        renewed = await while_a_moment_passes(world, fence.work, renew(world, fence))

        assert isinstance(renewed, Renewed)
        assert renewed.lease_until > began + seconds(0.5) + WHOLE_LEASE

    async def test_tells_whether_somebody_asked_to_cancel(self, world: World) -> None:
        """Only the holder may cancel, so the holder has to hear of it (C55)."""
        fence = await held(world)
        await ask_to_cancel(world, fence.work)

        assert (await renew(world, fence)).is_cancel_requested

    async def test_after_the_lease_is_good_while_nobody_took_the_item(self, world: World) -> None:
        """The end of a lease permits a claim and takes nothing away by itself."""
        fence = await held(world)
        await world.expire_lease(fence.work)

        await renew(world, fence)

        assert await verdict(world, fence.work) == "in_flight"

    @pytest.mark.parametrize("stranger", STRANGERS)
    async def test_by_whoever_does_not_hold_the_claim_is_refused(
        self, world: World, stranger: Callable[[Fence], Fence]
    ) -> None:
        """It would keep alive somebody else's claim (C53)."""
        fence = await held(world)
        before = await world.item(fence.work)

        with pytest.raises(FenceLost):
            await renew(world, stranger(fence), deadline_ms=DEADLINE_MS * 10)

        assert await world.item(fence.work) == before


class TestAnEnd:
    @pytest.mark.parametrize(
        ("how", "more", "expected"),
        [
            (ClaimEnd.FINISH, {}, ("succeeded", "finish", 0)),
            (ClaimEnd.SKIP, {"summary": "nothing to do"}, ("skipped", "skip", 0)),
            (ClaimEnd.DEFER, {"wait_seconds": 5.0}, ("retry", "defer", 0)),
            (ClaimEnd.RETRY, {"failure_class": "x"}, ("retry", "defer", 1)),
            (ClaimEnd.GIVE_UP, {"failure_class": "x"}, ("dead", "give_up", 0)),
            (ClaimEnd.ACKNOWLEDGE_CANCEL, {}, ("cancelled", "acknowledge_cancel", 0)),
        ],
    )
    async def test_is_as_the_handler_says_and_the_same_again(
        self, world: World, how: ClaimEnd, more: dict[str, Any], expected: tuple[str, str, int]
    ) -> None:
        """The answer to its COMMIT may be lost, and then it asks again (C53, C172)."""
        fence = await held(world)

        settled = await end(world, fence, how, **more)

        row = await world.item(fence.work)
        assert (row.state, row.via, row.attempt) == expected
        assert (row.lease_token, row.left_by) == (None, fence.token)
        assert row.summary == more.get("summary")
        assert await end(world, fence, how, **more) == settled
        assert await world.item(fence.work) == row

    @pytest.mark.parametrize("stranger", STRANGERS)
    async def test_by_whoever_does_not_hold_the_claim_is_refused(
        self, world: World, stranger: Callable[[Fence], Fence]
    ) -> None:
        """A reclaimed row is processing too, so the state alone tells nothing (C53, C54)."""
        fence = await held(world)
        before = await world.item(fence.work)

        with pytest.raises(FenceLost):
            await end(world, stranger(fence))

        assert await world.item(fence.work) == before

    async def test_is_not_told_again_once_somebody_else_holds_the_item(self, world: World) -> None:
        """What the first claim said of it is no longer how it stands (C54)."""
        fence = await held(world)
        await end(world, fence, ClaimEnd.DEFER, wait_seconds=0.0)
        assert await verdict(world, fence.work) == "claimed"

        with pytest.raises(FenceLost):
            await end(world, fence, ClaimEnd.DEFER, wait_seconds=0.0)

    async def test_of_a_wait_is_due_when_the_handler_said(self, world: World) -> None:
        """From the caller's own time, to the moment (C201)."""
        fence = await held(world)
        as_of = await world.now() + timedelta(hours=1)

        settled = await settle_work(
            world.engine,
            fence,
            WorkEnd(end=ClaimEnd.DEFER, wait_seconds=90.0),
            as_of=as_of,
            limits=world.limits,
        )

        assert settled.next_due == as_of + seconds(90.0)
        assert (await world.item(fence.work)).run_after == settled.next_due

    @pytest.mark.parametrize("asked", [0.0, 0.5, 4.0])
    async def test_of_a_failure_keeps_its_distance(self, world: World, asked: float) -> None:
        """No claimant comes back at once, whatever its own clock or handler says."""
        fence = await held(world)
        as_of = await world.now()

        settled = await settle_work(
            world.engine,
            fence,
            WorkEnd(end=ClaimEnd.RETRY, wait_seconds=asked, failure_class="x"),
            as_of=as_of,
            limits=world.limits,
        )

        assert settled.next_due == as_of + seconds(max(asked, world.limits.retry_spacing_seconds))

    @pytest.mark.parametrize(
        ("how", "more"),
        [(ClaimEnd.DEFER, {"wait_seconds": 5.0}), (ClaimEnd.RETRY, {"failure_class": "x"})],
    )
    async def test_that_would_put_back_what_is_to_be_cancelled_cancels_it(
        self, world: World, how: ClaimEnd, more: dict[str, Any]
    ) -> None:
        """Whoever asked was told that its holder would answer, and this is the answer (C55)."""
        fence = await held(world)
        await ask_to_cancel(world, fence.work)

        settled = await end(world, fence, how, **more)

        assert (settled.item_state, settled.next_due) == ("cancelled", None)
        assert (await world.item(fence.work)).via == "acknowledge_cancel"

    async def test_of_a_failure_past_the_ceiling_gives_up(self, world: World) -> None:
        """Waits do not count, and the last of the failures that do ends it (C51)."""
        limits = Limits(attempts_max=2)
        work = await an_item(world)
        states: list[tuple[str, str | None]] = []
        for how, more in (
            (ClaimEnd.RETRY, {"failure_class": "x"}),
            (ClaimEnd.DEFER, {"wait_seconds": 0.0}),
            (ClaimEnd.RETRY, {"failure_class": "x"}),
        ):
            answer = await claim(world, work)
            assert isinstance(answer, ClaimedWork)
            settled = await end(world, answer.fence, how, limits=limits, **more)
            states.append((settled.item_state, settled.failure_class))

        assert states == [
            ("retry", "x"),
            ("retry", None),
            ("dead", FailureClass.ATTEMPTS_EXHAUSTED),
        ]
        row: Row[Any] = await world.item(work)
        assert (row.attempt, row.failure_class) == (2, FailureClass.ATTEMPTS_EXHAUSTED)
