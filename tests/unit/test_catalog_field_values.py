"""What a payload gives arrives exactly, whatever its type and wherever the worker stands (C155)."""

import json
import time
from datetime import date
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncefence.catalog.errors import PayloadRefused
from oncefence.catalog.field_values import FieldType, exact_text, shows_same, wire_value
from oncefence.catalog.loader import load_binding, load_pack
from oncefence.catalog.operations import BoundOperation
from oncefence.catalog.strict_json import parse
from oncefence.catalog.view import compile_view

DATA = Path(__file__).parents[1] / "data/packs"
COMMAND = UUID("00000000-0000-4000-8000-000000000001")
FIELDS = {
    "grade": "string",
    "pieces": "integer",
    "price": "number",
    "polished": "boolean",
    "cut_on": "date",
    "due_on": "date_epoch_ms",
    "weighed_at": "datetime",
}
BINDING = """
format = "oncefence.binding/1"
name = "stones"
pack = "quarry"
principal = "yard"

[operations."stone.push"]
operation = "stone.set"
payload_version = 1
local_object = "stone"
subject = "[a-z0-9]+"
remote_object = "stone"
completion = { command = "stone.pushed", version = 1 }

[operations."stone.push".fields]
""" + "".join(
    f'{name} = {{ remote = "{name}", type = "{kind}", direction = "outbound" }}\n'
    for name, kind in FIELDS.items()
)


@pytest.fixture(scope="module")
def push(tmp_path_factory: pytest.TempPathFactory) -> BoundOperation:
    path = tmp_path_factory.mktemp("stones") / "stones.toml"
    path.write_text(BINDING, encoding="utf-8")
    view = compile_view(load_pack(DATA / "quarry.toml"), load_binding(path))
    return view.operation("stone.push")


def sent(push: BoundOperation, members: str) -> str:
    """The body that a payload of `members` becomes."""
    payload = f'{{"version":"\\"7\\"",{members}}}'.encode()
    return push.freeze(payload, remote_id="ST000001", command=COMMAND).body.decode()


class TestExactValues:
    @pytest.mark.parametrize(
        ("members", "body"),
        [
            # 0, false and an empty or blank text are values; only what is not there is not sent.
            ('"pieces":0', '{"pieces":0}'),
            ('"polished":false', '{"polished":false}'),
            ('"grade":""', '{"grade":""}'),
            ('"grade":"  "', '{"grade":"  "}'),
            ('"grade":null', '{"grade":null}'),
            ('"pieces":null,"polished":true', '{"pieces":null,"polished":true}'),
            # Beyond 2^53 only as text, and then with every digit.
            ('"pieces":9007199254740992', '{"pieces":9007199254740992}'),
            ('"pieces":"9007199254740993"', '{"pieces":9007199254740993}'),
            ('"pieces":"-653247040368672769"', '{"pieces":-653247040368672769}'),
            ('"pieces":"-0"', '{"pieces":0}'),
            # `price` goes as text; digit for digit, zeros too, and never through a float.
            ('"price":1.10', '{"price":"1.10"}'),
            ('"price":0.1', '{"price":"0.1"}'),
            ('"price":1e2', '{"price":"100"}'),
            ('"price":2.5E-7', '{"price":"0.00000025"}'),
            ('"price":"1234567890123456789.10"', '{"price":"1234567890123456789.10"}'),
            ('"price":0', '{"price":"0"}'),
            ('"price":-0.0', '{"price":"0.0"}'),
            ('"cut_on":"2026-03-29"', '{"cut_on":"2026-03-29"}'),
            ('"due_on":"2026-03-29"', '{"due_on":1774742400000}'),
            ('"due_on":"1969-12-31"', '{"due_on":-86400000}'),
            ('"due_on":"1970-01-01"', '{"due_on":0}'),
            ('"weighed_at":"2026-03-29T02:30:00+02:00"', '{"weighed_at":"2026-03-29T00:30:00Z"}'),
            (
                '"weighed_at":"2026-03-29T10:00:00.070Z"',
                '{"weighed_at":"2026-03-29T10:00:00.070Z"}',
            ),
            ('"weighed_at":"0001-01-01T00:00:00Z"', '{"weighed_at":"0001-01-01T00:00:00Z"}'),
        ],
    )
    def test_are_sent_as_they_are(self, push: BoundOperation, members: str, body: str) -> None:
        """Nothing is rounded, guessed, coerced or left out for being falsy."""
        assert sent(push, members) == body

    @pytest.mark.parametrize(
        ("members", "field", "reason"),
        [
            ('"pieces":1.0', "pieces", "must be a whole number"),
            ('"pieces":"1.0"', "pieces", "must be a whole number"),
            ('"pieces":"007"', "pieces", "must be a whole number"),
            ('"pieces":" 7"', "pieces", "must be a whole number"),
            ('"pieces":"\u0667"', "pieces", "must be a whole number"),
            ('"pieces":true', "pieces", "must be a whole number"),
            ('"pieces":""', "pieces", "must be a whole number"),
            (f'"pieces":"{"9" * 101}"', "pieces", "must be a whole number"),
            ('"pieces":9007199254740993', "pieces", "send it as text"),
            ('"price":"1e2"', "price", "without exponent"),
            ('"price":"nan"', "price", "must be a decimal number"),
            ('"price":"Infinity"', "price", "must be a decimal number"),
            ('"price":".5"', "price", "must be a decimal number"),
            ('"price":false', "price", "must be a decimal number"),
            ('"price":1e-200', "price", "must be a decimal number"),
            ('"price":null', "price", "must not be empty"),
            ('"price":NaN', "price", "NaN is not JSON"),
            ('"price":-Infinity', "price", "-Infinity is not JSON"),
            ('"price":1e999', "price", "out of range"),
            ('"polished":0', "polished", "true or false"),
            ('"polished":"true"', "polished", "true or false"),
            ('"polished":null', "polished", "must not be empty"),
            ('"cut_on":"2026-02-29"', "cut_on", "calendar day"),
            ('"cut_on":"2026-03-29T00:00:00Z"', "cut_on", "without a time"),
            ('"cut_on":"2026-W13-7"', "cut_on", "calendar day"),
            ('"cut_on":1774742400000', "cut_on", "calendar day"),
            ('"due_on":"20260329"', "due_on", "calendar day"),
            ('"due_on":""', "due_on", "calendar day"),
            ('"weighed_at":"2026-03-29T10:00:00"', "weighed_at", "with its zone"),
            ('"weighed_at":"2026-03-29 10:00:00Z"', "weighed_at", "with its zone"),
            ('"weighed_at":"2026-03-29"', "weighed_at", "with its zone"),
            ('"weighed_at":"2026-03-29T10:00:00.1234Z"', "weighed_at", "millisecond at most"),
            ('"weighed_at":"2026-03-29T25:00:00Z"', "weighed_at", "with its zone"),
            ('"weighed_at":"0001-01-01T00:00:00+14:00"', "weighed_at", "with its zone"),
            ('"weighed_at":1774742400', "weighed_at", "with its zone"),
            ('"grade":7', "grade", "must be a string"),
            ('"grade":"\\ud83d"', "grade", "half of a surrogate pair"),
            ('"grade":"123456789"', "grade", "at most 8"),
        ],
    )
    def test_of_another_form_are_refused(
        self, push: BoundOperation, members: str, field: str, reason: str
    ) -> None:
        """Before anything is accepted or sent, and with what the field takes."""
        with pytest.raises(PayloadRefused) as refused:
            sent(push, members)

        assert refused.value.field == field
        assert reason in refused.value.reason

    @pytest.mark.parametrize("zone", ["America/Los_Angeles", "Pacific/Auckland", "Europe/London"])
    def test_do_not_depend_on_where_the_worker_stands(
        self, push: BoundOperation, zone: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Local midnight would be the day before, or after, for half of the world."""
        with monkeypatch.context() as place:
            place.setenv("TZ", zone)
            time.tzset()
            body = sent(push, '"due_on":"2026-03-29","weighed_at":"2026-03-29T00:30:00+01:00"')
        time.tzset()

        assert body == '{"due_on":1774742400000,"weighed_at":"2026-03-28T23:30:00Z"}'

    @given(st.dates())
    def test_of_days_are_whole_days_since_1970(self, day: date) -> None:
        """Every day of the calendar has its midnight, and comes back as the same day."""
        text = exact_text(FieldType.DATE_EPOCH_MS, day.isoformat())

        assert int(text) == (day - date(1970, 1, 1)).days * 86_400_000
        assert shows_same(FieldType.DATE_EPOCH_MS, text, int(text))
        assert shows_same(FieldType.DATE_EPOCH_MS, text, day.isoformat())

    @given(st.decimals(allow_nan=False, allow_infinity=False, places=6, min_value=-(10**30)))
    def test_of_numbers_keep_their_value(self, number: Decimal) -> None:
        """Through the payload, the body and a reader that knows decimals."""
        text = exact_text(FieldType.NUMBER, f"{number:f}")

        assert Decimal(text) == number
        assert shows_same(FieldType.NUMBER, text, parse(text.encode(), depth_max=1, exact=False))


class TestShownValue:
    @pytest.mark.parametrize(
        ("kind", "written", "shown", "same"),
        [
            ("integer", "7", 7, True),
            ("integer", "7", "7", True),
            ("integer", "7", "7.0", True),
            ("integer", "0", 0, True),
            ("integer", "0", None, False),
            ("integer", "9007199254740993", 9007199254740993, True),
            ("integer", "9007199254740993", 9007199254740992, False),
            ("integer", "1", True, None),
            ("integer", "7", [7], None),
            ("number", "1.10", "1.1", True),
            ("number", "100", "1e2", True),
            ("number", "1.1", "1,1", None),
            ("boolean", "false", False, True),
            ("boolean", "false", "false", True),
            ("boolean", "false", None, False),
            ("boolean", "false", 0, None),
            ("date", "2026-03-29", "2026-03-29", True),
            ("date", "2026-03-29", 1774742400000, True),
            ("date", "2026-03-29", "2026-03-30", False),
            ("date", "2026-03-29", "29.03.2026", None),
            ("date_epoch_ms", "1774742400000", "2026-03-29", True),
            ("date_epoch_ms", "1774742400000", "1774742400000", True),
            ("date_epoch_ms", "1774742400000", 1774742400001, None),
            ("datetime", "2026-03-29T10:00:00Z", "2026-03-29T12:00:00.000+02:00", True),
            ("datetime", "2026-03-29T10:00:00Z", "2026-03-29T10:00:01Z", False),
            ("datetime", "2026-03-29T10:00:00Z", "2026-03-29T10:00:00", None),
            ("datetime", None, "", True),
            ("integer", None, None, True),
            ("integer", "", None, True),
            ("integer", None, 0, False),
            ("string", "a", "a", True),
            ("string", "1", 1, None),
        ],
    )
    def test_is_compared_as_what_it_is(
        self, kind: str, written: str | None, shown: object, same: bool | None
    ) -> None:
        """A provider may write a value otherwise; another type of value shows nothing."""
        assert shows_same(FieldType(kind), written, shown) is same

    def test_with_a_fraction_is_not_compared_as_a_float(self) -> None:
        """As floats these two are one number, and a lost write would pass for a done one."""
        shown = parse(b"1234567890123456789.11", depth_max=1, exact=False)

        assert shows_same(FieldType.NUMBER, "1234567890123456789.10", shown) is False
        assert shows_same(FieldType.NUMBER, "1234567890123456789.110", shown) is True


def test_a_value_is_text_where_the_provider_wants_text() -> None:
    """Some providers take every value as text, numbers and booleans among them."""
    assert wire_value(FieldType.INTEGER, "0", as_text=True) == "0"
    assert wire_value(FieldType.BOOLEAN, "false", as_text=True) == "false"
    assert wire_value(FieldType.BOOLEAN, "false", as_text=False) is False
    assert json.dumps(wire_value(FieldType.INTEGER, "0", as_text=False)) == "0"
