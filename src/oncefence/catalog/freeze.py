"""From a payload to the one exact request that a command may ever send (C142)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256

from oncefence.catalog.canonical import Model, canonical_json, text_digest
from oncefence.catalog.errors import PayloadRefused
from oncefence.catalog.field_values import (
    ClearRule,
    FieldType,
    ValueRefused,
    exact_text,
    wire_value,
)
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
    """Each remote field with the exact text of the value written, for a later lookup."""

    idempotency_key: str | None = None
    """The provider's key, which is among the headers too; the same in every attempt."""

    @property
    def digest(self) -> str:
        """Lower-case hex SHA-256 over method, target, headers and the body's own digest."""
        body = sha256(self.body).hexdigest()
        return text_digest(canonical_json([self.method, self.target, self.headers, body]))


class BoundField(Model):
    """One payload key, the remote field it is written to, and the rules of both files."""

    local: FieldName
    remote: FieldName
    type: FieldType
    clear: ClearRule
    required: bool
    max_length: int | None
    as_text: bool = False


def written_fields(
    fields: tuple[BoundField, ...], payload: Mapping[str, object]
) -> dict[str, str | None]:
    """
    Each remote field with its exact text; a key that is not in the payload is not written.

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


def wire_values(
    fields: tuple[BoundField, ...], written: Mapping[str, str | None]
) -> dict[str, object]:
    """The same fields as their JSON values."""
    return {
        bound.remote: wire_value(bound.type, written[bound.remote], as_text=bound.as_text)
        for bound in fields
        if bound.remote in written
    }


def _value(bound: BoundField, value: object) -> str | None:
    if value is None and bound.clear is ClearRule.EMPTY_STRING:
        return ""
    if value is None and bound.clear is ClearRule.NULL:
        return None
    # By comparison and not by truth: 0 and false are values like any other.
    if value is None or (value == "" and bound.clear is ClearRule.REFUSE):
        raise PayloadRefused(bound.local, "must not be empty: the provider cannot clear it")
    try:
        text = exact_text(bound.type, value)
    except ValueRefused as error:
        raise PayloadRefused(bound.local, str(error)) from None
    if bound.max_length is not None and len(text) > bound.max_length:
        raise PayloadRefused(
            bound.local, f"has {len(text)} characters; at most {bound.max_length} are taken"
        )
    return text


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(names))
