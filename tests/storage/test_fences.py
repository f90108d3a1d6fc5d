"""Whoever does not hold the claim writes nothing, whichever half of the fence is not his."""

from collections.abc import Callable
from dataclasses import replace
from uuid import uuid4

import pytest

from oncefence.domain.claim import ClaimVerdict
from oncefence.domain.effect import Outcome
from oncefence.domain.errors import FenceLost
from oncefence.domain.fence import Fence
from oncefence.domain.ids import LeaseToken
from oncefence.domain.lookup import Verdict
from oncefence.storage import work_items
from oncefence.storage.claims import NotStarted
from tests.support.world import Accepted, World, an_end, seconds

pytestmark = pytest.mark.asyncio(loop_scope="module")


def of_another_token(fence: Fence) -> Fence:
    return replace(fence, token=LeaseToken(uuid4()))


def of_an_earlier_epoch(fence: Fence) -> Fence:
    return replace(fence, epoch=fence.epoch - 1)


STRANGERS = (of_another_token, of_an_earlier_epoch)


class TestLeaving:
    @pytest.mark.parametrize("stranger", STRANGERS)
    async def test_by_whoever_does_not_hold_the_claim_is_refused(
        self, world: World, stranger: Callable[[Fence], Fence]
    ) -> None:
        """A reclaimed row is processing too, so the state alone tells nothing (C53, C160)."""
        _, _, lookup_work = await world.an_unknown_command()
        held = (await world.start_looking(lookup_work)).fence
        before = await world.item(lookup_work)

        with pytest.raises(FenceLost):
            async with world.engine.begin() as connection:
                await work_items.leave(connection, stranger(held), target="retry", trigger="defer")

        assert await world.item(lookup_work) == before


class TestSettling:
    @pytest.mark.parametrize("stranger", STRANGERS)
    async def test_by_whoever_did_not_start_it_is_refused(
        self, world: World, stranger: Callable[[Fence], Fence]
    ) -> None:
        """It is told in words before any guard has to speak, and nothing was written (C161)."""
        accepted, started = await world.a_running_command()
        other = replace(started, fence=stranger(started.fence))

        with pytest.raises(FenceLost):
            await world.settle(other, Outcome.ACCEPTED)

        assert await world.states(accepted) == ("processing", "running")
        await world.settle(started, Outcome.ACCEPTED)
        with pytest.raises(FenceLost):
            await world.settle(other, Outcome.ACCEPTED)


class TestSettlingALookup:
    async def test_again_while_the_next_one_is_made_is_the_same(self, world: World) -> None:
        """The claim is over and its answer was lost: what it wrote is told, nothing is written."""
        accepted, _, lookup_work = await world.an_unknown_command()
        first = await world.start_looking(lookup_work)
        done = await world.conclude(first, Verdict.INCONCLUSIVE)
        second = await world.start_looking(lookup_work)

        again = await world.conclude(first, Verdict.INCONCLUSIVE)

        assert again.execution_status == done.execution_status
        assert len(await world.of_command("lookups", accepted)) == 1
        assert (await world.item(lookup_work)).lease_token == second.fence.token

    async def test_by_whoever_lost_its_claim_is_refused(self, world: World) -> None:
        """Somebody else looks by now, and only that one says what was seen (C54)."""
        accepted, _, lookup_work = await world.an_unknown_command()
        stale = await world.start_looking(lookup_work)
        await world.expire_lease(lookup_work)
        await world.start_looking(lookup_work)

        with pytest.raises(FenceLost):
            await world.conclude(stale, Verdict.APPLIED)

        assert await world.of_command("lookups", accepted) == []
        assert (await world.execution(accepted)).status == "unknown"

    async def test_of_two_in_doubt_by_a_word_about_one_settles_nothing(self, world: World) -> None:
        """That the second was never sent says nothing about the first (C83, C190)."""
        accepted = await world.accept_command()
        await world.give_idempotency_key(accepted, window_seconds=3600)
        first = await world.start(accepted)
        await world.settle(first, Outcome.REPLAY_SAFE_RETRY, may_have_applied=True)
        second = await world.start(accepted)
        lookup_work = await world.lose(second)
        await world.tell(second, an_end(Outcome.RETRYABLE_PRE_DISPATCH))

        done = await world.look(lookup_work, Verdict.UNSENT)

        assert done.execution_status == "unknown"
        for attempt in (first, second):
            assert (await world.attempt(attempt.attempt)).disposition is None


async def twice_in_doubt(world: World, window_seconds: int) -> Accepted:
    """A command under a key, whose two attempts may both have applied, five seconds apart."""
    accepted = await world.accept_command()
    await world.give_idempotency_key(accepted, window_seconds=window_seconds)
    began = (await world.item(accepted.work)).run_after
    for later in (0, 5):
        started = await world.start(accepted, as_of=began + seconds(later))
        end = an_end(Outcome.REPLAY_SAFE_RETRY, may_have_applied=True, retry_after_seconds=0)
        await world.settle(started, end, as_of=began + seconds(later))
    return accepted


class TestTheWindow:
    async def test_runs_from_the_first_attempt(self, world: World) -> None:
        """Each new attempt would else put off the end of a key for ever (C94)."""
        accepted = await twice_in_doubt(world, window_seconds=60)
        first, second = await world.of_command("effect_attempts", accepted)
        end_of_first = first.started_as_of + seconds(60 - first.deadline_ms / 1000)
        assert end_of_first < second.started_as_of + seconds(60 - first.deadline_ms / 1000)

        answer = await world.try_to_start(accepted, as_of=end_of_first)

        assert isinstance(answer, NotStarted)
        assert answer.verdict is ClaimVerdict.CANNOT_PROCEED

    async def test_ends_with_acceptance_for_every_attempt_under_the_key(self, world: World) -> None:
        """It is one effect and it is applied: no attempt of it is in doubt any longer (C101)."""
        accepted = await twice_in_doubt(world, window_seconds=3600)

        await world.settle(await world.start(accepted), Outcome.ACCEPTED)

        attempts = await world.of_command("effect_attempts", accepted)
        assert [row.disposition for row in attempts] == ["applied", "applied", None]
        behind = await world.accept_command(title="Head")
        assert (await world.start(behind)).ordinal == 1
