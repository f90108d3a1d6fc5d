"""Outreach's prospects: documents of JSON:API, lists that go on by cursor, and its errors."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from oncefence.simulator.dialects.protocol import Target
from oncefence.simulator.in_process import SimulatorHere, simulating
from oncefence.simulator.marks import Operation
from tests.providers.simulated import Heard, request_bytes, talk
from tests.providers.speaking import OUTREACH

_BASE = "/api/v2/prospects"
_DAY = datetime(2026, 8, 1, tzinfo=UTC)


@pytest.fixture
async def here() -> AsyncIterator[SimulatorHere]:
    async with simulating("outreach") as running:
        yield running


async def get(here: SimulatorHere, target: str) -> Heard:
    return await asyncio.to_thread(OUTREACH.say, here, ("GET", target, b""))


async def patch(here: SimulatorHere, record: str, data: object) -> Heard:
    wish = ("PATCH", f"{_BASE}/{record}", json.dumps({"data": data}).encode())
    return await asyncio.to_thread(OUTREACH.say, here, wish)


def error_ids(heard: Heard) -> list[str]:
    return [error["id"] for error in heard.json["errors"]]


class TestPatch:
    async def test_changes_the_given_attributes_alone(self, here: SimulatorHere) -> None:
        """The others stay, null clears, and the id is a number."""
        here.add_record("7", {"title": "VP", "firstName": "Ada", "lastName": "Byron"})
        data = {"type": "prospect", "id": 7, "attributes": {"title": "CTO", "lastName": None}}

        heard = await patch(here, "7", data)

        shown = heard.json["data"]
        assert (heard.status, shown["id"], shown["type"]) == (200, 7, "prospect")
        attributes = shown["attributes"]
        assert (attributes["title"], attributes["lastName"], attributes["name"]) == (
            *("CTO", None, "Ada"),
        )
        assert attributes["updatedAt"] > attributes["createdAt"]
        assert heard.headers["content-type"] == "application/vnd.api+json"

    async def test_sets_and_clears_a_relationship(self, here: SimulatorHere) -> None:
        """Null in `data` ends it."""
        here.add_record("7")
        data: dict[str, Any] = {"type": "prospect", "id": 7, "attributes": {}}
        owner = {"owner": {"data": {"type": "user", "id": 2}}}

        with_owner = await patch(here, "7", data | {"relationships": owner})
        without = await patch(here, "7", data | {"relationships": {"owner": {"data": None}}})

        assert with_owner.json["data"]["relationships"]["owner"] == owner["owner"]
        assert without.json["data"]["relationships"]["owner"] == {"data": None}

    @pytest.mark.parametrize(
        ("data", "pointer"),
        [
            ({"id": 7, "attributes": {}}, "/data/type"),
            ({"type": "account", "id": 7}, "/data/type"),
            ({"type": "prospect", "id": 8}, "/data/id"),
            ({"type": "prospect"}, "/data/id"),
            (
                {"type": "prospect", "id": 7, "attributes": {"title": "x" * 256}},
                "/data/attributes/title",
            ),
            (
                {"type": "prospect", "id": 7, "attributes": {"nope": "x"}},
                "/data/attributes/nope",
            ),
            (
                {"type": "prospect", "id": 7, "attributes": {"updatedAt": "x"}},
                "/data/attributes/updatedAt",
            ),
            (
                {"type": "prospect", "id": 7, "attributes": {"emails": "x"}},
                "/data/attributes/emails",
            ),
            (
                {"type": "prospect", "id": 7, "relationships": {"owner": {"data": {"id": 1}}}},
                "/data/relationships/owner",
            ),
        ],
    )
    async def test_that_is_not_valid_points_at_the_place(
        self, here: SimulatorHere, data: object, pointer: str
    ) -> None:
        """422 with the pointer, and nothing is changed."""
        here.add_record("7")

        heard = await patch(here, "7", data)

        assert (heard.status, error_ids(heard)) == (422, ["validationError"])
        assert heard.json["errors"][0]["source"] == {"pointer": pointer}
        assert here.changes() == []


class TestRefusals:
    @pytest.mark.parametrize("method", ["GET", "PATCH"])
    @pytest.mark.parametrize("media_type", ["application/json", "text/plain", ""])
    async def test_of_another_media_type_spell_a_key_otherwise(
        self, here: SimulatorHere, method: str, media_type: str
    ) -> None:
        """415 on every request that does not bring the one type, and `details` instead."""
        here.add_record("7")
        headers = {"Content-Type": media_type}
        request = request_bytes(method, f"{_BASE}/7", b"", token=here.token, headers=headers)

        heard = await asyncio.to_thread(talk, here.simulator.port, request)

        assert (heard.status, error_ids(heard)) == (415, ["unsupportedMediaType"])
        assert "details" in heard.json["errors"][0]
        assert "detail" not in heard.json["errors"][0]

    async def test_of_a_record_that_is_not_there(self, here: SimulatorHere) -> None:
        """404 with the provider's own word for it."""
        heard = await get(here, f"{_BASE}/7")

        assert (heard.status, error_ids(heard)) == (404, ["resourceNotFound"])

    async def test_in_maintenance_give_a_time_without_a_zone(self, here: SimulatorHere) -> None:
        """It is neither seconds nor an HTTP date, and a local clock would read it wrongly."""
        here.add_record("7")
        here.strike("maintenance_503", "7")

        heard = await patch(here, "7", {"type": "prospect", "id": 7})

        assert (heard.status, error_ids(heard)) == (503, ["scheduledServerMaintenance"])
        until = datetime.fromisoformat(heard.headers["retry-after"])
        assert until.tzinfo is None
        assert until.replace(tzinfo=UTC) > here.simulator.stores.clock.now()

    async def test_after_ten_thousand_an_hour_name_the_time_of_the_reset(
        self, here: SimulatorHere
    ) -> None:
        """Every reply counts down, and the one that is turned away says when to come back."""
        here.add_record("7")
        first = await get(here, f"{_BASE}/7")
        window = here.dialect.window(Target(operation=Operation.READ))
        assert window is not None
        limits = here.simulator.provider.reception.limits
        while limits.ask(window).is_let_in:
            pass

        refused = await get(here, f"{_BASE}/7")
        here.advance_clock(3600)

        assert first.headers["x-ratelimit-remaining"] == "9999"
        assert (refused.status, error_ids(refused)) == (429, ["rateLimitExceeded"])
        assert refused.headers["retry-after"] == refused.headers["x-ratelimit-reset"]
        assert (await get(here, f"{_BASE}/7")).status == 200


class TestList:
    def fill(self, here: SimulatorHere) -> None:
        """Five prospects; two of them were changed in the same moment."""
        for number, days in enumerate([3, 1, 2, 2, 4], start=1):
            here.simulator.admin.make(
                str(number),
                {"title": f"t{number}", "emails": [f"{number}@a.b"]},
                created_at=_DAY,
                updated_at=_DAY + timedelta(days=days),
            )

    async def listed(self, here: SimulatorHere, query: str) -> list[int]:
        heard = await get(here, f"{_BASE}?{query}")
        assert heard.status == 200, heard.json
        return [each["id"] for each in heard.json["data"]]

    @pytest.mark.parametrize(
        ("query", "expected"),
        [
            ("sort=updatedAt", [2, 3, 4, 1, 5]),
            ("sort=-updatedAt", [5, 1, 4, 3, 2]),
            ("filter[updatedAt]=2026-08-03T00:00:00Z..inf&sort=updatedAt", [3, 4, 1, 5]),
            ("filter[updatedAt]=neginf..2026-08-03T00:00:00Z", [2, 3, 4]),
            ("newFilterSyntax=true&filter[updatedAt][gte]=2026-08-04T00:00:00Z", [1, 5]),
            ("newFilterSyntax=true&filter[updatedAt][gt]=2026-08-04T00:00:00Z", [5]),
            ("newFilterSyntax=true&filter[id][]=2&filter[id][]=4", [2, 4]),
            ("filter[id]=2,4", [2, 4]),
            ("filter[emails]=3@a.b", [3]),
            ("filter[title]=t1", [1]),
            ("filter[company]=__null__&filter[title]=__notnull__", [1, 2, 3, 4, 5]),
            ("page[limit]=2&page[offset]=1", [2, 3]),
        ],
    )
    async def test_filters_and_sorts(
        self, here: SimulatorHere, query: str, expected: list[int]
    ) -> None:
        """Bounds are inclusive; equal times come in the order of ids."""
        self.fill(here)

        assert await self.listed(here, quote(query, safe="=&")) == expected

    async def test_goes_on_by_its_cursor_past_equal_times(self, here: SimulatorHere) -> None:
        """A page may end between two that share a moment, and neither is lost or told twice."""
        self.fill(here)
        target, seen = f"{_BASE}?sort=updatedAt&page[size]=2&count=false", []
        while target is not None:
            body = (await get(here, target)).json
            seen += [each["id"] for each in body["data"]]
            following = body["links"]["next"]
            target = following and following.partition(urlsplit(following).netloc)[2]

        assert seen == [2, 3, 4, 1, 5]
        assert body["meta"] == {}

    async def test_by_cursor_sees_a_record_that_moved_ahead(self, here: SimulatorHere) -> None:
        """The cursor is a place in the order and no count, so a change while reading is seen."""
        self.fill(here)
        first = (await get(here, f"{_BASE}?sort=updatedAt&page[size]=2")).json
        here.edit("2", {"title": "moved"})
        following = first["links"]["next"]

        body = (await get(here, following.partition(urlsplit(following).netloc)[2])).json

        assert [each["id"] for each in body["data"]] == [4, 1]

    async def test_shows_only_the_fields_that_are_named(self, here: SimulatorHere) -> None:
        """Naming some leaves out all others."""
        self.fill(here)

        heard = await get(here, f"{_BASE}?fields[prospect]=title,updatedAt&filter[id]=1")

        [shown] = heard.json["data"]
        assert shown["attributes"].keys() == {"title", "updatedAt"}

    @pytest.mark.parametrize(
        ("query", "status"),
        [
            ("filter[updatedAt][gte]=2026-08-04T00:00:00Z", 400),
            ("filter[nope]=1", 400),
            ("filter[updatedAt]=yesterday", 422),
            ("sort=company", 422),
            ("page[size]=1001", 422),
            ("page[size]=0", 422),
            ("page[offset]=10001", 422),
            ("page[after]=x", 400),
        ],
    )
    async def test_that_cannot_be_is_refused(
        self, here: SimulatorHere, query: str, status: int
    ) -> None:
        """A filter that is not understood is never left out in silence."""
        assert (await get(here, f"{_BASE}?{query}")).status == status
