"""What the database should refuse the application role, and today lets through."""

from string import Template
from uuid import uuid4

import pytest
from sqlalchemy.exc import DBAPIError

from tests.storage.guard_cases import open_attempt
from tests.support.world import World

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_an_attempt_is_not_settled_while_its_execution_goes_on_running(world: World) -> None:
    """C100, C183: running without an open attempt is refused whichever row was written last."""
    _, started = await world.a_running_command()
    with pytest.raises(DBAPIError, match="open attempt"):
        await world.sql(
            "UPDATE oncefence.effect_attempts SET settled_at = clock_timestamp(),"
            " settled_as = 'starter', settled_token = lease_token,"
            " settled_epoch = ownership_epoch, outcome = 'RETRYABLE_PRE_DISPATCH',"
            " may_have_applied = false WHERE org_id = :org AND attempt_id = :attempt",
            attempt=started.attempt,
        )


async def test_unsent_is_the_word_of_the_start_tokens_holder(world: World) -> None:
    """C182, C190: evidence under another token than the attempt's own proves nothing."""
    _, started, _ = await world.an_unknown_command()
    with pytest.raises(DBAPIError):
        await world.sql(
            "INSERT INTO oncefence.attempt_evidence (org_id, evidence_id, attempt_id, kind,"
            " start_token, execution_status, verdict)"
            " VALUES (:org, :evidence, :attempt, 'unsent', :token, 'unknown', 'lookup_now')",
            evidence=uuid4(),
            attempt=started.attempt,
            token=uuid4(),
        )


async def test_a_prepared_attempt_is_marked_by_the_live_claimant_alone(world: World) -> None:
    """C54, C150: the mark of a claimant whose item was reclaimed is refused."""
    accepted = await world.accept_command()
    claim = (
        "UPDATE oncefence.work_items SET state = 'processing', via = :via, lease_owner = :token,"
        " lease_token = :token, lease_until = clock_timestamp() + interval '1 hour',"
        " ownership_epoch = ownership_epoch + 1 WHERE org_id = :org AND work_id = :work"
    )
    stale = uuid4()
    await world.sql(claim, via="claim", token=stale, work=accepted.work)
    prepared = open_attempt("pending", started_at="NULL", started_as_of="NULL")
    await world.sql(Template(prepared).substitute(org=world.org, pending=accepted.work))
    await world.expire_lease(accepted.work)
    await world.sql(claim, via="reclaim", token=uuid4(), work=accepted.work)
    mark = (
        "UPDATE oncefence.effect_attempts SET started_at = clock_timestamp(),"
        " started_as_of = clock_timestamp() WHERE org_id = :org AND lease_token = :stale"
    )
    run = (
        "UPDATE oncefence.executions SET status = 'running', via = 'begin_delivery',"
        " attempt = attempt + 1 WHERE org_id = :org AND execution_id = :execution"
    )
    with pytest.raises(DBAPIError):
        await world.transaction(mark, run, stale=stale, execution=accepted.execution)


async def test_a_doubt_is_superseded_only_by_an_attempt_that_exists(world: World) -> None:
    """C225: naming a successor out of thin air does not return the lane."""
    _, started, _ = await world.an_unknown_command()
    with pytest.raises(DBAPIError):
        await world.sql(
            "UPDATE oncefence.effect_attempts SET superseded_by = :nobody"
            " WHERE org_id = :org AND attempt_id = :attempt",
            attempt=started.attempt,
            nobody=uuid4(),
        )


async def test_a_lane_never_gives_a_place_twice(world: World) -> None:
    """C221: a sequence that was drawn is never drawn again, nor one before it."""
    await world.accept_command()
    with pytest.raises(DBAPIError):
        await world.sql("UPDATE oncefence.lanes SET sequence = sequence - 1 WHERE org_id = :org")
