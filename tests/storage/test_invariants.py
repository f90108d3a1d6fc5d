"""The audit's rules: silent on what the phases made, and each loud when its rule is broken."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import asyncpg
import pytest

from oncefence.domain.effect import Outcome
from oncefence.domain.errors import HandoffConflict
from oncefence.domain.lookup import Verdict
from oncefence.storage.invariants import INVARIANTS, QUEUES
from oncefence.storage.phases.audit_invariants import ROWS_MAX, Audit, audit_invariants
from tests.support.books import OPEN, Books, BooksWorld
from tests.support.servers import Database
from tests.support.world import Accepted, World, an_end


@dataclass(frozen=True, slots=True, kw_only=True)
class Commands:
    """One command in each kind of state; each has a subject of its own."""

    world: World
    waiting: Accepted
    running: Accepted
    done: Accepted
    refused: Accepted
    unknown: Accepted

    @classmethod
    async def make(cls, database: Database) -> "Commands":
        world = await World.make(database)
        waiting = await world.accept_command("lead-w")
        running, _ = await world.a_running_command("lead-r")
        done, started = await world.a_running_command("lead-d")
        await world.settle(started, Outcome.ACCEPTED)
        refused, started = await world.a_running_command("lead-f")
        await world.settle(started, an_end(Outcome.REJECTED, response_status=400))
        unknown, _, _ = await world.an_unknown_command("lead-u")
        return cls(
            world=world,
            waiting=waiting,
            running=running,
            done=done,
            refused=refused,
            unknown=unknown,
        )


@pytest.fixture
async def commands(database: Database) -> Commands:
    return await Commands.make(database)


async def plant(database: Database, *statements: str) -> None:
    """Write past every trigger and foreign key, as a fault of the database itself would."""
    connection = await asyncpg.connect(database.admin_url)
    try:
        async with connection.transaction():
            await connection.execute("SET LOCAL session_replication_role = replica")
            await connection.execute("SET LOCAL search_path TO oncefence")
            for statement in statements:
                await connection.execute(statement)
    finally:
        await connection.close()


def found(audit: Audit) -> dict[str, int]:
    """What is broken or listed, by the name of the rule."""
    return {each.rule.name: each.count for each in (*audit.invariants, *audit.queues) if each.count}


def of(accepted: Accepted) -> str:
    return f"command_id = '{accepted.command}'"


def copy_of_attempt(accepted: Accepted) -> str:
    return (
        "INSERT INTO effect_attempts SELECT (jsonb_populate_record(a, jsonb_build_object("
        "'attempt_id', gen_random_uuid(), 'lease_token', gen_random_uuid(), 'ordinal', 2,"
        " 'ownership_epoch', 7))).*"
        f" FROM effect_attempts AS a WHERE {of(accepted)}"
    )


def renewals(commands: Commands, count: int, outcome: str | None) -> str:
    """So many calls for the one token version of the org, all of which came to this."""
    end = "NULL, NULL" if outcome is None else f"'{outcome}', clock_timestamp()"
    return (
        "INSERT INTO token_refreshes (org_id, refresh_id, generation_id, from_version, rotation,"
        " because, work_id, lease_token, ownership_epoch, lease_owner, lease_until, outcome,"
        " settled_at) SELECT g.org_id, gen_random_uuid(), g.generation_id, 1, 'rotating',"
        " 'expired', gen_random_uuid(), gen_random_uuid(), 1, gen_random_uuid(),"
        f" clock_timestamp(), {end} FROM binding_generations AS g, generate_series(1, {count})"
        f" WHERE g.org_id = '{commands.world.org}'"
    )


def a_count(commands: Commands, used: int) -> str:
    """A count of the org's that has a limit of five, and of which so much is used."""
    return (
        "INSERT INTO quota_counts (quota_key, provider, dimension, time_window, window_seconds,"
        " limit_max, org_id, used) SELECT 'a-count', 'hubspot', 'burst', 'rolling', 10, 5,"
        f" '{commands.world.org}', array_fill(0, ARRAY[64]) || {used}"
    )


UNGUARDED = ("DROP INDEX one_unsettled", "DROP INDEX lane_held")
BROKEN: dict[str, Callable[[Commands], tuple[str, ...]]] = {
    "one_open_attempt_per_command": lambda c: (*UNGUARDED, copy_of_attempt(c.running)),
    "one_accepted_attempt_per_command": lambda c: (*UNGUARDED, copy_of_attempt(c.done)),
    "no_attempt_over_a_doubtful_one": lambda c: (*UNGUARDED, copy_of_attempt(c.unknown)),
    "attempts_keep_what_the_command_pinned": lambda c: (
        f"UPDATE effect_attempts SET link_version = 9 WHERE {of(c.done)}",
    ),
    "slot_follows_its_create": lambda c: (
        f"UPDATE commands SET remote_id = NULL WHERE {of(c.waiting)}",
    ),
    "quota_stays_within_its_limit": lambda c: (a_count(c, 6),),
    "nothing_is_sent_without_its_quota": lambda c: (
        f"UPDATE effect_attempts SET quota = '[{{}}]' WHERE {of(c.done)}",
    ),
    "one_revision_per_command": lambda c: (
        f"UPDATE work_items SET view_revision = 2 WHERE {of(c.waiting)}",
    ),
    "revisions_are_as_they_were_published": lambda c: (
        f"UPDATE binding_views SET content = content || ' ' WHERE org_id = '{c.world.org}'",
    ),
    "a_binding_has_its_current_revision": lambda c: (
        f"UPDATE view_activations SET ordinal = 2 WHERE org_id = '{c.world.org}'",
    ),
    "settled_by_the_claim_that_started": lambda c: (
        f"UPDATE effect_attempts SET settled_epoch = 99 WHERE {of(c.done)}",
    ),
    "open_attempt_is_held": lambda c: (
        f"UPDATE work_items SET lease_token = gen_random_uuid() WHERE {of(c.running)}",
    ),
    "attempts_are_counted": lambda c: (f"UPDATE executions SET attempt = 5 WHERE {of(c.done)}",),
    "running_has_its_open_attempt": lambda c: (
        f"UPDATE executions SET status = 'running' WHERE {of(c.done)}",
    ),
    "unknown_is_looked_up": lambda c: (
        f"UPDATE work_items SET state = 'dead' WHERE {of(c.unknown)} AND family = 'effect.lookup'",
    ),
    "never_silently_idle": lambda c: (
        f"UPDATE work_items SET state = 'dead' WHERE {of(c.waiting)}",
    ),
    "final_has_no_active_item": lambda c: (
        f"UPDATE executions SET status = 'cancelled' WHERE {of(c.waiting)}",
    ),
    "one_active_item_per_command": lambda c: (
        "DROP INDEX one_active_work_item_per_command",
        (
            "INSERT INTO work_items SELECT (jsonb_populate_record(w, jsonb_build_object("
            f"'work_id', gen_random_uuid()))).* FROM work_items AS w WHERE {of(c.waiting)}"
        ),
    ),
    "one_processing_per_lane": lambda c: (
        (
            "UPDATE work_items SET state = 'processing', source_lane ="
            f" (SELECT r.source_lane FROM work_items AS r WHERE r.{of(c.running)})"
            f" WHERE {of(c.waiting)}"
        ),
    ),
    "claims_hold_a_lease": lambda c: (
        f"UPDATE work_items SET lease_token = gen_random_uuid() WHERE {of(c.waiting)}",
    ),
    "acceptance_is_whole": lambda c: (f"DELETE FROM work_items WHERE {of(c.waiting)}",),
    "command_has_its_admission": lambda c: (f"DELETE FROM handoffs WHERE {of(c.waiting)}",),
    "payload_is_sealed": lambda c: (
        (
            f"DELETE FROM sealed_payloads WHERE execution_id = '{c.done.execution}'"
            " AND kind = 'payload'"
        ),
    ),
    "settlement_has_its_completion": lambda c: (
        f"DELETE FROM completions WHERE execution_id = '{c.refused.execution}'",
    ),
    "success_has_its_evidence": lambda c: (
        f"UPDATE executions SET status = 'succeeded' WHERE {of(c.refused)}",
    ),
    "failure_leaves_no_doubt": lambda c: (
        f"UPDATE executions SET status = 'failed' WHERE {of(c.unknown)}",
    ),
    "proof_has_its_evidence": lambda c: (
        (
            "UPDATE effect_attempts SET disposition = 'no_effect_proof',"
            f" disposed_at = clock_timestamp() WHERE {of(c.unknown)}"
        ),
    ),
    "current_generation_has_its_token": lambda _: ("DELETE FROM token_versions",),
    "a_rotating_token_is_spent_once": lambda c: (renewals(c, 2, "superseded"),),
    "tokens_come_of_their_renewals": lambda _: (
        "UPDATE token_versions SET made_because = 'expired'",
    ),
    "an_open_renewal_stands_in_its_grant": lambda c: (renewals(c, 1, None),),
    "audit_rows_follow_one_another": lambda _: (
        "UPDATE audit SET actor = 'somebody else' WHERE sequence = 2",
    ),
}


async def test_what_the_phases_made_breaks_no_rule(commands: Commands) -> None:
    """An alarm that rings without a fault is switched off (C464)."""
    audit = await audit_invariants(commands.world.engine)

    assert found(audit) == {}
    assert (audit.violations, audit.commands) == (0, 5)


def test_every_rule_has_a_test() -> None:
    """A rule that never rang may not be able to."""
    assert set(BROKEN) == {rule.name for rule in INVARIANTS}
    assert set(LISTED) == {rule.name for rule in QUEUES}


@pytest.mark.parametrize("name", BROKEN)
async def test_a_broken_rule_is_found(commands: Commands, database: Database, name: str) -> None:
    """Each rule judges the rows themselves, with the guards switched off (C464)."""
    await plant(database, *BROKEN[name](commands))

    audit = await audit_invariants(database.app_engine)

    assert found(audit).get(name) == 1
    (finding,) = [each for each in audit.invariants if each.rule.name == name]
    assert finding.rows[0]["org_id"] == commands.world.org


async def a_contradiction(world: World) -> None:
    _, started = await world.a_command_for_a_person("lead-x")
    await world.tell(started, an_end(Outcome.ACCEPTED, response_status=200))


async def a_conflict(world: World) -> None:
    await world.accept_command("lead-c", outbox="once")
    with pytest.raises(HandoffConflict):
        await world.accept_command("lead-c", title="another", outbox="once")


async def a_blocked_lane(world: World) -> None:
    await world.an_unknown_command("lead-b")
    await world.accept_command("lead-b")


async def a_blocked_lookup(world: World) -> None:
    _, _, lookup_work = await world.an_unknown_command("lead-l")
    await world.look(lookup_work, Verdict.UNREACHABLE)
    await plant(
        world.database,
        "UPDATE lookups SET looked_at = looked_at - interval '25 hours'",
    )


async def a_person_is_asked(world: World) -> None:
    await world.a_command_for_a_person("lead-p")


async def a_legacy_item(world: World) -> None:
    accepted = await world.accept_command("lead-o")
    await plant(
        world.database,
        f"UPDATE work_items SET state = 'legacy_outcome_unknown' WHERE {of(accepted)}",
    )


async def a_refused_credential(world: World) -> None:
    await world.accept_command("lead-t")
    await plant(
        world.database,
        "UPDATE authorization_grants SET state = 'needs_reauthorization'"
        f" WHERE org_id = '{world.org}'",
    )


LISTED = {
    "refresh_unknown": a_refused_credential,
    "needs_attention": a_person_is_asked,
    "contradiction": a_contradiction,
    "lookup_blocked": a_blocked_lookup,
    "lane_blocked": a_blocked_lane,
    "quarantined": a_conflict,
    "legacy_outcome_unknown": a_legacy_item,
}


@pytest.mark.parametrize("name", LISTED)
async def test_what_waits_for_a_person_is_listed(database: Database, name: str) -> None:
    """A queue lists it, and standing there breaks no rule (C3, C4)."""
    world = await World.make(database)
    await LISTED[name](world)

    audit = await audit_invariants(world.engine, with_standings=True)

    assert found(audit)[name] == 1
    assert audit.violations == 0
    assert any(name in standing.listed_in for standing in audit.standings)


async def test_a_lookup_that_reached_the_provider_since_is_not_blocked(database: Database) -> None:
    """A day without an answer counts from the last answer (C266)."""
    world = await World.make(database)
    await a_blocked_lookup(world)
    (row,) = await world.sql(
        "SELECT work_id FROM oncefence.lookups WHERE org_id = :org AND verdict = 'unreachable'"
    )
    await world.look(row.work_id, Verdict.INCONCLUSIVE)

    assert "lookup_blocked" not in found(await audit_invariants(world.engine))


async def test_a_create_that_cannot_be_looked_for_is_listed_too(database: Database) -> None:
    """It waits for its provider and nobody else would notice (C4, C342)."""
    world = await BooksWorld.at(database, Books())
    accepted = await world.create(operation=OPEN)
    await world.run(accepted)
    assert "lookup_blocked" not in found(await audit_invariants(world.engine))

    await plant(database, "UPDATE lookups SET looked_at = looked_at - interval '25 hours'")

    audit = await audit_invariants(world.engine)
    assert (found(audit), audit.violations) == ({"lookup_blocked": 1}, 0)


async def test_a_day_is_scaled_with_the_rest(database: Database) -> None:
    """A demonstration does not wait for a day (C208)."""
    world = await World.make(database)
    _, _, lookup_work = await world.an_unknown_command()
    await world.look(lookup_work, Verdict.UNREACHABLE)
    await plant(database, "UPDATE lookups SET looked_at = looked_at - interval '10 minutes'")

    at_full_length = await audit_invariants(world.engine)
    scaled = await audit_invariants(world.engine, time_scale=0.001)

    assert "lookup_blocked" not in found(at_full_length)
    assert found(scaled)["lookup_blocked"] == 1


async def test_all_rows_are_counted_and_the_first_are_read(database: Database) -> None:
    """A broken table must be told in figures, not loaded."""
    world = await World.make(database)
    await world.accept_command()
    await plant(
        database,
        "INSERT INTO commands SELECT (jsonb_populate_record(c, jsonb_build_object("
        "'command_id', gen_random_uuid(), 'handoff_key', c.handoff_key || n))).*"
        f" FROM commands AS c, generate_series(1, {ROWS_MAX + 5}) AS n",
    )

    audit = await audit_invariants(world.engine)

    (finding,) = [e for e in audit.invariants if e.rule.name == "command_has_its_admission"]
    assert (finding.count, len(finding.rows)) == (ROWS_MAX + 5, ROWS_MAX)


async def test_an_audit_sees_one_moment(database: Database) -> None:
    """Between two statements a healthy command moves, and would contradict itself."""
    world = await World.make(database)
    accepted = await world.accept_command()
    holder = await asyncpg.connect(database.admin_url)
    try:
        held = holder.transaction()
        await held.start()
        # The audit comes to a standstill between its first rule and its last.
        await holder.execute("LOCK TABLE oncefence.completions IN ACCESS EXCLUSIVE MODE")
        auditing = asyncio.create_task(audit_invariants(world.engine, with_standings=True))
        async with asyncio.timeout(20):
            while not await holder.fetchval(
                "SELECT count(*) FROM pg_locks WHERE NOT granted"
                " AND relation = 'oncefence.completions'::regclass"
            ):
                await asyncio.sleep(0.01)
        await world.start(accepted)
        await held.rollback()
        audit = await auditing
    finally:
        await holder.close()

    assert [standing.status for standing in audit.standings] == ["accepted"]
    assert (await world.execution(accepted)).status == "running"
