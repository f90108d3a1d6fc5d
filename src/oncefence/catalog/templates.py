"""The one template form of packs: text with `{variable}` in it, `{{` and `}}` for braces."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import quote

from oncefence.catalog.errors import PayloadRefused

REMOTE_ID = "remote_id"
REMOTE_ID_INTEGER = "remote_id:integer"
FIELDS = "fields"
FIELD_PREFIX = "field."
WRITTEN = "written"
COMMAND = "command"

REMOTE_ID_MAX = 256
# None of these can stand in an id without a proxy or server somewhere reading another path:
# separators, a second decoding, and what the wire guard refuses in any target (C242).
_PATH_TRICKS = re.compile(r"[^!-~]|[/\\?#%@]|\.\.|^\.$")
# What a remote id pattern is tried against when a pack is read.
PATH_TRICK_SAMPLES = ("", ".", "..", "../1", "1/2", "1\\2", "1%2f2", "1?a=b", "1#a", "1\n", "1 2")

_TOKEN = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_UNSAFE_PATH = re.compile(r"[^!-~]|[\\?#@%]|//|/\.{1,2}(/|$)|\.\.")
_OPERATORS = {
    "+": "its value could bring segments of its own",
    "#": "a fragment is never sent",
    ".": "write the dot before it, /file.{remote_id}",
    "/": "write the slash before it, /{remote_id}",
    ";": "no provider known here reads path parameters",
    "?": "a query has its own table",
    "&": "a query has its own table",
}


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of literal text, or one variable."""

    text: str
    is_variable: bool


def pieces(template: str) -> Iterator[Piece]:
    """
    The template cut into literal text and variables.

    Raises:
        ValueError: A brace stands alone.
    """
    end = 0
    for token in _TOKEN.finditer(template):
        if token.start() > end:
            yield Piece(template[end : token.start()], False)
        end = token.end()
        if token[1] is not None:
            yield Piece(token[1], True)
        elif token[0] in ("{{", "}}"):
            yield Piece(token[0][0], False)
        else:
            raise ValueError("has a single brace; write {{ or }} for a brace that is text")
    if end < len(template):
        yield Piece(template[end:], False)


def variables(template: str) -> list[str]:
    """The variables of a template, in order of use."""
    return [piece.text for piece in pieces(template) if piece.is_variable]


def check_template(template: str, allowed: tuple[str, ...]) -> str:
    """
    The template, if it uses none but the `allowed` variables.

    Raises:
        ValueError: Saying which variable is unknown here and which are known.
    """
    for variable in variables(template):
        if variable not in allowed:
            known = ", ".join(f"{{{name}}}" for name in allowed)
            raise ValueError(f"uses the unknown variable {{{variable}}}; known here: {known}")
    return template


def check_field_template(template: str, allowed: tuple[str, ...]) -> str:
    """
    The template, if it uses none but the `allowed` variables and `{field.NAME}`.

    Raises:
        ValueError: Saying which variable is unknown here and which are known.
    """
    for variable in variables(template):
        if variable not in allowed and not variable.startswith(FIELD_PREFIX):
            known = ", ".join(f"{{{name}}}" for name in (*allowed, f"{FIELD_PREFIX}NAME"))
            raise ValueError(f"uses the unknown variable {{{variable}}}; known here: {known}")
    return template


def check_path(template: str, allowed: tuple[str, ...] = (REMOTE_ID,)) -> str:
    """
    A path template: absolute, without query, and not to be read as any other path (C242).

    It is simple expansion of RFC 6570 and nothing else of it.
    """
    for piece in pieces(template):
        if piece.is_variable:
            _check_expression(piece.text)
        elif "{" in piece.text or "}" in piece.text:
            raise ValueError("must be a plain path: a brace cannot stand in one")
    check_template(template, allowed)
    if not template.startswith("/"):
        raise ValueError("must begin with /")
    literal = "".join("x" if piece.is_variable else piece.text for piece in pieces(template))
    if _UNSAFE_PATH.search(literal):
        raise ValueError(
            "must be a plain path: no //, no . or .. segments, none of \\ ? # @ % and no blanks "
            "(a query has its own table)"
        )
    return template


def _check_expression(expression: str) -> None:
    if why := _OPERATORS.get(expression[:1]):
        raise ValueError(f"{{{expression}}} is no simple expansion: {why}")
    if expression[:1] in ("=", ",", "!", "@", "|"):
        raise ValueError(f"{{{expression}}} has an operator that RFC 6570 keeps for later")
    if "," in expression:
        raise ValueError(f"{{{expression}}} joins several values; write one variable each")
    if expression.endswith("*"):
        raise ValueError(f"{{{expression}}} explodes a list; a path takes single values")
    if re.search(r":[0-9]+$", expression):
        raise ValueError(f"{{{expression}}} cuts the value; part of an id is another id")


def expand(template: str, values: Mapping[str, str], encode: Callable[[str], str]) -> str:
    """The template with each variable's value, encoded, in its place."""
    return "".join(
        encode(values[piece.text]) if piece.is_variable else piece.text
        for piece in pieces(template)
    )


def expand_target(path: str, query: Mapping[str, str], values: Mapping[str, str]) -> str:
    """A relative target; every value is percent-encoded, so that none can add a segment."""
    target = expand(path, values, _encode)
    if not query:
        return target
    pairs = (f"{_encode(name)}={_encode(expand(query[name], values, str))}" for name in query)
    return f"{target}?{'&'.join(sorted(pairs))}"


def _encode(value: str) -> str:
    return quote(value, safe="")


def check_remote_id(remote_id: str | None, pattern: str) -> str:
    """
    The id, if the pack's pattern knows its form and no path can be made of it.

    Raises:
        PayloadRefused: Otherwise; nothing may be sent for such a link.
    """
    if remote_id is None:
        raise PayloadRefused("remote id", "is missing: this operation needs a linked record")
    if len(remote_id) > REMOTE_ID_MAX:
        raise PayloadRefused("remote id", f"is longer than {REMOTE_ID_MAX} characters")
    if not re.fullmatch(pattern, remote_id, re.ASCII):
        raise PayloadRefused("remote id", f"does not match the pack's pattern {pattern}")
    if not remote_id or _PATH_TRICKS.search(remote_id):
        raise PayloadRefused("remote id", "holds characters that could change the path")
    return remote_id
