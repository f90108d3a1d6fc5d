"""From a payload to the one exact request that a command may ever send (C142)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256

from oncefence.catalog.canonical import Model, canonical_json, text_digest
from oncefence.catalog.errors import PayloadRefused
from oncefence.catalog.names import FieldName
from oncefence.catalog.strict_json import join


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenRequest:
    """A request without its credential; it is sent as it stands or not at all."""

    method: str
    target: str
    """Path and query, relative to the binding's host."""

    headers: tuple[tuple[str, str], ...]
    body: bytes = field(repr=False)
    written: dict[str, str | None] = field(repr=False)
    """Each remote field with the value written, for the comparison of a later lookup."""

    @property
    def digest(self) -> str:
        """Lower-case hex SHA-256 over method, target, headers and the body's own digest."""
        body = sha256(self.body).hexdigest()
        return text_digest(canonical_json([self.method, self.target, self.headers, body]))


class FieldType(StrEnum):
    """What values a field takes."""

    STRING = "string"


class ClearRule(StrEnum):
    """How a field is emptied at the provider."""

    EMPTY_STRING = "empty_string"
    """By an empty text; null in a payload becomes one."""

    NULL = "null"
    """By null; an empty text stays an empty text."""

    REFUSE = "refuse"
    """It cannot be: null and an empty text are refused."""


class BoundField(Model):
    """One payload key, the remote field it is written to, and the rules of both files."""

    local: FieldName
    remote: FieldName
    type: FieldType
    clear: ClearRule
    required: bool
    max_length: int | None


def written_fields(
    fields: tuple[BoundField, ...], payload: Mapping[str, object]
) -> dict[str, str | None]:
    """
    Each remote field with its exact value; a key that is not in the payload is not written.

    Raises:
        PayloadRefused: A key is unknown, missing or not of its field's kind, or none is there.
    """
    known = {bound.local for bound in fields}
    for key in payload:
        if key not in known:
            raise PayloadRefused(
                join("", key), f"is not a field of this operation; it takes {_listed(known)}"
            )
    written: dict[str, str | None] = {}
    for bound in fields:
        if bound.local in payload:
            written[bound.remote] = _value(bound, payload[bound.local])
        elif bound.required:
            raise PayloadRefused(bound.local, "is required")
    if not written:
        raise PayloadRefused("$", f"writes nothing; give at least one of {_listed(known)}")
    return written


def _value(bound: BoundField, value: object) -> str | None:
    if value is None and bound.clear is ClearRule.EMPTY_STRING:
        return ""
    if value is None and bound.clear is ClearRule.NULL:
        return None
    if value in (None, "") and bound.clear is ClearRule.REFUSE:
        raise PayloadRefused(bound.local, "must not be empty: the provider cannot clear it")
    if not isinstance(value, str):
        raise PayloadRefused(bound.local, "must be a string")
    if bound.max_length is not None and len(value) > bound.max_length:
        raise PayloadRefused(
            bound.local, f"has {len(value)} characters; at most {bound.max_length} are taken"
        )
    return value


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(names))
