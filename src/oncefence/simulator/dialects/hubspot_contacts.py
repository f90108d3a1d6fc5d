"""HubSpot's contact: its properties, how an answer shows it, and the form of an error."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any
from uuid import uuid4

from oncefence.simulator.contacts import Contact, Contacts
from oncefence.simulator.dialects.protocol import Change
from oncefence.simulator.journal import stamp
from oncefence.simulator.wire import Answer

_ORDINARY_PROPERTIES = (
    "address annualrevenue city company country email fax firstname hs_lead_status hs_persona "
    "industry jobtitle lastname lifecyclestage mobilephone numemployees phone salutation state "
    "twitterhandle website zip"
)
_ORDINARY = frozenset(_ORDINARY_PROPERTIES.split())
_READ_ONLY = frozenset({"createdate", "hs_object_id", "lastmodifieddate"})
DEFAULT_PROPERTIES = (
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


def property_of(contact: Contact, name: str) -> str | None:
    """The property's value, the kept ones included; None where it was never set."""
    match name:
        case "createdate":
            return stamp(contact.created_at)
        case "hs_object_id":
            return contact.id
        case "lastmodifieddate":
            return stamp(contact.updated_at)
        case _:
            value: str | None = contact.properties.get(name)
            return value


def shown(contact: Contact, names: tuple[str, ...]) -> dict[str, Any]:
    """The record as an answer shows it; a property that was never set is null."""
    wanted = dict.fromkeys((*names, "hs_object_id", "lastmodifieddate"))
    return {
        "id": contact.id,
        "properties": {name: property_of(contact, name) for name in wanted},
        "createdAt": stamp(contact.created_at),
        "updatedAt": stamp(contact.updated_at),
        "archived": contact.is_archived,
    }


def error(
    status: int,
    message: str,
    *,
    category: str | None = None,
    headers: Mapping[str, str] | None = None,
    **more: object,
) -> Answer:
    """An error in the provider's form."""
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


def _category(status: int) -> str:
    if status in _CATEGORIES:
        return _CATEGORIES[status]
    return "VALIDATION_ERROR" if status < 500 else HTTPStatus.INTERNAL_SERVER_ERROR.name


def change_of(
    contact: Contact | None, properties: Mapping[str, str], contacts: Contacts
) -> Change | Answer:
    """A valid change of the record, or the answer that refuses it."""
    if contact is None or contact.is_archived:
        return error(404, "resource not found")
    if wrong := wrong_properties(properties, contacts):
        return error(400, "Property values were not valid", errors=wrong)
    return Change(contact=contact, properties=properties)


def properties_of(content: object) -> dict[str, str] | Answer:
    """The properties that a body gives, or the answer that refuses it."""
    if not isinstance(content, dict) or set(content) - {"properties", "objectWriteTraceId"}:
        return error(400, "the body must be an object with the key properties")
    properties = content.get("properties")
    if not isinstance(properties, dict) or not properties:
        return error(400, "properties must be an object with at least one property")
    wrong = [name for name, value in properties.items() if not isinstance(value, str)]
    if wrong:
        return error(400, f"the value of {wrong[0]} must be a string")
    return properties


def wrong_properties(properties: Mapping[str, str], contacts: Contacts) -> list[dict[str, str]]:
    """What the provider has against each property that it does not take."""
    wrong = []
    for name in properties:
        if name in _READ_ONLY:
            wrong.append(
                {"message": "this property is read only", "code": "READ_ONLY_VALUE", "in": name}
            )
        elif name not in _ORDINARY and not contacts.has_property(name):
            wrong.append(
                {"message": "no such property", "code": "PROPERTY_DOESNT_EXIST", "in": name}
            )
    return wrong
