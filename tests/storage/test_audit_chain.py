"""The chain of the audit: acts follow one another, and whatever was done to a row is found."""

import asyncio
from collections.abc import Sequence
from uuid import uuid4

import asyncpg
import pytest
import pytest_asyncio

from oncefence.domain.ids import OrgId
from oncefence.domain.operator import Role
from oncefence.storage.audit_chain import LinkFault
from oncefence.storage.phases.add_operator import AddedOperator, add_operator
from oncefence.storage.phases.list_audit import list_audit
from oncefence.storage.phases.verify_audit_chain import (
    LINKS_MAX,
    ChainState,
    verify_audit_chain,
)
from tests.storage.racing import all_at_once, barrier, waiting
from tests.support.doors import rows
from tests.support.servers import Database

pytestmark = pytest.mark.asyncio(loop_scope="module")

ROWS = 5
OF_ORG = "SELECT * FROM oncefence.audit WHERE org_id = $1 ORDER BY sequence"
HOLD = "SELECT FROM oncefence.audit_heads WHERE org_id = $1 FOR UPDATE"


def an_org() -> OrgId:
    return OrgId(f"org-{uuid4().hex[:12]}")


async def act(store: Database, *orgs: OrgId) -> AddedOperator:
    """One act in each of `orgs`, as any phase with an audit row does it."""
    return await add_operator(
        store.app_engine,
        name=f"op-{uuid4().hex}",
        roles=frozenset((Role.VIEWER,)),
        orgs=frozenset(orgs),
        actor="tests",
        note="an act",
    )


@pytest_asyncio.fixture(loop_scope="module")
async def org(store: Database) -> OrgId:
    made = an_org()
    for _ in range(ROWS):
        await act(store, made)
    return made


async def verified(store: Database, org: OrgId) -> ChainState:
    (chain,) = await verify_audit_chain(store.app_engine, (org,))
    return chain


async def faults(store: Database, org: OrgId) -> Sequence[tuple[int, str]]:
    return [(link.sequence, link.fault.value) for link in (await verified(store, org)).broken]


async def tamper(store: Database, *statements: str) -> None:
    """As a superuser past every guard, trigger and key, as a thief of the server would."""
    connection = await asyncpg.connect(store.admin_url)
    try:
        async with connection.transaction():
            await connection.execute("SET LOCAL session_replication_role = replica")
            await connection.execute("SET LOCAL search_path TO oncefence")
            for statement in statements:
                await connection.execute(statement)
    finally:
        await connection.close()


class TestTheChain:
    async def test_has_each_row_follow_the_one_before(self, store: Database, org: OrgId) -> None:
        """From the empty beginning to the head, without a gap (C406)."""
        found = await rows(store.admin_url, OF_ORG, org)
        chain = await verified(store, org)

        assert [row["sequence"] for row in found] == [1, 2, 3, 4, 5]
        assert [row["previous"] for row in found] == [b"", *(row["digest"] for row in found[:-1])]
        assert (chain.rows, chain.head_sequence, chain.head) == (5, 5, found[-1]["digest"].hex())
        assert (chain.broken, chain.first_broken) == ((), None)

    async def test_of_two_acts_at_once_has_one_after_the_other(
        self, store: Database, org: OrgId
    ) -> None:
        """Neither may take the other's place, and neither is lost."""
        await all_at_once(store, [act(store, org) for _ in range(4)], HOLD, org)

        chain = await verified(store, org)
        assert (chain.rows, chain.head_sequence, chain.broken) == (ROWS + 4, ROWS + 4, ())

    async def test_of_the_first_two_acts_of_an_org_is_one(self, store: Database) -> None:
        """Where there is no head yet both would begin a chain."""
        fresh = an_org()
        begun = "INSERT INTO oncefence.audit_heads VALUES ($1, 0, '')"

        # Both wait for somebody who begins the same chain, and then never was.
        await all_at_once(store, [act(store, fresh), act(store, fresh)], begun, fresh)

        chain = await verified(store, fresh)
        assert (chain.rows, chain.head_sequence, chain.broken) == (2, 2, ())

    async def test_of_acts_in_several_orgs_at_once_does_not_lock_up(self, store: Database) -> None:
        """Chains are locked in the order of their names, whatever order they are given in."""
        one, two = an_org(), an_org()
        await act(store, one, two)

        ends = await all_at_once(
            store, [act(store, one, two), act(store, two, one)], HOLD, min(one, two)
        )

        assert [type(end) for end in ends] == [AddedOperator, AddedOperator]
        assert (await verified(store, one)).rows == (await verified(store, two)).rows == 3

    async def test_of_one_org_does_not_wait_for_another(self, store: Database, org: OrgId) -> None:
        """A slow act in one org holds up nobody else's."""
        other = an_org()
        async with barrier(store, HOLD, org, commits=False):
            await act(store, other)

        assert (await verified(store, other)).rows == 1

    async def test_does_not_count_an_act_that_never_was(self, store: Database, org: OrgId) -> None:
        """A rollback leaves no gap: the sequence is the head's, and not a counter's."""
        written = (
            "INSERT INTO oncefence.audit (org_id, actor, act, subject_kind, subject_id)"
            " VALUES ($1, 'nobody', 'nothing', 'none', 'none')"
        )
        async with barrier(store, written, org, commits=False):
            pass
        await act(store, org)

        assert await faults(store, org) == []
        assert (await verified(store, org)).head_sequence == ROWS + 1

    async def test_is_read_whole_while_it_goes_on(self, store: Database, org: OrgId) -> None:
        """Rows and head are of one moment, or a healthy chain would look broken."""
        connection = await asyncpg.connect(store.admin_url)
        try:
            held = connection.transaction()
            await held.start()
            await connection.execute("LOCK TABLE oncefence.audit IN ACCESS EXCLUSIVE MODE")
            verifying = asyncio.create_task(verify_audit_chain(store.app_engine, (org,)))
            await waiting(store, 1)
            await connection.execute(
                "INSERT INTO oncefence.audit (org_id, actor, act, subject_kind, subject_id)"
                " VALUES ($1, 'somebody', 'something', 'none', 'none')",
                org,
            )
            await held.commit()
            (chain,) = await verifying
        finally:
            await connection.close()

        assert chain.broken == ()
        assert chain.rows == chain.head_sequence

    @pytest.mark.parametrize(
        "statement",
        [
            "UPDATE oncefence.audit SET note = 'another' WHERE org_id = $1",
            "DELETE FROM oncefence.audit WHERE org_id = $1",
            "DELETE FROM oncefence.audit_heads WHERE org_id = $1",
            "UPDATE oncefence.audit_heads SET sequence = 1 WHERE org_id = $1",
            "UPDATE oncefence.audit_heads SET sequence = sequence + 2 WHERE org_id = $1",
        ],
    )
    async def test_is_closed_to_the_applications_own_role(
        self, store: Database, org: OrgId, statement: str
    ) -> None:
        """A process that was taken over cannot rewrite what it did."""
        connection = await asyncpg.connect(store.app_url)
        try:
            with pytest.raises(asyncpg.PostgresError):
                await connection.execute(statement, org)
        finally:
            await connection.close()

        assert await faults(store, org) == []

    async def test_gives_a_row_its_place_whatever_the_writer_says(
        self, store: Database, org: OrgId
    ) -> None:
        """Sequence and digests are the database's to set."""
        connection = await asyncpg.connect(store.app_url)
        try:
            await connection.execute(
                "INSERT INTO oncefence.audit (org_id, actor, act, subject_kind, subject_id,"
                " sequence, previous, digest)"
                " VALUES ($1, 'me', 'it', 'none', 'none', 2, 'x', 'y')",
                org,
            )
        finally:
            await connection.close()

        assert (await verified(store, org)).head_sequence == ROWS + 1
        assert await faults(store, org) == []


REDIGEST = "UPDATE audit AS a SET digest = audit_digest(a) WHERE a.org_id = '{org}'"
FORGED: dict[str, tuple[tuple[str, ...], list[tuple[int, str]]]] = {
    **{
        f"another {column}": (
            (f"UPDATE audit SET {column} = {value} WHERE org_id = '{{org}}' AND sequence = 3",),
            [(3, "changed")],
        )
        for column, value in {
            "actor": "'somebody else'",
            "act": "'read'",
            "subject_kind": "'work'",
            "subject_id": "'another'",
            "note": "NULL",
            "expected_version": "'other'",
            "at": "at - interval '1 microsecond'",
        }.items()
    },
    "another text with its digest made anew": (
        (
            "UPDATE audit SET actor = 'somebody else' WHERE org_id = '{org}' AND sequence = 3",
            REDIGEST + " AND sequence = 3",
        ),
        [(4, "unlinked")],
    ),
    "another digest": (
        ("UPDATE audit SET digest = sha256('x') WHERE org_id = '{org}' AND sequence = 3",),
        [(3, "changed"), (4, "unlinked")],
    ),
    "the last text with its digest made anew": (
        (
            "UPDATE audit SET actor = 'somebody else' WHERE org_id = '{org}' AND sequence = 5",
            REDIGEST + " AND sequence = 5",
        ),
        [(5, "other_head")],
    ),
    "a row deleted": (
        ("DELETE FROM audit WHERE org_id = '{org}' AND sequence = 3",),
        [(3, "missing")],
    ),
    "the first row deleted": (
        ("DELETE FROM audit WHERE org_id = '{org}' AND sequence = 1",),
        [(1, "missing")],
    ),
    "the last rows deleted": (
        ("DELETE FROM audit WHERE org_id = '{org}' AND sequence > 3",),
        [(4, "cut_off")],
    ),
    "every row deleted": (
        ("DELETE FROM audit WHERE org_id = '{org}'",),
        [(1, "cut_off")],
    ),
    "a row deleted and the rest moved up": (
        (
            "DELETE FROM audit WHERE org_id = '{org}' AND sequence = 3",
            "UPDATE audit SET sequence = 3 WHERE org_id = '{org}' AND sequence = 4",
            "UPDATE audit SET sequence = 4 WHERE org_id = '{org}' AND sequence = 5",
        ),
        [(3, "unlinked"), (4, "changed"), (5, "cut_off")],
    ),
    "two rows exchanged": (
        (
            "UPDATE audit SET sequence = -1 WHERE org_id = '{org}' AND sequence = 2",
            "UPDATE audit SET sequence = 2 WHERE org_id = '{org}' AND sequence = 3",
            "UPDATE audit SET sequence = 3 WHERE org_id = '{org}' AND sequence = -1",
        ),
        [(2, "unlinked"), (3, "unlinked"), (4, "unlinked")],
    ),
    "a row added after the head": (
        (
            (
                "INSERT INTO audit (org_id, actor, act, subject_kind, subject_id, sequence,"
                " previous, digest) SELECT org_id, actor, 'forged', 'x', 'x', 6, digest, ''"
                " FROM audit WHERE org_id = '{org}' AND sequence = 5"
            ),
            REDIGEST + " AND sequence = 6",
        ),
        [(6, "beyond_head")],
    ),
    "a row put in between": (
        (
            ("ALTER TABLE audit DROP CONSTRAINT IF EXISTS one_audit_row_per_link_of_the_chain"),
            (
                "INSERT INTO audit (org_id, actor, act, subject_kind, subject_id, sequence,"
                " previous, digest) SELECT org_id, actor, 'forged', 'x', 'x', 3, previous, ''"
                " FROM audit WHERE org_id = '{org}' AND sequence = 3"
            ),
            REDIGEST + " AND act = 'forged'",
        ),
        [(3, "repeated"), (4, "unlinked")],
    ),
    "another digest in the head": (
        ("UPDATE audit_heads SET digest = sha256('x') WHERE org_id = '{org}'",),
        [(5, "other_head")],
    ),
    "the head moved back": (
        ("UPDATE audit_heads SET sequence = 3 WHERE org_id = '{org}'",),
        [(4, "beyond_head")],
    ),
    "the head deleted": (
        ("DELETE FROM audit_heads WHERE org_id = '{org}'",),
        [(1, "headless")],
    ),
}


@pytest.mark.parametrize("what", FORGED)
async def test_what_was_done_past_the_guards_is_found(
    store: Database, org: OrgId, what: str
) -> None:
    """The sequence that does not hold is named; the chains of other orgs are as they were."""
    other = an_org()
    await act(store, other)
    statements, expected = FORGED[what]

    await tamper(store, *(each.format(org=org) for each in statements))

    chain = await verified(store, org)
    assert [(link.sequence, link.fault.value) for link in chain.broken] == expected
    assert chain.first_broken == expected[0][0]
    assert await faults(store, other) == []


async def test_every_fault_is_provoked() -> None:
    """A fault that no forgery here brings about may not be found."""
    assert {fault for _, found in FORGED.values() for _, fault in found} == set(LinkFault)


async def test_a_chain_that_was_made_anew_has_another_head(store: Database, org: OrgId) -> None:
    """Nothing inside the database shows that; a head that was written down elsewhere does."""
    before = await verified(store, org)
    again = "".join(
        f"""
        UPDATE audit AS a SET previous = (SELECT b.digest FROM audit AS b
          WHERE b.org_id = a.org_id AND b.sequence = a.sequence - 1)
         WHERE a.org_id = '{org}' AND a.sequence = {n};
        {REDIGEST.format(org=org)} AND a.sequence = {n};
        """
        for n in (4, 5)
    )

    await tamper(
        store,
        f"UPDATE audit SET actor = 'x' WHERE org_id = '{org}' AND sequence = 3",
        REDIGEST.format(org=org) + " AND sequence = 3",
        again,
        f"UPDATE audit_heads SET digest = (SELECT digest FROM audit WHERE org_id = '{org}'"
        f" AND sequence = 5) WHERE org_id = '{org}'",
    )

    after = await verified(store, org)
    assert after.broken == ()
    assert after.head_sequence == before.head_sequence
    assert after.head != before.head


async def test_many_broken_links_are_cut_short_with_the_first_of_each_chain(
    store: Database,
) -> None:
    """A rewritten table is told in figures, and no broken chain is left out for another."""
    long, short = OrgId(f"a{an_org()}"), OrgId(f"b{an_org()}")
    await act(store, long)
    await act(store, short)
    await tamper(
        store,
        "INSERT INTO audit (org_id, actor, act, subject_kind, subject_id, sequence, previous,"
        f" digest) SELECT '{long}', 'x', 'x', 'x', 'x', n, '', 'x'"
        f" FROM generate_series(2, {LINKS_MAX + 50}) AS n",
        f"DELETE FROM audit WHERE org_id = '{short}'",
    )

    chains = {each.org: each for each in await verify_audit_chain(store.app_engine, (long, short))}

    assert sum(len(each.broken) for each in chains.values()) == LINKS_MAX
    assert chains[long].first_broken == 2
    assert chains[short].first_broken == 1


async def test_every_chain_is_verified_where_none_is_named(store: Database, org: OrgId) -> None:
    """An org that nobody thought of is looked at too; one that is not there has no chain."""
    every = {each.org for each in await verify_audit_chain(store.app_engine)}

    assert org in every
    assert await verify_audit_chain(store.app_engine, (an_org(),)) == []
    assert await verify_audit_chain(store.app_engine, ()) == []


class TestTheList:
    async def test_has_the_newest_first_in_pages(self, store: Database, org: OrgId) -> None:
        """Pages do not overlap, whatever is added meanwhile."""
        first = await list_audit(store.app_engine, org, rows_max=2)
        await act(store, org)
        second = await list_audit(store.app_engine, org, rows_max=9, before=first[-1].sequence)

        assert [row.sequence for row in first] == [5, 4]
        assert [row.sequence for row in second] == [3, 2, 1]
        assert (first[0].actor, first[0].act, first[0].note) == ("tests", "operator.add", "an act")

    async def test_gives_the_digest_that_the_head_has(self, store: Database, org: OrgId) -> None:
        """Whoever wrote a head down finds it again as the digest of its row."""
        (newest,) = await list_audit(store.app_engine, org, rows_max=1)

        assert newest.digest == (await verified(store, org)).head

    async def test_is_of_one_org(self, store: Database, org: OrgId) -> None:
        """Another org's acts are not this one's to read (C8)."""
        await act(store, an_org())

        found = await list_audit(store.app_engine, org, rows_max=50)

        assert len(found) == ROWS
