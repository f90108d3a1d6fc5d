"""HubSpot's contacts: read and written one by one, in batches, and found by search."""

import hmac
import json
import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import unquote

from oncefence.simulator.contacts import Contact, Contacts
from oncefence.simulator.dialects.bodies import json_of
from oncefence.simulator.dialects.hubspot_contacts import (
    DEFAULT_PROPERTIES,
    change_of,
    error,
    properties_of,
    property_of,
    shown,
    wrong_properties,
)
from oncefence.simulator.dialects.hubspot_search import SearchRefused, read_search
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
from oncefence.simulator.faults import ScriptedFault
from oncefence.simulator.marks import Operation
from oncefence.simulator.wire import Answer, Head, Request

# The same records under the path with a version in numbers and the one with a date.
_PATH = re.compile(
    r"/crm/(?:v3/objects|objects/20[0-9]{2}-[0-9]{2})/contacts(?:/(?P<rest>.+))?", re.ASCII
)
_BATCH_MAX = 100
_POLICIES = {
    Limit.ORDINARY: ("TEN_SECONDLY_ROLLING", "ten secondly limit reached"),
    Limit.SECONDLY: ("SECONDLY", "secondly limit reached"),
    Limit.DAILY: ("DAILY", "daily limit reached"),
}
_SEARCH_WINDOW = Window(
    name="search",
    requests_max=5,
    length=timedelta(seconds=1),
    limit=Limit.SECONDLY,
    is_shown=False,
)


class HubSpot:
    """The dialect of `/crm/v3/objects/contacts`."""

    name = "hubspot"
    title = "HubSpot"
    default_token = "pat-simulated"  # noqa: S105  # a made-up token, said so in its text
    objects: tuple[str | None, ...] = (None,)
    command_header = "X-Oncefence-Command"
    attempt_header = "X-Oncefence-Attempt"
    keys: KeyRule | None = None
    # "Moments", the provider says; two seconds are ours.
    index_lag = timedelta(seconds=2)
    version: str | None = None
    cannot_show = frozenset({ScriptedFault.KEY_EXPIRY})

    def target(self, head: Head) -> Target:
        """What the head asks for."""
        match = _PATH.fullmatch(head.path)
        rest = match["rest"] if match is not None else None
        if match is None or (rest is not None and "/" in rest and rest != "batch/update"):
            return Target(operation=Operation.OTHER)
        match head.method, rest:
            case "POST", "search":
                return Target(operation=Operation.SEARCH)
            case "POST", "batch/update":
                return Target(operation=Operation.BATCH)
            case "POST", None:
                return Target(operation=Operation.CREATE)
            case _, None | "batch/update":
                return Target(operation=Operation.OTHER)
            case method, str():
                operation = {"PATCH": Operation.UPDATE, "GET": Operation.READ}
                return Target(
                    operation=operation.get(method, Operation.OTHER), contact=unquote(rest)
                )
        return Target(operation=Operation.OTHER)

    def window(self, target: Target) -> Window | None:
        """Searches have a small limit of their own; the others are not counted here."""
        return _SEARCH_WINDOW if target.operation is Operation.SEARCH else None

    def unauthorized(self, head: Head, token: str) -> Answer | None:
        """401 where the token is missing or another."""
        scheme, _, given = head.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and hmac.compare_digest(given.encode(), token.encode()):
            return None
        return self.error(401, "Authentication credentials not found or not valid")

    def judge(self, request: Request, contacts: Contacts) -> Asked | Answer:
        """What a valid request asks for, or the answer that refuses it."""
        head, target = request.head, self.target(request.head)
        if _PATH.fullmatch(head.path) is None or (
            target.operation is Operation.OTHER and target.contact is None
        ):
            return error(404, "no such resource", category="NOT_FOUND")
        if target.operation is Operation.OTHER:
            return self.error(405, "method not allowed", headers={"Allow": "GET, PATCH"})
        if any(name == "idProperty" and value != "hs_object_id" for name, value in head.query):
            return self.error(400, "this simulator finds contacts by hs_object_id only")
        if target.operation is Operation.READ:
            return self._reading(head, contacts.get(target.contact or ""))
        if head.media_type != "application/json":
            return self.error(415, "the content type must be application/json")
        content = json_of(request.body)
        if content is None:
            return self.error(400, "Invalid input JSON")
        match target.operation:
            case Operation.SEARCH:
                try:
                    return read_search(content, property_of)
                except SearchRefused as reason:
                    return self.error(400, str(reason))
            case Operation.BATCH:
                return self._batch(content, contacts)
            case _:
                properties = properties_of(content)
                if isinstance(properties, Answer):
                    return properties
                if target.operation is Operation.CREATE:
                    return self._creation(properties, contacts)
                return change_of(contacts.get(target.contact or ""), properties, contacts)

    def success(self, asked: Asked, found: Found) -> Answer:
        """The records as they stand now."""
        match asked:
            case Search(shows=shows):
                results = [shown(contact, shows) for contact in found.contacts]
                body: dict[str, Any] = {"total": found.total, "results": results}
                if found.has_more:
                    body["paging"] = {"next": {"after": str(found.end)}}
                return Answer(status=200, body=body)
            case Batch():
                return self._batched(asked, found)
            case Creation(properties=properties):
                shows = tuple(properties)
                return Answer(status=201, body=shown(found.contacts[0], shows))
            case Change(properties=properties):
                shows = tuple(properties)
                return Answer(status=200, body=shown(found.contacts[0], shows))
            case _:
                return Answer(status=200, body=shown(found.contacts[0], asked.shows))

    def error(
        self, status: int, message: str, *, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """An error in the provider's form."""
        return error(status, message, headers=headers)

    def error_inside(self, asked: Asked) -> Answer:  # noqa: ARG002  # one form for all
        """200 around an error."""
        return Answer(status=200, body=error(400, "Property values were not valid").body)

    def limited(
        self,
        limit: Limit,
        headers: Mapping[str, str],
        now: datetime,  # its policies have no time in them
        *,
        resets_at: datetime | None = None,  # noqa: ARG002  # nor does it say when
    ) -> Answer:
        """429 that names its policy; a Retry-After is not its habit."""
        policy, message = _POLICIES[limit]
        rates = self.rate_headers(0, now) if limit is Limit.ORDINARY else {}
        return error(
            429,
            message,
            errorType="RATE_LIMIT",
            policyName=policy,
            headers={**rates, **headers},
        )

    def maintenance(self, headers: Mapping[str, str], until: datetime) -> Answer:  # noqa: ARG002
        """503 without a time."""
        return self.error(503, "service unavailable", headers=headers)

    def key_trouble(self, trouble: KeyTrouble) -> Answer:
        """There are no keys here."""
        raise AssertionError(f"{trouble}: HubSpot knows no idempotency key")

    def rate_headers(self, left: int, resets_at: datetime) -> dict[str, str]:  # noqa: ARG002
        """What is left of the ten seconds; they roll, so there is no reset."""
        return {
            "X-HubSpot-RateLimit-Max": "190",
            "X-HubSpot-RateLimit-Remaining": str(left),
            "X-HubSpot-RateLimit-Interval-Milliseconds": "10000",
        }

    def fingerprint(self, request: Request) -> bytes:
        """The body as it stands."""
        return request.body

    def why_not(self, contact: Contact) -> str | None:
        """Every property is a text."""
        wrong = [name for name, value in contact.properties.items() if not isinstance(value, str)]
        return f"properties.{wrong[0]}: must be a string" if wrong else None

    def new_id(self, contacts: Contacts, object_name: str | None) -> str:  # noqa: ARG002
        """The number after the highest."""
        numbers = [int(each.id) for each in contacts.all() if each.id.isdecimal()]
        return str(max([100_000, *numbers]) + 1)

    def example(self, number: int) -> tuple[str | None, str, Mapping[str, Any]]:
        """A contact to begin with."""
        name = f"person{number}"
        return (
            None,
            str(500 + number),
            {"email": f"{name}@example.com", "firstname": name.title(), "jobtitle": "CTO"},
        )

    def _reading(self, head: Head, contact: Contact | None) -> Reading | Answer:
        if contact is None or contact.is_archived is not (("archived", "true") in head.query):
            return self.error(404, "resource not found")
        # Both spellings are in use: one list with commas, and the parameter repeated.
        lists = [value for name, value in head.query if name == "properties"]
        names = tuple(name for value in lists for name in value.split(",") if name)
        return Reading(contact=contact, shows=names or DEFAULT_PROPERTIES)

    def _creation(self, properties: Mapping[str, str], contacts: Contacts) -> Creation | Answer:
        if wrong := wrong_properties(properties, contacts):
            return error(400, "Property values were not valid", errors=wrong)
        email = properties.get("email")
        for other in contacts.all():
            if email and not other.is_archived and other.properties.get("email") == email:
                return self.error(409, f"Contact already exists. Existing ID: {other.id}")
        return Creation(properties=properties)

    def _batch(self, content: object, contacts: Contacts) -> Batch | Answer:
        inputs = content.get("inputs") if isinstance(content, dict) else None
        if not isinstance(inputs, list) or not 1 <= len(inputs) <= _BATCH_MAX:
            return self.error(400, f"inputs must be a list of 1 to {_BATCH_MAX}")
        changes, failures = [], []
        for each in inputs:
            if not isinstance(each, dict) or not isinstance(each.get("id"), str):
                return self.error(400, "each input must be an object with an id")
            properties = properties_of({"properties": each.get("properties")})
            if isinstance(properties, Answer):
                return properties
            asked = change_of(contacts.get(each["id"]), properties, contacts)
            if isinstance(asked, Answer):
                failure = json.loads(asked.content)
                failures.append({**failure, "context": {"ids": [each["id"]]}})
            else:
                changes.append(asked)
        return Batch(changes=tuple(changes), failures=tuple(failures))

    def _batched(self, batch: Batch, found: Found) -> Answer:
        results = [
            shown(contact, tuple(change.properties))
            for contact, change in zip(found.contacts, batch.changes, strict=True)
        ]
        body: dict[str, Any] = {"status": "COMPLETE", "results": results}
        if not batch.failures:
            return Answer(status=200, body=body)
        errors = {"numErrors": len(batch.failures), "errors": list(batch.failures)}
        return Answer(status=207, body=body | errors)
