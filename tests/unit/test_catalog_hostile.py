"""Answers are read whatever they hold: none breaks the reading or proves more than it says."""

import pytest

from oncefence.catalog import strict_json
from oncefence.catalog.answers import (
    ANSWER_DEPTH_MAX,
    NotAppliedRule,
    RefusalRule,
    ResponseContract,
    read_answer,
)
from oncefence.catalog.errors import PayloadRefused
from oncefence.catalog.expressions import find
from oncefence.catalog.field_values import FieldType, shows_same
from oncefence.catalog.payload import parse_payload


class TestANumber:
    @pytest.mark.parametrize(
        "text", ["1e-99999999999999999999", "-0.1E+401", "1e-401", "0e9999999999", "1e999999"]
    )
    def test_of_more_places_than_can_be_written_out_is_none(self, text: str) -> None:
        """Twenty characters would become a billion digits, or an error that nobody expects."""
        with pytest.raises(PayloadRefused, match="price: is a number out of range"):
            parse_payload(b'{"price":' + text.encode() + b"}")

        assert read_answer(b'{"price":' + text.encode() + b"}") == (None, False)

    @pytest.mark.parametrize("kind", [FieldType.DATE, FieldType.DATE_EPOCH_MS])
    @pytest.mark.parametrize("shown", [10**60, -(10**399), "1e99", "9" * 100])
    def test_that_is_no_day_of_any_calendar_shows_no_value(
        self, kind: FieldType, shown: object
    ) -> None:
        """It is too large even to be divided into days."""
        assert shows_same(kind, "2026-03-29", shown) is None


class TestAnExpression:
    @pytest.mark.parametrize(
        ("expression", "document"),
        [
            ("code >= `400`", {"code": "declined"}),
            ("errors[?code < `3`].id", {"errors": [{"code": 1}, {"code": "x"}]}),
            ("contains(message, code)", {"message": "code 5", "code": 5}),
            ("merge(a, b)", {"a": {}, "b": 1}),
            ("sum(amounts)", {"amounts": [10**399, 0.5]}),
            ("avg(amounts)", {"amounts": [10**399]}),
            ("ceil(to_number(limit))", {"limit": "1e999"}),
            ("rows[::0]", {"rows": [1]}),
        ],
    )
    def test_that_an_answer_does_not_fit_finds_nothing(
        self, expression: str, document: object
    ) -> None:
        """The library has no error of its own for these."""
        assert find(expression, document) is None

    def test_that_is_false_is_no_evidence(self) -> None:
        """A comparison that does not hold is there, and still says no."""
        contract = ResponseContract(success=(200,), evidence=("status == 'done'",), identity="id")

        def shown(body: bytes) -> bool:
            return contract.read_body(200, {}, body, "1").evidence_present

        assert shown(b'{"id":"1","status":"done"}')
        assert not shown(b'{"id":"1","status":"waiting"}')

    def test_that_lists_nothing_is_no_evidence(self) -> None:
        """Done to none of the inputs is not done."""
        contract = ResponseContract(success=(200,), evidence=("done[].id",), identity="id")

        assert not contract.read_body(200, {}, b'{"id":"1","done":[]}', "1").evidence_present

    @pytest.mark.parametrize("evidence", [b"0", b'""', b"{}"])
    def test_that_finds_a_value_is_evidence(self, evidence: bytes) -> None:
        """Zero and an empty text are values like any other."""
        contract = ResponseContract(success=(200,), evidence=("rest",), identity="id")

        reading = contract.read_body(200, {}, b'{"id":"1","rest":' + evidence + b"}", "1")

        assert reading.evidence_present


class TestABodyThatCannotBeRead:
    @pytest.mark.parametrize("body", [b"", b"<html>", b'{"begun":', b'{"a":1,"a":2}', b"null"])
    def test_declares_nothing(self, body: bytes) -> None:
        """That something is not there says nothing where nothing can be read (C246)."""
        contract = ResponseContract(
            success=(200,),
            evidence=(),
            not_applied_when=(NotAppliedRule(statuses=(503,), body="!begun"),),
            refusals=(RefusalRule(statuses=(422,), body="!begun"),),
        )

        unavailable = contract.read_body(503, {}, body, None)
        refused = contract.read_body(422, {}, body, None)

        assert not unavailable.declares_not_applied
        assert not refused.declares_refusal


def test_a_place_is_written_only_where_something_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """With long keys around many values, all places together are longer than any memory."""

    def fail(where: str, key: str) -> str:
        raise AssertionError("nothing is wrong")

    monkeypatch.setattr(strict_json, "join", fail)
    body = b'{"a":' * (ANSWER_DEPTH_MAX - 1) + b"[1,2]" + b"}" * (ANSWER_DEPTH_MAX - 1)

    _, is_sound = read_answer(body)

    assert is_sound
