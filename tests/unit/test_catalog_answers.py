"""What one answer shows when it is read by the pack's contract."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncefence.catalog.answers import read_answer
from oncefence.catalog.expressions import find
from oncefence.catalog.loader import load_binding, load_pack
from oncefence.catalog.strict_json import ExactFloat
from oncefence.catalog.view import compile_view

BINDING = Path(__file__).parents[2] / "docs/examples/lead-title.binding.toml"
CONTRACT = (
    compile_view(load_pack("hubspot"), load_binding(BINDING)).operation("lead.title.push").response
)

REPLY: dict[str, Any] = {
    "id": "512",
    "properties": {"jobtitle": "CTO", "lastmodifieddate": "2026-11-30T10:00:00.000Z"},
    "createdAt": "2026-11-01T09:00:00.000Z",
    "updatedAt": "2026-11-30T10:00:00.000Z",
    "archived": False,
}
REFUSAL: dict[str, Any] = {
    "status": "error",
    "message": "Property values were not valid",
    "correlationId": "00000000-0000-4000-8000-000000000001",
    "category": "VALIDATION_ERROR",
}


def text(document: object) -> bytes:
    return json.dumps(document).encode()


class TestDeclaredStatuses:
    def test_are_the_ones_of_the_provider(self) -> None:
        """What is in no list proves nothing, 401 and 5xx among it (C246, C252)."""
        assert CONTRACT.success == (200,)
        assert CONTRACT.rejected == (400, 403, 404, 409, 415, 422)
        assert CONTRACT.not_applied == (423, 429, 477)
        assert [CONTRACT.wait_min_seconds(status) for status in (423, 429)] == [2, 0]
        assert [form.value for form in CONTRACT.retry_after.forms] == ["seconds", "http_date"]


class TestReadBody:
    def test_of_the_changed_object_shows_all(self) -> None:
        """The provider's own reply is complete evidence."""
        reading = CONTRACT.read_body(200, {}, text(REPLY), "512")

        assert reading.parseable
        assert reading.evidence_present
        assert reading.identity_matches
        assert reading.error_code is None
        assert reading.receipt == {"remote_id": "512", "updated_at": "2026-11-30T10:00:00.000Z"}

    @pytest.mark.parametrize("missing", ["id", "properties", "updatedAt"])
    def test_without_a_declared_part_lacks_evidence(self, missing: str) -> None:
        """A success status alone is no evidence; null counts as missing."""
        for document in ({**REPLY, missing: None}, {k: REPLY[k] for k in REPLY if k != missing}):
            assert not CONTRACT.read_body(200, {}, text(document), "512").evidence_present

    @pytest.mark.parametrize("identity", ["513", "0512", "512 ", 513, 512.0, True, None, ["512"]])
    def test_of_another_object_does_not_match(self, identity: object) -> None:
        """An answer about another record settles nothing (C246)."""
        reading = CONTRACT.read_body(200, {}, text({**REPLY, "id": identity}), "512")

        assert reading.parseable
        assert not reading.identity_matches

    def test_matches_an_id_that_is_written_as_a_number(self) -> None:
        """Ids are text for us; beyond 2^53 they keep every digit."""
        for remote_id in ("512", "9007199254740993"):
            answer = text({**REPLY, "id": int(remote_id)})
            assert CONTRACT.read_body(200, {}, answer, remote_id).identity_matches

    @pytest.mark.parametrize(
        "body",
        [
            b"",
            b"<html>502</html>",
            text(REPLY)[:-1],
            text(REPLY) + text(REPLY),
            b'{"id":"512","id":"513"}',
            b'{"id":NaN}',
            b"\xff\xfe",
            b"[" * 100_000,
            b'{"id":' + b"9" * 5000 + b"}",
        ],
    )
    def test_that_is_no_sound_json_shows_nothing(self, body: bytes) -> None:
        """A cut, doubled or garbled answer is not repaired."""
        reading = CONTRACT.read_body(200, {}, body, "512")

        assert not reading.parseable
        assert not reading.evidence_present
        assert not reading.identity_matches
        assert reading.receipt == {}

    @given(st.binary(max_size=80), st.integers(100, 599))
    def test_never_fails(self, body: bytes, status: int) -> None:
        """Whatever a server sends, an outcome can be settled."""
        assert CONTRACT.read_body(status, {}, body, "512").receipt.keys() <= {"remote_id"}

    @given(st.recursive(st.none() | st.integers() | st.text(), lambda x: st.lists(x, max_size=2)))
    def test_of_an_unexpected_shape_shows_nothing(self, value: object) -> None:
        """An expression that meets another type finds nothing and raises nothing."""
        reading = CONTRACT.read_body(200, {}, text(value), "512")

        assert reading.parseable
        assert not reading.evidence_present

    def test_of_a_refusal_gives_code_and_correlation(self) -> None:
        """Enough to ask the provider's support, and nothing that a person wrote."""
        reading = CONTRACT.read_body(400, {}, text(REFUSAL), "512")

        assert reading.error_code == "VALIDATION_ERROR"
        assert reading.receipt == {"correlation_id": REFUSAL["correlationId"]}
        assert not reading.identity_matches

    def test_of_a_success_has_no_error_code(self) -> None:
        """A field that is called like the code is data when nothing failed."""
        document = {**REPLY, "category": "VALIDATION_ERROR"}

        assert CONTRACT.read_body(200, {}, text(document), "512").error_code is None

    def test_falls_back_to_the_next_code(self) -> None:
        """Providers write the code in more than one place."""
        document = {"errorType": "RATE_LIMIT", "policyName": "DAILY"}

        reading = CONTRACT.read_body(429, {}, text(document), "512")

        assert reading.error_code == "RATE_LIMIT"
        assert reading.receipt == {"limit_policy": "DAILY"}

    @pytest.mark.parametrize(
        "value",
        ["x" * 201, "line\nbreak", "naïve", "", {"a": 1}, ["a"], True, 1.5, None, "\ud83d"],
    )
    def test_drops_what_is_not_safe_to_show(self, value: object) -> None:
        """A receipt goes to operators: short printable ASCII or nothing (C445)."""
        document = {**REFUSAL, "correlationId": value, "category": value}

        reading = CONTRACT.read_body(400, {}, text(document), "512")

        assert reading.receipt == {}
        assert reading.error_code is None

    def test_takes_a_code_for_nothing_but_a_word(self) -> None:
        """A sentence in the place of a code may hold somebody's data."""
        document = {**REFUSAL, "category": "no contact anna@example.com"}

        assert CONTRACT.read_body(400, {}, text(document), "512").error_code is None

    def test_reads_past_a_byte_order_mark(self) -> None:
        """Some gateways put one before sound JSON."""
        assert CONTRACT.read_body(200, {}, b"\xef\xbb\xbf" + text(REPLY), "512").parseable


class TestExactNumber:
    def test_is_a_number_for_every_expression(self) -> None:
        """Numbers keep their digits, and expressions that count or compare still work."""
        document, parseable = read_answer(b'{"a":[1.5,2,0.1],"n":1234567890123456789.10}')

        assert parseable
        assert find("sum(a)", document) == pytest.approx(3.6)
        assert find("type(a[0])", document) == "number"
        assert find("a[?@ > `1.4`]", document) == [1.5, 2]
        assert find("to_string(a)", document) == "[1.5,2,0.1]"
        number = find("n", document)
        assert isinstance(number, ExactFloat)
        assert str(number.exact) == "1234567890123456789.10"
