"""Stripe's form of a customer: which keys there are, and how they nest."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

_TEXTS_MAX = {"email": 512, "name": 256, "description": 5_000, "phone": 20, "tax_exempt": 10}
_ADDRESS = frozenset({"line1", "line2", "city", "state", "postal_code", "country"})
_METADATA_KEYS_MAX = 50
_METADATA_KEY_MAX = 40
_METADATA_VALUE_MAX = 500
_KEY = re.compile(r"(?P<root>\w+)(?P<rest>(?:\[[^\[\]]+\])*)", re.ASCII)
_PART = re.compile(r"\[([^\[\]]+)\]")
_NESTED = frozenset({"address", "shipping", "metadata", "preferred_locales"})


class FormRefused(Exception):
    """A parameter cannot be taken; `code` is the provider's word for why."""

    def __init__(self, message: str, parameter: str, code: str) -> None:
        super().__init__(message)
        self.parameter = parameter
        self.code = code


def checked(pairs: Sequence[tuple[str, str]], before: Mapping[str, Any]) -> dict[str, Any]:
    """
    The fields as they are kept, by their keys in the form; what the form clears is None.

    Raises:
        FormRefused: A key is unknown or a value cannot be.
    """
    fields: dict[str, Any] = {}
    for key, value in pairs:
        root, parts = _split(key)
        if root == "expand":
            continue
        if root in _NESTED and not parts:
            # A whole nested object is cleared by an empty text, and set by its parts alone.
            if value:
                raise FormRefused(f"{key} must be an object", key, "parameter_invalid_string")
            fields |= {name: None for name in before if name.startswith(f"{root}[")}
            continue
        _check(key, root, parts, value)
        fields[key] = value or None
    merged = {**before, **fields}
    entries = [name for name, value in merged.items() if name.startswith("metadata[") and value]
    if len(entries) > _METADATA_KEYS_MAX:
        raise FormRefused(
            f"metadata has at most {_METADATA_KEYS_MAX} keys", "metadata", "metadata_too_many"
        )
    return fields


def as_object(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields nested as the answer has them, without those that are cleared."""
    nested: dict[str, Any] = {}
    for key, value in fields.items():
        if value is None:
            continue
        root, parts = _split(key)
        place = nested
        for name in (root, *parts)[:-1]:
            place = place.setdefault(name, {})
        place[(root, *parts)[-1]] = value
    return nested


def _split(key: str) -> tuple[str, tuple[str, ...]]:
    match = _KEY.fullmatch(key)
    if match is None:
        raise FormRefused(f"received unknown parameter: {key}", key, "parameter_unknown")
    root = match["root"]
    return root, tuple(_PART.findall(match["rest"]))


def _check(key: str, root: str, parts: tuple[str, ...], value: str) -> None:
    match root, parts:
        case "metadata", (name,):
            if len(name) > _METADATA_KEY_MAX or len(value) > _METADATA_VALUE_MAX:
                raise FormRefused(f"{key} is too long", key, "metadata_too_long")
        case "address", (part,) if part in _ADDRESS:
            pass  # any text will do
        case "shipping", ("name" | "phone",):
            pass  # any text will do
        case "shipping", ("address", part) if part in _ADDRESS:
            pass  # any text will do
        case "preferred_locales", (place,) if place.isdecimal():
            pass  # any text will do
        case "balance", ():
            if not re.fullmatch("-?[0-9]{1,12}", value):
                raise FormRefused(f"invalid integer: {value}", key, "parameter_invalid_integer")
        case "email", () if value and "@" not in value:
            raise FormRefused("the email is not valid", key, "email_invalid")
        case name, () if name in _TEXTS_MAX:
            if len(value) > _TEXTS_MAX[name]:
                raise FormRefused(
                    f"{key} has at most {_TEXTS_MAX[name]} characters", key, "parameter_too_long"
                )
        case _:
            raise FormRefused(f"received unknown parameter: {key}", key, "parameter_unknown")
