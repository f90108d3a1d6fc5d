"""What a check of a file finds: a key as TOML spells it, and the reason."""

import re
from collections.abc import Iterable
from difflib import get_close_matches
from json import dumps

Finding = tuple[str, str]
"""A key and the reason."""

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def key(*parts: str) -> str:
    """A key as TOML spells it: a part that is no bare word is quoted."""
    return ".".join(part if _BARE.fullmatch(part) else dumps(part) for part in parts)


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """The reason where a name refers to nothing, with what it could refer to."""
    near = get_close_matches(name, sorted(known), n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"unknown {kind} {name!r}; {hint}known: {', '.join(sorted(known)) or 'none'}"
