"""The one template form of packs: text with `{variable}` in it, `{{` and `}}` for braces."""

import json
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

REMOTE_ID_MAX = 256
# None of these can stand in an id without a proxy or server somewhere reading another path:
# separators, a second decoding, and what the wire guard refuses in any target (C242).
_PATH_TRICKS = re.compile(r"[^!-~]|[/\\?#%@]|\.\.|^\.$")
# What a remote id pattern is tried against when a pack is read.
PATH_TRICK_SAMPLES = ("", ".", "..", "../1", "1/2", "1\\2", "1%2f2", "1?a=b", "1#a", "1\n", "1 2")

_TOKEN = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_UNSAFE_PATH = re.compile(r"[^!-~]|[\\?#@%]|//|/\.{1,2}(/|$)|\.\.")
_ABSENT = object()


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


def check_path(template: str) -> str:
    """A path template: absolute, without query, and not to be read as any other path (C242)."""
    check_template(template, (REMOTE_ID,))
    if not template.startswith("/"):
        raise ValueError("must begin with /")
    literal = "".join("x" if piece.is_variable else piece.text for piece in pieces(template))
    if _UNSAFE_PATH.search(literal):
        raise ValueError(
            "must be a plain path: no //, no . or .. segments, none of \\ ? # @ % and no blanks "
            "(a query has its own table)"
        )
    return template


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


def check_remote_id(remote_id: str, pattern: str) -> str:
    """
    The id, if the pack's pattern knows its form and no path can be made of it.

    Raises:
        PayloadRefused: Otherwise; nothing may be sent for such a link.
    """
    if len(remote_id) > REMOTE_ID_MAX:
        raise PayloadRefused("remote id", f"is longer than {REMOTE_ID_MAX} characters")
    if not re.fullmatch(pattern, remote_id, re.ASCII):
        raise PayloadRefused("remote id", f"does not match the pack's pattern {pattern}")
    if not remote_id or _PATH_TRICKS.search(remote_id):
        raise PayloadRefused("remote id", "holds characters that could change the path")
    return remote_id


def check_body(body: object) -> object:
    """
    A body template: a table, or the text `{fields}` alone.

    Raises:
        ValueError: Naming the place and the rule.
    """
    if body != f"{{{FIELDS}}}" and not isinstance(body, Mapping):
        raise ValueError("must be a table or the text {fields}")
    for where, text in texts(body):
        try:
            found = variables(text)
        except ValueError as error:
            raise ValueError(f"at {where}: {error}") from None
        for variable in found:
            if variable == REMOTE_ID:
                continue
            if variable not in (REMOTE_ID_INTEGER, FIELDS) and not variable.startswith(
                FIELD_PREFIX
            ):
                raise ValueError(
                    f"at {where}: unknown variable {{{variable}}}; known here: {{remote_id}}, "
                    "{remote_id:integer}, {fields}, {field.NAME}"
                )
            if text != f"{{{variable}}}":
                raise ValueError(f"at {where}: {{{variable}}} must be the whole value")
    return body


def texts(value: object, where: str = "body") -> Iterator[tuple[str, str]]:
    """Every text in a body template with its place."""
    if isinstance(value, str):
        yield where, value
    elif isinstance(value, Mapping):
        for key, member in value.items():
            if "{" in key or "}" in key:
                raise ValueError(f"at {where}: a key takes no variables")
            yield from texts(member, f"{where}.{key}")
    elif isinstance(value, list | tuple):
        for index, member in enumerate(value):
            yield from texts(member, f"{where}[{index}]")


def render_body(body: object, *, remote_id: str, written: Mapping[str, str | None]) -> bytes:
    """
    The JSON body: UTF-8 with each text as it is, keys sorted, so that it never differs.

    A `{field.NAME}` that is not written leaves its key out; an unwritten field must not be
    sent as null, because providers read null as "clear this".
    """
    rendered = _render(body, remote_id, written)
    text = json.dumps(rendered, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return text.encode("utf-8")


def _render(value: object, remote_id: str, written: Mapping[str, str | None]) -> object:
    if isinstance(value, str):
        return _render_text(value, remote_id, written)
    if isinstance(value, Mapping):
        members = {key: _render(member, remote_id, written) for key, member in value.items()}
        return {key: member for key, member in members.items() if member is not _ABSENT}
    if isinstance(value, list | tuple):
        items = [_render(member, remote_id, written) for member in value]
        return [item for item in items if item is not _ABSENT]
    return value


def _render_text(text: str, remote_id: str, written: Mapping[str, str | None]) -> object:
    used = variables(text)
    if used == [FIELDS]:
        return dict(written)
    if used == [REMOTE_ID_INTEGER]:
        if not re.fullmatch(r"0|[1-9][0-9]*", remote_id):
            raise PayloadRefused("remote id", "must be a whole number for this operation")
        return int(remote_id)
    if used and used[0].startswith(FIELD_PREFIX):
        return written.get(used[0].removeprefix(FIELD_PREFIX), _ABSENT)
    return expand(text, {REMOTE_ID: remote_id}, str)
