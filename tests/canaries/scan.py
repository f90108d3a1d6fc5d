"""A search for secrets in bytes: as they are, and in every form that something writes them in."""

import base64
import json
from collections.abc import Iterable, Iterator
from urllib.parse import quote


def forms(secret: str | bytes) -> set[bytes]:
    """The ways in which a secret could stand in bytes, whole or inside of something longer."""
    raw = secret.encode() if isinstance(secret, str) else secret
    found = {raw, raw.hex().encode(), raw.hex().upper().encode(), *_base64_forms(raw)}
    if isinstance(secret, str):
        found |= {json.dumps(secret)[1:-1].encode(), quote(secret, safe="").encode()}
    return found


def _base64_forms(raw: bytes) -> Iterator[bytes]:
    # The text may begin at any of the three places of a group; its edges mix with what stands
    # beside it, so they are left out.
    for shift in range(3):
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            yield encode(b"\0" * shift + raw)[4 if shift else 0 : -4]


def decoded(value: object) -> Iterator[bytes]:
    """Every text in exported JSON as it stands, and read as base64 where it can be."""
    match value:
        case str():
            yield value.encode()
            try:
                yield base64.b64decode(value, validate=True)
            except ValueError:
                return  # it was no base64
        case dict():
            for key, member in value.items():
                yield key.encode()
                yield from decoded(member)
        case list():
            for member in value:
                yield from decoded(member)


def found_in(places: Iterable[bytes], secrets: Iterable[str]) -> set[str]:
    """Which secrets are in any of the places."""
    everything = b"\n".join(places)
    return {secret for secret in secrets if any(form in everything for form in forms(secret))}


class Search:
    """
    The search for the same secrets in many places; `found` is where which of them was.

    Secrets with the `mark` in them are looked for one by one only where the mark is found: there
    are many secrets, and much to be read.
    """

    def __init__(self, secrets: Iterable[tuple[str, str | bytes]], mark: str | None = None) -> None:
        self._mark = () if mark is None else tuple(forms(mark))
        named = [(name, form) for name, secret in secrets for form in forms(secret)]
        self._marked = [each for each in named if any(part in each[1] for part in self._mark)]
        self._others = [each for each in named if each not in self._marked]
        self.found: list[tuple[str, str]] = []
        self.bytes_read: dict[str, int] = {}

    def look(self, place: str, content: str | bytes) -> None:
        """Search `content`, which lay at `place`."""
        data = content.encode(errors="surrogateescape") if isinstance(content, str) else content
        self.bytes_read[place] = self.bytes_read.get(place, 0) + len(data)
        names = {name for name, form in self._others if form in data}
        if any(form in data for form in self._mark):
            # Which one it is may be cut off; that it is one is enough.
            names |= {name for name, form in self._marked if form in data} or {"one of the planted"}
        self.found.extend((place, name) for name in sorted(names))
