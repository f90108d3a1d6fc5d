"""One run of an attempt or a lookup in its process, by a clock that the test holds."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from oncefence.activities.attempt import AttemptActivity
from oncefence.activities.contracts import RunRequest
from oncefence.activities.lookup import LookupActivity
from oncefence.activities.process_context import ProcessContext
from oncefence.domain.claim import ClaimVerdict
from oncefence.domain.effect import Outcome
from oncefence.domain.ids import LeaseToken, WorkId
from oncefence.domain.lookup import Verdict
from oncefence.storage.claims import NotStarted
from oncefence.storage.phases.find_work import WorkRef
from oncefence.storage.phases.read_view import ViewShelf
from oncefence.storage.phases.settle_attempt import settle_attempt
from oncefence.storage.phases.settle_lookup import settle_lookup
from oncefence.storage.phases.start_attempt import start_attempt
from oncefence.storage.sealing import KeyRing
from tests.support.world import Accepted, World, an_end

pytestmark = pytest.mark.asyncio(loop_scope="module")

ATTEMPT = "oncefence.activities.attempt"
LOOKUP = "oncefence.activities.lookup"


def a_process(world: World, *, woken: list[WorkId] | None = None) -> ProcessContext:
    async def wake(ref: WorkRef) -> None:
        if woken is not None:
            woken.append(ref.work)

    return ProcessContext(
        engine=world.engine,
        ring=world.ring,
        limits=world.limits,
        owner=uuid4(),
        wake=wake,
        views=ViewShelf(world.engine),
    )


def run_of(world: World, work: WorkId, *, deadline_ms: int = 8_000) -> RunRequest:
    return RunRequest(
        org_id=world.org,
        work_id=str(work),
        deadline_ms=deadline_ms,
        as_of=datetime.now(UTC) + timedelta(seconds=5),
    )


async def attempts(world: World, accepted: Accepted) -> list[tuple[str, str]]:
    rows = await world.of_command("effect_attempts", accepted)
    return [(row.outcome, row.failure_class) for row in rows]


class TestTheDeadline:
    async def test_runs_while_the_mark_is_made(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A mark that took longer than the whole send leaves no time for one (C165, C166)."""
        accepted = await world.accept_command()
        seconds_gone = 0.0

        async def slow_mark(*these: Any, **those: Any) -> Any:
            nonlocal seconds_gone
            marked = await start_attempt(*these, **those)
            seconds_gone += 8.0
            return marked

        monkeypatch.setattr(f"{ATTEMPT}.boot_clock", lambda: 1_000.0 + seconds_gone)
        monkeypatch.setattr(f"{ATTEMPT}.start_attempt", slow_mark)

        await AttemptActivity(a_process(world)).run_attempt(run_of(world, accepted.work))

        # Nobody listens where the account is: a send would have ended as `connect`.
        assert await attempts(world, accepted) == [
            ("RETRYABLE_PRE_DISPATCH", "deadline_before_send")
        ]


class TestAMark:
    async def test_is_not_made_past_the_deadline(self, world: World) -> None:
        """Whoever only asks whether its own mark stands makes none by asking (C172)."""
        accepted = await world.accept_command()

        answer = await start_attempt(
            world.engine,
            world.org,
            accepted.work,
            as_of=(await world.item(accepted.work)).run_after,
            owner=uuid4(),
            token=LeaseToken(uuid4()),
            limits=world.limits,
            may_start=False,
        )

        assert isinstance(answer, NotStarted)
        assert answer.verdict is ClaimVerdict.NOT_MARKED
        assert await world.states(accepted) == ("pending", "accepted")

    async def test_that_nothing_can_be_made_of_is_told_as_unsent(self, world: World) -> None:
        """The starter knows that not one byte left, and its attempt stays not open (C154)."""
        accepted = await world.accept_command()
        context = replace(a_process(world), ring=KeyRing({"another": bytes(32)}))

        await asyncio.gather(
            AttemptActivity(context).run_attempt(run_of(world, accepted.work)),
            return_exceptions=True,
        )

        assert await attempts(world, accepted) == [("RETRYABLE_PRE_DISPATCH", "not_sent")]
        assert await world.states(accepted) == ("retry", "retrying")


class TestALateAnswer:
    async def test_of_a_starter_that_was_taken_for_dead_is_kept(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It cannot settle any more, and what it knows is the best that there is (C105, C159)."""
        accepted = await world.accept_command()
        woken: list[WorkId] = []

        async def too_late(*these: Any, **those: Any) -> Any:
            if (await world.item(accepted.work)).state == "processing":
                await world.expire_lease(accepted.work)
                await world.settle_as_lost(accepted.work)
            return await settle_attempt(*these, **those)

        monkeypatch.setattr(f"{ATTEMPT}.settle_attempt", too_late)

        await AttemptActivity(a_process(world, woken=woken)).run_attempt(
            run_of(world, accepted.work)
        )

        kept = await world.sql(
            "SELECT kind, verdict FROM oncefence.attempt_evidence WHERE org_id = :org"
        )
        assert [tuple(row) for row in kept] == [("unsent", "lookup_now")]
        items = await world.of_command("work_items", accepted)
        assert woken == [row.work_id for row in items if row.family == "effect.lookup"]


class TestWhoStandsBehind:
    async def test_is_woken_when_the_attempt_before_it_is_settled(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Nobody waits for a timer because somebody else has finished (C228)."""
        first = await world.accept_command()
        second = await world.accept_command(title="Head")
        woken: list[WorkId] = []
        monkeypatch.setattr(f"{ATTEMPT}.settle_attempt", _as_accepted(settle_attempt))

        await AttemptActivity(a_process(world, woken=woken)).run_attempt(run_of(world, first.work))

        assert await world.states(first) == ("succeeded", "succeeded")
        assert woken == [second.work]

    async def test_is_woken_when_the_lookup_before_it_is_settled(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A lookup stands in no lane and returns those of its command all the same (C228)."""
        first, _, lookup_work = await world.an_unknown_command()
        second = await world.accept_command(title="Head")
        woken: list[WorkId] = []
        monkeypatch.setattr(f"{LOOKUP}.settle_lookup", _as_applied(settle_lookup))

        await LookupActivity(a_process(world, woken=woken)).run_lookup(run_of(world, lookup_work))

        assert (await world.execution(first)).status == "succeeded"
        assert woken == [second.work]


def _as_accepted(settle: Callable[..., Any]) -> Callable[..., Any]:
    """The phase, told that the provider took what could in truth not be sent."""

    async def settled(engine: Any, fence: Any, attempt: Any, _: Any, **those: Any) -> Any:
        return await settle(engine, fence, attempt, an_end(Outcome.ACCEPTED), **those)

    return settled


def _as_applied(settle: Callable[..., Any]) -> Callable[..., Any]:
    """The phase, told that the provider has what was asked for."""

    async def settled(engine: Any, fence: Any, end: Any, **those: Any) -> Any:
        return await settle(engine, fence, replace(end, verdict=Verdict.APPLIED), **those)

    return settled
