"""Rows that are only ever added, and rows that are never removed."""

import asyncpg
import pytest

from tests.storage.guard_answers import refusal, undone
from tests.storage.guard_cases import APPEND_ONLY, KEPT, NEVER_TRUNCATED
from tests.storage.guard_statements import NO_GRANT

pytestmark = pytest.mark.asyncio(loop_scope="module")


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
