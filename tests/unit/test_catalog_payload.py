"""Payloads are exact or refused (C155)."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncefence.catalog.errors import PayloadRefused
from oncefence.catalog.payload import parse_payload, payload_digest

EXACT_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
EXACT_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | EXACT_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(EXACT_TEXT, inner, max_size=3),
    max_leaves=12,
)

REFUSALS = [
    (b"", "$", "is not JSON"),
    (b"{", "$", "is not JSON"),
    (b'{"a":1}x', "$", "line 1, column 8"),
    (b"{'a':1}", "$", "is not JSON"),
    (b'{"a":"\n"}', "$", "is not JSON"),
    (b"[]", "$", "must be a JSON object"),
    (b"null", "$", "must be a JSON object"),
    (b'\xef\xbb\xbf{"a":1}', "$", "byte order mark"),
    ('{"a":1}'.encode("utf-16"), "$", "is not UTF-8"),
    (b'{"a":"\xff"}', "$", "is not UTF-8 (byte 6)"),
    # A surrogate that was encoded as if it were a character.
    (b'{"a":"\xed\xa0\x80"}', "$", "is not UTF-8"),
    (b'{"a":1,"a":1}', "a", "is given twice"),
    (b'{"a":1,"\\u0061":2}', "a", "is given twice"),
    (b'{"a":[{"b":{"c":1,"c":2}}]}', "a[0].b.c", "is given twice"),
    (b'{"a":NaN}', "a", "NaN is not JSON"),
    (b'{"a":[1,Infinity]}', "a[1]", "Infinity is not JSON"),
    (b'{"a":-Infinity}', "a", "-Infinity is not JSON"),
    (b'{"a":1e999}', "a", "out of range"),
    (b'{"a":9007199254740993}', "a", "beyond 2^53"),
    (b'{"a":-9007199254740993}', "a", "beyond 2^53"),
    (b'{"a":9007199254740993.0}', "a", "beyond 2^53"),
    (b'{"a":' + b"9" * 5000 + b"}", "a", "more than 400 characters"),
    (b'{"a":"x\\u0000y"}', "a", "U+0000"),
    (b'{"a\\u0000":1}', '"a\\u0000"', "U+0000"),
    (b'{"a":{"b":"\\ud83d"}}', "a.b", "half of a surrogate pair"),
    (b'{"a":"\\ude00\\ud83d"}', "a", "half of a surrogate pair"),
    (b'{"\\ud83d":1}', '"\\ud83d"', "half of a surrogate pair"),
    (b'{"a":' * 65 + b"1" + b"}" * 65, "$", "more than 64 levels"),
    # Read in time that grows with its length, not with its square.
    (b'{"a":"' + b'\\"' * 125_000, "$", "is not JSON"),
    (b'{"a":"' + b'\\"' * 125_000 + b"\\", "$", "is not JSON"),
    (b'{"a":' + b"[" * 100_000, "$", "more than 64 levels"),
]


class TestParsePayload:
    @pytest.mark.parametrize(("data", "where", "reason"), REFUSALS)
    def test_names_what_is_wrong_and_where(self, data: bytes, where: str, reason: str) -> None:
        """A refusal that does not say where cannot be put right."""
        with pytest.raises(PayloadRefused) as refused:
            parse_payload(data)

        assert refused.value.field == where
        assert reason in refused.value.reason
        assert str(refused.value)

    @given(st.dictionaries(EXACT_TEXT, EXACT_JSON, max_size=4), st.booleans())
    def test_takes_every_exact_object(self, value: dict[str, Any], ascii_only: bool) -> None:
        """What can be kept exactly is never refused, however unusual."""
        data = json.dumps(value, ensure_ascii=ascii_only).encode()

        assert parse_payload(data) == value

    @given(st.binary(max_size=60))
    def test_only_ever_refuses(self, data: bytes) -> None:
        """No bytes make it fail in any other way."""
        try:
            value = parse_payload(data)
        except PayloadRefused:
            return
        assert value == json.loads(data)

    def test_takes_what_lies_at_each_bound(self) -> None:
        """The bounds themselves are inside."""
        assert parse_payload(b'{"a":9007199254740992}') == {"a": 2**53}
        parse_payload(b'{"a":' * 64 + b"1" + b"}" * 64)
        parse_payload(b'{"a":"%s"}' % (b"[{" * 1000))
        assert parse_payload(b'{"a":"\\ud83d\\ude00"}') == {"a": "\U0001f600"}

    def test_refuses_by_length_before_it_reads(self) -> None:
        """The limit counts bytes, and a payload of exactly the limit is taken."""
        data = json.dumps({"a": "é" * 100}, ensure_ascii=False).encode()

        assert parse_payload(data, limit_bytes=len(data)) == {"a": "é" * 100}
        with pytest.raises(PayloadRefused, match=f"{len(data)} bytes; at most {len(data) - 1}"):
            parse_payload(data, limit_bytes=len(data) - 1)
        with pytest.raises(PayloadRefused, match="at most 262144"):
            parse_payload(b" " * 262_145)

    def test_repeats_no_value(self) -> None:
        """A refusal may be logged; the payload may not (C445)."""
        for data in (b'{"canary":"secret\\u0000"}', b'{"a":secret}', b'{"a":"secret'):
            with pytest.raises(PayloadRefused) as refused:
                parse_payload(data)
            assert "secret" not in f"{refused.value!s} {refused.value!r}"

    def test_cuts_a_long_name_in_the_message(self) -> None:
        """A message stays one line, whatever the sender calls a key."""
        name = "line\n" * 100
        with pytest.raises(PayloadRefused) as refused:
            parse_payload(json.dumps({name: "\0"}).encode())

        assert len(str(refused.value)) < 200
        assert "\n" not in str(refused.value)


def test_the_digest_is_of_the_exact_bytes() -> None:
    """Two spellings of one object are two payloads (C135)."""
    assert payload_digest(b'{"a":1}') == (
        "015abd7f5cc57a2dd94b7590f04ad8084273905ee33ec5cebeae62276a97f862"
    )
    assert payload_digest(b'{"a": 1}') != payload_digest(b'{"a":1}')
