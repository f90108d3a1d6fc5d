"""A lookup asks for exactly what was written, and its answer is graded, never guessed (C268)."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncefence.catalog.errors import PayloadRefused
from oncefence.catalog.loader import load_binding, load_pack
from oncefence.catalog.lookup import LookupContract, LookupReading
from oncefence.catalog.record_times import TimeFormat, read_time
from oncefence.catalog.view import compile_view

BINDING = Path(__file__).parents[2] / "docs/examples/lead-title.binding.toml"
COMMAND = UUID("00000000-0000-4000-8000-000000000001")
MARK = datetime(2026, 11, 30, 10, 0, 0, tzinfo=UTC)
WRITTEN: dict[str, str | None] = {"jobtitle": "CTO"}


def contract() -> LookupContract:
    view = compile_view(load_pack("hubspot"), load_binding(BINDING))
    found = view.operation("lead.title.push").lookup
    assert found is not None
    return found


LOOKUP = contract()


def answer(title: object, updated: object = "2026-11-30T09:59:54.999Z", **other: Any) -> bytes:
    document = {"id": "512", "properties": {"jobtitle": title}, "updatedAt": updated}
    return json.dumps({**document, **other}).encode()


def judge(
    body: bytes, status: int = 200, written: dict[str, str | None] | None = None
) -> LookupReading:
    return LOOKUP.judge(
        status,
        body,
        written=WRITTEN if written is None else written,
        mark_time=MARK,
        remote_id="512",
        command=COMMAND,
    ).reading


class TestRequest:
    def test_reads_the_object_and_only_reads(self) -> None:
        """A lookup never uses a mutating method and carries no body (C260)."""
        request = LOOKUP.request("512", WRITTEN, command=COMMAND)

        assert (request.method, request.body) == ("GET", b"")
        assert request.target == "/crm/v3/objects/contacts/512?properties=jobtitle"
        assert request.headers == (("Accept", "application/json"),)
        assert request.written == WRITTEN

    def test_refuses_an_id_that_is_none(self) -> None:
        """The same guard as for a write stands before a read (C242)."""
        with pytest.raises(PayloadRefused):
            LOOKUP.request("../1", WRITTEN, command=COMMAND)


class TestJudge:
    def test_equal_values_are_equal_whenever_they_changed(self) -> None:
        """Every written field has the written value: that is the whole question."""
        assert judge(answer("CTO")) is LookupReading.EQUAL
        assert judge(answer("CTO", None)) is LookupReading.EQUAL
        assert judge(answer("CTO", "2026-12-01T00:00:00Z")) is LookupReading.EQUAL

    @pytest.mark.parametrize(
        ("updated", "expected"),
        [
            # The skew is 5 s: one millisecond before the bound, the bound, and after.
            ("2026-11-30T09:59:54.999Z", LookupReading.DIFFERENT_UNCHANGED),
            ("2026-11-30T09:59:55.000Z", LookupReading.DIFFERENT_CHANGED),
            ("2026-11-30T10:00:01Z", LookupReading.DIFFERENT_CHANGED),
            ("2026-11-30T11:59:54+02:00", LookupReading.DIFFERENT_UNCHANGED),
            ("2026-11-30T08:59:54-02:00", LookupReading.DIFFERENT_CHANGED),
            # Without a zone a time may be hours off in either direction.
            ("2026-11-30T09:59:54", LookupReading.DIFFERENT_NO_CHANGE_TIME),
            ("2026-11-30", LookupReading.DIFFERENT_NO_CHANGE_TIME),
            ("yesterday", LookupReading.DIFFERENT_NO_CHANGE_TIME),
            (1764496794000, LookupReading.DIFFERENT_NO_CHANGE_TIME),
            (None, LookupReading.DIFFERENT_NO_CHANGE_TIME),
        ],
    )
    def test_different_values_are_graded_by_the_change_time(
        self, updated: object, expected: LookupReading
    ) -> None:
        """Only an object that has stood still since before the mark shows that we missed."""
        assert judge(answer("CEO", updated)) is expected

    @pytest.mark.parametrize("status", [201, 204, 301, 400, 401, 403, 410, 429, 500, 503])
    def test_an_undeclared_status_shows_nothing(self, status: int) -> None:
        """A lookup that could not be made is no finding (C265)."""
        assert judge(answer("CTO"), status) is LookupReading.UNREADABLE

    def test_the_declared_status_shows_absence_whatever_the_body(self) -> None:
        """Not found is said by status; its body is prose."""
        assert judge(b"", 404) is LookupReading.ABSENT
        assert judge(answer("CTO"), 404) is LookupReading.ABSENT

    @pytest.mark.parametrize(
        "body",
        [
            b"",
            b"{}",
            b"[]",
            answer("CTO")[:-1],
            answer("CTO", id="513"),
            answer("CTO", id=None),
            answer("CEO", properties=None),
            # Another type than the pack declares: the shape is not the declared one.
            answer(7),
            answer(["CEO"]),
            answer({"value": "CEO"}),
        ],
    )
    def test_an_answer_of_another_shape_shows_nothing(self, body: bytes) -> None:
        """What cannot be read must not pass for absence, or a real change is called lost."""
        assert judge(body) is LookupReading.UNREADABLE

    def test_a_cleared_field_may_be_shown_as_null(self) -> None:
        """Writing an empty text empties the field, and an empty field is read as null."""
        assert judge(answer(None), written={"jobtitle": ""}) is LookupReading.EQUAL
        assert judge(answer(""), written={"jobtitle": ""}) is LookupReading.EQUAL
        assert judge(answer("x"), written={"jobtitle": ""}) is LookupReading.DIFFERENT_UNCHANGED
        assert judge(answer(None)) is LookupReading.DIFFERENT_UNCHANGED

    def test_an_empty_text_is_not_null_where_null_clears(self) -> None:
        """There the two are different values, and nobody wrote the one that is shown."""
        strict = LOOKUP.model_copy(update={"cleared_reads_as_null": ()})

        reading = strict.judge(
            200,
            answer(None),
            written={"jobtitle": ""},
            mark_time=MARK,
            remote_id="512",
            command=COMMAND,
        ).reading

        assert reading is LookupReading.DIFFERENT_UNCHANGED

    @pytest.mark.parametrize(
        ("written", "shown"), [("é", "e\u0301"), ("CTO", "cto"), ("CTO ", "CTO"), ("\uff11", "1")]
    )
    def test_values_are_compared_exactly(self, written: str, shown: str) -> None:
        """Equal to the eye is not equal: somebody else may have written it."""
        reading = judge(answer(shown), written={"jobtitle": written})

        assert reading is LookupReading.DIFFERENT_UNCHANGED

    @given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1))
    def test_any_written_title_is_recognised(self, title: str) -> None:
        """What we can send we can also find again."""
        assert judge(answer(title), written={"jobtitle": title}) is LookupReading.EQUAL

    @given(st.binary(max_size=80), st.integers(100, 599))
    def test_never_finds_anything_in_noise(self, body: bytes, status: int) -> None:
        """Random bytes are never a finding, and never an error."""
        expected = LookupReading.ABSENT if status == 404 else LookupReading.UNREADABLE

        assert judge(body, status) is expected

    def test_without_a_change_time_a_difference_has_no_time(self) -> None:
        """A pack that declares none cannot conclude that nothing happened."""
        timeless = LOOKUP.model_copy(update={"change_time": None})

        reading = timeless.judge(
            200,
            answer("CEO"),
            written=WRITTEN,
            mark_time=MARK,
            remote_id="512",
            command=COMMAND,
        ).reading

        assert reading is LookupReading.DIFFERENT_NO_CHANGE_TIME

    def test_wants_a_mark_with_its_zone(self) -> None:
        """A naive time would be compared in whatever zone the host has."""
        with pytest.raises(ValueError, match="time zone"):
            LOOKUP.judge(
                200,
                answer("CEO"),
                written=WRITTEN,
                mark_time=MARK.replace(tzinfo=None),
                remote_id="512",
                command=COMMAND,
            )


class TestReadTime:
    @pytest.mark.parametrize(
        ("value", "form", "expected"),
        [
            (1764496800, TimeFormat.EPOCH_S, datetime(2025, 11, 30, 10, tzinfo=UTC)),
            ("1764496800", TimeFormat.EPOCH_S, datetime(2025, 11, 30, 10, tzinfo=UTC)),
            (
                1764496800123,
                TimeFormat.EPOCH_MS,
                datetime(2025, 11, 30, 10, tzinfo=UTC) + timedelta(milliseconds=123),
            ),
            (10**30, TimeFormat.EPOCH_S, None),
            (10**15, TimeFormat.EPOCH_S, None),
            (1.5, TimeFormat.EPOCH_S, None),
            (True, TimeFormat.EPOCH_S, None),
            ("-1", TimeFormat.EPOCH_S, None),
            ("2026-11-30T10:00:00Z", TimeFormat.EPOCH_MS, None),
            (None, TimeFormat.EPOCH_MS, None),
        ],
    )
    def test_reads_only_the_declared_form(
        self, value: object, form: TimeFormat, expected: datetime | None
    ) -> None:
        """A time in another form is no time, rather than a wrong one."""
        assert read_time(value, form) == expected
