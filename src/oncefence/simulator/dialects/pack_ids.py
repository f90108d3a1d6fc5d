"""Ids that an expression admits, made from the expression itself."""

import re
from random import Random

# The parser of `re` is the one reader of its expressions that misses nothing. It is not public:
# what is made is therefore matched against the expression before it is used.
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

_TRIES = 200
_EXTRA_MAX = 8
_CATEGORIES = {
    "CATEGORY_DIGIT": "0123456789",
    "CATEGORY_WORD": "abcdefghijklmnopqrstuvwxyz0123456789",
}
_ANY = "abcdefghijklmnopqrstuvwxyz0123456789"


def made_id(pattern: str, number: int) -> str | None:
    """An id of the form, another for each number; None where no way to make one is known."""
    for attempt in range(_TRIES):
        dice = Random(f"{number}/{attempt}")
        text = _text(parser.parse(pattern, re.ASCII), dice)
        if text and re.fullmatch(pattern, text, re.ASCII):
            return text
    return None


def _text(parts: Any, dice: Random) -> str:
    return "".join(_part(str(kind), what, dice) for kind, what in parts)


def _part(kind: str, what: Any, dice: Random) -> str:
    match kind:
        case "LITERAL":
            return chr(what)
        case "IN":
            choices = _choices(what)
            return dice.choice(choices) if choices else ""
        case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
            least, most, inner = what
            times = dice.randint(least, min(int(most), least + _EXTRA_MAX))
            return "".join(_text(inner, dice) for _ in range(times))
        case "SUBPATTERN":
            return _text(what[3], dice)
        case "BRANCH":
            return _text(dice.choice(what[1]), dice)
        case "ANY" | "NOT_LITERAL":
            return dice.choice(_ANY)
        case _:
            return ""  # an anchor or an assertion has no text; whether it holds is tried at the end


def _choices(parts: Any) -> str:
    chosen = ""
    for kind, what in parts:
        match str(kind):
            case "NEGATE":
                excluded = _choices(parts[1:])
                return "".join(character for character in _ANY if character not in excluded)
            case "LITERAL":
                chosen += chr(what)
            case "RANGE":
                chosen += "".join(map(chr, range(what[0], what[1] + 1)))
            case "CATEGORY":
                chosen += _CATEGORIES.get(str(what), "")
    return chosen
