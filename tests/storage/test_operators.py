"""Operators in the store: made, known by their token, listed and revoked, each with its audit."""

import hashlib
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from oncefence.domain.errors import ActRefused, NoSuchTarget, VersionMoved
from oncefence.domain.ids import OperatorId, OrgId
from oncefence.domain.operator import EVERY_ORG, Operator, Role
from oncefence.domain.redaction import Secret
from oncefence.storage.phases.add_operator import AddedOperator, add_operator
from oncefence.storage.phases.authenticate_operator import authenticate_operator
from oncefence.storage.phases.list_operators import list_operators
from oncefence.storage.phases.revoke_operator import revoke_operator
from tests.storage.racing import all_at_once
from tests.support.doors import rows
from tests.support.servers import Database

pytestmark = pytest.mark.asyncio(loop_scope="module")

HOLD = "SELECT FROM oncefence.audit_heads WHERE org_id = $1 FOR UPDATE"


@pytest.fixture
def name() -> str:
    return f"op-{uuid4().hex[:12]}"


@pytest.fixture
def org() -> OrgId:
    return OrgId(f"org-{uuid4().hex[:12]}")


async def made(
    store: Database, name: str, *orgs: OrgId, roles: frozenset[Role] = frozenset((Role.VIEWER,))
) -> AddedOperator:
    return await add_operator(
        store.app_engine,
        name=name,
        roles=roles,
        orgs=frozenset(orgs),
        actor="tests",
        note="for a test",
    )


async def revoked(store: Database, name: str, version: str) -> OperatorId:
    return await revoke_operator(
        store.app_engine, name=name, expected_version=version, actor="tests", note="at the end"
    )


async def acts(store: Database, org: OrgId, name: str) -> list[dict[str, Any]]:
    """What the audit of an org says of the operators of this name."""
    query = (
        "SELECT * FROM oncefence.audit WHERE org_id = $1 AND subject_id LIKE $2 ORDER BY sequence"
    )
    return await rows(store.admin_url, query, org, f"{name}/%")


class TestAToken:
    async def test_gives_the_operator_with_roles_and_orgs(
        self, store: Database, name: str, org: OrgId
    ) -> None:
        """The token alone says who acts and where (C407)."""
        both = frozenset((Role.OPERATOR, Role.REPAIRER))

        added = await made(store, name, org, OrgId("other"), roles=both)

        assert await authenticate_operator(store.app_engine, added.token) == Operator(
            name=name, roles=both, orgs=frozenset((org, OrgId("other")))
        )

    async def test_is_stored_as_its_hash_alone(
        self, store: Database, name: str, org: OrgId
    ) -> None:
        """Whoever reads the database cannot act with what is there (C407)."""
        added = await made(store, name, org)
        token = added.token.reveal()

        (row,) = await rows(
            store.admin_url, "SELECT * FROM oncefence.operators WHERE name = $1", name
        )
        kept = str(row) + str(await acts(store, org, name))

        assert row["token_hash"] == hashlib.sha256(token.encode()).digest()
        assert token not in kept
        assert token.removeprefix("ofo1_") not in kept
        assert token not in repr(added) + str(added)

    async def test_has_256_random_bits(self, store: Database, org: OrgId) -> None:
        """A plain hash is enough only because nobody can guess what was hashed."""
        one, two = await made(store, f"a-{org}", org), await made(store, f"b-{org}", org)

        assert one.token != two.token
        assert all(len(each.token.reveal()) == len("ofo1_") + 43 for each in (one, two))

    @pytest.mark.parametrize("wrong", ["x", "ofo1_", "ofc1_x", "\udcff", "\x00", "ä" * 3000])
    async def test_that_is_not_known_gives_nobody(self, store: Database, wrong: str) -> None:
        """Whatever bytes arrive, they are nobody's token."""
        assert await authenticate_operator(store.app_engine, Secret(wrong)) is None

    async def test_that_is_revoked_gives_nobody_at_once(
        self, store: Database, name: str, org: OrgId
    ) -> None:
        """There is no cache to wait for (C407)."""
        added = await made(store, name, org)

        await revoked(store, name, str(added.operator))

        assert await authenticate_operator(store.app_engine, added.token) is None


class TestAnOperator:
    async def test_has_a_name_of_its_own_while_it_lives(
        self, store: Database, name: str, org: OrgId
    ) -> None:
        """With two of one name the audit could not say whose act it was; nothing is written."""
        first = await made(store, name, org)

        with pytest.raises(ActRefused, match="name is taken"):
            await made(store, name, org)

        assert len(await acts(store, org, name)) == 1
        assert await authenticate_operator(store.app_engine, first.token) is not None

    async def test_of_one_name_is_made_once_where_two_ask_at_once(
        self, store: Database, name: str, org: OrgId
    ) -> None:
        """Two shells, one name: one token, one audit row."""
        await made(store, f"{name}-before", org)

        # The first waits for the end of the chain, and the second for the name of the first.
        ends = await all_at_once(store, [made(store, name, org) for _ in range(2)], HOLD, org)

        assert sorted(type(end).__name__ for end in ends) == ["ActRefused", "AddedOperator"]
        assert len(await acts(store, org, name)) == 1

    async def test_that_is_revoked_leaves_its_name_to_another(
        self, store: Database, name: str, org: OrgId
    ) -> None:
        """A lost token is replaced under the same name, and the old one stays closed."""
        old = await made(store, name, org)
        await revoked(store, name, str(old.operator))

        new = await made(store, name, org)

        assert new.operator != old.operator
        assert await authenticate_operator(store.app_engine, old.token) is None
        assert await authenticate_operator(store.app_engine, new.token) is not None

    async def test_with_every_org_has_that_alone(self, store: Database, name: str) -> None:
        """One way to write the scope of all, so that one chain of the audit has it."""
        added = await made(store, name, EVERY_ORG, OrgId("acme"))

        found = await authenticate_operator(store.app_engine, added.token)

        assert found is not None
        assert found.orgs == {EVERY_ORG}
        assert [row["act"] for row in await acts(store, EVERY_ORG, name)] == ["operator.add"]
        assert await acts(store, OrgId("acme"), name) == []

    async def test_of_several_orgs_is_in_the_audit_of_each(
        self, store: Database, name: str, org: OrgId
    ) -> None:
        """Whoever reads the audit of one org sees everybody who was let into it (C406)."""
        other = OrgId(f"{org}-b")
        added = await made(store, name, org, other)
        await revoked(store, name, str(added.operator))

        for each in (org, other):
            found = [
                (row["actor"], row["act"], row["note"], row["expected_version"])
                for row in await acts(store, each, name)
            ]
            assert found == [
                ("tests", "operator.add", "for a test", "absent"),
                ("tests", "operator.revoke", "at the end", str(added.operator)),
            ]

    async def test_is_listed_without_its_token(
        self, store: Database, name: str, org: OrgId
    ) -> None:
        """The list is for screens."""
        added = await made(store, name, org)
        gone = await made(store, f"{name}-gone", org)
        await revoked(store, f"{name}-gone", str(gone.operator))

        live = {each.name: each for each in await list_operators(store.app_engine)}
        every = {each.name for each in await list_operators(store.app_engine, with_revoked=True)}

        assert live[name].operator == added.operator
        assert (live[name].roles, live[name].orgs) == ({Role.VIEWER}, {org})
        assert f"{name}-gone" not in live
        assert {name, f"{name}-gone"} <= every
        assert "hash" not in repr(live[name])


class TestRevoking:
    async def test_names_the_operator_that_was_looked_at(
        self, store: Database, name: str, org: OrgId
    ) -> None:
        """The name may have become somebody else's meanwhile (C406)."""
        old = await made(store, name, org)
        await revoked(store, name, str(old.operator))
        new = await made(store, name, org)

        with pytest.raises(VersionMoved):
            await revoked(store, name, str(old.operator))

        assert await authenticate_operator(store.app_engine, new.token) is not None
        assert len(await acts(store, org, name)) == 3

    async def test_of_nobody_is_refused(self, store: Database, name: str) -> None:
        """A misspelt name must not look like a revoked operator."""
        with pytest.raises(NoSuchTarget, match="operator list"):
            await revoked(store, name, str(uuid4()))

    async def test_of_one_that_is_not_theirs_reads_as_of_nobody(
        self, store: Database, name: str, org: OrgId
    ) -> None:
        """The names of other orgs' operators cannot be probed (C8)."""
        added = await made(store, name, org)

        with pytest.raises(NoSuchTarget) as hidden:
            await revoke_operator(
                store.app_engine,
                name=name,
                expected_version=str(added.operator),
                actor="tests",
                note="not mine",
                may_revoke=lambda _: False,
            )
        with pytest.raises(NoSuchTarget) as absent:
            await revoked(store, f"{name}-x", str(uuid4()))

        assert str(hidden.value).replace(name, "N") == str(absent.value).replace(f"{name}-x", "N")
        assert await authenticate_operator(store.app_engine, added.token) is not None

    async def test_by_two_at_once_is_done_once(
        self, store: Database, name: str, org: OrgId
    ) -> None:
        """One revocation, one audit row; the second finds nobody."""
        added = await made(store, name, org)
        racers = [revoked(store, name, str(added.operator)) for _ in range(2)]
        lock = "SELECT FROM oncefence.operators WHERE operator_id = $1 FOR UPDATE"

        ends = await all_at_once(store, racers, lock, added.operator)

        assert sorted(type(end).__name__ for end in ends) == ["NoSuchTarget", "UUID"]
        assert [row["act"] for row in await acts(store, org, name)] == [
            "operator.add",
            "operator.revoke",
        ]

    async def test_that_fails_before_its_audit_row_revokes_nobody(
        self, store: Database, name: str, org: OrgId
    ) -> None:
        """The act and its row are one transaction (C406)."""
        added = await made(store, name, org)
        owner = await asyncpg.connect(store.admin_url)
        try:
            await owner.execute(
                "ALTER TABLE oncefence.audit ADD CONSTRAINT nobody_leaves"
                f" CHECK (org_id <> '{org}' OR act <> 'operator.revoke')"
            )
            with pytest.raises(Exception, match="nobody_leaves"):
                await revoked(store, name, str(added.operator))
        finally:
            await owner.execute("ALTER TABLE oncefence.audit DROP CONSTRAINT nobody_leaves")
            await owner.close()

        assert await authenticate_operator(store.app_engine, added.token) is not None


@pytest.mark.parametrize(
    "change",
    [
        "roles = ARRAY['administrator']",
        "orgs = ARRAY['*']",
        "token_hash = sha256('x')",
        "name = name || '-x'",
        "revoked_at = NULL",
    ],
)
async def test_a_revoked_operator_never_comes_back(
    store: Database, name: str, org: OrgId, change: str
) -> None:
    """The application's own role cannot widen an operator or bring one back (OF017)."""
    added = await made(store, name, org)
    await revoked(store, name, str(added.operator))
    connection = await asyncpg.connect(store.app_url)
    try:
        with pytest.raises(asyncpg.PostgresError) as refusal:
            await connection.execute(
                f"UPDATE oncefence.operators SET {change} WHERE operator_id = $1", added.operator
            )
    finally:
        await connection.close()

    assert refusal.value.sqlstate == "OF017"
