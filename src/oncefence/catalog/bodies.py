"""Bodies: templates of nested values, and the one exact text of each in JSON."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Final

from oncefence.catalog.errors import PayloadRefused
from oncefence.catalog.field_values import JsonNumber
from oncefence.catalog.templates import (
    COMMAND,
    FIELD_PREFIX,
    FIELDS,
    REMOTE_ID,
    REMOTE_ID_INTEGER,
    expand,
    variables,
)

ABSENT: Final = object()


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
            if variable in (REMOTE_ID, COMMAND):
                continue
            if variable not in (REMOTE_ID_INTEGER, FIELDS) and not variable.startswith(
                FIELD_PREFIX
            ):
                raise ValueError(
                    f"at {where}: unknown variable {{{variable}}}; known here: {{remote_id}}, "
                    "{remote_id:integer}, {command}, {fields}, {field.NAME}"
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


def fill(body: object, *, values: Mapping[str, object], ids: Mapping[str, str]) -> object:
    """
    The body with each variable's value in its place: of each field, and of `ids`.

    A `{field.NAME}` that is not written leaves its key out, and so does a table or list that
    holds nothing else: an unwritten field must not be sent as null or as something empty,
    because providers read that as "clear this".
    """
    if isinstance(body, str):
        return _filled_text(body, values, ids)
    if isinstance(body, Mapping):
        filled = {key: fill(member, values=values, ids=ids) for key, member in body.items()}
        members = {key: member for key, member in filled.items() if member is not ABSENT}
        return members if members or not body else ABSENT
    if isinstance(body, list | tuple):
        items = [fill(member, values=values, ids=ids) for member in body]
        items = [item for item in items if item is not ABSENT]
        return items if items or not body else ABSENT
    return body


def _filled_text(text: str, values: Mapping[str, object], ids: Mapping[str, str]) -> object:
    used = variables(text)
    if used == [FIELDS]:
        return dict(values)
    if used == [REMOTE_ID_INTEGER]:
        if not re.fullmatch(r"0|[1-9][0-9]*", ids[REMOTE_ID]):
            raise PayloadRefused("remote id", "must be a whole number for this operation")
        return int(ids[REMOTE_ID])
    if used and used[0].startswith(FIELD_PREFIX):
        return values.get(used[0].removeprefix(FIELD_PREFIX), ABSENT)
    return expand(text, ids, str)


def json_body(value: object) -> bytes:
    """The JSON: UTF-8 with each text and digit as it is, keys sorted, so that it never differs."""
    return _json(value).encode("utf-8")


def _json(value: object) -> str:
    if isinstance(value, JsonNumber):
        return value.text
    if isinstance(value, Mapping):
        members = (f"{_json(key)}:{_json(member)}" for key, member in sorted(value.items()))
        return f"{{{','.join(members)}}}"
    if isinstance(value, list | tuple):
        return f"[{','.join(map(_json, value))}]"
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
