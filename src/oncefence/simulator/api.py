"""
HubSpot's contacts API as far as it is needed: what a request asks for, and how answers look.

Nothing here changes a record or knows of faults.
"""

import hmac
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote
from uuid import uuid4

from oncefence.simulator.contacts import READ_ONLY_PROPERTIES, Contact, Contacts
from oncefence.simulator.journal import stamp
from oncefence.simulator.wire import Answer, Head, Request

_CONTACT_PATH = re.compile(r"/crm/v3/objects/contacts/([^/]+)")
_DEFAULT_PROPERTIES = (
    "createdate",
    "email",
    "firstname",
    "hs_object_id",
    "lastmodifieddate",
    "lastname",
)
_CATEGORIES = {
    401: "INVALID_AUTHENTICATION",
    403: "MISSING_SCOPES",
    404: "OBJECT_NOT_FOUND",
    409: "CONFLICT",
    423: "LOCKED",
    429: "RATE_LIMITS",
    502: "GATEWAY",
    503: "UNAVAILABLE",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A valid PATCH."""

    contact: Contact
    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookup:
    """A valid GET."""

    contact: Contact
    properties: tuple[str, ...]


def contact_of(head: Head) -> str | None:
    """The contact that the path names."""
    match = _CONTACT_PATH.fullmatch(head.path)
    return unquote(match[1]) if match else None


def judge(request: Request, contacts: Contacts, token: str) -> Change | Lookup | Answer:
    """What a valid request asks for, or the answer that refuses it."""
    head = request.head
    scheme, _, given = head.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not hmac.compare_digest(given.encode(), token.encode()):
        return error(401, "Authentication credentials not found or not valid")
    contact_id = contact_of(head)
    if contact_id is None:
        return error(404, "no such resource", category="NOT_FOUND")
    if head.method not in ("GET", "PATCH"):
        return error(405, "method not allowed", headers={"Allow": "GET, PATCH"})
    if any(name == "idProperty" and value != "hs_object_id" for name, value in head.query):
        return error(400, "this simulator finds contacts by hs_object_id only")
    wants_archived = head.method == "GET" and ("archived", "true") in head.query
    contact = contacts.get(contact_id)
    if head.method == "GET":
        if contact is None or contact.is_archived is not wants_archived:
            return error(404, "resource not found")
        return Lookup(contact=contact, properties=_asked_for(head))
    if head.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        return error(415, "the content type must be application/json")
    properties = _properties_of(request.body)
    if isinstance(properties, Answer):
        return properties
    if contact is None or contact.is_archived:
        return error(404, "resource not found")
    if wrong := _wrong_properties(properties, contacts):
        return error(400, "Property values were not valid", errors=wrong)
    return Change(contact=contact, properties=properties)


def contact_body(contact: Contact, names: tuple[str, ...]) -> dict[str, Any]:
    """The record as an answer shows it; a property that was never set is null."""
    shown = dict.fromkeys((*names, "hs_object_id", "lastmodifieddate"))
    return {
        "id": contact.id,
        "properties": {name: contact.property(name) for name in shown},
        "createdAt": stamp(contact.created_at),
        "updatedAt": stamp(contact.updated_at),
        "archived": contact.is_archived,
    }


def success(contact: Contact, asked: Change | Lookup) -> Answer:
    """200 with the record as it stands now."""
    return Answer(status=200, body=contact_body(contact, tuple(asked.properties)))


def error(
    status: int,
    message: str,
    *,
    category: str | None = None,
    headers: Mapping[str, str] | None = None,
    **more: object,
) -> Answer:
    """An error in the provider's shape."""
    return Answer(
        status=status,
        headers=headers or {},
        body={
            "status": "error",
            "message": message,
            "correlationId": str(uuid4()),
            "category": category or _category(status),
            **more,
        },
    )


def rate_limited(headers: Mapping[str, str]) -> Answer:
    """429 of the ten-second window."""
    return error(
        429,
        "ten secondly limit reached",
        errorType="RATE_LIMIT",
        policyName="TEN_SECONDLY_ROLLING",
        headers={
            "X-HubSpot-RateLimit-Max": "190",
            "X-HubSpot-RateLimit-Remaining": "0",
            "X-HubSpot-RateLimit-Interval-Milliseconds": "10000",
            **headers,
        },
    )


def _category(status: int) -> str:
    if status in _CATEGORIES:
        return _CATEGORIES[status]
    return "VALIDATION_ERROR" if status < 500 else HTTPStatus.INTERNAL_SERVER_ERROR.name


def _asked_for(head: Head) -> tuple[str, ...]:
    # Both spellings are in use: one list with commas, and the parameter repeated.
    lists = [value for name, value in head.query if name == "properties"]
    names = tuple(name for value in lists for name in value.split(",") if name)
    return names or _DEFAULT_PROPERTIES


def _properties_of(body: bytes) -> dict[str, str] | Answer:
    try:
        content = json.loads(body.decode("utf-8"), parse_constant=_no_constant)
        # A lone surrogate parses but is no text: it could not be stored, let alone sent back.
        json.dumps(content, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return error(400, "Invalid input JSON")
    if not isinstance(content, dict) or set(content) - {"properties", "objectWriteTraceId"}:
        return error(400, "the body must be an object with the key properties")
    properties = content.get("properties")
    if not isinstance(properties, dict) or not properties:
        return error(400, "properties must be an object with at least one property")
    wrong = [name for name, value in properties.items() if not isinstance(value, str)]
    if wrong:
        return error(400, f"the value of {wrong[0]} must be a string")
    return properties


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


def _wrong_properties(properties: Mapping[str, str], contacts: Contacts) -> list[dict[str, str]]:
    wrong = []
    for name in properties:
        if name in READ_ONLY_PROPERTIES:
            wrong.append(
                {"message": "this property is read only", "code": "READ_ONLY_VALUE", "in": name}
            )
        elif not contacts.is_known_property(name):
            wrong.append(
                {"message": "no such property", "code": "PROPERTY_DOESNT_EXIST", "in": name}
            )
    return wrong
