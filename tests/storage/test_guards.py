"""
Every rule of the database, broken once as the application role and once as the owner.

The owner has every grant and could switch a guard off; that it is refused too shows that the
guard itself speaks, and that no grant or other guard hides it (C184).
"""

import re
from string import Template

import asyncpg
import pytest

from tests.storage.guard_answers import refusal, refusal_at_commit
from tests.storage.guard_cases import APPEND_ONLY, CASES, KEPT, NEVER_TRUNCATED
from tests.storage.guard_statements import NO_GRANT, UNIQUE, Case

pytestmark = pytest.mark.asyncio(loop_scope="module")


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


class TestTheApplicationRole:
    @pytest.mark.parametrize(
        "statement",
        [
            "ALTER TABLE oncefence.work_items DISABLE TRIGGER a_lifecycle",
            "DROP TRIGGER a_lifecycle ON oncefence.work_items",
            "ALTER TABLE oncefence.effect_attempts DROP CONSTRAINT settled_means_outcome",
            "DROP INDEX oncefence.one_unsettled",
            "DROP FUNCTION oncefence.refuse_removal() CASCADE",
            "INSERT INTO oncefence.lifecycle_transitions DEFAULT VALUES",
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


class TestTheChainOfTheAudit:
    async def test_digests_each_row_together_with_the_one_before_it(
        self, roles: dict[str, asyncpg.Connection], known: dict[str, str]
    ) -> None:
        """Or a row could be rewritten by mending its own digest and one link (C406)."""
        rows = await roles["application"].fetch(
            "SELECT oncefence.audit_digest(a) = a.digest AS is_own, oncefence.audit_digest("
            '         jsonb_populate_record(a, \'{"previous": "\\\\x00"}\')) = a.digest AS is_same'
            "  FROM oncefence.audit AS a WHERE a.org_id = $1",
            known["org"],
        )

        assert {(row["is_own"], row["is_same"]) for row in rows} == {(True, False)}

    async def test_holds_one_row_a_link_even_where_it_is_switched_off(
        self, roles: dict[str, asyncpg.Connection], known: dict[str, str]
    ) -> None:
        """Whoever gets past the trigger still cannot put a second row into a place (C184)."""
        error = await refusal(
            roles["owner"],
            "ALTER TABLE oncefence.audit DISABLE TRIGGER a_chain",
            "INSERT INTO oncefence.audit (org_id, actor, act, subject_kind, subject_id, sequence,"
            f" previous, digest) VALUES ('{known['org']}', 'a', 'b', 'c', 'd', 1, '', '')",
        )

        assert error.sqlstate == UNIQUE
        assert error.constraint_name == "one_audit_row_per_link_of_the_chain"


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
        shared = await roles["owner"].fetchval(
            "SELECT prosrc FROM pg_proc WHERE proname = 'check_execution_coupling'"
        )
        there = {
            (row["name"], code)
            for row in rows
            for code in codes_in(row["prosrc"].replace("PERFORM check_execution_coupling", shared))
        }

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
        there = {row["name"] for row in rows} - {
            # They hold the primary key's columns and more, for foreign keys to refer to.
            "admissions_by_org",
            "views_by_digest",
            "views_by_revision",
            # Reached only where the chain is switched off; see TestTheChainOfTheAudit.
            "one_audit_row_per_link_of_the_chain",
        }

        tested = {case.guard for case in CASES if case.code.startswith("23")}

        assert tested == there

    async def test_that_a_function_raises_elsewhere_is_known(
        self, roles: dict[str, asyncpg.Connection]
    ) -> None:
        """What is refused on purpose has a code of our own, and a test that provokes it (C184)."""
        rows = await roles["owner"].fetch(
            "SELECT proname, prosrc FROM pg_proc WHERE pronamespace = 'oncefence'::regnamespace"
            " AND prorettype <> 'trigger'::regtype"
        )

        raised = {
            (row["proname"], code)
            for row in rows
            for code in re.findall(r"ERRCODE = '(\w+)'", row["prosrc"])
        }

        assert raised == {
            # Provoked in test_phases_start.py.
            ("start_attempt_v2", "OF040"),
            ("start_attempt_v3", "OF040"),
            # Called by each trigger that couples, and counted with them above.
            ("check_execution_coupling", "OF030"),
            ("check_execution_coupling", "OF032"),
        }


def codes_in(source: str) -> set[str]:
    return set(re.findall(r"ERRCODE = '(OF\d{3})'", source))
