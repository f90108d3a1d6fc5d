"""Outreach's prospects: JSON:API documents with whole-number ids, and lists by cursor."""

import hmac
import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from oncefence.simulator.contacts import Contact, Contacts
from oncefence.simulator.dialects.bodies import json_of
from oncefence.simulator.dialects.outreach_list import ListRefused, cursor_of, read_list
from oncefence.simulator.dialects.outreach_prospects import (
    MEDIA_TYPE,
    answer,
    attribute_of,
    error,
    is_relation,
    relations_of,
    shown,
    wrong_value,
)
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
from oncefence.simulator.journal import stamp
from oncefence.simulator.marks import Operation
from oncefence.simulator.wire import Answer, Head, Request

_PATH = re.compile(r"/api/v2/prospects(?:/(?P<id>[^/]+))?", re.ASCII)
_ID = re.compile(r"[1-9][0-9]{0,18}", re.ASCII)
_WINDOW = Window(name="hour", requests_max=10_000, length=timedelta(hours=1))


class Outreach:
    """The dialect of `/api/v2/prospects`."""

    name = "outreach"
    title = "Outreach"
    default_token = "outreach-simulated"  # noqa: S105  # a made-up token, said so in its text
    objects: tuple[str | None, ...] = (None,)
    command_header = "X-Oncefence-Command"
    attempt_header = "X-Oncefence-Attempt"
    keys: KeyRule | None = None
    index_lag = timedelta()
    version: str | None = None
    cannot_show = frozenset({ScriptedFault.KEY_EXPIRY})

    def target(self, head: Head) -> Target:
        """What the head asks for."""
        match = _PATH.fullmatch(head.path)
        if match is None:
            return Target(operation=Operation.OTHER)
        with_id = {"PATCH": Operation.UPDATE, "GET": Operation.READ}
        without = {"POST": Operation.CREATE, "GET": Operation.SEARCH}
        operations = without if match["id"] is None else with_id
        return Target(operation=operations.get(head.method, Operation.OTHER), contact=match["id"])

    def window(self, target: Target) -> Window | None:  # noqa: ARG002  # one for all
        """So many an hour, whatever is asked for."""
        return _WINDOW

    def unauthorized(self, head: Head, token: str) -> Answer | None:
        """401 where the token is missing or another."""
        scheme, _, given = head.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and hmac.compare_digest(given.encode(), token.encode()):
            return None
        return self.error(401, "token missing, unknown or expired")

    def judge(self, request: Request, contacts: Contacts) -> Asked | Answer:
        """What a valid request asks for, or the answer that refuses it."""
        head, target = request.head, self.target(request.head)
        if _PATH.fullmatch(head.path) is None:
            return self.error(404, "no such resource")
        if head.media_type != MEDIA_TYPE:
            return self.error(415, f"Content-Type must be {MEDIA_TYPE}")
        if target.operation is Operation.OTHER:
            return self.error(405, "method not allowed")
        if target.operation is Operation.SEARCH:
            try:
                return read_list(head, attribute_of)
            except ListRefused as reason:
                return self.error(reason.status, str(reason))
        contact = contacts.get(target.contact) if target.contact is not None else None
        if target.contact is not None and contact is None:
            return self.error(404, f"no 'prospect' with ID '{target.contact}'")
        if target.operation is Operation.READ and contact is not None:
            return Reading(contact=contact, shows=_sparse(head))
        return self._write(request, contact, contacts)

    def success(self, asked: Asked, found: Found) -> Answer:
        """The records as they stand now."""
        match asked:
            case Search(asked=repeats, shows=shows, is_descending=is_descending):
                body: dict[str, Any] = {
                    "data": [shown(contact, shows) for contact in found.contacts],
                    "links": {"first": repeats["first"], "prev": None, "next": None},
                    "meta": {"count": found.total} if repeats["counts"] else {},
                }
                if found.has_more:
                    after = cursor_of(found.contacts[-1], repeats["sort"], is_descending)
                    body["links"]["next"] = repeats["next"].replace("{after}", after)
                return answer(200, body)
            case Batch():
                raise AssertionError("Outreach has no batch of prospects")
            case Creation():
                return answer(201, {"data": shown(found.contacts[0], ())})
            case _:
                return answer(200, {"data": shown(found.contacts[0], asked.shows)})

    def error(
        self, status: int, message: str, *, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """An error in the provider's form."""
        return error(status, message, headers=headers)

    def error_inside(self, asked: Asked) -> Answer:  # noqa: ARG002  # one form for all
        """200 around an error."""
        return answer(200, error(422, "Title is too long", "/data/attributes/title").body)

    def limited(
        self,
        limit: Limit,
        headers: Mapping[str, str],
        now: datetime,
        *,
        resets_at: datetime | None = None,
    ) -> Answer:
        """429; where the limit is a real one, Retry-After is the reset of the rate headers."""
        until = resets_at or now + _length(limit, now)
        waits = {"Retry-After": _naive(until)} if resets_at is not None else {}
        rates = self.rate_headers(0, until)
        return error(
            429,
            f"{limit} limit reached; try at {_naive(until)}",
            headers={**rates, **waits, **headers},
        )

    def maintenance(self, headers: Mapping[str, str], until: datetime) -> Answer:
        """503 with a time that does not say its zone."""
        return error(
            503, f"try at {_naive(until)}", headers={"Retry-After": _naive(until), **headers}
        )

    def key_trouble(self, trouble: KeyTrouble) -> Answer:
        """There are no keys here."""
        raise AssertionError(f"{trouble}: Outreach knows no idempotency key")

    def rate_headers(self, left: int, resets_at: datetime) -> dict[str, str]:
        """What is left of the hour, on every reply."""
        return {
            "X-RateLimit-Limit": str(_WINDOW.requests_max),
            "X-RateLimit-Remaining": str(left),
            "X-RateLimit-Reset": _naive(resets_at),
        }

    def fingerprint(self, request: Request) -> bytes:
        """The body as it stands."""
        return request.body

    def why_not(self, contact: Contact) -> str | None:
        """Ids are whole numbers, and attributes of the kinds that are known."""
        if not _ID.fullmatch(contact.id):
            return "id: must be a whole number in text"
        for name, value in contact.properties.items():
            if not is_relation(name) and (why := wrong_value(name, value)):
                return f"properties.{name}: {why}"
        return None

    def new_id(self, contacts: Contacts, object_name: str | None) -> str:  # noqa: ARG002
        """The number after the highest."""
        return str(max([1_000, *(int(each.id) for each in contacts.all())]) + 1)

    def example(self, number: int) -> tuple[str | None, str, Mapping[str, Any]]:
        """A prospect to begin with."""
        name = f"person{number}"
        return (
            None,
            str(number),
            {"firstName": name.title(), "title": "CTO", "emails": [f"{name}@example.com"]},
        )

    def _write(
        self, request: Request, contact: Contact | None, contacts: Contacts
    ) -> Change | Creation | Answer:
        content = json_of(request.body)
        data = content.get("data") if isinstance(content, dict) else None
        if not isinstance(data, dict):
            return self.error(400, "the body must be a JSON:API document with data")
        if data.get("type") != "prospect":
            return error(422, "type must be 'prospect'", "/data/type")
        if contact is not None and str(data.get("id")) != contact.id:
            return error(422, "id must be that of the path", "/data/id")
        attributes, relations = data.get("attributes", {}), data.get("relationships", {})
        if not isinstance(attributes, dict) or not isinstance(relations, dict):
            return self.error(400, "attributes and relationships must be objects")
        for name, value in attributes.items():
            if why := wrong_value(name, value):
                return error(422, f"{name} {why}", f"/data/attributes/{name}")
        related = relations_of(relations)
        if isinstance(related, Answer):
            return related
        properties = {**attributes, **related}
        if contact is not None:
            return Change(contact=contact, properties=properties)
        emails = set(properties.get("emails") or ())
        if any(emails & set(each.properties.get("emails") or ()) for each in contacts.all()):
            return error(422, "Email has already been taken", "/data/attributes/emails")
        return Creation(properties=properties)


def _sparse(head: Head) -> tuple[str, ...]:
    given = [value for name, value in head.query if name == "fields[prospect]"]
    return tuple(name for value in given for name in value.split(",") if name)


def _length(limit: Limit, now: datetime) -> timedelta:
    if limit is Limit.DAILY:
        midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
        return midnight + timedelta(days=1) - now
    return timedelta(seconds=1) if limit is Limit.SECONDLY else _WINDOW.length


def _naive(moment: datetime) -> str:
    return stamp(moment)[:19]
