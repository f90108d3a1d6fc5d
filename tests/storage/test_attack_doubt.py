"""Where an attempt may have applied under a provider's key, and a later one hides it."""

from datetime import timedelta
from uuid import uuid4

import pytest

from oncefence.activities.lookup import strongest
from oncefence.domain.effect import Outcome
from oncefence.domain.ids import LeaseToken, WorkId
from oncefence.domain.limits import Limits
from oncefence.domain.lookup import Verdict
from oncefence.storage.claims import NotStarted
from oncefence.storage.phases.start_attempt import start_attempt
from tests.support.servers import Database
from tests.support.world import Accepted, World, an_end

pytestmark = pytest.mark.asyncio(loop_scope="module")

DAY = 86_400
AGAIN = (
    "INSERT INTO oncefence.work_items (org_id, work_id, family, subject_kind, subject_id,"
    " command_id, execution_id, installation, view_id, view_digest, view_revision, definition,"
    " provider, binding_id, queue_class, deadline_ms, source_lane, source_sequence, target_lane,"
    " target_sequence, replays_work_id, state, via, run_after) SELECT org_id, :again, family,"
    " subject_kind, subject_id, command_id, execution_id, installation, view_id, view_digest,"
    " view_revision, definition, provider, binding_id, queue_class, deadline_ms, source_lane,"
    " source_sequence, target_lane, target_sequence, work_id, 'pending', 'create',"
    " clock_timestamp() FROM oncefence.work_items WHERE org_id = :org AND work_id = :work"
)


async def a_keyed_command(world: World, *, window_seconds: int = DAY) -> Accepted:
    accepted = await world.accept_command()
    await world.give_idempotency_key(accepted, window_seconds=window_seconds)
    return accepted


async def test_a_late_answer_that_may_have_applied_is_no_refusal(world: World) -> None:
    """C84, C106: a 5xx under a key, told late, leaves the outcome as unknown as it was."""
    started = await world.start(await a_keyed_command(world))
    lookup = await world.lose(started)
    late = an_end(Outcome.REPLAY_SAFE_RETRY, may_have_applied=True, response_status=503)
    await world.tell(started, late)
    looking = await world.start_looking(lookup)
    assert strongest(looking.late_words) is None


async def test_a_lookup_does_not_fail_what_an_earlier_attempt_may_have_done(world: World) -> None:
    """C83: that the second attempt was never sent says nothing about the first."""
    accepted = await a_keyed_command(world)
    first = await world.start(accepted)
    await world.settle(first, Outcome.REPLAY_SAFE_RETRY, may_have_applied=True)
    second = await world.start(accepted)
    lookup = await world.lose(second)
    await world.tell(second, an_end(Outcome.RETRYABLE_PRE_DISPATCH))
    await world.look(lookup, Verdict.UNSENT)
    doubt = await world.attempt(first.attempt)
    status = (await world.execution(accepted)).status
    assert status != "failed" or doubt.disposition is not None, "failed over a doubt"


async def test_a_superseded_doubt_holds_its_lane_while_it_is_looked_up(store: Database) -> None:
    """C223, C225: the successor of an unknown command waits, whichever attempt is in doubt."""
    world = await World.make(store, limits=Limits(attempts_max=2))
    accepted = await a_keyed_command(world)
    first = await world.start(accepted)
    await world.settle(first, Outcome.REPLAY_SAFE_RETRY, may_have_applied=True)
    second = await world.start(accepted)
    settled = await world.settle(second, Outcome.RETRYABLE_PRE_DISPATCH)
    assert settled.execution_status == "unknown"
    behind = await world.try_to_start(await world.accept_command())
    assert isinstance(behind, NotStarted), "sent past an unknown outcome"
    assert behind.verdict == "lane_blocked"


async def test_that_nothing_was_found_permits_no_other_attempt(store: Database) -> None:
    """C102, C179, C189: an operator's retry over `not_found` starts nothing."""
    world = await World.make(store, limits=Limits(attempts_max=1))
    accepted = await a_keyed_command(world, window_seconds=60)
    first = await world.start(accepted)
    settled = await world.settle(first, Outcome.REPLAY_SAFE_RETRY, may_have_applied=True)
    assert settled.lookup is not None
    for _ in range(5):
        await world.look(settled.lookup.work, Verdict.NOT_FOUND)
    assert (await world.attempt(first.attempt)).disposition == "not_found"
    again = WorkId(uuid4())
    await world.transaction(
        AGAIN,
        "UPDATE oncefence.executions SET status = 'retrying', via = 'operator_retry'"
        " WHERE org_id = :org AND execution_id = :execution",
        again=again,
        work=accepted.work,
        execution=accepted.execution,
    )
    long_after = await world.now() + timedelta(days=3)
    second = await start_attempt(
        world.engine,
        world.org,
        again,
        as_of=long_after,
        owner=uuid4(),
        token=LeaseToken(uuid4()),
        limits=world.limits,
    )
    assert isinstance(second, NotStarted), "sent again over an effect that was never disproved"
