"""Breakers: who is left alone, for how long, and how it comes back (C304 to C307)."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
import pytest_asyncio
from sqlalchemy import Row

from oncefence.app.local_postgres import LocalPostgres
from oncefence.domain.breaker import BreakerKey, Sign
from oncefence.domain.claim import ClaimVerdict
from oncefence.domain.effect import Outcome
from oncefence.domain.lookup import Grade, Verdict
from oncefence.storage.claims import NotStarted
from oncefence.storage.phases.settle_lookup import LookupEnd, settle_lookup
from oncefence.storage.phases.start_attempt import Started
from oncefence.storage.phases.start_lookup import LookupStarted
from tests.storage.breaking import (
    Teller,
    fail,
    let_pass,
    of_binding,
    standing,
    succeed,
    told,
)
from tests.storage.racing import all_at_once
from tests.support import servers
from tests.support.servers import Database
from tests.support.world import World, an_end

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module")
async def world(postgres: LocalPostgres) -> AsyncIterator[World]:
    """A world in a database of its own: its provider's breaker is that of all orgs in there."""
    async with servers.fresh_database(postgres) as alone:
        yield await World.make(alone)


async def row_of(database: Database, key: BreakerKey) -> Row[Any]:
    row = await standing(database, key)
    assert row is not None
    return row


async def state(world: World) -> str | None:
    row = await standing(world.database, of_binding(world))
    return None if row is None else row.state


class TestTheBreakerOfABinding:
    async def test_opens_after_ten_failures_in_a_row(self, world: World) -> None:
        """An account that only fails is left alone, and nobody's attempts are spent (C304, C51)."""
        waiting = await world.accept_command("waiting")
        await fail(world, 9)
        assert await state(world) == "closed"

        await fail(world, 1)

        row = await row_of(world.database, of_binding(world))
        assert (row.state, row.via, row.opens) == ("open", "trip", 1)
        assert row.until - row.opened_at == timedelta(seconds=30)
        held = await world.try_to_start(waiting)
        assert isinstance(held, NotStarted)
        assert held.verdict is ClaimVerdict.BREAKER_OPEN
        item = await world.item(waiting.work)
        assert (item.state, item.attempt, item.run_after) == ("pending", 0, held.until)
        assert row.until < item.run_after <= row.until + timedelta(milliseconds=2)

    async def test_holds_nobody_else_back(self, world: World) -> None:
        """One org, however ill its account is, cannot stop another one (C305)."""
        other_world = await World.make(world.database)
        await fail(world, 10)
        assert await state(world) == "open"

        assert isinstance(
            await other_world.try_to_start(await other_world.accept_command("lead-well")), Started
        )

    async def test_counts_anew_after_a_success(self, world: World) -> None:
        """What works now and then is not dark (C304)."""
        await fail(world, 9)
        await succeed(world)
        await fail(world, 9)

        assert await state(world) == "closed"

    async def test_forgets_failures_that_are_long_ago(self, world: World) -> None:
        """Ten failures in a day are no outage (C304)."""
        await fail(world, 9)
        await let_pass(world.database, of_binding(world), 61)
        await fail(world, 1)

        assert await state(world) == "closed"

    async def test_counts_nothing_of_which_the_provider_is_not_the_cause(
        self, world: World
    ) -> None:
        """A refused credential is the account's matter and stops no sends (C305)."""
        await fail(world, 12, sign=None)

        assert await standing(world.database, of_binding(world)) is None

    async def test_counts_unknowns(self, world: World) -> None:
        """Each of them may have applied, so a dark provider must not get the next one (C306)."""
        commands = [await world.accept_command(f"lead-{each}") for each in range(10)]
        started = [await world.start(each) for each in commands]
        for each in started:
            await world.settle(each, told(Outcome.OUTCOME_UNKNOWN, Sign.FAILURE))

        assert await state(world) == "open"

    async def test_is_not_written_by_a_success_while_it_is_healthy(self, world: World) -> None:
        """The way of an effect that works carries no write for those that do not (C304)."""
        await succeed(world)
        assert await standing(world.database, of_binding(world)) is None

        await fail(world, 1)
        await succeed(world)
        before = await standing(world.database, of_binding(world))
        await succeed(world)

        assert await standing(world.database, of_binding(world)) == before

    async def test_holds_lookups_back_while_it_is_open(self, world: World) -> None:
        """A provider that is dark is not asked either, and no try is spent (C304, C268)."""
        _, _, lookup = await world.an_unknown_command("lead-unknown")
        await fail(world, 10)

        held = await world.try_to_look(lookup)

        assert isinstance(held, NotStarted)
        assert held.verdict is ClaimVerdict.BREAKER_OPEN
        item = await world.item(lookup)
        assert (item.state, item.ownership_epoch, item.run_after) == ("pending", 0, held.until)

    async def test_does_not_hold_back_what_the_starter_said(self, world: World) -> None:
        """A late word settles without any read, so nothing of the provider is asked (C274)."""
        _, started, lookup = await world.an_unknown_command("lead-late")
        await fail(world, 10)
        await world.tell(started, an_end(Outcome.ACCEPTED))

        assert isinstance(await world.try_to_look(lookup), LookupStarted)

    async def test_comes_back_by_a_read(self, world: World) -> None:
        """Half-open, a lookup goes first: a write might be one more unknown (C307)."""
        _, _, lookup = await world.an_unknown_command("lead-read")
        waiting = await world.accept_command("lead-behind")
        await fail(world, 10)
        await let_pass(world.database, of_binding(world), 31)

        write = await world.try_to_start(waiting)
        looking = await world.start_looking(lookup)

        assert isinstance(write, NotStarted)
        assert write.verdict is ClaimVerdict.BREAKER_OPEN
        assert await state(world) == "half_open"
        await settle_lookup(
            world.engine,
            looking.fence,
            LookupEnd(
                verdict=Verdict.INCONCLUSIVE,
                reading="changed_since",
                grade=Grade.NONE,
                response_status=200,
                receipt={},
                phases={},
                sign=Sign.SUCCESS,
            ),
            is_sensitive=False,
            as_of=await world.now(),
            limits=world.limits,
        )
        assert await state(world) == "ramp"
        assert isinstance(await world.try_to_start(waiting), Started)

    async def test_lets_a_write_through_where_nobody_reads(self, world: World) -> None:
        """Without a lookup that is due it would stay shut for ever (C307, C3)."""
        first, second = await world.accept_command("lead-a"), await world.accept_command("lead-b")
        await fail(world, 10)
        await let_pass(world.database, of_binding(world), 30 + 11)

        probe, other = await world.try_to_start(first), await world.try_to_start(second)

        assert isinstance(probe, Started)
        assert isinstance(other, NotStarted)
        assert other.verdict is ClaimVerdict.BREAKER_OPEN
        await world.settle(probe, told(Outcome.ACCEPTED, Sign.SUCCESS))
        assert await state(world) == "ramp"


class TestTheBreakerOfAProvider:
    async def test_opens_when_most_orgs_fail(self, store: Database) -> None:
        """It is dark for everybody, so nobody sends into the dark (C304)."""
        teller = Teller(database=store)
        await teller.go_dark()

        assert await teller.state() == "open"
        assert await teller.waits("an-org-that-never-sent") is not None

    @pytest.mark.parametrize("orgs", [1, 2])
    async def test_stays_closed_for_fewer_than_three(self, store: Database, orgs: int) -> None:
        """Whatever one or two do wrong, the others go on (C305)."""
        teller = Teller(database=store)
        for _ in range(8):
            await teller.go_dark(orgs)

        assert await teller.state() == "closed"

    async def test_stays_closed_while_as_many_succeed(self, store: Database) -> None:
        """Three failing orgs of six are three orgs with a fault of their own (C305)."""
        teller = Teller(database=store)
        await teller.tell(Sign.FAILURE, "a", "b", "c")
        await teller.tell(Sign.SUCCESS, "d", "e", "f")
        await teller.pass_time(6)
        await teller.tell(Sign.FAILURE, "a")
        assert await teller.state() == "closed"

        await teller.tell(Sign.FAILURE, "d")

        assert await teller.state() == "open"

    async def test_counts_an_org_once_and_by_its_newest_sign(self, store: Database) -> None:
        """Who fails and then succeeds is well, and who fails a hundred times is one (C305)."""
        teller = Teller(database=store)
        await teller.tell(Sign.FAILURE, *["a"] * 5, *["b"] * 5, "c")
        await teller.tell(Sign.SUCCESS, "c")
        await teller.pass_time(6)
        await teller.tell(Sign.FAILURE, "a", "b")

        assert await teller.state() == "closed"

    async def test_waits_until_the_others_had_time_to_be_seen(self, store: Database) -> None:
        """Successes are only kept once something failed, so the first moments know no others."""
        teller = Teller(database=store)
        await teller.tell(Sign.FAILURE, "a", "b", "c")
        assert await teller.state() == "closed"

        await teller.pass_time(6)
        await teller.tell(Sign.FAILURE, "a")

        assert await teller.state() == "open"

    async def test_takes_no_read_for_a_sign_of_writes(self, store: Database) -> None:
        """A provider may answer reads and lose writes, or the other way round (C306)."""
        teller = Teller(database=store)
        await teller.tell(Sign.FAILURE, "a", "b", "c")
        await teller.tell(Sign.SUCCESS, "a", "b", "c", is_read=True)
        await teller.pass_time(6)
        await teller.tell(Sign.FAILURE, "d", is_read=True)
        assert await teller.state() == "closed"

        await teller.tell(Sign.FAILURE, "a")

        assert await teller.state() == "open"

    async def test_takes_the_probe_of_an_account_for_no_sign_of_writes(
        self, store: Database
    ) -> None:
        """The same read may bring an account back and say nothing of the provider (C306)."""
        teller = Teller(database=store)
        await teller.tell(Sign.FAILURE, *["a"] * 10, "b", "c")
        of_a = teller.key_of("a")
        await let_pass(store, of_a, 31)
        assert await teller.passes("a", is_read=True)
        await teller.tell(Sign.SUCCESS, "a", is_read=True)
        assert (await row_of(store, of_a)).state == "ramp"

        await teller.pass_time(6)
        await teller.tell(Sign.FAILURE, "b")

        assert await teller.state() == "open"

    async def test_holds_back_another_class_of_nobody(self, store: Database) -> None:
        """Each class of endpoints lives and dies by itself (C304)."""
        teller = Teller(database=store)
        await teller.go_dark()

        async with store.app_engine.connect() as connection:
            until = (
                await connection.exec_driver_sql(
                    "SELECT until FROM oncefence.breaker_obstacle('an-org', $1, 'reads',"
                    " gen_random_uuid(), false)",
                    (teller.name,),
                )
            ).scalar_one()

        assert until is None


class TestOpenAgain:
    async def test_it_is_open_for_twice_as_long_each_time_up_to_ten_minutes(
        self, store: Database
    ) -> None:
        """The longer it is dark, the less is asked of it (C307)."""
        teller = Teller(database=store)
        await teller.go_dark()
        lengths = []
        for _ in range(7):
            row = await row_of(store, teller.key)
            lengths.append((row.until - row.opened_at).total_seconds())
            await teller.pass_time(lengths[-1] + 1)
            assert await teller.passes("a", is_read=True)
            await teller.tell(Sign.FAILURE, "a", "b", is_read=True)

        assert lengths == [30, 60, 120, 240, 480, 600, 600]

    async def test_a_request_of_before_says_nothing(self, store: Database) -> None:
        """What was sent into the dark fails late, and must not be taken for the probe's answer."""
        teller = Teller(database=store)
        await teller.go_dark()
        row = await row_of(store, teller.key)
        began_at = row.opened_at - timedelta(seconds=8)
        await teller.tell(Sign.FAILURE, "a", began_at=began_at)
        assert (await standing(store, teller.key)) == row

        await teller.pass_time(31)
        assert await teller.passes("a", is_read=True)
        await teller.tell(Sign.FAILURE, "a", began_at=began_at)
        assert await teller.state() == "half_open"
        await teller.tell(Sign.SUCCESS, "a", began_at=began_at)

        assert await teller.state() == "half_open"

    async def test_a_failure_in_the_ramp_opens_it_for_longer(self, store: Database) -> None:
        """A provider that answers one request and not the next is not back (C307)."""
        teller = Teller(database=store)
        await teller.go_dark()
        await teller.pass_time(31)
        assert await teller.passes("a", is_read=True)
        await teller.tell(Sign.SUCCESS, "a", is_read=True)
        assert await teller.passes("a")

        await teller.tell(Sign.FAILURE, "a", "b")

        row = await row_of(store, teller.key)
        assert (row.state, row.via, row.opens) == ("open", "relapse", 2)
        assert row.until - row.opened_at == timedelta(seconds=60)


class TestComingBack:
    async def test_reads_pass_one_after_the_other_and_writes_after_ten_seconds(
        self, store: Database
    ) -> None:
        """All that waited would be the next outage (C307)."""
        teller = Teller(database=store)
        await teller.go_dark()
        await teller.pass_time(31)

        assert [await teller.passes(is_read=True) for _ in range(3)] == [True, False, False]
        assert not await teller.passes()
        await teller.pass_time(1.5)
        assert await teller.passes(is_read=True)
        assert not await teller.passes()
        await teller.pass_time(10)
        assert [await teller.passes() for _ in range(2)] == [True, False]
        await teller.pass_time(10)
        assert [await teller.passes() for _ in range(2)] == [True, False]

    async def test_a_ramp_lets_more_through_with_each_second_and_then_all(
        self, store: Database
    ) -> None:
        """One, two, four .. a second, up to the window of thirty-two (C307)."""
        teller = Teller(database=store)
        await teller.go_dark()
        await teller.pass_time(31)
        assert await teller.passes("a", is_read=True)
        await teller.tell(Sign.SUCCESS, "a", is_read=True)
        spacings = []
        for second in range(5):
            assert await teller.passes()
            row = await row_of(store, teller.key)
            assert row.state == "ramp", second
            spacings.append(row.writes_from - row.changed_at - timedelta(seconds=second))
            assert not await teller.passes()
            await teller.pass_time(1)

        # In its n-th second the next one passes after 1/2^n of a second, and what the test took.
        for second, spacing in enumerate(spacings):
            assert timedelta(seconds=0.5**second) <= spacing < timedelta(seconds=0.5**second + 1)
        assert all([await teller.passes() for _ in range(50)])
        row = await row_of(store, teller.key)
        assert (row.state, row.via, row.opens) == ("closed", "ramp_over", 0)

    async def test_whoever_waits_in_a_ramp_comes_back_inside_of_it(self, store: Database) -> None:
        """All at one moment would be refused again, and no later than needed (C307)."""
        teller = Teller(database=store)
        await teller.go_dark()
        await teller.pass_time(31)
        assert await teller.passes("a", is_read=True)
        await teller.tell(Sign.SUCCESS, "a", is_read=True)
        assert await teller.passes()

        waits = [await teller.waits() for _ in range(20)]

        row = await row_of(store, teller.key)
        assert len(set(waits)) > 10
        assert all(
            until is not None and row.writes_from <= until <= row.changed_at + timedelta(seconds=5)
            for until in waits
        )

    async def test_what_failed_before_counts_for_nothing_after(self, store: Database) -> None:
        """Or the first failure after an outage would be an outage (C304)."""
        teller = Teller(database=store)
        await teller.go_dark()
        await teller.pass_time(31)
        assert await teller.passes("a", is_read=True)
        await teller.tell(Sign.SUCCESS, "a", is_read=True)
        await teller.pass_time(5)
        assert await teller.passes()
        assert await teller.state() == "closed"

        await teller.tell(Sign.FAILURE, "a")
        await teller.pass_time(6)
        await teller.tell(Sign.FAILURE, "a")

        assert await teller.state() == "closed"

    async def test_one_of_many_processes_gets_the_place(self, store: Database) -> None:
        """The breaker is one for all of them, so one probe is one probe (C304, C303)."""
        teller = Teller(database=store)
        await teller.go_dark()
        await teller.pass_time(30 + 11)

        answers = await all_at_once(
            store,
            [teller.passes(f"org-{each}") for each in range(8)],
            "SELECT FROM oncefence.breakers WHERE key = $1 FOR UPDATE",
            teller.key.row_key,
        )

        assert sorted(map(str, answers)) == ["False"] * 7 + ["True"]

    async def test_a_place_is_of_both_breakers_or_of_neither(self, world: World) -> None:
        """A provider that is back does not let an account through that is not (C304)."""
        key, database = of_binding(world), world.database
        teller = Teller(database=database, bindings={world.org: world.binding})
        await teller.go_dark()
        await fail(world, 10)
        await teller.pass_time(30 + 11)
        before = await standing(database, teller.key)

        assert not await teller.passes(world.org)
        assert await standing(database, teller.key) == before

        await let_pass(database, key, 30 + 11)
        assert await teller.passes(world.org)
        assert (await teller.state(), await state(world)) == ("half_open", "half_open")


async def test_many_that_fail_at_once_neither_deadlock_nor_miscount(store: Database) -> None:
    """They lock the same rows in one order, whoever they are (C170)."""
    teller = Teller(database=store)
    await teller.tell(Sign.FAILURE, "a")
    of_a = teller.key_of("a")
    signs = [teller.tell(Sign.FAILURE, "a") for _ in range(4)]
    signs += [teller.tell(Sign.SUCCESS, "b") for _ in range(4)]

    ends = await all_at_once(
        store,
        signs[:4],
        "SELECT FROM oncefence.breakers WHERE key = $1 FOR UPDATE",
        teller.key.row_key,
    )
    ends += await asyncio.gather(*signs[4:], return_exceptions=True)

    assert ends == [None] * 8
    row = await row_of(store, of_a)
    assert row.failures == 5
