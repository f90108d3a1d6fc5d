"""Symptoms of waits and limits that people met in the field, each as a test under its id."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from hypothesis import example, given
from hypothesis import strategies as st
from sqlalchemy import Row

from oncefence.catalog.loader import load_pack
from oncefence.domain.claim import ClaimVerdict
from tests.bench.quota import most_in
from tests.cases.outbound import (
    ZONES,
    Outbound,
    Reply,
    cases,
    outbound,
    says,
    shipped,
    standing_in,
    view_of,
)
from tests.storage.counting import a_dimension, counting
from tests.support.servers import Database

pytestmark = pytest.mark.asyncio(loop_scope="module")

HERE = Path(__file__).read_text(encoding="utf-8")
CASES = cases("retry_after")
CONTACT = load_pack("hubspot").operations["contact.update"].answer
PROSPECT = load_pack("outreach").operations["prospect.update"].answer
TITLE = b'{"title": "Lead"}'
DAY_S = 86_400
ANY_TIME = st.integers(0, 6_000_000_000_000_000).map(
    lambda microseconds: datetime(1990, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)
)
TOO_MANY = "429 Too Many Requests"


def asked(case: str) -> Any:  # a case's own form
    return CASES[case]["input"]


def expected(case: str) -> Any:  # as above
    return CASES[case]["expected"]


def the_time(case: str) -> datetime:
    return datetime.fromisoformat(asked(case)["now"])


def refusal(status: str, body: object, retry_after: str | None = None) -> Reply:
    """An answer that refuses for now; without the header where there is no value of it."""
    headers = () if retry_after is None else (f"Retry-After: {retry_after}",)
    return says(json.dumps(body), *headers, status=status)


def maintenance(retry_after: str | None) -> Reply:
    return refusal(asked("QUO-02")["status"], asked("QUO-02")["body"], retry_after)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def contacts(
    store: Database, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Outbound]:
    """The way to contacts, by the pack as it ships."""
    view = view_of("contact", "hubspot")
    async with outbound(store, tmp_path_factory.mktemp("contacts"), view) as way:
        yield way


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def prospects(
    store: Database, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Outbound]:
    """The way to prospects, by the pack as it ships."""
    view = view_of("prospect", "outreach")
    async with outbound(store, tmp_path_factory.mktemp("prospects"), view) as way:
        yield way


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def undeclared(
    store: Database, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Outbound]:
    """The way to prospects, by a pack that knows no time without a zone."""
    folder = tmp_path_factory.mktemp("undeclared")
    declared = 'retry_after = { forms = ["seconds", "epoch_s", "iso_utc"] }'
    text = shipped("outreach")
    assert text.count(declared) == 1
    pack = folder / "outreach.toml"
    pack.write_text(text.replace(declared, declared.replace("iso_utc", "iso")), encoding="utf-8")
    async with outbound(store, folder, view_of("prospect", pack)) as way:
        yield way


async def test_every_case_has_its_test() -> None:
    """A case without a test is a symptom that may come back."""
    missing = [case for case in CASES if f"test_{case.lower().replace('-', '_')}_" not in HERE]

    assert missing == []
    assert len(CASES) == 6


# --- QUO-01 ----------------------------------------------------------------------------------


def wait_of(value: str | None, now: datetime, rule: Any = CONTACT) -> float:
    """The seconds that a header asks for by a shipped pack."""
    headers = {} if value is None else {"Retry-After": value}
    return float(rule.wait_seconds(429, headers, None, now=now))


class TestQUO01:
    @pytest.mark.parametrize(
        ("value", "wait_s"),
        list(zip(asked("QUO-01")["values"], expected("QUO-01")["waits_s"], strict=True)),
        ids=repr,
    )
    async def test_quo_01_a_wait_is_what_the_value_says_or_half_a_minute(
        self, contacts: Outbound, value: str | None, wait_s: int
    ) -> None:
        """As the row has it that the next attempt waits by; the spread only adds (C250)."""
        ran = await contacts.send(TITLE, refusal(TOO_MANY, {}, value), as_of=the_time("QUO-01"))

        assert ran.attempt.outcome == "REPLAY_SAFE_RETRY"
        assert (ran.item.state, ran.result.until) == ("retry", ran.item.run_after)
        assert ran.waits_for(wait_s), ran.waits

    @pytest.mark.parametrize(
        ("headers", "wait_s"),
        [
            (["Retry-After: 120", "Retry-After: 60"], 120),
            (["Retry-After: 60, 120"], 120),
            (["Retry-After: soon", "Retry-After: 120"], 120),
            (
                [
                    "Retry-After: Fri, 01 Jan 2100 00:02:00 GMT",
                    "Retry-After: Fri, 01 Jan 2100 00:20:00 GMT",
                ],
                1_200,
            ),
            (["Retry-After: 60", "Retry-After: Fri, 01 Jan 2100 00:20:00 GMT"], 1_200),
            (["Retry-After: \u00b2\u00b2"], 30),
            (["retry-AFTER: 120"], 120),
            ([f"Retry-After: {'9' * 5_000}"], DAY_S),
            (["Retry-After: 120,"], 120),
            (["Retry-After: 5,"], 30),
            (["Retry-After: 2100-01-01T00:20:00Z"], 1_200),
            (["Retry-After: 2100-01-01T00:00:10Z"], 30),
        ],
        ids=str,
    )
    async def test_quo_01_no_value_that_can_be_read_is_left_out(
        self, contacts: Outbound, headers: list[str], wait_s: int
    ) -> None:
        """The latest of all that can be read, whatever else stands there and however spelt."""
        reply = says("{}", *headers, status=TOO_MANY)

        ran = await contacts.send(TITLE, reply, as_of=the_time("QUO-01"))

        assert ran.attempt.outcome == "REPLAY_SAFE_RETRY"
        assert ran.waits_for(wait_s), ran.waits

    async def test_quo_01_nobody_sends_before_that_time(self, contacts: Outbound) -> None:
        """A moment early nothing is sent; at the time the same request is, once (C251)."""
        first = await contacts.send(TITLE, refusal(TOO_MANY, {}, "120"))
        contacts.will_succeed(first.command)

        early = await contacts.run(
            first.command, as_of=first.item.run_after - timedelta(milliseconds=1)
        )
        await contacts.forget_quota()
        then = await contacts.run(first.command, as_of=first.item.run_after)

        assert early.result.verdict == ClaimVerdict.NOT_DUE
        assert len(early.requests) == 1
        assert then.attempt.outcome == "ACCEPTED"
        assert [each.body for each in then.requests] == [first.requests[0].body] * 2

    async def test_quo_01_a_date_is_held_against_the_time_by_which_work_is_due(
        self, contacts: Outbound
    ) -> None:
        """A worker's clock that is years off brings no date nearer (C201)."""
        now = (await contacts.world.now()).replace(microsecond=0)
        for ahead in (timedelta(days=40_000), timedelta(hours=1)):
            date = now + ahead + timedelta(seconds=600)
            reply = refusal(TOO_MANY, {}, format_datetime(date, usegmt=True))

            ran = await contacts.send(TITLE, reply, as_of=now + ahead)

            assert ran.waits_for(600, rounded_s=1), ran.waits
            assert ran.item.run_after >= date

    @given(st.text() | st.from_regex(r"[-+]?[0-9_.,:TZeExX ]{1,24}", fullmatch=True))
    @example("1" * 400)
    @example("\u0661")
    async def test_quo_01_whatever_stands_there_the_wait_has_its_bounds(self, value: str) -> None:
        """No value stops a retry for good, rushes it, or ends the run that reads it."""
        wanted = expected("QUO-01")
        for rule in (CONTACT, PROSPECT):
            wait = wait_of(value, the_time("QUO-01"), rule)
            assert wanted["least_s"] <= wait <= wanted["most_s"]

    @given(
        st.integers(0, 10**30),
        st.integers(0, 12),
        st.sampled_from(["", " ", "\t", "   "]),
        st.sampled_from(["", ".0", ".000001", ".5", ".99"]),
    )
    async def test_quo_01_digits_are_seconds_rounded_up(
        self, whole: int, zeros: int, space: str, fraction: str
    ) -> None:
        """Leading zeros and space around them change nothing, and a day is the most."""
        text = f"{space}{'0' * zeros}{whole}{fraction}{space}"
        wanted = whole + (1 if fraction.strip(".0") else 0)

        assert wait_of(text, the_time("QUO-01")) == min(max(wanted, 1), DAY_S)

    @given(st.integers(-(10**6), 10**6), st.integers(0, 999_999))
    async def test_quo_01_a_date_is_never_early(self, ahead_s: int, microsecond: int) -> None:
        """Whatever part of the second it is: the wait is rounded up."""
        now = the_time("QUO-01").replace(microsecond=microsecond)
        date = now.replace(microsecond=0) + timedelta(seconds=ahead_s)
        wait = wait_of(format_datetime(date, usegmt=True), now)

        assert wait == min(max(-((now - date) // timedelta(seconds=1)), 1), DAY_S)


# --- QUO-02 ----------------------------------------------------------------------------------


class TestQUO02:
    @pytest.mark.parametrize("zone", ZONES)
    async def test_quo_02_a_declared_time_without_a_zone_is_utc_wherever_the_worker_is(
        self, prospects: Outbound, zone: str
    ) -> None:
        """Not the worker's own time, hours late, and not garbage, at once (C250, C252)."""
        with standing_in(zone):
            ran = await prospects.send(
                TITLE, maintenance(asked("QUO-02")["retry_after"]), as_of=the_time("QUO-02")
            )

        wanted = expected("QUO-02")["declared"]
        assert ran.attempt.outcome == wanted["outcome"]
        assert ran.item.run_after >= datetime.fromisoformat(wanted["not_before"])
        assert ran.waits_for(1_200), ran.waits

    async def test_quo_02_a_form_that_was_not_declared_proves_nothing(
        self, undeclared: Outbound
    ) -> None:
        """The write may have been applied: looked up, and never sent again on a guess (C2)."""
        with standing_in(asked("QUO-02")["zone"]):
            ran = await undeclared.send(
                TITLE, maintenance(asked("QUO-02")["retry_after"]), as_of=the_time("QUO-02")
            )

        assert ran.attempt.outcome == expected("QUO-02")["undeclared"]["outcome"]
        assert (ran.item.state, ran.item.failure_class) == ("dead", "outcome_unknown")
        assert ran.result.execution_status == "unknown"
        assert len(ran.requests) == 1

    @pytest.mark.parametrize(
        ("value", "wait_s"),
        [
            ("2100-01-01T00:20:00Z", 1_200),
            ("2100-01-01T01:20:00+01:00", 1_200),
            ("2100-01-01 00:20:00", 1_200),
            ("2100-01-01T00:20:00.5", 1_201),
            ("2100-01-01T00:20", 1_200),
            ("2099-12-31T23:00:00", 1),
            ("2101-01-01T00:00:00", DAY_S),
            ("1200", 1_200),
            ("4102446000", 1_200),
        ],
    )
    async def test_quo_02_each_declared_form_of_a_time_is_read(
        self, prospects: Outbound, value: str, wait_s: int
    ) -> None:
        """With a zone, without one, in seconds or since 1970."""
        with standing_in(asked("QUO-02")["zone"]):
            ran = await prospects.send(TITLE, maintenance(value), as_of=the_time("QUO-02"))

        assert ran.attempt.outcome == "REPLAY_SAFE_RETRY"
        assert ran.waits_for(wait_s), ran.waits

    @pytest.mark.parametrize(
        "reply",
        [
            maintenance(None),
            maintenance("soon"),
            maintenance("2100-13-01T00:20:00"),
            maintenance("2100-01-01"),
            maintenance("00:20:00"),
            maintenance("Fri, 01 Jan 2100 00:20:00 GMT"),
            maintenance("-1"),
            refusal("503 Service Unavailable", {"errors": [{"id": "other"}]}, "1200"),
            refusal("503 Service Unavailable", {}, "1200"),
            says("<html>", "Retry-After: 1200", status="503 Service Unavailable"),
            refusal("502 Bad Gateway", {"errors": [{"id": "scheduledServerMaintenance"}]}, "1200"),
        ],
        ids=range(11),
    )
    async def test_quo_02_less_than_what_is_declared_proves_nothing(
        self, prospects: Outbound, reply: Reply
    ) -> None:
        """Status, body and a time that can be read belong together (C252)."""
        # So many in a row would be a provider to be left alone.
        await prospects.send(TITLE)
        ran = await prospects.send(TITLE, reply, as_of=the_time("QUO-02"))

        assert ran.attempt.outcome == "OUTCOME_UNKNOWN"
        assert len(ran.requests) == 1

    @given(
        ANY_TIME,
        st.sampled_from(sorted(ZONES)),
        st.sampled_from(["", "Z", "+00:00"]),
        st.sampled_from("T "),
    )
    async def test_quo_02_every_time_means_one_moment_in_every_zone(
        self, moment: datetime, zone: str, suffix: str, between: str
    ) -> None:
        """Hours that a summer time skips or repeats are hours like any other."""
        now = the_time("QUO-02")
        moment = moment.replace(microsecond=0)
        ahead = int((moment - now).total_seconds())
        text = moment.replace(tzinfo=None).isoformat(between) + suffix

        with standing_in(zone):
            found = wait_of(text, now, PROSPECT)

        assert found == min(max(ahead, 1), DAY_S)

    async def test_quo_02_all_work_of_that_class_waits_and_not_that_one_item(
        self, prospects: Outbound
    ) -> None:
        """Others find out without a request of theirs, and lose no attempt by it (C52, C302)."""
        other = await prospects.accept(TITLE)
        ran = await prospects.send(
            TITLE, maintenance(asked("QUO-02")["retry_after"]), as_of=the_time("QUO-02")
        )

        until = await prospects.is_held(other)

        (gate,) = await closed(prospects)
        assert ran.attempt.outcome == "REPLAY_SAFE_RETRY"
        assert (gate.base_url, gate.endpoint_class) == (
            prospects.provider.server.base_url,
            "prospects.write",
        )
        assert 1_200 <= gate.seconds < 1_201
        assert until is not None
        assert until >= gate.closed_until


async def closed(way: Outbound) -> Sequence[Row[Any]]:
    """What is closed, and for how long it was closed when it was."""
    return await way.world.sql(
        "SELECT *, extract(epoch FROM closed_until - changed_at) AS seconds"
        " FROM oncefence.quota_counts WHERE closed_until > clock_timestamp() ORDER BY quota_key"
    )


# --- QUO-04 ----------------------------------------------------------------------------------


class TestQUO04:
    @pytest.mark.parametrize(
        ("limit", "wait_s"),
        list(zip(asked("QUO-04")["limits"], expected("QUO-04")["waits_s"], strict=True)),
    )
    async def test_quo_04_each_limit_has_a_wait_of_its_own(
        self, contacts: Outbound, limit: str, wait_s: int
    ) -> None:
        """A second, ten, the end of the day; half a minute for one that nobody knows (C250)."""
        with standing_in("America/Los_Angeles"):
            ran = await contacts.send(
                TITLE, refusal(TOO_MANY, {"policyName": limit}), as_of=the_time("QUO-04")
            )

        assert ran.attempt.outcome == expected("QUO-04")["outcome"]
        assert ran.attempt.failure_class == "rate_limited"
        assert ran.attempt.may_have_applied is False
        assert ran.attempt.provider_receipt["limit_policy"] == limit
        assert (ran.item.state, ran.item.attempt) == ("retry", 1)
        assert ran.waits_for(wait_s), ran.waits

    @pytest.mark.parametrize(
        ("body", "retry_after", "wait_s"),
        [
            ({"policyName": "DAILY"}, "1", 7_200),
            ({"policyName": "SECONDLY"}, "60", 60),
            ({"policyName": "SECONDLY"}, "soon", 30),
            ({"policyName": "SOMETHING_NEW"}, "120", 120),
            ({"policyName": "SOMETHING_NEW"}, "1", 30),
            ({"policyName": "daily"}, None, 30),
            ({"policyName": ["DAILY"]}, None, 30),
            ({"policyName": "DAILY\n"}, None, 30),
            ({"policyName": None}, None, 30),
            (["DAILY"], None, 30),
        ],
        ids=str,
    )
    async def test_quo_04_no_sign_shortens_the_wait_that_another_asks_for(
        self, contacts: Outbound, body: object, retry_after: str | None, wait_s: int
    ) -> None:
        """The longest of them counts, and what is unreadable asks for half a minute."""
        ran = await contacts.send(
            TITLE, refusal(TOO_MANY, body, retry_after), as_of=the_time("QUO-04")
        )

        assert ran.attempt.outcome == "REPLAY_SAFE_RETRY"
        assert ran.waits_for(wait_s), ran.waits

    @given(ANY_TIME, st.sampled_from(sorted(ZONES)))
    async def test_quo_04_a_day_ends_at_the_same_moment_everywhere(
        self, now: datetime, zone: str
    ) -> None:
        """At the next midnight UTC, never more than a day away and never at once."""
        limits = CONTACT.wait_by
        assert limits is not None
        with standing_in(zone):
            named = limits.read({"policyName": "DAILY"})
            wait = CONTACT.wait_seconds(429, {}, named, now=now)

        midnight = datetime(now.year, now.month, now.day, tzinfo=UTC) + timedelta(days=1)
        assert timedelta(0) <= now + timedelta(seconds=wait) - midnight < timedelta(seconds=1)

    @pytest.mark.parametrize(
        ("limit", "closes", "wait_s"),
        [
            ("SECONDLY", None, 1),
            ("TEN_SECONDLY_ROLLING", "burst", 10),
            ("DAILY", "daily", None),
            ("SOMETHING_NEW", None, 30),
        ],
    )
    async def test_quo_04_each_limit_closes_what_it_is_about(
        self, contacts: Outbound, limit: str, closes: str | None, wait_s: int | None
    ) -> None:
        """A second's limit is no day's, and a day's is over when the day is (C302)."""
        ran = await contacts.send(
            TITLE, refusal(TOO_MANY, {"policyName": limit}), as_of=the_time("QUO-04")
        )

        found = [row for row in await everything_closed(contacts) if row.closed_until is not None]

        (row,) = found
        assert ran.attempt.outcome == "REPLAY_SAFE_RETRY"
        assert (row.dimension, row.closed_because) == (closes, f"limit {limit}")
        if wait_s is None:
            at = row.closed_until.astimezone(UTC)
            assert (at.hour, at.minute, at.second, at.microsecond) == (0, 0, 0, 0)
            assert timedelta(0) < row.closed_until - row.changed_at <= timedelta(days=1)
        else:
            assert row.closed_until - row.changed_at == timedelta(seconds=wait_s)

    async def test_quo_04_a_days_limit_costs_the_others_no_attempt(
        self, contacts: Outbound
    ) -> None:
        """However often they are run until the day is over (C52)."""
        others = [await contacts.accept(TITLE) for _ in range(3)]
        await contacts.send(
            TITLE, refusal(TOO_MANY, {"policyName": "DAILY"}), as_of=the_time("QUO-04")
        )

        held = [await contacts.is_held(other) for _ in range(9) for other in others]

        items = [await contacts.world.item(other.work) for other in others]
        assert all(held)
        assert [(item.state, item.attempt, item.claims_lost) for item in items] == [
            ("pending", 0, 0)
        ] * 3
        await contacts.forget_quota()
        for other in others:
            contacts.will_succeed(other)
            assert (await contacts.run(other)).attempt.outcome == "ACCEPTED"


async def everything_closed(way: Outbound) -> Sequence[Row[Any]]:
    """Every count and gate, also those that are open again by now."""
    return await way.world.sql("SELECT * FROM oncefence.quota_counts ORDER BY quota_key")


# --- QUO-05 ----------------------------------------------------------------------------------


class TestQUO05:
    async def test_quo_05_replicas_share_one_count_and_a_restart_refills_nothing(
        self, tmp_path: Path
    ) -> None:
        """Four processes, one of them killed and begun anew: the provider refuses none (C303)."""
        wanted, plan = expected("QUO-05"), asked("QUO-05")
        target = tmp_path / "quota.json"
        words = ("--seconds", plan["seconds"], "--workers", plan["replicas"])
        # In a process of its own: whoever starts workers is their main thread.
        measuring = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.bench", "quota", "--limit", str(plan["limit"])),
            *map(str, words),
            *("--json", str(target)),
            cwd=Path(__file__).parents[2],
            stderr=asyncio.subprocess.PIPE,
        )
        _, said = await measuring.communicate()

        assert target.exists(), said.decode()[-2_000:]
        report = json.loads(target.read_text(encoding="utf-8"))
        assert 0 < report["most_reserved_in_a_second"] <= wanted["most"]
        assert report["provider"]["refused"] == wanted["refused"]
        assert report["provider"]["let_in"] > 0


# --- QUO-07 ----------------------------------------------------------------------------------


class TestQUO07:
    async def test_quo_07_searches_have_a_limit_of_their_own_and_hold_no_write_up(
        self, store: Database
    ) -> None:
        """Two classes are two counts, by the pack as it ships (C300)."""
        wanted = expected("QUO-07")
        quota = load_pack("hubspot").quota
        as_asked = {
            purpose: [
                a_dimension(
                    limit=quota[name].limit,
                    window_s=quota[name].window_s,
                    window=quota[name].window.value,
                    purposes=purposes,
                )
                for name, purposes in counts.items()
            ]
            for purpose, counts in {
                "cursor": {"search": ["cursor"]},
                "effect": {"burst": ["effect", "lookup"]},
            }.items()
        }
        both = a_dimension(
            limit=quota["daily"].limit,
            window_s=quota["daily"].window_s,
            window="fixed",
            purposes=["cursor", "effect", "lookup"],
        )
        moments = []
        async with counting(store) as (counter,):
            for _ in range(asked("QUO-07")["searches"]):
                async with counter.connection.transaction():
                    found = await counter.reserve(*as_asked["cursor"], both, purpose="cursor")
                    if found.is_granted:
                        moments.append((await counter.row(both))["changed_at"])
            written = [
                await counter.reserve(*as_asked["effect"], both)
                for _ in range(asked("QUO-07")["writes"])
            ]

        assert 0 < most_in(moments, timedelta(seconds=1)) <= wanted["searches_in_a_second"]
        assert sum(not each.is_granted for each in written) == wanted["writes_held"]


# --- QUO-08 ----------------------------------------------------------------------------------


def shows(remaining: str, window_ms: str) -> tuple[str, str]:
    return (
        f"x-hubspot-ratelimit-remaining: {remaining}",
        f"x-hubspot-ratelimit-interval-milliseconds: {window_ms}",
    )


class TestQUO08:
    async def test_quo_08_an_empty_limit_takes_nothing_from_a_success(
        self, contacts: Outbound
    ) -> None:
        """The write is done, and beside it stands that the limit is used up (C302)."""
        headers = shows(asked("QUO-08")["remaining"], asked("QUO-08")["window_ms"])

        ran = await contacts.send(TITLE, None, *headers)

        wanted = expected("QUO-08")
        rate = CONTACT.rates(dict(line.split(": ") for line in headers), now=ran.as_of)["burst"]
        assert ran.attempt.outcome == wanted["outcome"]
        assert (ran.item.state, ran.result.execution_status) == ("succeeded", "succeeded")
        assert (rate.remaining, rate.reset_seconds) == (0, wanted["reset_s"])

    async def test_quo_08_the_next_one_waits_until_the_limit_is_whole_again(
        self, contacts: Outbound
    ) -> None:
        """Somebody else used the account; nobody has to be refused to notice (C302)."""
        other = await contacts.accept(TITLE)
        await contacts.send(
            TITLE, None, *shows(asked("QUO-08")["remaining"], asked("QUO-08")["window_ms"])
        )

        until = await contacts.is_held(other)

        (row,) = await closed(contacts)
        assert (row.dimension, row.closed_because) == ("burst", "nothing remaining")
        assert row.seconds == expected("QUO-08")["reset_s"]
        assert until is not None
        assert until >= row.closed_until

    @pytest.mark.parametrize("garbage", asked("QUO-08")["garbage"], ids=repr)
    async def test_quo_08_garbage_in_a_header_is_as_if_it_were_not_there(
        self, contacts: Outbound, garbage: str
    ) -> None:
        """It changes no outcome, and shows neither an empty limit nor a full one."""
        ran = await contacts.send(TITLE, None, *shows(garbage, garbage))

        headers = dict(line.split(": ", 1) for line in shows(garbage, garbage))
        rate = CONTACT.rates(headers, now=ran.as_of)["burst"]
        assert ran.attempt.outcome == expected("QUO-08")["outcome"]
        assert ran.item.state == "succeeded"
        assert (rate.limit, rate.remaining, rate.reset_seconds) == (None, None, None)
        assert list(await closed(contacts)) == []

    @given(st.text(), st.text(), st.text())
    async def test_quo_08_no_value_of_a_header_can_stop_the_reading(
        self, limit: str, remaining: str, reset: str
    ) -> None:
        """A number that is shown is not negative, and no wait is longer than a day."""
        for rule, names in (
            (CONTACT, ("X-HubSpot-RateLimit-Max", "X-HubSpot-RateLimit-Remaining", "")),
            (PROSPECT, ("X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset")),
        ):
            headers = dict(zip(names, (limit, remaining, reset), strict=True))
            for rate in rule.rates(headers, now=the_time("QUO-04")).values():
                assert all((shown or 0) >= 0 for shown in (rate.limit, rate.remaining))
                assert 0 <= (rate.reset_seconds or 0) <= 31 * DAY_S
