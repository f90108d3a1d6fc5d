"""Reading request bodies: JSON without what is no JSON, and forms with nested keys."""

import json
import re
from typing import Any
from urllib.parse import parse_qsl

_NESTED_KEY = re.compile(r"([^\[\]]+)((?:\[[^\[\]]+\])*)")
_KEY_PART = re.compile(r"\[([^\[\]]+)\]")


def json_of(body: bytes, *, is_exact: bool = False) -> Any:  # whatever a client may send
    """
    The content, or None where it is not sound JSON (nobody asks for `null`).

    With `is_exact` a fraction is the text of its digits, so that none is lost.
    """
    try:
        content = json.loads(
            body.decode("utf-8"),
            parse_constant=_no_constant,
            parse_float=str if is_exact else float,
        )
        # A lone surrogate parses but is no text: it could not be stored, let alone sent back.
        json.dumps(content, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return None
    return content


def form_of(body: bytes) -> list[tuple[str, str]] | None:
    """The pairs of a form in their order, empty values kept; None where it is no UTF-8 form."""
    try:
        return parse_qsl(
            body.decode("utf-8"), keep_blank_values=True, strict_parsing=bool(body), errors="strict"
        )
    except ValueError:
        return None


def nested(pairs: list[tuple[str, str]]) -> dict[str, Any] | None:
    """The pairs of a form as tables in tables; None where a key is no `a[b][c]`."""
    content: dict[str, Any] = {}
    for key, value in pairs:
        match = _NESTED_KEY.fullmatch(key)
        if match is None:
            return None
        place: Any = content
        *path, last = [match[1], *_KEY_PART.findall(match[2])]
        for name in path:
            place = place.setdefault(name, {})
            if not isinstance(place, dict):
                return None
        place[last] = value
    return content


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")
