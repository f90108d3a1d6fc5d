"""Records of a pack: what may be written into them, and how their fields look in an answer."""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from oncefence.simulator.contacts import Contact
from oncefence.simulator.dialects.pack_file import ObjectRule, TimeRule
from oncefence.simulator.journal import stamp

FIELD = "field."
# Kept with the fields of a record under names that no field can have.
COMMAND = "{command}"
VERSION = "{version}"
_DIGITS = re.compile(r"-?[0-9]+")
_DECIMAL = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")
_EXAMPLES: Mapping[str, Any] = {
    "string": "before",
    "integer": 7,
    "number": "7.50",
    "boolean": True,
    "date": "2026-03-29",
    "date_epoch_ms": 1_774_742_400_000,
    "datetime": "2026-03-29T10:00:00Z",
}


def wrong_fields(rule: ObjectRule, fields: Mapping[str, Any]) -> str | None:
    """What the provider has against these values, or None."""
    for name, value in fields.items():
        known = rule.fields.get(name)
        if known is None:
            return f"{name} is no field"
        if value is None and known.clear != "null":
            return f"{name} cannot be null"
        if value == "" and known.clear == "refuse":
            return f"{name} cannot be empty"
        if value not in (None, "") and not _is_of_type(known.type, value):
            return f"{name} must be of type {known.type}"
        if known.max_length and isinstance(value, str) and len(value) > known.max_length:
            return f"{name} has at most {known.max_length} characters"
    return None


def example_fields(rule: ObjectRule) -> dict[str, Any]:
    """Values to begin with, one for each field."""
    return {
        name: _EXAMPLES.get(field.type, "before")[: field.max_length]
        if field.type == "string"
        else _EXAMPLES.get(field.type, "before")
        for name, field in rule.fields.items()
    }


def values_of(contact: Contact) -> dict[str, str | None]:
    """The variables of templates, as this record has them."""
    fields = {
        f"{FIELD}{name}": None if value is None else text_of(value)
        for name, value in contact.properties.items()
    }
    return fields | {
        "remote_id": contact.id,
        "command": contact.properties.get(COMMAND),
    }


def text_of(value: Any) -> str:
    """A value as it stands in a query."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def time_of(rule: TimeRule, moment: datetime) -> Any:
    """The moment as the pack reads it."""
    match rule.format:
        case "iso8601":
            return stamp(moment)
        case "epoch_s":
            return int(moment.timestamp())
        case "epoch_ms":
            return round(moment.timestamp() * 1000)


def _is_of_type(kind: str, value: Any) -> bool:
    # As text too: forms have nothing else, and some providers want numbers so.
    match kind:
        case "integer" | "date_epoch_ms":
            text = value if isinstance(value, str) else str(value)
            return not isinstance(value, bool) and _DIGITS.fullmatch(text) is not None
        case "number":
            text = value if isinstance(value, str) else str(value)
            return not isinstance(value, bool) and _DECIMAL.fullmatch(text) is not None
        case "boolean":
            return isinstance(value, bool) or value in ("true", "false")
        case "date" | "datetime":
            try:
                return isinstance(value, str) and bool(datetime.fromisoformat(value))
            except ValueError:
                return False
        case _:
            return isinstance(value, str)
