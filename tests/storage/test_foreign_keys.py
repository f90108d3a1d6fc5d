"""References between rows: each holds the org, and none reaches into another one."""

from string import Template

import asyncpg
import pytest

from tests.storage.guard_answers import refusal
from tests.storage.guard_statements import FOREIGN_KEY
from tests.support.world import World

pytestmark = pytest.mark.asyncio(loop_scope="module")

# A row of each table that can be had twice but for its key, to be pointed at another org.
AS_ANOTHER = {
    "attempt_evidence": {"evidence_id": "gen_random_uuid()"},
    "authorization_grants": {},
    "authorization_requests": {
        "request_id": "gen_random_uuid()",
        "state_hash": "sha256(gen_random_uuid()::text::bytea)",
        "outcome": "'connected'",
    },
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
    "revocations": {"revocation_id": "gen_random_uuid()"},
    "remote_links": {"link_id": "gen_random_uuid()", "subject": "'x'", "remote_id": "'1'"},
    "sealed_payloads": {},
    "token_refreshes": {"refresh_id": "gen_random_uuid()"},
    "token_versions": {},
    "view_activations": {"ordinal": "99"},
    "work_items": {"work_id": "gen_random_uuid()", "family": "'made.up'"},
    "work_nudges": {},
}
BORN_GUARDED = (
    ("effect_attempts", "OF011"),
    ("attempt_evidence", "OF010"),
    ("authorization_requests", "OF067"),
    ("revocations", "OF068"),
    ("token_refreshes", "OF062"),
)
# Where the org of the most has no row.
IN_ORG = {
    "authorization_requests": "$connections_org",
    "revocations": "$connections_org",
    "token_refreshes": "$renewed_org",
}
WHICH = {
    "authorization_requests": "request_id = '$settled'",
    "effect_attempts": "attempt_id = '$retried'",
    "executions": "execution_id = '$pending_execution'",
    "handoffs": "handoff_key = '$accepted_key'",
    "token_refreshes": "refresh_id = '$open_refresh'",
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
            "breaker_rules",
            "deployment",
            "lifecycle_transitions",
            "settlement_rules",
            # An operator has a scope of orgs; a reading counts the rows of all of them.
            "operators",
            "pressure_revisions",
            # A provider counts by its own accounts, whichever orgs send through one.
            "quota_counts",
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
            " start_token, may_have_applied, execution_status, verdict) SELECT org_id,"
            " gen_random_uuid(), attempt_id, 'unsent', lease_token, false, 'unknown', 'kept'"
            " FROM oncefence.effect_attempts WHERE org_id = :org LIMIT 1"
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
            before = (
                *switch_off_birth(table),
                f"SET CONSTRAINTS oncefence.{key['conname']} IMMEDIATE",
            )
            for role in ("application", "owner"):
                prepare = before if role == "owner" else before[-1:]
                error = await refusal(roles[role], *prepare, statement.substitute(known))
                answers[key["conname"], role] = (error.sqlstate, error.constraint_name)

        assert {
            name: answer for (name, _), answer in answers.items() if answer[0] == FOREIGN_KEY
        } == {name: (FOREIGN_KEY, name) for name, _ in answers}
        # An attempt of somebody else's item, evidence of somebody else's attempt, a renewal of
        # somebody else's token and the like meets the guard of its birth even before the key.
        assert {
            (name, answer[0]) for (name, _), answer in answers.items() if answer[0] != FOREIGN_KEY
        } == {
            (name, code)
            for name, _ in answers
            for table, code in BORN_GUARDED
            if name.startswith(f"{table}_")
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
        f" WHERE org_id = '{IN_ORG.get(table, '$org')}' AND {which} LIMIT 1"
    )


def switch_off_birth(table: str) -> tuple[str, ...]:
    trigger = {
        "effect_attempts": "a_birth",
        "attempt_evidence": "a_starter",
        "authorization_requests": "a_authorization_request_birth",
        "revocations": "a_revocation",
        "token_refreshes": "a_birth",
    }.get(table)
    if trigger is None:
        return ()
    return (f"ALTER TABLE oncefence.{table} DISABLE TRIGGER {trigger}",)
