"""The row of an attempt: each column is written once, by whom and when the contract says."""

from string import Template

import asyncpg
import pytest

from tests.storage.guard_answers import refusal, undone
from tests.storage.guard_statements import attempt, change, not_found
from tests.storage.lifecycle_rows import CLAIM

pytestmark = pytest.mark.asyncio(loop_scope="module")

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
        for name, values in (("open", begun), ("retried", begun | SETTLEMENT)):
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
            ("disposition = 'applied'", "disposition = 'refused'"),
            ("disposition = 'person'", "disposition = 'no_effect_proof'"),
            ("disposition = 'not_found'", "disposition = 'applied'"),
            ("disposition = 'applied'", "disposition = NULL"),
            ("disposition = 'applied'", "disposed_at = clock_timestamp()"),
            ("disposition = NULL", "disposition_evidence_id = '$new'"),
            ("disposition = NULL", "disposed_at = clock_timestamp()"),
        ],
    )
    async def test_is_disposed_once(
        self,
        roles: dict[str, asyncpg.Connection],
        known: dict[str, str],
        first: str,
        then: str,
        role: str,
    ) -> None:
        """Two answers to what became of it would be none (C101)."""
        changes = [change("effect_attempts", one, attempt("lost")) for one in (first, then)]
        statements = [Template(one).substitute(known) for one in (not_found("lost"), *changes)]

        error = await refusal(roles[role], *statements)

        assert error.sqlstate == "OF012"

    @pytest.mark.parametrize("role", ["application", "owner"])
    async def test_is_superseded_once(
        self, roles: dict[str, asyncpg.Connection], known: dict[str, str], role: str
    ) -> None:
        """Who took over from it is part of its history."""
        statements = [
            Template(
                change("effect_attempts", f"superseded_by = '{other}'", attempt("retried"))
            ).substitute(known)
            for other in ("$open", "$lost")
        ]

        error = await refusal(roles[role], *statements)

        assert error.sqlstate == "OF012"

    async def test_that_was_not_found_may_later_be_proven_unsent(
        self, roles: dict[str, asyncpg.Connection], known: dict[str, str]
    ) -> None:
        """The one upgrade: the starter's late word confirms what the lookup said (C103)."""
        proof = (
            "disposition = 'no_effect_proof', disposed_at = clock_timestamp(),"
            " disposition_evidence_id = '$other_unsent_evidence'"
        )
        statements = [
            change("effect_attempts", what, attempt("other_lost"))
            for what in ("disposition = 'not_found'", proof)
        ]

        async with undone(roles["application"]):
            await roles["application"].execute(Template(not_found("other_lost")).substitute(known))
            for statement in statements:
                done = await roles["application"].execute(Template(statement).substitute(known))
                assert done == "UPDATE 1"


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
