"""
Every rule of the database, broken once as the application role and once as the owner.

The owner has every grant and could switch a guard off; that it is refused too shows that the
guard itself speaks, and that no grant or other guard hides it (C184).
"""

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from string import Template

import asyncpg
import pytest
import pytest_asyncio

from tests.storage.guard_cases import CASES, FOREIGN_KEY, NO_GRANT, Case, attempt, change, facts
from tests.storage.lifecycle_rows import CLAIM
from tests.support.servers import Database
from tests.support.world import World

pytestmark = pytest.mark.asyncio(loop_scope="module")

APPEND_ONLY = (
    "attempt_evidence audit binding_views commands contradictions handoff_conflicts handoffs"
    " lifecycle_transitions lookups org_keys principal_bindings runtime_work_bindings"
    " sealed_payloads settlement_rules token_versions"
).split()
KEPT = (
    "attempt_evidence audit binding_generations binding_views commands completions contradictions"
    " deployment effect_attempts execution_keys executions handoff_conflicts lanes"
    " lifecycle_transitions lookups org_keys principal_bindings remote_links runtime_work_bindings"
    " sealed_payloads settlement_rules staged_payloads token_versions work_items"
).split()
NEVER_TRUNCATED = sorted([*KEPT, "handoffs"])
NO_RULE = {"executions_unsettled"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def other_world(store: Database) -> World:
    world = await World.make(store)
    _, _, lookup = await world.an_unknown_command("lead-1")
    await world.start_looking(lookup)
    return world


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def known(store: Database, other_world: World) -> dict[str, str]:
    return await facts(await World.make(store), other_world)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def roles(store: Database) -> AsyncIterator[dict[str, asyncpg.Connection]]:
    application = await asyncpg.connect(store.app_url)
    owner = await asyncpg.connect(store.migrator_url)
    await owner.execute("SET ROLE oncefence_owner")
    yield {"application": application, "owner": owner}
    await application.close()
    await owner.close()


@asynccontextmanager
async def undone(connection: asyncpg.Connection) -> AsyncIterator[None]:
    transaction = connection.transaction()
    await transaction.start()
    try:
        yield
    finally:
        await transaction.rollback()


async def refusal(connection: asyncpg.Connection, *statements: str) -> asyncpg.PostgresError:
    """How the last statement is refused; those before it must pass."""
    *before, last = statements
    async with undone(connection):
        for statement in before:
            await connection.execute(statement)
        with pytest.raises(asyncpg.PostgresError) as refused:
            await connection.execute(last)
    return refused.value


async def refusal_at_commit(
    connection: asyncpg.Connection, *statements: str
) -> asyncpg.PostgresError:
    """How COMMIT is refused after statements that all passed."""
    transaction = connection.transaction()
    await transaction.start()
    for statement in statements:
        await connection.execute(statement)
    with pytest.raises(asyncpg.PostgresError) as refused:
        await transaction.commit()
    return refused.value


def switch_off(case: Case) -> list[str]:
    pairs = (trigger.split(".") for trigger in case.behind)
    return [f"ALTER TABLE oncefence.{table} DISABLE TRIGGER {name}" for table, name in pairs]


@pytest.mark.parametrize("role", ["application", "owner"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_the_rule_is_held_against_everyone(
    roles: dict[str, asyncpg.Connection], known: dict[str, str], case: Case, role: str
) -> None:
    """A rule that only the program keeps is lost with the first bug in the program (C177-C184)."""
    statements = [Template(statement).substitute(known) for statement in case.sql]
    expected = case.code
    if role == "owner":
        statements = [*switch_off(case), *statements]
    elif case.app_code is not None:
        expected = case.app_code

    refuse = refusal_at_commit if case.at_commit else refusal
    error = await refuse(roles[role], *statements)

    assert error.sqlstate == expected, error
    if expected == case.code and expected.startswith("23"):
        assert error.constraint_name == case.guard
    if role == "owner" or not case.behind:
        assert str(error).startswith(case.says)


# What is said of an attempt when it begins, when it starts, when it settles and afterwards.
SETTLEMENT = {
    "settled_at": "clock_timestamp()",
    "settled_as": "'lost'",
    "settled_token": "'$new'",
    "settled_epoch": "9",
    "outcome": "'REJECTED'",
    "may_have_applied": "NOT coalesce(may_have_applied, false)",
    "failure_class": "'other'",
    "response_status": "418",
    "provider_receipt": "'{\"other\": 1}'",
    "phases": "'{\"other\": 1}'",
}
LATER = {"superseded_by", "disposition", "disposition_evidence_id", "disposed_at"}
OTHER = {
    "text": "'other'",
    "uuid": "'$new'",
    "integer": "99",
    "bigint": "99",
    "jsonb": "'{\"other\": 1}'",
    "bytea": "'\\x00'",
    "timestamp with time zone": "clock_timestamp()",
}


class TestAnAttempt:
    @pytest.mark.parametrize("role", ["application", "owner"])
    async def test_is_written_once(
        self, roles: dict[str, asyncpg.Connection], known: dict[str, str], role: str
    ) -> None:
        """What a request was, and what came of it, is evidence: nothing edits it (C180)."""
        columns = await roles[role].fetch(
            "SELECT column_name, data_type FROM information_schema.columns"
            " WHERE table_schema = 'oncefence' AND table_name = 'effect_attempts'"
        )
        begun = {
            row["column_name"]: OTHER[row["data_type"]]
            for row in columns
            if row["column_name"] not in SETTLEMENT.keys() | LATER
        }
        assert len(begun) > 20

        answers = {}
        for name, values in (("open", begun), ("unsent_attempt", begun | SETTLEMENT)):
            for column, value in values.items():
                statement = change("effect_attempts", f"{column} = {value}", attempt(name))
                error = await refusal(roles[role], Template(statement).substitute(known))
                answers[name, column] = error.sqlstate

        assert set(answers.values()) == {"OF012"}, answers

    @pytest.mark.parametrize("role", ["application", "owner"])
    @pytest.mark.parametrize("column", SETTLEMENT)
    async def test_is_not_half_settled(
        self, roles: dict[str, asyncpg.Connection], known: dict[str, str], column: str, role: str
    ) -> None:
        """A column written before the end could not be written at the end (C180)."""
        statement = change("effect_attempts", f"{column} = {SETTLEMENT[column]}", attempt("open"))

        error = await refusal(roles[role], Template(statement).substitute(known))

        # The time of settlement alone makes it one, which then lacks everything else.
        assert error.sqlstate == ("OF013" if column == "settled_at" else "OF012")

    @pytest.mark.parametrize("role", ["application", "owner"])
    @pytest.mark.parametrize(
        ("first", "then"),
        [
            ("superseded_by = '$new'", "superseded_by = '$org_uuid'"),
            ("disposition = 'applied'", "disposition = 'refused'"),
            ("disposition = 'person'", "disposition = 'no_effect_proof'"),
            ("disposition = 'not_found'", "disposition = 'applied'"),
            ("disposition = 'applied'", "disposition = NULL"),
            ("disposition = 'applied'", "disposed_at = clock_timestamp()"),
            ("superseded_by = NULL", "disposition_evidence_id = '$new'"),
            ("superseded_by = NULL", "disposed_at = clock_timestamp()"),
        ],
    )
    async def test_is_disposed_and_superseded_once(
        self,
        roles: dict[str, asyncpg.Connection],
        known: dict[str, str],
        first: str,
        then: str,
        role: str,
    ) -> None:
        """Two answers to what became of it would be none (C110)."""
        values = {**known, "org_uuid": known["pending"]}
        statements = [change("effect_attempts", one, attempt("lost")) for one in (first, then)]

        error = await refusal(roles[role], *(Template(s).substitute(values) for s in statements))

        assert error.sqlstate == "OF012"

    async def test_that_was_not_found_may_later_be_proven_unsent(
        self, roles: dict[str, asyncpg.Connection], known: dict[str, str]
    ) -> None:
        """The one upgrade: the starter's late word confirms what the lookup said."""
        statements = (
            "UPDATE oncefence.effect_attempts SET disposition = 'not_found'"
            " WHERE org_id = '$org' AND attempt_id = '$other_lost'",
            "UPDATE oncefence.effect_attempts SET disposition = 'no_effect_proof',"
            " disposition_evidence_id = '$other_unsent_evidence', disposed_at = clock_timestamp()"
            " WHERE org_id = '$org' AND attempt_id = '$other_lost'",
        )

        async with undone(roles["application"]):
            for statement in statements:
                done = await roles["application"].execute(Template(statement).substitute(known))
                assert done == "UPDATE 1"


class TestRowsThatOnlyGrow:
    @pytest.mark.parametrize("table", APPEND_ONLY)
    async def test_are_never_changed(
        self, roles: dict[str, asyncpg.Connection], known: dict[str, str], table: str
    ) -> None:
        """An edited receipt, audit row or piece of evidence is worth nothing (C181)."""
        column = await roles["owner"].fetchval(
            "SELECT column_name FROM information_schema.columns"
            " WHERE table_schema = 'oncefence' AND table_name = $1 LIMIT 1",
            table,
        )
        statement = f"UPDATE oncefence.{table} SET {column} = {column}"

        assert (await refusal(roles["application"], statement)).sqlstate == NO_GRANT
        error = await refusal(roles["owner"], statement)
        assert (error.sqlstate, str(error).split(":")[0]) == ("OF020", table)

    @pytest.mark.parametrize("table", KEPT)
    async def test_are_never_deleted(
        self, roles: dict[str, asyncpg.Connection], known: dict[str, str], table: str
    ) -> None:
        """What was done cannot be undone by forgetting it (C181)."""
        statement = f"DELETE FROM oncefence.{table}"

        assert (await refusal(roles["application"], statement)).sqlstate == NO_GRANT
        error = await refusal(roles["owner"], statement)
        assert (error.sqlstate, str(error).split(":")[0]) == ("OF021", table)

    @pytest.mark.parametrize("table", NEVER_TRUNCATED)
    async def test_are_never_truncated(
        self, roles: dict[str, asyncpg.Connection], known: dict[str, str], table: str
    ) -> None:
        """TRUNCATE fires no row trigger, so it needs a guard of its own (C181)."""
        statement = f"TRUNCATE oncefence.{table} CASCADE"

        assert (await refusal(roles["application"], statement)).sqlstate == NO_GRANT
        error = await refusal(roles["owner"], statement)
        assert (error.sqlstate, str(error).split(":")[0]) == ("OF021", table)

    async def test_an_admission_goes_when_its_retention_is_over(
        self, roles: dict[str, asyncpg.Connection], known: dict[str, str]
    ) -> None:
        """The floor is a floor: past it the owner may clear up, and nobody before."""
        owner = roles["owner"]
        async with undone(owner):
            await owner.execute(
                "INSERT INTO oncefence.handoffs (handoff_key, org_id, installation, capability,"
                " work_binding_digest, admission, outbox_id, payload_address, reason,"
                " retained_until) SELECT handoff_key || 'x', org_id, installation, capability,"
                " work_binding_digest, admission, outbox_id, payload_address, reason,"
                " clock_timestamp() - interval '1 s' FROM oncefence.handoffs"
                " WHERE handoff_key = $1",
                known["rejected_key"],
            )
            done = await owner.execute(
                "DELETE FROM oncefence.handoffs WHERE handoff_key = $1",
                known["rejected_key"] + "x",
            )
        assert done == "DELETE 1"


class TestTheApplicationRole:
    @pytest.mark.parametrize(
        "statement",
        [
            "ALTER TABLE oncefence.work_items DISABLE TRIGGER a_lifecycle",
            "DROP TRIGGER a_lifecycle ON oncefence.work_items",
            "ALTER TABLE oncefence.effect_attempts DROP CONSTRAINT settled_means_outcome",
            "DROP INDEX oncefence.one_unsettled",
            "CREATE OR REPLACE FUNCTION oncefence.refuse_removal() RETURNS trigger"
            " LANGUAGE plpgsql AS 'BEGIN RETURN OLD; END'",
            "INSERT INTO oncefence.lifecycle_transitions VALUES ('execution', 'failed',"
            " 'succeeded', 'x', 'x', 'x')",
            "INSERT INTO oncefence.settlement_rules DEFAULT VALUES",
            "UPDATE oncefence.deployment SET is_development = true",
            "SET session_replication_role = replica",
            "SET ROLE oncefence_owner",
            "CREATE TABLE oncefence.other (a integer)",
        ],
    )
    async def test_cannot_switch_a_guard_off(
        self, roles: dict[str, asyncpg.Connection], statement: str
    ) -> None:
        """A guard that its subject may remove guards nothing (C186)."""
        assert (await refusal(roles["application"], statement)).sqlstate == NO_GRANT


# A row of each table that can be had twice but for its key, to be pointed at another org.
AS_ANOTHER = {
    "attempt_evidence": {"evidence_id": "gen_random_uuid()"},
    "binding_generations": {"generation_id": "gen_random_uuid()", "state": "'retired'"},
    "commands": {"command_id": "gen_random_uuid()", "handoff_key": "'other'"},
    "completions": {"completion_id": "'other'", "settlement": "99"},
    "contradictions": {"evidence_id": "'$other_unsent_evidence'"},
    "effect_attempts": {
        "attempt_id": "gen_random_uuid()",
        "ordinal": "99",
        "ownership_epoch": "99",
        "lease_token": "gen_random_uuid()",
    },
    "execution_keys": {},
    "executions": {"execution_id": "gen_random_uuid()"},
    "handoff_conflicts": {"conflict_id": "gen_random_uuid()"},
    "handoffs": {"handoff_key": "'$prefix.a'"},
    "lookups": {"lookup_id": "gen_random_uuid()", "try": "NULL"},
    "remote_links": {"link_id": "gen_random_uuid()", "subject": "'x'", "remote_id": "'1'"},
    "sealed_payloads": {},
    "token_versions": {},
    "work_items": {"work_id": "gen_random_uuid()", "family": "'made.up'"},
}
WHICH = {
    "effect_attempts": "attempt_id = '$unsent_attempt'",
    "executions": "execution_id = '$pending_execution'",
    "handoffs": "handoff_key = '$accepted_key'",
    "work_items": "work_id = '$pending'",
}


class TestForeignKeys:
    async def test_all_hold_the_org(self, roles: dict[str, asyncpg.Connection]) -> None:
        """A reference without the org could reach another tenant's row (C187)."""
        found = await foreign_keys(roles["owner"])

        assert len(found) > 20
        assert [row["conname"] for row in found if row["columns"][0] != "org_id"] == []
        assert [row["conname"] for row in found if row["targets"][0] != "org_id"] == []

    async def test_all_primary_keys_hold_the_org(
        self, roles: dict[str, asyncpg.Connection]
    ) -> None:
        """Two tenants may use one name; only an admission's key names its org itself (C120)."""
        rows = await roles["owner"].fetch(
            "SELECT conrelid::regclass::text AS name, pg_get_constraintdef(oid) AS text"
            " FROM pg_constraint WHERE contype = 'p' AND connamespace = 'oncefence'::regnamespace"
        )

        without = {row["name"].split(".")[-1] for row in rows if "(org_id" not in row["text"]}

        assert without == {
            "handoffs",
            # Of the deployment, not of a tenant.
            "alembic_version",
            "deployment",
            "lifecycle_transitions",
            "settlement_rules",
        }

    async def test_none_reaches_into_another_org(
        self, roles: dict[str, asyncpg.Connection], known: dict[str, str], other_world: World
    ) -> None:
        """Even a row that exists is not there for another tenant (C8)."""
        other_rows = {
            "handoffs": "handoff_key",
            "attempt_evidence": "evidence_id",
        }
        await other_world.sql(
            "INSERT INTO oncefence.attempt_evidence (org_id, evidence_id, attempt_id, kind,"
            " start_token, execution_status, verdict) SELECT org_id, gen_random_uuid(), attempt_id,"
            " 'unsent', lease_token, 'unknown', 'kept' FROM oncefence.effect_attempts"
            " WHERE org_id = :org LIMIT 1"
        )
        assert set(other_rows) <= {row["target"] for row in await foreign_keys(roles["owner"])}

        answers = {}
        for key in await foreign_keys(roles["owner"]):
            table, column = key["source"], key["columns"][1]
            theirs = await roles["owner"].fetchval(
                f"SELECT {key['targets'][1]} FROM oncefence.{key['target']} WHERE org_id = $1",
                other_world.org,
            )
            assert theirs is not None, key
            changed = {**AS_ANOTHER[table], column: f"'{theirs}'"}
            statement = Template(pointed_at(table, changed, await names(roles["owner"], table)))
            before = switch_off_birth(table)
            for role in ("application", "owner"):
                error = await refusal(
                    roles[role], *(before if role == "owner" else ()), statement.substitute(known)
                )
                answers[key["conname"], role] = (error.sqlstate, error.constraint_name)

        assert {name: answer for (name, _), answer in answers.items() if answer[0] != "OF011"} == {
            name: (FOREIGN_KEY, name) for name, _ in answers
        }
        # An attempt of somebody else's item meets the guard of its birth even before the key.
        assert {name for (name, role), answer in answers.items() if answer[0] == "OF011"} == {
            name for name, _ in answers if name.startswith("effect_attempts_")
        }


async def foreign_keys(connection: asyncpg.Connection) -> list[asyncpg.Record]:
    found: list[asyncpg.Record] = await connection.fetch(
        """
        SELECT c.conname, s.relname AS source, t.relname AS target,
               (SELECT array_agg(a.attname::text ORDER BY k.n)
                  FROM unnest(c.conkey) WITH ORDINALITY AS k (attnum, n)
                  JOIN pg_attribute AS a ON a.attrelid = c.conrelid AND a.attnum = k.attnum)
                 AS columns,
               (SELECT array_agg(a.attname::text ORDER BY k.n)
                  FROM unnest(c.confkey) WITH ORDINALITY AS k (attnum, n)
                  JOIN pg_attribute AS a ON a.attrelid = c.confrelid AND a.attnum = k.attnum)
                 AS targets
          FROM pg_constraint AS c
          JOIN pg_class AS s ON s.oid = c.conrelid
          JOIN pg_class AS t ON t.oid = c.confrelid
         WHERE c.contype = 'f' AND c.connamespace = 'oncefence'::regnamespace
         ORDER BY c.conname
        """
    )
    return found


async def names(connection: asyncpg.Connection, table: str) -> list[str]:
    rows = await connection.fetch(
        "SELECT column_name FROM information_schema.columns"
        " WHERE table_schema = 'oncefence' AND table_name = $1",
        table,
    )
    return [row["column_name"] for row in rows]


def pointed_at(table: str, changed: dict[str, str], columns: list[str]) -> str:
    values = ", ".join(changed.get(column, f't."{column}"') for column in columns)
    which = WHICH.get(table, "true")
    listed = ", ".join(f'"{column}"' for column in columns)
    return (
        f"INSERT INTO oncefence.{table} ({listed}) SELECT {values} FROM oncefence.{table} AS t"
        f" WHERE org_id = '$org' AND {which} LIMIT 1"
    )


def switch_off_birth(table: str) -> tuple[str, ...]:
    if table != "effect_attempts":
        return ()
    return ("ALTER TABLE oncefence.effect_attempts DISABLE TRIGGER a_birth",)


class TestEveryGuard:
    async def test_that_is_a_trigger_has_a_test_of_each_of_its_codes(
        self, roles: dict[str, asyncpg.Connection]
    ) -> None:
        """A guard without a test can vanish unseen (C184)."""
        rows = await roles["owner"].fetch(
            "SELECT c.relname || '.' || t.tgname AS name, p.prosrc FROM pg_trigger AS t"
            " JOIN pg_class AS c ON c.oid = t.tgrelid JOIN pg_proc AS p ON p.oid = t.tgfoid"
            " WHERE NOT t.tgisinternal AND c.relnamespace = 'oncefence'::regnamespace"
        )
        there = {(row["name"], code) for row in rows for code in codes_in(row["prosrc"])}

        tested = {(case.guard, case.code) for case in CASES if case.code.startswith("OF")}
        tested |= {(f"{table}.a_append_only", "OF020") for table in APPEND_ONLY}
        tested |= {(f"{table}.a_kept", "OF021") for table in KEPT}
        tested |= {(f"{table}.a_kept_whole", "OF021") for table in NEVER_TRUNCATED}
        tested |= {("effect_attempts.a_change", "OF012")}

        assert tested == there

    async def test_that_is_a_constraint_or_index_has_a_test(
        self, roles: dict[str, asyncpg.Connection]
    ) -> None:
        """A rule without a test can vanish unseen (C184)."""
        rows = await roles["owner"].fetch(
            "SELECT conname AS name FROM pg_constraint"
            " WHERE contype IN ('c', 'u') AND connamespace = 'oncefence'::regnamespace"
            " UNION SELECT i.relname FROM pg_index AS x JOIN pg_class AS i ON i.oid = x.indexrelid"
            " WHERE x.indisunique AND NOT x.indisprimary"
            " AND i.relnamespace = 'oncefence'::regnamespace"
        )
        # It repeats the primary key with the org in front, for a foreign key to refer to.
        there = {row["name"] for row in rows} - {"admissions_by_org"}

        tested = {case.guard for case in CASES if case.code.startswith("23")}

        assert tested == there

    async def test_code_that_a_function_raises_is_of_our_own_class(
        self, roles: dict[str, asyncpg.Connection]
    ) -> None:
        """What is refused on purpose is told apart from what went wrong (C184)."""
        rows = await roles["owner"].fetch(
            "SELECT proname, prosrc FROM pg_proc WHERE pronamespace = 'oncefence'::regnamespace"
        )

        strange = {
            row["proname"]: code
            for row in rows
            for code in re.findall(r"ERRCODE = '(\w+)'", row["prosrc"])
            if not code.startswith("OF")
        }

        assert strange == {}


def codes_in(source: str) -> Iterator[str]:
    return iter(set(re.findall(r"ERRCODE = '(OF\d{3})'", source)))


class TestASecondAttempt:
    async def test_is_let_in_where_the_first_is_proven_unsent(
        self, roles: dict[str, asyncpg.Connection], known: dict[str, str]
    ) -> None:
        """The index that forbids it must not outlive its reason (C179)."""
        connection = roles["application"]
        where = f"WHERE org_id = '{known['org']}' AND attempt_id = '{known['other_lost']}'"
        async with undone(connection):
            await connection.execute(
                "UPDATE oncefence.effect_attempts SET disposition = 'no_effect_proof',"
                f" disposition_evidence_id = '{known['other_unsent_evidence']}' {where}"
            )
            await connection.execute(
                "UPDATE oncefence.work_items SET state = 'processing', via = 'claim',"
                f" {CLAIM} WHERE org_id = '{known['org']}'"
                " AND family = 'effect.lookup' AND attempt_id = $1",
                known["other_lost"],
            )
            done = await connection.execute(
                "INSERT INTO oncefence.effect_attempts (org_id, attempt_id, command_id,"
                " execution_id, work_id, ordinal, method, relative_target, safe_headers,"
                " body_address, lease_token, ownership_epoch, lease_owner, generation_id,"
                " token_version, link_id, link_version, validation, quota, prepared_at,"
                " started_at, started_as_of, deadline_ms)"
                " SELECT a.org_id, gen_random_uuid(), a.command_id, a.execution_id, w.work_id, 2,"
                " a.method, a.relative_target, a.safe_headers, a.body_address, w.lease_token,"
                " w.ownership_epoch, w.lease_owner, a.generation_id, 1, a.link_id, 1, '{}', '[]',"
                " clock_timestamp(), clock_timestamp(), clock_timestamp(), 1"
                " FROM oncefence.effect_attempts AS a JOIN oncefence.work_items AS w"
                " ON w.org_id = a.org_id AND w.attempt_id = a.attempt_id"
                f" WHERE a.org_id = '{known['org']}' AND a.attempt_id = '{known['other_lost']}'"
            )

        assert done == "INSERT 0 1"
