"""Field values: what a payload may give, the one exact text of it, and how a provider is told."""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from oncefence.catalog.strict_json import ExactFloat

_DIGITS_MAX: Final = 100
_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]*)")
_DECIMAL = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?")
_SHOWN_DECIMAL = re.compile(r"-?[0-9]{1,100}(?:\.[0-9]{1,100})?(?:[eE][+-]?[0-9]{1,3})?")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
# To the millisecond: providers drop what is finer, and a lookup would then see another value.
_MOMENT = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.([0-9]{1,3}))?"
    r"(?:Z|[+-][0-9]{2}:[0-9]{2})"
)
_EPOCH = date(1970, 1, 1)
_DAY_MS: Final = 86_400_000


class FieldType(StrEnum):
    """What values a field takes."""

    STRING = "string"
    INTEGER = "integer"
    """A whole number, as a JSON number or, beyond 2^53, as text; no digit is ever lost."""

    NUMBER = "number"
    """A decimal number, as a JSON number or as text; kept digit for digit, zeros too."""

    BOOLEAN = "boolean"
    DATE = "date"
    """A calendar day, `2026-03-29`, sent as it is."""

    DATE_EPOCH_MS = "date_epoch_ms"
    """A calendar day, sent as the milliseconds of its midnight UTC wherever a worker stands."""

    DATETIME = "datetime"
    """A point in time with its zone, sent in UTC."""


class ClearRule(StrEnum):
    """How a field is emptied at the provider."""

    EMPTY_STRING = "empty_string"
    """By an empty text; null in a payload becomes one."""

    NULL = "null"
    """By null; an empty text stays an empty text."""

    REFUSE = "refuse"
    """It cannot be: null and an empty text are refused."""


class JsonNumber:
    """A number that is written into a body with exactly these digits."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


class ValueRefused(ValueError):
    """A value is not of its field's type; the message names the form that is."""


def exact_text(kind: FieldType, value: object) -> str:
    """
    The one text of a payload's value; equal values of one field have equal texts.

    Raises:
        ValueRefused: Saying which form the field takes. The value is not repeated.
    """
    return _TEXT_OF[kind](value)


def wire_value(kind: FieldType, text: str | None, *, as_text: bool) -> object:
    """The JSON value of an exact text: null and an empty text clear a field of any type."""
    if not text or as_text:
        return text
    if kind in (FieldType.INTEGER, FieldType.DATE_EPOCH_MS):
        return int(text)
    if kind is FieldType.NUMBER:
        return JsonNumber(text)
    return text == "true" if kind is FieldType.BOOLEAN else text


def shows_same(kind: FieldType, written: str | None, shown: object) -> bool | None:
    """Whether a provider shows what was written; None where it shows no value of this type."""
    if kind is FieldType.STRING:
        return written == shown if isinstance(shown, str | None) else None
    if shown is None or shown == "":
        return written in (None, "")
    value = _SHOWN[kind](shown)
    if value is None:
        return None
    return bool(written) and value == _SHOWN[kind](written)


def _string(value: object) -> str:
    if not isinstance(value, str):
        raise ValueRefused("must be a string")
    return value


def _integer(value: object) -> str:
    text = str(value) if _is_integer(value) else value
    if not isinstance(text, str) or not _INTEGER.fullmatch(text) or len(text) > _DIGITS_MAX:
        raise ValueRefused("must be a whole number, as a number or as text of its digits")
    return "0" if text == "-0" else text


def _number(value: object) -> str:
    text = value
    if isinstance(value, ExactFloat):
        text = f"{value.exact:f}"
    elif _is_integer(value):
        text = str(value)
    if not isinstance(text, str) or not _DECIMAL.fullmatch(text) or len(text) > _DIGITS_MAX:
        raise ValueRefused("must be a decimal number, as a number or as text without exponent")
    return text if Decimal(text) else text.removeprefix("-")


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _boolean(value: object) -> str:
    if not isinstance(value, bool):
        raise ValueRefused("must be true or false")
    return "true" if value else "false"


def _day(value: object) -> date:
    if isinstance(value, str) and _DATE.fullmatch(value):
        try:
            return date.fromisoformat(value)
        except ValueError:
            pass
    raise ValueRefused("must be a calendar day as text, YYYY-MM-DD, without a time")


def _date(value: object) -> str:
    return _day(value).isoformat()


def _date_epoch_ms(value: object) -> str:
    # By counting days, not by a clock: no zone and no summer time has a part in it.
    return str((_day(value) - _EPOCH).days * _DAY_MS)


def _datetime(value: object) -> str:
    found = _MOMENT.fullmatch(value) if isinstance(value, str) else None
    if found is not None:
        try:
            moment = datetime.fromisoformat(str(value)).astimezone(UTC)
        except (ValueError, OverflowError):
            pass
        else:
            fraction = f".{found[1]}" if found[1] else ""
            return f"{moment.replace(tzinfo=None).isoformat(timespec='seconds')}{fraction}Z"
    raise ValueRefused(
        "must be a time with its zone as text, 2026-03-29T10:00:00Z or ...+02:00, "
        "to the millisecond at most; without a zone it could mean any of many times"
    )


def _shown_decimal(shown: object) -> Decimal | None:
    if isinstance(shown, ExactFloat):
        return shown.exact
    if _is_integer(shown):
        return Decimal(str(shown))
    if isinstance(shown, str) and _SHOWN_DECIMAL.fullmatch(shown):
        return Decimal(shown)
    return None


def _shown_boolean(shown: object) -> bool | None:
    if isinstance(shown, bool):
        return shown
    return {"true": True, "false": False}.get(shown) if isinstance(shown, str) else None


def _shown_day(shown: object) -> date | None:
    """A day as text or as milliseconds: some providers are told one way and show the other."""
    try:
        if isinstance(shown, str) and _DATE.fullmatch(shown):
            return date.fromisoformat(shown)
        number = _shown_decimal(shown)
        if number is not None and number % _DAY_MS == 0:
            return _EPOCH + timedelta(days=int(number // _DAY_MS))
    except (ValueError, ArithmeticError):
        # No day of the calendar, or a number too large to be divided into days.
        pass
    return None


def _shown_moment(shown: object) -> datetime | None:
    if not isinstance(shown, str):
        return None
    try:
        moment = datetime.fromisoformat(shown)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None


_TEXT_OF: Final[Mapping[FieldType, Callable[[object], str]]] = MappingProxyType(
    {
        FieldType.STRING: _string,
        FieldType.INTEGER: _integer,
        FieldType.NUMBER: _number,
        FieldType.BOOLEAN: _boolean,
        FieldType.DATE: _date,
        FieldType.DATE_EPOCH_MS: _date_epoch_ms,
        FieldType.DATETIME: _datetime,
    }
)
_SHOWN: Final[Mapping[FieldType, Callable[[object], object]]] = MappingProxyType(
    {
        FieldType.INTEGER: _shown_decimal,
        FieldType.NUMBER: _shown_decimal,
        FieldType.BOOLEAN: _shown_boolean,
        FieldType.DATE: _shown_day,
        FieldType.DATE_EPOCH_MS: _shown_day,
        FieldType.DATETIME: _shown_moment,
    }
)
