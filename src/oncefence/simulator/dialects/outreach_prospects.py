"""Outreach's prospect: its attributes, how an answer shows it, and the form of an error."""

import re
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from oncefence.simulator.contacts import Contact
from oncefence.simulator.journal import stamp
from oncefence.simulator.wire import Answer

MEDIA_TYPE = "application/vnd.api+json"
_CUSTOM = re.compile(r"custom(?:[1-9]|[1-9][0-9]|1[0-4][0-9]|150)", re.ASCII)
_TEXT_MAX = 255
_NAMES = "firstName lastName middleName nickname title occupation company externalId externalSource"
_TEXTS = frozenset({*_NAMES.split(), "trashedAt"})
_LISTS = frozenset({"emails", "tags"})
_READ_ONLY = frozenset({"name", "createdAt", "updatedAt"})
_TO_ONE = {"owner": "user", "account": "account", "stage": "stage", "persona": "persona"}
_SHOWN = (*_NAMES.split(), "name", "emails", "tags", "trashedAt", "createdAt", "updatedAt")
_RELATION = "relationships."
_ERRORS = {
    401: ("unauthorized", "Unauthorized"),
    403: ("unauthorizedOauthScope", "Unauthorized OAuth Scope"),
    404: ("resourceNotFound", "Resource Not Found"),
    415: ("unsupportedMediaType", "Unsupported Media Type"),
    422: ("validationError", "Validation Error"),
    429: ("rateLimitExceeded", "Rate Limit Exceeded"),
    503: ("scheduledServerMaintenance", "Scheduled Server Maintenance"),
}
_API = "https://api.outreach.io/api/v2"


def attribute_of(contact: Contact, name: str) -> Any:  # whatever an attribute can be
    """The attribute as an answer shows it; None where it was never set."""
    match name:
        case "id":
            return int(contact.id)
        case "createdAt":
            return stamp(contact.created_at)
        case "updatedAt":
            return stamp(contact.updated_at)
        case "name":
            given = (contact.properties.get("firstName"), contact.properties.get("lastName"))
            return " ".join(part for part in given if part) or None
        case _:
            return contact.properties.get(name)


def shown(contact: Contact, names: tuple[str, ...]) -> dict[str, Any]:
    """The record as an answer shows it."""
    custom = [name for name in contact.properties if _CUSTOM.fullmatch(name)]
    related = {name: contact.properties.get(_RELATION + name) for name in _TO_ONE}
    number = int(contact.id)
    return {
        "type": "prospect",
        "id": number,
        "attributes": {
            name: attribute_of(contact, name) for name in names or (*_SHOWN, *sorted(custom))
        },
        "relationships": {
            **{name: {"data": value} for name, value in related.items()},
            "mailings": {"links": {"related": f"{_API}/mailings?filter[prospect][id]={number}"}},
        },
        "links": {"self": f"{_API}/prospects/{number}"},
    }


def is_relation(name: str) -> bool:
    """The name under which a to-one relationship is kept."""
    return name.startswith(_RELATION) and name.removeprefix(_RELATION) in _TO_ONE


def wrong_value(name: str, value: object) -> str | None:
    """What the provider has against the value of an attribute."""
    if name in _READ_ONLY:
        return "is read-only"
    if name in _LISTS:
        is_list = isinstance(value, list) and all(isinstance(each, str) for each in value)
        return None if value is None or is_list else "must be a list of strings"
    if name not in _TEXTS and not _CUSTOM.fullmatch(name):
        return "is not an attribute of a prospect"
    if value is None:
        return None
    if not isinstance(value, str):
        return "must be a string"
    return f"is longer than {_TEXT_MAX} characters" if len(value) > _TEXT_MAX else None


def relations_of(relations: Mapping[str, Any]) -> dict[str, Any] | Answer:
    """The relationships as they are kept, or the answer that refuses them."""
    related = {}
    for name, value in relations.items():
        data = value.get("data", value) if isinstance(value, dict) else value
        is_one = isinstance(data, dict) and data.get("type") == _TO_ONE.get(name)
        if name not in _TO_ONE or not (
            data is None or (is_one and isinstance(data.get("id"), int))
        ):
            return error(422, f"{name} is no relationship", f"/data/relationships/{name}")
        related[_RELATION + name] = data
    return related


def answer(status: int, body: Any, headers: Mapping[str, str] | None = None) -> Answer:
    """An answer of the media type that all of them have."""
    return Answer(status=status, body=body, headers={"Content-Type": MEDIA_TYPE, **(headers or {})})


def error(
    status: int,
    detail: str,
    pointer: str | None = None,
    *,
    headers: Mapping[str, str] | None = None,
) -> Answer:
    """An error in the provider's form."""
    name, title = _ERRORS.get(
        status,
        ("badRequest", "Bad Request") if status < 500 else ("internalServerError", "Server Error"),
    )
    # One of its errors spells the key otherwise than all the others.
    content: dict[str, Any] = {
        "id": name,
        "title": title,
        ("details" if status == 415 else "detail"): detail,
    }
    if pointer is not None:
        content["source"] = {"pointer": pointer}
    return answer(status, {"errors": [content]}, {"X-Request-Id": str(uuid4()), **(headers or {})})
