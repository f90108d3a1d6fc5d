"""Rows of every table, by the names under which the cases of the guards know them."""

from uuid import uuid4

from oncefence.domain.effect import Outcome
from oncefence.domain.lookup import Verdict
from oncefence.storage.phases.publish_view import publish_view
from tests.storage.guard_facts_connections import connection_facts
from tests.storage.guard_facts_grants import grant_facts
from tests.storage.lifecycle_rows import CLAIM
from tests.support.books import Books, BooksWorld
from tests.support.world import INSTALLATION, World, an_end, example_view


async def facts(world: World, other: World) -> dict[str, str]:
    """Rows of every table, by the names that the cases use for them."""
    pending = await world.accept_command("lead-pending")
    behind = await world.accept_command("lead-pending", title="Head")
    running, opened = await world.a_running_command("lead-running")
    waiting = await world.accept_command("lead-waiting")
    retried = await world.start(waiting)
    await world.settle(retried, Outcome.REPLAY_SAFE_RETRY)
    succeeded = await world.accept_command("lead-succeeded")
    await world.settle(await world.start(succeeded), Outcome.ACCEPTED)
    lost, lost_attempt, looking = await world.an_unknown_command("lead-lost")
    await world.tell(lost_attempt, an_end(Outcome.ACCEPTED))
    behind_doubt = await world.accept_command("lead-lost", title="Head")
    _, other_lost, _ = await world.an_unknown_command("lead-other-lost")
    await world.tell(other_lost, an_end(Outcome.RETRYABLE_PRE_DISPATCH))
    _, attended, attended_lookup = await world.an_unknown_command("lead-attended")
    await world.look(attended_lookup, Verdict.INCONCLUSIVE)
    await world.look(attended_lookup, Verdict.UNUSABLE)
    await world.tell(attended, an_end(Outcome.ACCEPTED))
    held = await world.accept_command("lead-held")
    await world.sql(
        f"UPDATE oncefence.work_items SET state = 'processing', via = 'claim', {CLAIM}"
        " WHERE org_id = :org AND work_id = :work",
        work=held.work,
    )
    fenced = await world.accept_command("lead-fenced")
    await world.sql(
        "UPDATE oncefence.work_items SET state = 'awaiting_legacy_outcome', via = 'rollback_fence',"
        " rollback_fence_id = gen_random_uuid() WHERE org_id = :org AND work_id = :work",
        work=fenced.work,
    )
    rejected = await world.offer("lead-rejected")
    await world.reject(rejected)
    await world.sql(
        "INSERT INTO oncefence.handoff_conflicts (org_id, conflict_id, handoff_key, field, verb,"
        " offered_outbox_id, offered_payload_address) SELECT org_id, gen_random_uuid(),"
        " handoff_key, 'outbox id', 'accept', 'x', payload_address FROM oncefence.handoffs"
        " WHERE org_id = :org LIMIT 1"
    )
    await world.sql(
        "INSERT INTO oncefence.work_nudges SELECT org_id, work_id, run_after, 0, 1, run_after"
        " FROM oncefence.work_items WHERE org_id = :org AND work_id = :work",
        work=pending.work,
    )
    pause, ended_pause, operator, revoked = (str(uuid4()) for _ in range(4))
    for pause_id, definition in ((pause, "nothing"), (ended_pause, "nothing.else")):
        await world.sql(
            "INSERT INTO oncefence.pauses (org_id, pause_id, provider, definition, paused_by,"
            " paused_note) VALUES (:org, :pause, 'nobody', :definition, 'ann', 'a note')",
            pause=pause_id,
            definition=definition,
        )
    await world.sql(
        "UPDATE oncefence.pauses SET resumed_by = 'ann', resumed_note = 'a note', ramp_seconds = 0,"
        " resumed_at = clock_timestamp() WHERE org_id = :org AND pause_id = :pause",
        pause=ended_pause,
    )
    for operator_id in (operator, revoked):
        await world.sql(
            "INSERT INTO oncefence.operators (operator_id, name, token_hash, roles, orgs)"
            " VALUES (:id, :name, sha256(convert_to(:name, 'UTF8')), '{viewer}', ARRAY[:org])",
            id=operator_id,
            name=f"operator {operator_id}",
        )
    await world.sql(
        "UPDATE oncefence.operators SET revoked_at = clock_timestamp() - interval '1 hour'"
        " WHERE operator_id = :id",
        id=revoked,
    )
    await world.sql(
        "INSERT INTO oncefence.pressure_revisions (view_name, revision, source_snapshot,"
        " source_time, is_dropped) VALUES ('guards', 5, pg_current_snapshot()::text,"
        " clock_timestamp(), false)"
    )
    await world.sql(
        "INSERT INTO oncefence.work_pressure (org_id, family, provider, state, revision, depth,"
        " due, oldest_made_at) VALUES (:org, 'made.up', '', 'pending', 5, 1, 0, clock_timestamp())"
    )
    await publish_view(
        world.engine, world.org, INSTALLATION, example_view(is_sensitive=True), actor="tests"
    )
    await world.sql(
        "SELECT oncefence.note_breaker(:org, 'somebody', 'writes', gen_random_uuid(), false,"
        " 'failure', clock_timestamp())"
    )
    view, ahead = await world.sql(
        "SELECT view_id, digest FROM oncefence.binding_views WHERE org_id = :org ORDER BY revision"
    )
    # In an org of its own: the other cases take any link of theirs for one with a record.
    creates = await BooksWorld.at(world.database, Books())
    creating, repeated = await creates.create("creating"), await creates.create("repeated")
    await creates.settle(
        await creates.start(repeated), Outcome.REPLAY_SAFE_RETRY, may_have_applied=True
    )
    unkeyed = await world.accept_command("lead-unkeyed")
    await world.settle(await world.start(unkeyed), Outcome.REPLAY_SAFE_RETRY, may_have_applied=True)
    evidence = await world.sql(
        "SELECT evidence_id, attempt_id FROM oncefence.attempt_evidence WHERE org_id = :org"
    )
    evidence_of = {row.attempt_id: str(row.evidence_id) for row in evidence}
    prefix = str(rejected.key).rsplit(".", 1)[0]
    return {
        "org": world.org,
        "new": "00000000-0000-8000-8000-0000000000ff",
        "other": "00000000-0000-8000-8000-0000000000fe",
        "pending": str(pending.work),
        "pending_command": str(pending.command),
        "pending_execution": str(pending.execution),
        "behind": str(behind.work),
        "running": str(running.work),
        "running_command": str(running.command),
        "running_execution": str(running.execution),
        "open": str(opened.attempt),
        "waiting": str(waiting.work),
        "retried": str(retried.attempt),
        "succeeded": str(succeeded.work),
        "dead": str(lost.work),
        "lost": str(lost_attempt.attempt),
        "lost_execution": str(lost.execution),
        "other_lost_execution": str(other_lost.execution),
        "looking": str(looking),
        "behind_doubt": str(behind_doubt.work),
        "held": str(held.work),
        "fenced": str(fenced.work),
        "creates_org": creates.org,
        "creating_command": str(creating.command),
        "repeated": str(repeated.work),
        "unkeyed": str(unkeyed.work),
        **await connection_facts(await World.make(world.database)),
        "pause": pause,
        "ended_pause": ended_pause,
        "operator": operator,
        "revoked_operator": revoked,
        "view": str(view.view_id),
        "view_digest": view.digest,
        "ahead": str(ahead.view_id),
        "ahead_digest": ahead.digest,
        "answer_evidence": evidence_of[lost_attempt.attempt],
        "other_lost": str(other_lost.attempt),
        "other_unsent_evidence": evidence_of[other_lost.attempt],
        "accepted_key": str(pending.handover.key),
        "rejected_key": str(rejected.key),
        "prefix": prefix,
        "other_prefix": prefix.replace(world.org, other.org),
        "where_lane": f"WHERE org_id = '{world.org}' AND lane_key = 'source:lead-pending'",
        "where_link": f"WHERE org_id = '{world.org}' AND subject = 'lead-pending'",
        "where_slot": f"WHERE org_id = '{creates.org}' AND subject = 'creating'",
        **await grant_facts(world.database),
    }
