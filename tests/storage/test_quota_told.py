"""What the provider's own answers do to a count, and what they close (C302)."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, timedelta
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio

from tests.storage.counting import Answered, Counter, a_dimension, counting
from tests.support.servers import Database

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module")
async def counter(store: Database) -> AsyncIterator[Counter]:
    async with counting(store) as (one,):
        yield one


def a_rate(dimension: dict[str, Any], **shown: Any) -> dict[str, Any]:  # as an answer shows it
    return {
        "dimension": dimension["name"],
        "limit": None,
        "remaining": None,
        "reset_s": None,
    } | shown


def a_close(closes: str, **changed: Any) -> dict[str, Any]:  # as an answer says it
    return {
        "closes": closes,
        "dimension": None,
        "seconds": 30.0,
        "until_midnight": False,
        "because": "status 429",
        **changed,
    }


class TestNothingRemaining:
    @pytest.mark.parametrize(("reset_s", "waits_s"), [(20.0, 20), (None, 100), (5_000.0, 100)])
    async def test_closes_the_count_until_its_window_ends(
        self, counter: Counter, reset_s: float | None, waits_s: int
    ) -> None:
        """Somebody else used it; never for longer than the window has (QUO-08)."""
        dimension = a_dimension(limit=50, window_s=100)
        answered = await counter.reserve(dimension)
        await counter.tell(
            dimension, rates=[a_rate(dimension, remaining=0, reset_s=reset_s)], reserved=answered
        )

        held = await counter.reserve(dimension)

        assert held.until is not None
        wait = (held.until - held.asked_at).total_seconds()
        assert waits_s - 5 < wait < waits_s * 1.06
        assert (await counter.row(dimension))["closed_because"] == "nothing remaining"

    async def test_that_we_used_up_ourselves_is_known_already(self, counter: Counter) -> None:
        """Closing it as well would cost a window each time that the limit is met exactly."""
        dimension = a_dimension(limit=3)
        await counter.use(dimension, 2)
        answered = await counter.reserve(dimension)
        await counter.tell(dimension, rates=[a_rate(dimension, remaining=0)], reserved=answered)

        assert (await counter.row(dimension))["closed_until"] is None

    async def test_in_an_answer_that_comes_late_closes_nothing_anew(self, counter: Counter) -> None:
        """It tells of the moment at which it was reserved, and that is long over."""
        dimension = a_dimension(limit=3)
        await counter.use(dimension, 2)
        answered = await counter.reserve(dimension)
        await counter.let_pass(dimension, 70)
        await counter.tell(dimension, rates=[a_rate(dimension, remaining=0)], reserved=answered)

        assert (await counter.reserve(dimension)).is_granted

    async def test_of_a_day_closes_it_until_midnight(self, counter: Counter) -> None:
        """However long the header says."""
        dimension = a_dimension(limit=50, window="utc_day", window_s=86_400)
        await counter.tell(dimension, rates=[a_rate(dimension, remaining=0, reset_s=5.0)])

        closed = (await counter.row(dimension))["closed_until"]
        assert (closed.astimezone(UTC).hour, closed.minute, closed.second) == (0, 0, 0)


class TestLessRemaining:
    @pytest.mark.parametrize(
        ("remaining", "room"),
        [(0, 0), (1, 1), (30, 30), (88, 88), (89, 99), (99, 99), (100, 99), (2**31 - 1, 99)],
    )
    async def test_than_we_count_takes_room_away_and_more_gives_none(
        self, counter: Counter, remaining: int, room: int
    ) -> None:
        """What others use of the account is counted; a tenth is within what an answer misses."""
        dimension = a_dimension(limit=100)
        answered = await counter.reserve(dimension)
        await counter.tell(
            dimension, rates=[a_rate(dimension, remaining=remaining)], reserved=answered
        )
        granted = 0
        while (await counter.reserve(dimension)).is_granted:
            granted += 1

        assert granted == room

    async def test_is_told_by_many_answers_and_counted_once(self, counter: Counter) -> None:
        """Fifty of somebody else's are fifty, however often they are shown."""
        dimension = a_dimension(limit=100)
        for _ in range(5):
            answered = await counter.reserve(dimension)
            await counter.tell(
                dimension,
                rates=[a_rate(dimension, remaining=100 - 50 - await _own(counter, dimension))],
                reserved=answered,
            )

        assert await counter.units(dimension) == 55

    async def test_takes_no_lookups_share(self, counter: Counter) -> None:
        """What others use is as if effects had used it."""
        dimension = a_dimension(limit=100, purposes=["effect", "lookup"])
        await counter.tell(dimension, rates=[a_rate(dimension, remaining=20)])

        looked = [(await counter.reserve(dimension, purpose="lookup")).is_granted for _ in range(9)]

        assert all(looked)


async def _own(counter: Counter, dimension: dict[str, Any]) -> int:
    """How many of the units are our own: all but the fifty that were told."""
    units = await counter.units(dimension)
    return units - 50 if units > 50 else units


class TestAToldLimit:
    async def test_that_is_lower_holds_for_its_window(self, counter: Counter) -> None:
        """The account is smaller than the pack says, whatever the pack says."""
        dimension = a_dimension(limit=5)
        await counter.use(dimension, 2)
        await counter.tell(dimension, rates=[a_rate(dimension, limit=2)])
        told = await counter.row(dimension)

        assert not (await counter.reserve(dimension)).is_granted
        assert told["told_limit"] == 2
        window = timedelta(seconds=dimension["window_s"])
        assert told["told_until"] - told["changed_at"] == window

    async def test_that_is_over_says_nothing_any_more(self, counter: Counter) -> None:
        """It was told of a window."""
        dimension = a_dimension(limit=5)
        await counter.use(dimension, 2)
        await counter.tell(dimension, rates=[a_rate(dimension, limit=2)])
        await counter.connection.execute(
            "UPDATE oncefence.quota_counts SET told_until = clock_timestamp() WHERE dimension = $1",
            dimension["name"],
        )

        assert (await counter.reserve(dimension)).is_granted

    @pytest.mark.parametrize("limit", [5, 6, 1_000, 0, None])
    async def test_that_is_no_lower_opens_nothing(
        self, counter: Counter, limit: int | None
    ) -> None:
        """What a tenant declared is the most; and a limit of nothing is no limit."""
        dimension = a_dimension(limit=5)
        await counter.tell(dimension, rates=[a_rate(dimension, limit=limit)])

        granted = [(await counter.reserve(dimension)).is_granted for _ in range(7)]

        assert sum(granted) == 5

    async def test_that_is_as_high_again_ends_the_lower_one(self, counter: Counter) -> None:
        """The newest answer knows best."""
        dimension = a_dimension(limit=5)
        await counter.use(dimension, 2)
        await counter.tell(dimension, rates=[a_rate(dimension, limit=2)])
        await counter.tell(dimension, rates=[a_rate(dimension, limit=5)])

        assert (await counter.reserve(dimension)).is_granted


class TestAFixedWindow:
    async def test_whose_end_nobody_told_is_counted_as_rolling(self, counter: Counter) -> None:
        """It may have begun at any moment, and two halves of it must not be two wholes."""
        dimension = a_dimension(limit=2, window="fixed", window_s=1_000)
        await counter.use(dimension, 2)
        await counter.let_pass(dimension, 63)
        early = await counter.reserve(dimension)
        await counter.let_pass(dimension, 2)

        assert not early.is_granted
        assert (await counter.reserve(dimension)).is_granted

    async def test_is_forgotten_when_it_was_told_to_end(self, counter: Counter) -> None:
        """The provider's own bounds are the right ones."""
        dimension = a_dimension(limit=2, window="fixed", window_s=1_000)
        await counter.use(dimension, 2)
        await counter.let_pass(dimension, 5)
        await counter.tell(dimension, rates=[a_rate(dimension, reset_s=10.0)])
        held = await counter.reserve(dimension)
        await _reset_is_due(counter, dimension)

        assert held.until is not None
        assert held.until - held.asked_at < timedelta(seconds=12)
        assert (await counter.reserve(dimension)).is_granted

    async def test_ends_no_sooner_again_than_it_is_long(self, counter: Counter) -> None:
        """A header that says "in a second" each time must not open a window a second."""
        dimension = a_dimension(limit=2, window="fixed", window_s=1_000)
        granted = 0
        for _ in range(10):
            await counter.tell(dimension, rates=[a_rate(dimension, reset_s=1.0)])
            await _reset_is_due(counter, dimension)
            granted += (await counter.reserve(dimension)).is_granted
            await counter.let_pass(dimension, 1)

        assert granted <= 4

    async def test_keeps_what_was_reserved_just_before_its_end(self, counter: Counter) -> None:
        """It may have reached the provider in the next one."""
        dimension = a_dimension(limit=2, window="fixed", window_s=1_000)
        await counter.use(dimension, 2)
        await counter.tell(dimension, rates=[a_rate(dimension, reset_s=10.0)])
        await _reset_is_due(counter, dimension)

        assert not (await counter.reserve(dimension)).is_granted


async def _reset_is_due(counter: Counter, dimension: dict[str, Any]) -> None:
    await counter.connection.execute(
        "UPDATE oncefence.quota_counts SET resets_at = clock_timestamp()"
        " WHERE dimension = $1 AND resets_at IS NOT NULL",
        dimension["name"],
    )


class TestARequestThatLeftLate:
    @pytest.mark.parametrize(
        ("left_after_slots", "opens_after_slots"), [(0, 65), (1, 65), (2, 66), (10, 74), (60, 124)]
    )
    async def test_counts_from_when_it_left(
        self, counter: Counter, left_after_slots: int, opens_after_slots: int
    ) -> None:
        """The provider never sees more in a window than we do, however busy a worker is (C300)."""
        dimension = a_dimension(limit=1)
        slot = await _slot_seconds(counter, dimension)
        answered = await counter.reserve(dimension)
        await counter.let_pass(dimension, left_after_slots + 1)
        # Answered a slot after it left; by now it is that much older.
        (unit,) = answered.reserved or ()
        aged = Answered(
            reserved=[{**unit, "slot": unit["slot"] - left_after_slots - 1}],
            until=None,
            asked_at=answered.asked_at,
        )
        await counter.tell(dimension, reserved=aged, since_sent_s=slot)
        held = await counter.reserve(dimension)

        assert await counter.units(dimension) == 1
        assert held.until is not None
        waits = (held.until - held.asked_at).total_seconds() / slot
        assert opens_after_slots - 3 < waits + left_after_slots + 1 < opens_after_slots + 1

    async def test_that_is_forgotten_already_counts_no_more(self, counter: Counter) -> None:
        """An answer that took longer than the window tells nothing of when it arrived."""
        dimension = a_dimension(limit=1)
        answered = await counter.reserve(dimension)
        await counter.let_pass(dimension, 70)
        (unit,) = answered.reserved or ()
        aged = replace(answered, reserved=[{**unit, "slot": unit["slot"] - 70}])
        await counter.tell(dimension, reserved=aged, since_sent_s=0.0)

        assert await counter.units(dimension) == 0

    @pytest.mark.parametrize("purpose", ["effect", "lookup", "cursor"])
    async def test_stays_of_its_purpose(self, counter: Counter, purpose: str) -> None:
        """The shares move with it."""
        dimension = a_dimension(limit=20, purposes=["cursor", "effect", "lookup"])
        answered = await counter.reserve(dimension, purpose=purpose)
        await counter.let_pass(dimension, 30)
        (unit,) = answered.reserved or ()
        aged = replace(answered, reserved=[{**unit, "slot": unit["slot"] - 30}])
        await counter.tell(dimension, reserved=aged, since_sent_s=0.0)
        await counter.let_pass(dimension, 40)
        row = await counter.row(dimension)

        assert (sum(row["used"]), row["units"]) == (1, 1)
        assert [sum(row["lookups"]), sum(row["cursors"])] == [
            purpose == "lookup",
            purpose == "cursor",
        ]


async def _slot_seconds(counter: Counter, dimension: dict[str, Any]) -> float:
    found: float = await counter.connection.fetchval(
        "SELECT oncefence.quota_slot_seconds($1, $2)", dimension["window"], dimension["window_s"]
    )
    return found


class TestWhatIsClosed:
    @pytest.mark.parametrize(
        ("closes", "holds"),
        [
            ("provider", {"own", "another binding", "another org"}),
            ("class", {"own"}),
            ("binding", {"own", "another class"}),
        ],
    )
    async def test_holds_back_what_it_is_about_and_nothing_else(
        self, store: Database, closes: str, holds: set[str]
    ) -> None:
        """Maintenance is everybody's, an account's limit is its own (QUO-02, QUO-04)."""
        async with counting(store, 4) as counters:
            own, another_class, binding, org = counters
            binding.binding, org.binding = uuid4(), uuid4()
            org.org = "another-org"
            for each in (own, binding, org):
                await _at(each, "https://a-provider.test")
            elsewhere = Counter(own.connection)
            await _at(elsewhere, "https://another.test")
            endpoint_class = f"writes-{uuid4()}"
            await own.tell(close=a_close(closes), endpoint_class=endpoint_class)
            answers = {
                "own": await own.reserve(endpoint_class=endpoint_class),
                "another class": await another_class.reserve(endpoint_class="reads"),
                "another binding": await binding.reserve(endpoint_class=endpoint_class),
                "another org": await org.reserve(endpoint_class=endpoint_class),
                "elsewhere": await elsewhere.reserve(endpoint_class=endpoint_class),
            }

        assert {name for name, each in answers.items() if not each.is_granted} == holds

    @pytest.mark.parametrize("limit", [5, None])
    async def test_by_its_name_is_the_dimension_counted_or_not(
        self, counter: Counter, limit: int | None
    ) -> None:
        """A tenant that says to have no such limit was wrong for once."""
        dimension, other = a_dimension(limit=limit), a_dimension()
        await counter.tell(
            dimension, other, close=a_close("dimension", dimension=dimension["name"])
        )

        held = await counter.reserve(dimension, other)

        assert held.until is not None
        assert 25 < (held.until - held.asked_at).total_seconds() < 35
        assert (await counter.reserve(other)).is_granted

    async def test_that_requests_of_its_class_do_not_count_in_holds_back_its_class(
        self, counter: Counter
    ) -> None:
        """Somebody met a limit, so nobody comes back at once, wherever it is counted (C302)."""
        counted, elsewhere = a_dimension(), a_dimension()
        await counter.tell(counted, close=a_close("dimension", dimension=elsewhere["name"]))

        assert not (await counter.reserve(counted)).is_granted
        assert (await counter.reserve(counted, endpoint_class="reads")).is_granted

    async def test_until_the_day_ends_opens_at_midnight(self, counter: Counter) -> None:
        """By the database's clock, which is the one that judges it."""
        await counter.tell(close=a_close("binding", until_midnight=True, seconds=1.0))

        held = await counter.reserve()

        midnight = (
            (held.asked_at + timedelta(days=1))
            .astimezone(UTC)
            .replace(hour=0, minute=0, second=0, microsecond=0)
        )
        assert held.until is not None
        assert midnight <= held.until <= midnight + timedelta(minutes=1)

    async def test_is_never_closed_for_shorter_by_a_later_word(self, counter: Counter) -> None:
        """Several were on their way when the first was turned away."""
        for seconds in (60.0, 1.0):
            await counter.tell(close=a_close("binding", seconds=seconds))

        held = await counter.reserve()

        assert held.until is not None
        assert (held.until - held.asked_at).total_seconds() > 50

    async def test_opens_by_itself(self, counter: Counter) -> None:
        """Nobody has to lift it."""
        await counter.tell(close=a_close("binding", seconds=0.0))

        assert (await counter.reserve()).is_granted


async def _at(counter: Counter, base_url: str) -> None:
    """The counter's binding is a real one, at this address; its org is the counter's own."""
    await counter.connection.execute(
        "INSERT INTO oncefence.principal_bindings"
        " (org_id, binding_id, name, provider, kind, base_url, is_local)"
        " VALUES ($1, $2, $3, 'a-provider', 'shared', $4, false)",
        counter.org,
        counter.binding,
        f"account-{counter.binding}",
        base_url,
    )
