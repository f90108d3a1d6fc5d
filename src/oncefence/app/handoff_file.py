"""
A file of handoffs, one JSON object a line: `outbox_id`, `operation`, `subject`, `payload` (C582).

Every line is judged alone. The payload's bytes are those between its first and its last
character in the line, so nothing of it is rewritten: its digest is of what the author wrote.
"""

import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from oncefence.catalog.errors import PayloadRefused
from oncefence.catalog.payload import DEPTH_MAX, PAYLOAD_BYTES_MAX, parse_payload
from oncefence.catalog.strict_json import JsonRefused, join, parse
from oncefence.domain.command import OUTBOX_ID_LENGTH_MAX, SUBJECT_LENGTH_MAX
from oncefence.domain.errors import Refused
from oncefence.domain.ids import OutboxId

STDIN: Final = "-"
OPERATION_LENGTH_MAX: Final = 100
LINE_BYTES_MAX: Final = PAYLOAD_BYTES_MAX + 16_384
"""A whole payload, and room for the other members however they are escaped."""

_BOM: Final = b"\xef\xbb\xbf"
_CRLF: Final = b"\r\n"
_BLANK: Final = b" \t\r"
_SPACE: Final = re.compile(r"[ \t\r\n]*")
_TEXTS: Final = {
    "outbox_id": OUTBOX_ID_LENGTH_MAX,
    "operation": OPERATION_LENGTH_MAX,
    "subject": SUBJECT_LENGTH_MAX,
}
_MEMBERS: Final = (*_TEXTS, "payload")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class HandoffLine:
    """A sound line; `payload` is exactly as it stands there."""

    number: int
    outbox: OutboxId
    operation: str
    subject: str
    payload: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedLine:
    """A line that cannot be handed over. The reason names places in it, and no value of it."""

    number: int
    reason: str


@dataclass(eq=False)
class HandoffFileRefused(Refused):
    """The file as a whole cannot be used."""

    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


def read_handoff_file(path: str | Path) -> Iterator[HandoffLine | RefusedLine]:
    """
    Each line that is not blank, with its number counted from 1; `-` is standard input.

    Lines end with LF or CRLF, the last one perhaps with the end of the file. A byte order mark
    at the very beginning is the file's and not the line's.

    Raises:
        HandoffFileRefused: The file cannot be read, or holds no line. Raised while reading.
    """
    is_empty = True
    try:
        with _opened(path) as file:
            for number, line in _lines(file):
                is_empty = False
                if line is None:
                    yield RefusedLine(
                        number=number, reason=f"the line has more than {LINE_BYTES_MAX} bytes"
                    )
                else:
                    yield read_handoff_line(number, line)
    except OSError as error:
        raise HandoffFileRefused(
            path=str(path), reason=f"cannot be read ({error.strerror})"
        ) from None
    if is_empty:
        raise HandoffFileRefused(
            path=str(path), reason="holds no line; write one JSON object on each"
        )


def read_handoff_line(number: int, line: bytes) -> HandoffLine | RefusedLine:
    """The handoff of one line, or why it is none."""
    try:
        texts = _texts_of(parse(line, depth_max=DEPTH_MAX + 1, exact=True))
        payload = _source_of(line.decode("utf-8"), "payload").encode("utf-8")
        parse_payload(payload)
    except JsonRefused as error:
        where = "the line" if error.where == "$" else error.where
        return RefusedLine(number=number, reason=f"{where} {error.reason}")
    except PayloadRefused as error:
        where = "payload" if error.field == "$" else f"payload.{error.field}"
        return RefusedLine(number=number, reason=f"{where} {error.reason}")
    return HandoffLine(
        number=number,
        outbox=OutboxId(texts["outbox_id"]),
        operation=texts["operation"],
        subject=texts["subject"],
        payload=payload,
    )


@contextmanager
def _opened(path: str | Path) -> Iterator[BinaryIO]:
    if str(path) == STDIN:
        yield sys.stdin.buffer
        return
    with Path(path).open("rb") as file:
        yield file


def _lines(file: BinaryIO) -> Iterator[tuple[int, bytes | None]]:
    """The lines that are not blank, without their ends; None for one that is too long."""
    number = 0
    while line := file.readline(LINE_BYTES_MAX + len(_CRLF)):
        number += 1
        if len(line) > LINE_BYTES_MAX and not line.endswith(b"\n"):
            while (rest := file.readline(LINE_BYTES_MAX)) and not rest.endswith(b"\n"):
                pass  # the rest of a line that is too long is read away, never kept
            yield number, None
            continue
        body = line.removesuffix(b"\n").removesuffix(b"\r")
        if number == 1:
            body = body.removeprefix(_BOM)
        if body.strip(_BLANK):
            yield number, body


def _texts_of(value: object) -> dict[str, str]:
    """The three texts of a line, each within its length."""
    if not isinstance(value, dict):
        raise JsonRefused("$", "must be a JSON object")
    missing = [name for name in _MEMBERS if name not in value]
    if missing:
        raise JsonRefused("$", f"lacks {', '.join(missing)}")
    unknown = [join("", name) for name in value if name not in _MEMBERS]
    if unknown:
        raise JsonRefused(unknown[0], f"is no member of a line; those are {', '.join(_MEMBERS)}")
    texts = {}
    for name, length_max in _TEXTS.items():
        text = value[name]
        if not isinstance(text, str):
            raise JsonRefused(name, "must be text")
        if not text:
            raise JsonRefused(name, "is empty")
        if len(text) > length_max:
            raise JsonRefused(name, f"has {len(text)} characters; at most {length_max} are taken")
        texts[name] = text
    return texts


def _source_of(text: str, wanted: str) -> str:
    """The exact text of one member's value. `text` is an object that was parsed already."""
    decoder = json.JSONDecoder()

    def after_space(at: int) -> int:
        found = _SPACE.match(text, at)
        assert found is not None, "the pattern matches everywhere"
        return found.end()

    at = after_space(after_space(0) + 1)
    while text[at] != "}":
        key, at = decoder.raw_decode(text, at)
        start = after_space(after_space(at) + 1)
        _, end = decoder.raw_decode(text, start)
        if key == wanted:
            return text[start:end]
        at = after_space(end)
        if text[at] == ",":
            at = after_space(at + 1)
    raise AssertionError("the caller has seen the member")
