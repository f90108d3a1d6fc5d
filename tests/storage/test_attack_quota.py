"""Quota and breakers under attack: locks in one order, and no org that stops another."""

import asyncio

import asyncpg
import pytest

from oncefence.domain.breaker import Sign
from oncefence.domain.claim import ClaimVerdict
from oncefence.domain.pause import PauseScope
from oncefence.storage.claims import NotStarted
from oncefence.storage.phases.begin_first_look import FirstLookBegun, begin_first_look
from oncefence.storage.phases.pause_work import pause_work
from oncefence.storage.phases.resume_work import resume_work
from tests.storage.breaking import Teller, let_pass, of_binding, standing
from tests.storage.racing import barrier, waiting
from tests.support.books import OPEN, BooksWorld, books_provider
from tests.support.servers import Database
from tests.support.world import World, example_view

pytestmark = pytest.mark.asyncio(loop_scope="module")

QUEUED = (
    "SELECT count(*) FROM pg_locks AS l JOIN pg_database AS d ON d.oid = l.database"
    " WHERE d.datname = current_database() AND l.locktype = 'advisory' AND NOT l.granted"
)


async def test_reads_and_writes_lock_a_pause_and_a_count_in_one_order(store: Database) -> None:
    """Else in each slow start one waits for the other, which waits for it (C170)."""
    world = await World.make(
        store, view=example_view(quota="\n[quota]\nburst = 50\ndaily = false\n")
    )
    _, _, lookup = await world.an_unknown_command("lead-unknown")
    waiting_command = await world.accept_command("lead-waiting")
    given = await pause_work(
        world.engine, PauseScope(org=world.org), actor="olga", note="they are away"
    )
    await resume_work(
        world.engine,
        world.org,
        given.pause.pause,
        ramp_seconds=1_000,
        actor="olga",
        note="they are back",
        expected_version="in_force",
    )
    (count,) = await world.sql(
        "SELECT quota_key FROM oncefence.quota_counts"
        " WHERE binding_id = :binding AND dimension = 'burst'",
        binding=world.binding,
    )

    async with barrier(
        store,
        "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))",
        count.quota_key,
        commits=False,
    ):
        reading = asyncio.create_task(world.try_to_look(lookup))
        await waiting(store, 1)
        writing = asyncio.create_task(world.try_to_start(waiting_command))
        await waiting(store, 2)
        connection = await asyncpg.connect(store.app_url)
        try:
            queued = await connection.fetchval(QUEUED)
        finally:
            await connection.close()
    await asyncio.gather(reading, writing)

    assert queued == 1


class TestOneOrgAlone:
    async def test_does_not_hold_a_providers_breaker_open(self, store: Database) -> None:
        """Its account fails at each probe, and the others come back all the same (C305)."""
        teller = Teller(database=store)
        await teller.go_dark()
        await teller.pass_time(31)
        assert await teller.passes("ill", is_read=True)

        await teller.tell(Sign.FAILURE, "ill", is_read=True)

        assert await teller.state() == "half_open"
        await teller.pass_time(11)
        assert await teller.passes("well")
        await teller.tell(Sign.SUCCESS, "well")
        await teller.tell(Sign.FAILURE, "ill")
        assert await teller.state() == "ramp"

    async def test_does_not_take_every_place_of_a_provider_that_comes_back(
        self, store: Database
    ) -> None:
        """Whoever failed at its probe lets the others have theirs, and has another later (C305)."""
        teller = Teller(database=store)
        await teller.go_dark()
        await teller.pass_time(31)
        assert await teller.passes("ill", is_read=True)
        await teller.tell(Sign.FAILURE, "ill", is_read=True)
        await teller.pass_time(2)

        again, other = [await teller.passes(each, is_read=True) for each in ("ill", "well")]

        assert (again, other) == (False, True)
        assert await teller.waits("ill", is_read=True) is not None
        await teller.pass_time(30)
        assert await teller.passes("ill", is_read=True)

    async def test_is_joined_by_another_before_it_is_dark_again(self, store: Database) -> None:
        """Two of two that were asked have failed, so it is the provider (C305, C307)."""
        teller = Teller(database=store)
        await teller.go_dark()
        await teller.pass_time(31)
        assert await teller.passes("a", is_read=True)
        await teller.tell(Sign.FAILURE, "a", is_read=True)
        await teller.pass_time(2)
        assert await teller.passes("b", is_read=True)

        await teller.tell(Sign.FAILURE, "b", is_read=True)

        assert await teller.state() == "open"


async def test_the_look_before_a_create_takes_its_place_like_any_read(store: Database) -> None:
    """Else each create that waits asks a provider that has hardly come back (C307, C342)."""
    with books_provider() as books:
        world = await BooksWorld.at(store, books)
        creates = [
            await world.create(each, operation=OPEN) for each in ("customer-1", "customer-2")
        ]
        for _ in range(10):
            await world.sql(
                "SELECT oncefence.note_breaker(c.org_id, c.provider, c.endpoint_class,"
                " c.binding_id, false, 'failure', clock_timestamp())"
                " FROM oncefence.commands AS c WHERE c.org_id = :org AND c.command_id = :command",
                command=creates[0].command,
            )
        await let_pass(store, of_binding(world), 30 + 11)

        first, second = [
            await begin_first_look(world.engine, world.org, each.work) for each in creates
        ]

    assert isinstance(first, FirstLookBegun)
    assert isinstance(second, NotStarted)
    assert second.verdict is ClaimVerdict.BREAKER_OPEN
    row = await standing(store, of_binding(world))
    assert row is not None
    assert row.state == "half_open"


async def test_a_sign_of_before_a_move_is_not_taken_for_one_after_it(store: Database) -> None:
    """Who failed before it came back and fails again says something new (C304)."""
    teller = Teller(database=store)
    await teller.go_dark()
    names = [f"org-{teller.name}-{each}" for each in range(3)]
    await _close(store, teller)

    await teller.tell(Sign.FAILURE, *names)
    await teller.pass_time(6)
    await teller.tell(Sign.FAILURE, names[0])

    assert await teller.state() == "open"


async def _close(store: Database, teller: Teller) -> None:
    async with store.app_engine.begin() as connection:
        await connection.exec_driver_sql(
            "UPDATE oncefence.breakers SET state = 'closed', via = 'override_close',"
            " version = version + 1, changed_at = clock_timestamp(), changed_by = 'olga',"
            " changed_note = 'they are back', opens = 0, counts_from = clock_timestamp(),"
            " failures = 0, watched_from = NULL, watched_until = NULL WHERE key = $1",
            (teller.key.row_key,),
        )
