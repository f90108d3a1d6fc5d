"""Reading JSON without the silent repairs that the standard parser makes."""

import json
import re
from decimal import Decimal
from json import JSONDecodeError
from typing import Final, Self

INTEGER_MAX: Final = 2**53
"""Beyond it readers that hold numbers as doubles change the value without a word."""

# A string that never ends is taken to the end of the data: without that, and without giving
# anything back, a hostile text of escaped quotes would cost the square of its length.
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)
_BRACKET = re.compile(rb"[\[\]{}]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_DIGITS_MAX = 400
# As many places as the digits may have. A number of a few characters can otherwise have a billion:
# written out it fills the memory, and Decimal itself refuses the largest.
_EXPONENT_MAX = 400
_BOM = b"\xef\xbb\xbf"


class JsonRefused(ValueError):
    """
    The bytes are not the JSON that was asked for.

    Attributes:
        where: The place, `$` for the whole text; names keys, never values.
        reason: What is wrong there.
    """

    def __init__(self, where: str, reason: str) -> None:
        super().__init__(f"{where}: {reason}")
        self.where = where
        self.reason = reason


class ExactFloat(float):
    """A number with a fraction or an exponent, and beside its float the value as written."""

    exact: Decimal

    def __new__(cls, text: str) -> Self:
        """The number that `text` writes."""
        number = super().__new__(cls, text)
        number.exact = Decimal(text)
        return number


# JMESPath tells a value's type by the name of its class.
ExactFloat.__name__ = "float"


class _Pairs(list[tuple[str, object]]):
    """An object as it was written, before a repeated key could be lost."""


class _Number:
    """A number as it was written, before it could be rounded."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


# Where a value stands: the place around it, with its key or index there; None is the whole text.
# Written out only for a message: with long keys around many values, the texts of all places
# together are thousands of times as long as the JSON.
_Place = tuple["_Place", str | int] | None


def parse(data: bytes, *, depth_max: int, exact: bool) -> object:
    """
    The JSON value of UTF-8 `data`: no repeated key, no NaN, no infinity.

    `exact` also refuses what another reader could not keep: numbers beyond 2^53, U+0000 and
    lone surrogates (C155). Without it these are read as Python reads them.

    Raises:
        JsonRefused: With the first place that breaks a rule.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise JsonRefused("$", f"is not UTF-8 (byte {error.start})") from None
    if data.startswith(_BOM):
        if exact:
            raise JsonRefused("$", "begins with a byte order mark; send the JSON alone")
        text = text[1:]
    # Before parsing: the parser recurses, and its RecursionError depends on the caller's stack.
    if _depth(data) > depth_max:
        raise JsonRefused("$", f"is nested more than {depth_max} levels deep")
    try:
        value = json.loads(
            text,
            object_pairs_hook=_Pairs,
            parse_int=_Number,
            parse_float=_Number,
            parse_constant=_Number,
        )
    except JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise JsonRefused("$", f"is not JSON ({error.msg} at {place})") from None
    return _build(value, None, exact)


def _depth(data: bytes) -> int:
    deepest = level = 0
    for bracket in _BRACKET.findall(_STRING.sub(b"", data)):
        level += 1 if bracket in b"[{" else -1
        deepest = max(deepest, level)
    return deepest


def _build(value: object, where: _Place, exact: bool) -> object:
    if isinstance(value, _Pairs):
        members: dict[str, object] = {}
        for key, member in value:
            inside = (where, key)
            if key in members:
                raise JsonRefused(_written(inside), "is given twice")
            if exact:
                _check_text(key, inside, "its name")
            members[key] = _build(member, inside, exact)
        return members
    if isinstance(value, list):
        return [_build(member, (where, i), exact) for i, member in enumerate(value)]
    if isinstance(value, _Number):
        return _number(value.text, where, exact)
    if isinstance(value, str) and exact:
        _check_text(value, where, "the text")
    return value


def _number(text: str, where: _Place, exact: bool) -> int | float:
    if text in ("NaN", "Infinity", "-Infinity"):
        raise JsonRefused(_written(where), f"{text} is not JSON")
    if len(text) > _DIGITS_MAX:
        raise JsonRefused(_written(where), f"is a number of more than {_DIGITS_MAX} characters")
    exponent = text.lower().partition("e")[2]
    if exponent and abs(int(exponent)) > _EXPONENT_MAX:
        raise JsonRefused(_written(where), "is a number out of range")
    number = int(text) if text.lstrip("-").isdigit() else ExactFloat(text)
    if number in (float("inf"), float("-inf")):
        raise JsonRefused(_written(where), "is a number out of range")
    # By Decimal, since the float of 2^53 + 1 is 2^53 already.
    if exact and abs(Decimal(text)) > INTEGER_MAX:
        raise JsonRefused(
            _written(where), "is a number beyond 2^53, which loses digits; send it as text"
        )
    return number


def _check_text(text: str, where: _Place, what: str) -> None:
    if "\0" in text:
        raise JsonRefused(_written(where), f"{what} holds U+0000")
    if _SURROGATE.search(text):
        raise JsonRefused(_written(where), f"{what} holds half of a surrogate pair")


def _written(place: _Place) -> str:
    steps: list[str | int] = []
    while place is not None:
        place, step = place
        steps.append(step)
    where = ""
    for step in reversed(steps):
        where = join(where, step) if isinstance(step, str) else f"{where}[{step}]"
    return where or "$"


def join(where: str, key: str) -> str:
    """The place of `key` inside `where`, safe to print whatever the key holds."""
    if not _PLAIN_KEY.fullmatch(key):
        key = json.dumps(key if len(key) <= 64 else key[:64] + "...")
    return f"{where}.{key}" if where else key
