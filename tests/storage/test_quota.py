"""Reserving what a provider counts: when there is room, how much of it, and until when not."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import asyncpg
import pytest
import pytest_asyncio
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from oncefence.domain.quota import HOLD, SLOTS, Purpose, share
from tests.storage.counting import Answered, Counter, Dimension, a_dimension, counting
from tests.storage.racing import all_at_once
from tests.support.servers import Database

pytestmark = pytest.mark.asyncio(loop_scope="module")

_PURPOSES = [["effect"], ["effect", "lookup"], ["cursor", "effect", "lookup"], ["cursor", "lookup"]]


@pytest_asyncio.fixture(loop_scope="module")
async def counter(store: Database) -> AsyncIterator[Counter]:
    async with counting(store) as (one,):
        yield one


class TestARollingWindow:
    async def test_lets_as_many_through_as_its_limit(self, counter: Counter) -> None:
        """The next one waits, and nobody has to be refused by the provider for it (C300)."""
        dimension = a_dimension(limit=3)

        granted = [(await counter.reserve(dimension)).is_granted for _ in range(5)]

        assert granted == [True, True, True, False, False]
        assert await counter.units(dimension) == 3

    async def test_counts_a_unit_for_a_window_and_a_margin(self, counter: Counter) -> None:
        """A unit is forgotten after 64 slots of 1.04 windows, and not a slot before (C300)."""
        dimension = a_dimension(limit=1)
        await counter.use(dimension, 1)
        await counter.let_pass(dimension, SLOTS)
        early = await counter.reserve(dimension)
        await counter.let_pass(dimension, 1)

        assert not early.is_granted
        assert (await counter.reserve(dimension)).is_granted

    @pytest.mark.parametrize("window_s", [1, 10, 31 * 86_400])
    async def test_a_waiter_waits_for_the_first_unit_and_hardly_longer(
        self, counter: Counter, window_s: int
    ) -> None:
        """Never less than the window after the unit, and with a spread, so that not all come."""
        dimension = a_dimension(limit=1, window_s=window_s)
        took_at = await counter.connection.fetchval("SELECT clock_timestamp()")
        await counter.use(dimension, 1)

        waits = {(await counter.reserve(dimension)).until for _ in range(4)}

        hold = timedelta(seconds=window_s * HOLD)
        most = hold + hold / SLOTS + max(min(hold / 15, timedelta(minutes=1)), timedelta(seconds=1))
        assert all(took_at + hold <= until < took_at + most for until in waits if until)
        assert None not in waits
        assert len(waits) > 1

    async def test_waits_for_as_many_as_stand_in_the_way(self, counter: Counter) -> None:
        """A limit that was lowered has room when enough of what was used is forgotten."""
        dimension = a_dimension(limit=3)
        for _ in range(3):
            await counter.use(dimension, 1)
            await counter.let_pass(dimension, 10)
        lower = {**dimension, "limit": 2}
        first = await counter.reserve(lower)
        await counter.let_pass(dimension, 45)
        after_two = [await counter.reserve(lower) for _ in range(2)]

        assert first.until is not None
        slot = timedelta(seconds=dimension["window_s"] * HOLD / SLOTS)
        assert 44 < (first.until - first.asked_at) / slot < 47
        assert [each.is_granted for each in after_two] == [True, False]


class TestSeveralDimensions:
    async def test_are_taken_all_or_none(self, counter: Counter) -> None:
        """A request that is held back by one count must not use up another (C301)."""
        full, free = a_dimension(limit=1), a_dimension(limit=9)
        await counter.use(full, 1)
        before = await counter.reserve(full, free)
        units = await counter.row(free)
        both = await counter.reserve(a_dimension(), free)

        assert not before.is_granted
        assert units is None or units["units"] == 0
        assert both.is_granted
        assert await counter.units(free) == 1

    async def test_hold_until_the_last_of_them_opens(self, counter: Counter) -> None:
        """Else the request would come back only to be put off again."""
        short, long = a_dimension(limit=1, window_s=10), a_dimension(limit=1, window_s=1_000)
        await counter.use(short, 1)
        await counter.use(long, 1)

        held = await counter.reserve(short, long)

        assert held.until is not None
        assert held.until - held.asked_at > timedelta(seconds=1_000)

    async def test_without_a_limit_are_not_counted(self, counter: Counter) -> None:
        """A tenant whose account has no such limit waits for none."""
        uncounted = a_dimension(limit=None)

        answers = [await counter.reserve(uncounted) for _ in range(20)]

        assert all(each.reserved == [] for each in answers)
        assert await counter.row(uncounted) is None


class TestAScope:
    @pytest.mark.parametrize(
        ("scope", "shares"),
        [
            (["provider_key"], {"other binding", "other org", "other class"}),
            (["binding"], {"other org", "other class"}),
            (["org"], {"other binding", "other class"}),
            (["endpoint_class"], {"other binding", "other org"}),
            (["org", "endpoint_class"], {"other binding"}),
            (["endpoint_class", "provider_key"], {"other binding", "other org"}),
        ],
    )
    async def test_is_counted_together_and_nothing_else(
        self, store: Database, scope: list[str], shares: set[str]
    ) -> None:
        """Several parts make one count for each combination of them (C300)."""
        dimension = a_dimension(limit=1, scope=scope)
        async with counting(store, 3) as (first, binding, org):
            binding.binding = a_binding = first.binding.__class__(int=first.binding.int ^ 1)
            org.org = "another-org"
            await first.use(dimension, 1)
            held = {
                "other binding": await binding.reserve(dimension),
                "other org": await org.reserve(dimension),
                "other class": await first.reserve(dimension, endpoint_class="reads"),
            }

        assert a_binding != first.binding
        assert {name for name, answer in held.items() if not answer.is_granted} == shares

    async def test_of_an_account_that_nobody_knows_is_the_bindings_own(
        self, store: Database
    ) -> None:
        """Two unknown accounts are not one account."""
        dimension = a_dimension(limit=1)
        async with counting(store, 2) as (first, second):
            first.account = second.account = None
            second.binding = first.binding.__class__(int=first.binding.int ^ 1)
            await first.use(dimension, 1)

            assert (await second.reserve(dimension)).is_granted
            assert not (await first.reserve(dimension)).is_granted

    async def test_of_any_value_is_a_key_of_its_own(self, store: Database) -> None:
        """An account that is named like a part of a key is still another one."""
        dimension = a_dimension(limit=1, scope=["org", "provider_key"])
        async with counting(store, 4) as counters:
            names = [("a/account=b", "c"), ("a", "b/account=c"), ("a%2Faccount=b", "c"), ("a", "b")]
            for each, (org, account) in zip(counters, names, strict=True):
                each.org, each.account = org, account

            assert all([(await each.reserve(dimension)).is_granted for each in counters])


class TestAPurpose:
    @pytest.mark.parametrize("purposes", _PURPOSES, ids="+".join)
    @pytest.mark.parametrize("limit", [1, 5, 19, 20, 100, 10_000_000])
    async def test_has_its_share_in_sql_as_in_python(
        self, counter: Counter, purposes: list[str], limit: int
    ) -> None:
        """The rule is written twice, and must be one."""
        for purpose in purposes:
            found = await counter.connection.fetchval(
                "SELECT oncefence.quota_share($1, to_jsonb($2::text[]), $3)",
                limit,
                purposes,
                purpose,
            )
            assert found == share(limit, [Purpose(each) for each in purposes], Purpose(purpose))
            assert 1 <= found <= limit

    async def test_of_lookups_never_starves_effects(self, counter: Counter) -> None:
        """However many reads wait, nine of ten units stay with the writes."""
        dimension = a_dimension(limit=100, purposes=["effect", "lookup"])
        looked = [
            (await counter.reserve(dimension, purpose="lookup")).is_granted for _ in range(20)
        ]
        written = [(await counter.reserve(dimension)).is_granted for _ in range(100)]

        assert sum(looked) == 10
        assert sum(written) == 90

    async def test_of_effects_leaves_some_to_lookups(self, counter: Counter) -> None:
        """Without a read nothing that is unknown would ever be settled."""
        dimension = a_dimension(limit=100, purposes=["effect", "lookup"])
        written = [(await counter.reserve(dimension)).is_granted for _ in range(100)]
        looked = [
            (await counter.reserve(dimension, purpose="lookup")).is_granted for _ in range(20)
        ]

        assert sum(written) == 95
        assert sum(looked) == 5

    async def test_that_is_alone_has_all_of_it(self, counter: Counter) -> None:
        """A search with a limit of its own is not cut down for writes that it never meets."""
        dimension = a_dimension(limit=5, purposes=["cursor"])

        await counter.use(dimension, 5, "cursor")

        assert not (await counter.reserve(dimension, purpose="cursor")).is_granted

    async def test_whose_share_is_used_waits_for_its_own_units(self, counter: Counter) -> None:
        """Effects that are forgotten sooner open nothing for a lookup."""
        dimension = a_dimension(limit=20, purposes=["effect", "lookup"])
        await counter.use(dimension, 10)
        await counter.let_pass(dimension, 30)
        await counter.use(dimension, 2, "lookup")

        held = await counter.reserve(dimension, purpose="lookup")

        assert held.until is not None
        slot = timedelta(seconds=dimension["window_s"] * HOLD / SLOTS)
        assert (held.until - held.asked_at) / slot > SLOTS - 1


class TestGivingBack:
    async def test_makes_room_again(self, counter: Counter) -> None:
        """What provably never left is not what the provider counted."""
        dimension = a_dimension(limit=1)
        answered = await counter.reserve(dimension)
        await counter.give_back(answered)

        assert await counter.units(dimension) == 0
        assert (await counter.reserve(dimension)).is_granted

    @pytest.mark.parametrize("purpose", ["effect", "lookup", "cursor"])
    async def test_too_often_never_makes_more_room_than_there_was(
        self, counter: Counter, purpose: str
    ) -> None:
        """A count below nothing would let more through than the limit."""
        dimension = a_dimension(limit=20, purposes=["cursor", "effect", "lookup"])
        answered = await counter.reserve(dimension, purpose=purpose)
        for _ in range(3):
            await counter.give_back(answered)
        row = await counter.row(dimension)

        assert [sum(row[name]) for name in ("used", "lookups", "cursors")] == [0, 0, 0]

    async def test_what_is_forgotten_takes_nothing_from_what_is_new(self, counter: Counter) -> None:
        """A starter that comes back after the window gives back its own unit or none."""
        dimension = a_dimension(limit=1)
        old = await counter.reserve(dimension)
        await counter.let_pass(dimension, 65)
        await counter.use(dimension, 1)
        # As old as it is for the row: its slot has been used anew.
        for unit in old.reserved or ():
            await counter.give_back(
                Answered(
                    reserved=[{**unit, "slot": unit["slot"] - 65}],
                    until=None,
                    asked_at=old.asked_at,
                )
            )

        assert await counter.units(dimension) == 1


class TestADay:
    async def test_ends_at_midnight_and_not_a_day_later(self, counter: Counter) -> None:
        """What is counted by the calendar opens by the calendar, for all at once."""
        dimension = a_dimension(limit=1, window="utc_day", window_s=86_400)
        await counter.use(dimension, 1)

        held = await counter.reserve(dimension)

        assert held.until is not None
        midnight = (
            (held.asked_at + timedelta(days=1))
            .astimezone(UTC)
            .replace(hour=0, minute=0, second=0, microsecond=0)
        )
        assert midnight <= held.until <= midnight + timedelta(minutes=1)

    @pytest.mark.parametrize(
        ("at", "units"),
        [("23:59:59.9", 4), ("00:00:00", 0), ("00:00:00.1", 0), ("12:00:00", 0)],
    )
    async def test_is_forgotten_as_a_whole(self, counter: Counter, at: str, units: int) -> None:
        """At the moment itself, whenever in the day it was used."""
        dimension = a_dimension(limit=4, window="utc_day", window_s=86_400)
        await counter.use(dimension, 4)
        row = await counter.row(dimension)
        day = datetime.fromtimestamp(row["head"] * 1_350, UTC).date()
        moment = datetime.fromisoformat(f"{day}T{at}+00:00")
        if units == 0:
            moment += timedelta(days=1)

        found = await counter.connection.fetchval(
            "SELECT oncefence.quota_used(oncefence.quota_at(c, $2))"
            " FROM oncefence.quota_counts AS c WHERE c.dimension = $1",
            dimension["name"],
            moment,
        )

        assert found == units


class TestAClock:
    async def test_that_went_back_a_little_opens_nothing(self, counter: Counter) -> None:
        """A unit is not older because the clock is wrong."""
        dimension = a_dimension(limit=1)
        await counter.use(dimension, 1)
        await counter.let_pass(dimension, -3)

        assert not (await counter.reserve(dimension)).is_granted

    async def test_that_was_far_ahead_holds_nobody_up_for_longer_than_a_window(
        self, counter: Counter
    ) -> None:
        """What was used then counts as used now, and is forgotten like it."""
        dimension = a_dimension(limit=2, purposes=["effect", "lookup"])
        await counter.use(dimension, 1)
        await counter.use(dimension, 1, "lookup")
        await counter.let_pass(dimension, -5_000)
        held = await counter.reserve(dimension)
        units = await counter.units(dimension)
        await counter.let_pass(dimension, 5_000 + 65)

        assert (held.is_granted, units) == (False, 2)
        assert held.until is not None
        window = timedelta(seconds=dimension["window_s"])
        assert held.until - held.asked_at < window * 1.2
        assert (await counter.reserve(dimension)).is_granted


# --- any history ---------------------------------------------------------------------------------


@dataclass(slots=True)
class Unit:
    slot: int
    purpose: str


@dataclass(slots=True)
class Simple:
    """A count that keeps each unit by itself, with its slot."""

    limit: int
    purposes: list[str]
    slot: int = 0
    units: list[Unit] = field(default_factory=list)

    def counted(self, purpose: str | None = None) -> int:
        return sum(
            self.slot - unit.slot <= SLOTS and purpose in (None, unit.purpose)
            for unit in self.units
        )

    def has_room(self, purpose: str) -> bool:
        own = share(self.limit, [Purpose(each) for each in self.purposes], Purpose(purpose))
        return self.counted() < self.limit and self.counted(purpose) < own


_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("take"), st.sampled_from(["effect", "lookup", "cursor"])),
        st.tuples(st.just("pass"), st.integers(1, 40)),
        st.tuples(st.just("back"), st.integers(0, 30)),
    ),
    max_size=60,
)


@given(limits=st.tuples(st.integers(1, 12), st.integers(1, 12)), steps=_STEPS)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_any_history_grants_what_a_list_of_units_would(
    store: Database, limits: tuple[int, int], steps: list[tuple[str, str | int]]
) -> None:
    """Of two counts at once: what is kept in slots is neither more nor less than unit by unit."""
    purposes = ["cursor", "effect", "lookup"]
    dimensions = [a_dimension(limit=limit, purposes=purposes) for limit in limits]
    models = [Simple(limit, purposes) for limit in limits]
    taken: list[tuple[Answered, list[Unit]]] = []
    passed = 0
    async with counting(store) as (counter,):
        began = await _slot_of_now(counter, dimensions[0])
        for verb, value in steps:
            if verb == "take":
                answered = await counter.reserve(*dimensions, purpose=str(value))
                assert answered.is_granted == all(each.has_room(str(value)) for each in models)
                if answered.is_granted:
                    units = [Unit(passed, str(value)) for _ in models]
                    for model, unit in zip(models, units, strict=True):
                        model.units.append(unit)
                    taken.append((_from_the_start(answered, passed), units))
            elif verb == "pass":
                passed += int(value)
                for dimension, model in zip(dimensions, models, strict=True):
                    await counter.let_pass(dimension, int(value))
                    model.slot = passed
            elif taken:
                answered, units = taken.pop(int(value) % len(taken))
                await counter.give_back(_from_the_start(answered, -passed))
                for model, unit in zip(models, units, strict=True):
                    model.units = [each for each in model.units if each is not unit]
        for dimension, model in zip(dimensions, models, strict=True):
            row = await counter.row(dimension)
            assert (row["units"] if row else 0) == model.counted()
        assume(began == await _slot_of_now(counter, dimensions[0]))


def _from_the_start(answered: Answered, passed: int) -> Answered:
    """The same units, by the number of the slot before so many slots had passed."""
    return Answered(
        reserved=[{**unit, "slot": unit["slot"] + passed} for unit in answered.reserved or ()],
        until=None,
        asked_at=answered.asked_at,
    )


async def _slot_of_now(counter: Counter, dimension: Dimension) -> int:
    slot: int = await counter.connection.fetchval(
        "SELECT floor(extract(epoch FROM clock_timestamp())"
        " / oncefence.quota_slot_seconds('rolling', $1))::bigint",
        dimension["window_s"],
    )
    return slot


# --- races ---------------------------------------------------------------------------------------


class TestEightAtOnce:
    async def test_make_a_new_count_once(self, store: Database) -> None:
        """The first requests of an account come together as often as not (C300)."""
        dimension = a_dimension(limit=5)
        async with counting(store, 8) as counters:
            found = await all_at_once(
                store,
                [counter.reserve(dimension) for counter in counters],
                "LOCK TABLE oncefence.quota_counts IN SHARE MODE",
            )
            units = await counters[0].units(dimension)

        assert sorted(isinstance(each, Answered) and each.is_granted for each in found) == (
            [False] * 3 + [True] * 5
        )
        assert units == 5

    async def test_take_the_last_units_once(self, store: Database) -> None:
        """They all read that there is room, and one after the other finds out whether there is."""
        dimension = a_dimension(limit=5)
        async with counting(store, 8) as counters:
            await counters[0].use(dimension, 2)
            found = await all_at_once(
                store,
                [counter.reserve(dimension) for counter in counters],
                "SELECT FROM oncefence.quota_counts WHERE dimension = $1 FOR UPDATE",
                dimension["name"],
            )

        assert sum(isinstance(each, Answered) and each.is_granted for each in found) == 3

    async def test_take_all_or_none_of_the_last_units(self, store: Database) -> None:
        """Each dimension is judged again once its lock is there, whichever comes first (C301)."""
        roomy, tight = (
            a_dimension(name=f"{name}-{uuid4()}", limit=limit)
            for name, limit in (("a", 100), ("b", 5))
        )
        async with counting(store, 8) as counters:
            await counters[0].reserve(tight, roomy)
            found = await all_at_once(
                store,
                [counter.reserve(tight, roomy) for counter in counters],
                "SELECT FROM oncefence.quota_counts WHERE dimension = $1 FOR UPDATE",
                roomy["name"],
            )
            units = [await counters[0].units(each) for each in (roomy, tight)]

        assert sum(isinstance(each, Answered) and each.is_granted for each in found) == 4
        assert units == [5, 5]

    async def test_that_name_their_dimensions_in_any_order_never_wait_in_a_ring(
        self, store: Database
    ) -> None:
        """Rows are taken by their keys, and who has one never waits for an earlier one."""
        dimensions = [a_dimension(limit=1_000) for _ in range(3)]
        orders = [dimensions, dimensions[::-1]]
        async with counting(store, 8) as counters:

            async def many(place: int) -> int:
                granted = 0
                for turn in range(20):
                    async with counters[place].connection.transaction():
                        answered = await counters[place].reserve(*orders[(place + turn) % 2])
                    granted += answered.is_granted
                    if turn % 3 == 0:
                        await counters[place].give_back(answered)
                return granted

            granted = await asyncio.gather(*(many(place) for place in range(8)))
            units = [await counters[0].units(each) for each in dimensions]

        assert granted == [20] * 8
        assert units == [8 * 13] * 3

    async def test_never_have_more_than_the_limit_in_any_window(self, store: Database) -> None:
        """By the database's time, whatever the moments at which they ask (C300, C303)."""
        dimension = a_dimension(limit=10, window_s=1)
        wanted = 35
        moments: list[datetime] = []
        async with counting(store, 8) as counters:

            async def ask(counter: Counter) -> None:
                while len(moments) < wanted:
                    async with counter.connection.transaction():
                        answered = await counter.reserve(dimension)
                        if answered.is_granted:
                            # Written under the row's lock, which is held until COMMIT.
                            moments.append((await counter.row(dimension))["changed_at"])

            async with asyncio.timeout(60):
                await asyncio.gather(*(ask(counter) for counter in counters))

        moments.sort()
        assert len(moments) >= wanted
        assert all(
            later - earlier >= timedelta(seconds=1)
            for earlier, later in zip(moments, moments[10:], strict=False)
        )


async def test_the_application_cannot_drop_a_count(store: Database) -> None:
    """A count that is gone would be a limit that begins anew."""
    async with counting(store) as (counter,):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await counter.connection.execute("DELETE FROM oncefence.quota_counts")
