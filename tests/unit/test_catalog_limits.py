"""What answers say about limits is read in the declared form or not at all (C250, C302)."""

import time
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncefence.catalog.limits import (
    EVERY_FORM,
    NamedLimit,
    RateHeaders,
    RetryAfterForm,
    RetryAfterRule,
    seconds_of,
)
from oncefence.catalog.loader import load_pack

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HUBSPOT = load_pack("hubspot").operations["contact.update"].answer
OUTREACH = load_pack("outreach").operations["prospect.update"].answer


class TestRetryAfter:
    @pytest.mark.parametrize(
        ("value", "forms", "seconds"),
        [
            ("120", "seconds", 120),
            ("1.5", "seconds", 2),
            ("120", "http_date iso iso_utc", None),
            ("Thu, 01 Jan 2026 00:02:00 GMT", "http_date", 120),
            ("Thu, 01 Jan 2026 00:02:00 GMT", "seconds iso iso_utc", None),
            ("2026-01-01T00:20:00Z", "iso", 1200),
            ("2026-01-01T01:20:00+01:00", "iso", 1200),
            ("2026-01-01T00:20:00", "iso", None),
            ("2026-01-01T00:20:00", "iso_utc", 1200),
            ("2026-01-01T00:20:00Z", "iso_utc", 1200),
            ("2026-01-01T00:20:00", "seconds http_date", None),
            ("1767225660", "epoch_s", 60),
            ("1767225660", "seconds", 1_767_225_660),
            ("1767225660", "seconds epoch_s", 60),
            ("60", "epoch_s", None),
            ("120, 60", "seconds", 120),
            ("120, 1767225660", "epoch_s", None),
            ("-1", "seconds", None),
            ("", "seconds", None),
            (None, "seconds", None),
        ],
    )
    def test_is_read_in_the_declared_forms_alone(
        self, value: str | None, forms: str, seconds: int | None
    ) -> None:
        """A form that was not declared may mean something else to this provider."""
        declared = tuple(RetryAfterForm(form) for form in forms.split())

        assert seconds_of(value, declared, now=NOW) == seconds

    @given(st.text(), st.sets(st.sampled_from(EVERY_FORM), min_size=1))
    def test_never_raises(self, value: str, forms: set[RetryAfterForm]) -> None:
        """The header comes from outside."""
        seconds_of(value, tuple(forms), now=NOW)

    def test_is_found_under_any_spelling_of_its_header(self) -> None:
        """Header names have no case."""
        rule = RetryAfterRule(header="X-Wait")

        assert rule.seconds({"x-wait": "7"}, now=NOW) == 7
        assert rule.is_readable({"x-wait": "7"})
        assert not rule.is_readable({"retry-after": "7"})

    def test_wants_a_time_with_its_zone(self) -> None:
        """A naive now would be off by the zone of the machine."""
        with pytest.raises(ValueError, match="zone"):
            seconds_of("1", now=datetime(2026, 1, 1))  # noqa: DTZ001  # the mistake itself


def header_wait(value: str | None) -> float:
    """The wait for which a header alone asks, in every form but that of points in time."""
    forms = tuple(form for form in EVERY_FORM if form is not RetryAfterForm.EPOCH_S)
    contract = HUBSPOT.model_copy(update={"retry_after": RetryAfterRule(forms=forms)})
    headers = {} if value is None else {"Retry-After": value}
    return contract.wait_seconds(429, headers, None, now=NOW)


class TestHeader:
    @pytest.mark.parametrize(
        ("value", "seconds"),
        [
            ("120", 120),
            ("0", 1),
            ("-1", 30),
            ("1.5", 2),
            ("nan", 30),
            ("inf", 30),
            ("1e3", 30),
            ("1_0", 30),
            ("+5", 30),
            ("0x10", 30),
            ("", 30),
            ("  7 ", 7),
            ("Thu, 01 Jan 2026 00:02:00 GMT", 120),
            ("Wed, 31 Dec 2025 23:59:00 GMT", 1),
            ("99999999999", 86_400),
            (None, 30),
            ("9" * 5000, 86_400),
            ("0" * 40 + "9", 9),
            ("\u0661\u0662\u0660", 30),
            ("120, 60", 120),
            ("soon", 30),
            ("Thursday, 01-Jan-26 00:02:00 GMT", 120),
            ("Thu Jan  1 00:02:00 2026", 120),
            ("2026-01-01T00:20:00", 1_200),
            ("2026-01-01T00:20:00Z", 1_200),
            ("2026-01-01T01:20:00+01:00", 1_200),
            ("2026-01-01 00:20:00.5", 1_201),
            ("2026-13-01T00:20:00", 30),
            ("9999-12-31T23:59:59-14:00", 30),
            ("Thu, 99 Jan 2026 00:02:00 GMT", 30),
        ],
    )
    def test_is_read_in_the_three_ways_and_clamped(self, value: str | None, seconds: int) -> None:
        """Seconds, HTTP date or ISO time; thirty seconds for whatever else (C250)."""
        assert header_wait(value) == seconds

    def test_without_a_zone_is_utc_wherever_the_worker_stands(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Read as local time it would be hours late, or over at once."""
        with monkeypatch.context() as place:
            place.setenv("TZ", "America/Los_Angeles")
            time.tzset()
            seconds = header_wait("2026-01-01T00:20:00")
        time.tzset()

        assert seconds == 1_200

    @given(st.text() | st.from_regex(r"[A-Z][a-z]{2}, [0-9]{2} [A-Za-z]{3} .{0,30}"))
    def test_never_raises_and_stays_within_its_bounds(self, value: str) -> None:
        """The header comes from outside; nothing in it may stop or rush a retry."""
        assert 1 <= header_wait(value) <= 86_400


class TestWait:
    @pytest.mark.parametrize(
        ("policy", "retry_after", "seconds"),
        [
            ("SECONDLY", None, 1),
            ("TEN_SECONDLY_ROLLING", None, 10),
            ("DAILY", None, 86_400),
            ("SOMETHING_NEW", None, 30),
            (None, None, 30),
            ("two words", None, 30),
            ("SECONDLY", "5", 5),
            ("TEN_SECONDLY_ROLLING", "5", 10),
            ("SECONDLY", "soon", 30),
            ("DAILY", "60", 86_400),
        ],
    )
    def test_is_that_of_the_limit_that_was_met(
        self, policy: str | None, retry_after: str | None, seconds: int
    ) -> None:
        """A day's limit taken for a second's burns every attempt; the longest word counts."""
        body = f'{{"policyName":"{policy}"}}'.encode() if policy else b"{}"
        headers = {} if retry_after is None else {"Retry-After": retry_after}

        limit = HUBSPOT.read_body(429, headers, body, "501").limit

        assert HUBSPOT.wait_seconds(429, headers, limit, now=NOW) == seconds

    @pytest.mark.parametrize(
        ("now", "seconds"),
        [
            (datetime(2026, 3, 29, 23, 59, 59, 500_000, tzinfo=UTC), 1),
            (datetime(2026, 3, 29, 12, tzinfo=UTC), 43_200),
            (datetime.fromisoformat("2026-03-29T01:00:00+02:00"), 3_600),
        ],
    )
    def test_until_midnight_is_counted_in_utc(self, now: datetime, seconds: int) -> None:
        """The zone of the worker, and its summer time, have no part in it."""
        limit = NamedLimit(name="DAILY", wait="next_utc_midnight")

        assert limit.seconds(now=now) == seconds

    def test_is_never_shorter_than_the_status_asks_for(self) -> None:
        """A locked record wants two seconds, whatever else is said."""
        assert HUBSPOT.wait_seconds(423, {}, None, now=NOW) == 2
        assert HUBSPOT.wait_seconds(423, {"Retry-After": "1"}, None, now=NOW) == 2
        assert HUBSPOT.wait_seconds(423, {"Retry-After": "9"}, None, now=NOW) == 9

    def test_is_bounded_by_a_second_and_a_day(self) -> None:
        """The clamp of any wait (C480)."""
        for value, seconds in (("0", 1), ("99999999999", 86_400)):
            assert HUBSPOT.wait_seconds(429, {"Retry-After": value}, None, now=NOW) == seconds


class TestRates:
    def test_are_read_from_the_headers_of_any_answer(self) -> None:
        """A success may be the last one for now."""
        headers = {
            "x-hubspot-ratelimit-max": "100",
            "x-hubspot-ratelimit-remaining": "0",
            "x-hubspot-ratelimit-interval-milliseconds": "10000",
        }

        burst = HUBSPOT.rates(headers, now=NOW)["burst"]

        assert (burst.limit, burst.remaining, burst.reset_seconds) == (100, 0, 10)

    @pytest.mark.parametrize("value", ["abc", "-1", "", "1.5", "1e3", "٣", "0x1", "9" * 40])
    def test_of_garbage_are_as_if_not_there(self, value: str) -> None:
        """A header never decides about an answer that is otherwise good."""
        headers = {
            "x-hubspot-ratelimit-remaining": value,
            "x-hubspot-ratelimit-interval-milliseconds": value,
        }

        burst = HUBSPOT.rates(headers, now=NOW)["burst"]
        body = b'{"id":"501","properties":{},"updatedAt":"x"}'

        assert (burst.limit, burst.remaining, burst.reset_seconds) == (None, None, None)
        assert HUBSPOT.read_body(200, headers, body, "501").evidence_present

    @pytest.mark.parametrize(
        ("value", "seconds"),
        [
            ("60", 60),
            ("1767225660", 60),
            ("2026-01-01T00:01:00", 60),
            ("2026-01-01T00:01:00Z", 60),
            ("2025-12-31T00:00:00Z", 0),
            ("99999999", 31 * 86_400),
            ("later", None),
        ],
    )
    def test_reset_at_a_time_in_a_declared_form(self, value: str, seconds: int | None) -> None:
        """Documentation that leaves the form open is read in each that it may mean."""
        hourly = OUTREACH.rates({"X-RateLimit-Reset": value}, now=NOW)["hourly"]

        assert hourly.reset_seconds == seconds

    def test_without_a_reset_have_none(self) -> None:
        """A day's remainder says nothing of when the day ends."""
        assert RateHeaders(remaining="X-Left").read({"x-left": "3"}, now=NOW).reset_seconds is None
