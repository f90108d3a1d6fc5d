"""Stripe's customers: forms with nested keys, idempotency keys, lists and search."""

import hmac
import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import unquote
from uuid import uuid4

from oncefence.simulator.contacts import Contact, Contacts
from oncefence.simulator.dialects.bodies import form_of
from oncefence.simulator.dialects.protocol import (
    Asked,
    Batch,
    Change,
    Creation,
    Found,
    KeyRule,
    KeyTrouble,
    Limit,
    Reading,
    Search,
    Target,
    Window,
)
from oncefence.simulator.dialects.stripe_form import FormRefused, as_object, checked
from oncefence.simulator.dialects.stripe_search import (
    QueryRefused,
    page_token,
    read_list,
    read_search,
)
from oncefence.simulator.faults import ScriptedFault
from oncefence.simulator.marks import Operation
from oncefence.simulator.wire import Answer, Head, Request

_FORM = "application/x-www-form-urlencoded"
_PATH = re.compile(r"/v1/customers(?:/(?P<id>[^/]+))?", re.ASCII)
_ID = re.compile(r"[A-Za-z0-9_]{1,64}", re.ASCII)
_REASONS = {
    Limit.ORDINARY: "global-rate",
    Limit.SECONDLY: "endpoint-rate",
    Limit.DAILY: "resource-specific",
}


class Stripe:
    """The dialect of `/v1/customers`."""

    name = "stripe"
    title = "Stripe"
    default_token = "sk_test_simulated"  # noqa: S105  # a made-up token, said so in its text
    objects: tuple[str | None, ...] = (None,)
    command_header = "X-Oncefence-Command"
    attempt_header = "X-Oncefence-Attempt"
    keys: KeyRule | None = KeyRule(
        header="Idempotency-Key",
        kept_for=timedelta(hours=24),
        replayed=("Idempotent-Replayed", "true"),
    )
    # A minute at most, the provider says, and mostly far less; two seconds are ours.
    index_lag = timedelta(seconds=2)
    # No header of an answer tells what is left of a limit.
    version: str | None = None
    cannot_show = frozenset({ScriptedFault.QUOTA_SPENT})

    def target(self, head: Head) -> Target:
        """What the head asks for."""
        match = _PATH.fullmatch(head.path)
        match head.method, match["id"] if match is not None else "":
            case "POST", None:
                return Target(operation=Operation.CREATE)
            case "GET", None | "search":
                return Target(operation=Operation.SEARCH)
            case "POST", str() as customer if customer and customer != "search":
                return Target(operation=Operation.UPDATE, contact=unquote(customer))
            case "GET", str() as customer if customer:
                return Target(operation=Operation.READ, contact=unquote(customer))
        return Target(operation=Operation.OTHER)

    def window(self, target: Target) -> Window | None:  # noqa: ARG002
        """Its limits are of accounts and not counted here."""
        return None

    def unauthorized(self, head: Head, token: str) -> Answer | None:
        """401 where the key is missing or another."""
        scheme, _, given = head.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and hmac.compare_digest(given.encode(), token.encode()):
            return None
        return self.error(401, "the API key is missing or is not valid")

    def judge(self, request: Request, contacts: Contacts) -> Asked | Answer:
        """What a valid request asks for, or the answer that refuses it."""
        head, target = request.head, self.target(request.head)
        if target.operation is Operation.OTHER:
            return self.error(404, f"unrecognized request URL ({head.method}: {head.path})")
        contact = contacts.get(target.contact) if target.contact is not None else None
        if target.contact is not None and contact is None:
            return _missing(target.contact)
        try:
            match target.operation:
                case Operation.READ if contact is not None:
                    return Reading(contact=contact)
                case Operation.SEARCH:
                    if head.path.endswith("/search"):
                        return read_search(head.query, field_of)
                    return read_list(head.query, contacts.all(), field_of)
                case _:
                    return self._write(request, contact)
        except (FormRefused, QueryRefused) as reason:
            return _error(400, str(reason), code=reason.code, param=reason.parameter)

    def success(self, asked: Asked, found: Found) -> Answer:
        """The records as they stand now."""
        match asked:
            case Search(route=route):
                body: dict[str, Any] = {
                    "object": "search_result" if route == "search" else "list",
                    "url": "/v1/customers/search" if route == "search" else "/v1/customers",
                    "has_more": found.has_more,
                    "data": [_shown(contact) for contact in found.contacts],
                }
                if route == "search":
                    body["next_page"] = page_token(found.end) if found.has_more else None
                return _answer(200, body)
            case Batch():
                raise AssertionError("Stripe has no batch of customers")
            case _:
                return _answer(200, _shown(found.contacts[0]))

    def error(
        self, status: int, message: str, *, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """An error in the provider's form."""
        return _error(status, message, headers=headers)

    def error_inside(self, asked: Asked) -> Answer:  # noqa: ARG002  # one form for all
        """200 around an error."""
        return _answer(200, _error(400, "the email is not valid", code="email_invalid").body)

    def limited(
        self,
        limit: Limit,
        headers: Mapping[str, str],
        now: datetime,  # noqa: ARG002  # it does not say when
        *,
        resets_at: datetime | None = None,  # noqa: ARG002
    ) -> Answer:
        """429 with the kind of limit in a header."""
        return _error(
            429,
            "too many requests; slow down",
            code="rate_limit",
            headers={"Stripe-Rate-Limited-Reason": _REASONS[limit], **headers},
        )

    def maintenance(self, headers: Mapping[str, str], until: datetime) -> Answer:  # noqa: ARG002
        """503 without a time."""
        return self.error(503, "the service is not available for now", headers=headers)

    def key_trouble(self, trouble: KeyTrouble) -> Answer:
        """The refusal of an idempotency key."""
        match trouble:
            case KeyTrouble.IN_FLIGHT:
                return _error(
                    409,
                    "another request with this idempotency key is being served",
                    kind="idempotency_error",
                    code="idempotency_key_in_use",
                    headers={"Stripe-Should-Retry": "true"},
                )
            case KeyTrouble.OTHER_PARAMETERS:
                return _error(
                    400,
                    "this idempotency key was used with other parameters",
                    kind="idempotency_error",
                )
            case KeyTrouble.UNUSABLE:
                return _error(400, "an idempotency key has 1 to 255 characters")

    def rate_headers(self, left: int, resets_at: datetime) -> dict[str, str]:  # noqa: ARG002
        """There are none."""
        return {}

    def fingerprint(self, request: Request) -> bytes:
        """Method, path and parameters; the order of a form means nothing."""
        pairs = form_of(request.body)
        content = request.body if pairs is None else repr(sorted(pairs)).encode()
        return f"{request.head.method} {request.head.path}\n".encode() + content

    def why_not(self, contact: Contact) -> str | None:
        """Keys as a form has them, values as texts or null."""
        if not _ID.fullmatch(contact.id):
            return "id: must be letters, digits and underscores"
        for name, value in contact.properties.items():
            if not isinstance(value, str | None):
                return f"properties.{name}: must be a string or null"
        try:
            checked([(name, value or "") for name, value in contact.properties.items()], {})
        except FormRefused as reason:
            return f"properties.{reason.parameter}: {reason}"
        return None

    def new_id(self, contacts: Contacts, object_name: str | None) -> str:  # noqa: ARG002
        """Letters and digits that nobody has."""
        return f"cus_{uuid4().hex[:14]}"

    def example(self, number: int) -> tuple[str | None, str, Mapping[str, Any]]:
        """A customer to begin with."""
        name = f"person{number}"
        return (
            None,
            f"cus_simulated{number}",
            {"email": f"{name}@example.com", "name": name.title(), "metadata[tier]": "gold"},
        )

    def _write(self, request: Request, contact: Contact | None) -> Change | Creation | Answer:
        if request.body and request.head.media_type != _FORM:
            return self.error(400, f"the content type of a POST must be {_FORM}")
        pairs = form_of(request.body)
        if pairs is None:
            return self.error(400, "the body is no form")
        if contact is None:
            return Creation(properties=checked(pairs, {}))
        if contact.is_archived:
            return _missing(contact.id)
        return Change(contact=contact, properties=checked(pairs, contact.properties))


def field_of(contact: Contact, name: str) -> Any:  # a text, a number or nothing
    """The field as a search sees it."""
    if name == "created":
        return int(contact.created_at.timestamp())
    return contact.id if name == "id" else contact.properties.get(name)


def _shown(contact: Contact) -> dict[str, Any]:
    if contact.is_archived:
        return {"id": contact.id, "object": "customer", "deleted": True}
    given = as_object(contact.properties)
    balance: Any = given.get("balance")
    return {
        "id": contact.id,
        "object": "customer",
        "address": given.get("address"),
        "balance": int(balance or 0),
        "created": int(contact.created_at.timestamp()),
        "currency": None,
        "default_source": None,
        "delinquent": False,
        "description": given.get("description"),
        "email": given.get("email"),
        "invoice_prefix": contact.id[-8:].upper(),
        "livemode": False,
        "metadata": given.get("metadata") or {},
        "name": given.get("name"),
        "phone": given.get("phone"),
        "preferred_locales": _in_order(given.get("preferred_locales")),
        "shipping": given.get("shipping"),
        "tax_exempt": given.get("tax_exempt") or "none",
    }


def _in_order(entries: Mapping[str, Any] | None) -> Sequence[Any]:
    return [entries[place] for place in sorted(entries, key=int)] if entries else []


def _answer(status: int, body: Any, headers: Mapping[str, str] | None = None) -> Answer:
    own = {"Content-Type": "application/json", "Request-Id": f"req_{uuid4().hex[:14]}"}
    return Answer(status=status, body=body, headers={**own, **(headers or {})})


def _error(
    status: int,
    message: str,
    *,
    kind: str | None = None,
    code: str | None = None,
    param: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Answer:
    error: dict[str, Any] = {
        "type": kind or ("api_error" if status >= 500 else "invalid_request_error"),
        "message": message,
    }
    error |= {name: value for name, value in (("code", code), ("param", param)) if value}
    return _answer(status, {"error": error}, headers)


def _missing(customer: str) -> Answer:
    return _error(404, f"no such customer: '{customer}'", code="resource_missing", param="id")
