"""How each dialect of the simulator is spoken to: the same wishes, each in its own words."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from oncefence.simulator.in_process import SimulatorHere
from tests.providers.simulated import Heard, request_bytes, talk

BOOKS = Path(__file__).parents[1] / "data" / "packs" / "books.toml"
_JSON = "application/json"
_JSON_API = "application/vnd.api+json"
_FORM = "application/x-www-form-urlencoded"

Wish = tuple[str, str, bytes]
"""Method, target and body."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Speech:
    """One dialect: requests that set, make, read and find, and how its answers are read."""

    name: str
    pack: str | Path
    field: str
    media_type: str
    update: Callable[[str, str], Wish]
    create: Callable[[str], Wish]
    read: Callable[[str], Wish]
    search: Callable[[str], Wish]
    made: int
    identity: Callable[[Any], str]
    value: Callable[[Any], str | None]
    found: Callable[[Any], list[str]]
    keyed: bool = False

    def request(
        self, here: SimulatorHere, wish: Wish, *, key: str | None = None, command: str | None = None
    ) -> bytes:
        method, target, body = wish
        headers = {"Content-Type": self.media_type}
        if key is not None:
            headers["Idempotency-Key"] = key
        if command is not None:
            headers[here.dialect.command_header] = command
        return request_bytes(method, target, body, token=here.token, headers=headers)

    def say(
        self,
        here: SimulatorHere,
        wish: Wish,
        *,
        key: str | None = None,
        command: str | None = None,
        patience_s: float = 10.0,
    ) -> Heard:
        request = self.request(here, wish, key=key, command=command)
        return talk(here.simulator.port, request, patience_s=patience_s)


def _json(content: object) -> bytes:
    return json.dumps(content).encode()


HUBSPOT = Speech(
    name="hubspot",
    pack="hubspot",
    field="jobtitle",
    media_type=_JSON,
    update=lambda record, value: (
        "PATCH",
        f"/crm/v3/objects/contacts/{record}",
        _json({"properties": {"jobtitle": value}}),
    ),
    create=lambda value: (
        "POST",
        "/crm/v3/objects/contacts",
        _json({"properties": {"jobtitle": value}}),
    ),
    read=lambda record: ("GET", f"/crm/v3/objects/contacts/{record}?properties=jobtitle", b""),
    search=lambda value: (
        "POST",
        "/crm/v3/objects/contacts/search",
        _json(
            {
                "filterGroups": [
                    {
                        "filters": [
                            {"propertyName": "jobtitle", "operator": "EQ", "value": value},
                        ]
                    }
                ],
                "properties": ["jobtitle"],
            }
        ),
    ),
    made=201,
    identity=lambda body: str(body["id"]),
    value=lambda body: body["properties"]["jobtitle"],
    found=lambda body: [result["id"] for result in body["results"]],
)
OUTREACH = Speech(
    name="outreach",
    pack="outreach",
    field="title",
    media_type=_JSON_API,
    update=lambda record, value: (
        "PATCH",
        f"/api/v2/prospects/{record}",
        _json(
            {"data": {"type": "prospect", "id": int(record), "attributes": {"title": value}}},
        ),
    ),
    create=lambda value: (
        "POST",
        "/api/v2/prospects",
        _json({"data": {"type": "prospect", "attributes": {"title": value}}}),
    ),
    read=lambda record: ("GET", f"/api/v2/prospects/{record}", b""),
    search=lambda value: ("GET", f"/api/v2/prospects?filter[title]={quote(value)}", b""),
    made=201,
    identity=lambda body: str(body["data"]["id"]),
    value=lambda body: body["data"]["attributes"]["title"],
    found=lambda body: [str(each["id"]) for each in body["data"]],
)
STRIPE = Speech(
    name="stripe",
    pack="stripe",
    field="name",
    media_type=_FORM,
    update=lambda record, value: (
        "POST",
        f"/v1/customers/{record}",
        f"name={quote(value)}".encode(),
    ),
    create=lambda value: ("POST", "/v1/customers", f"name={quote(value)}".encode()),
    read=lambda record: ("GET", f"/v1/customers/{record}", b""),
    search=lambda value: (
        "GET",
        "/v1/customers/search?query=" + quote(f"name:'{value}'"),
        b"",
    ),
    made=200,
    identity=lambda body: str(body["id"]),
    value=lambda body: body["name"],
    found=lambda body: [each["id"] for each in body["data"]],
    keyed=True,
)
PACKED = Speech(
    name="books",
    pack=BOOKS,
    field="plan",
    media_type=_JSON,
    update=lambda record, value: ("POST", f"/v1/accounts/{record}", _json({"plan": value})),
    create=lambda value: ("POST", "/v2/accounts", _json({"email": f"{value}@a.b", "plan": value})),
    read=lambda record: ("GET", f"/v1/accounts/{record}", b""),
    search=lambda value: ("GET", f"/v1/accounts?email={quote(value)}%40a.b", b""),
    made=201,
    identity=lambda body: str(body["id"]),
    value=lambda body: body["plan"],
    found=lambda body: [each["id"] for each in body["accounts"]],
    keyed=True,
)
SPEECHES = {each.name: each for each in (HUBSPOT, OUTREACH, STRIPE, PACKED)}
