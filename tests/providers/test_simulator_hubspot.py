"""HubSpot's other requests: a search with a lag and a limit of its own, creates, and batches."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from oncefence.simulator.in_process import SimulatorHere, simulating
from tests.providers.simulated import Heard
from tests.providers.speaking import HUBSPOT

_SEARCH = "/crm/v3/objects/contacts/search"


@pytest.fixture
async def here() -> AsyncIterator[SimulatorHere]:
    async with simulating("hubspot", index_lag=timedelta()) as running:
        yield running


async def post(here: SimulatorHere, target: str, content: object) -> Heard:
    wish = ("POST", target, json.dumps(content).encode())
    return await asyncio.to_thread(HUBSPOT.say, here, wish)


def one_filter(name: str, operator: str, **more: Any) -> dict[str, Any]:
    return {"filters": [{"propertyName": name, "operator": operator, **more}]}


class TestSearch:
    async def found(self, here: SimulatorHere, **content: Any) -> list[str]:
        heard = await post(here, _SEARCH, content)
        assert heard.status == 200, heard.json
        return [result["id"] for result in heard.json["results"]]

    @pytest.mark.parametrize(
        ("group", "expected"),
        [
            (one_filter("city", "EQ", value="bern"), ["1"]),
            (one_filter("city", "NEQ", value="Bern"), ["2", "3"]),
            (one_filter("city", "HAS_PROPERTY"), ["1", "2"]),
            (one_filter("city", "NOT_HAS_PROPERTY"), ["3"]),
            (one_filter("city", "IN", values=["bern", "Rom"]), ["1", "2"]),
            (one_filter("city", "NOT_IN", values=["bern"]), ["2", "3"]),
            (one_filter("city", "CONTAINS_TOKEN", value="er*"), ["1"]),
            (one_filter("numemployees", "GT", value="9"), ["2"]),
            (one_filter("numemployees", "BETWEEN", value="8", highValue="10"), ["1", "2"]),
            (one_filter("lastmodifieddate", "GTE", value="2026-01-02"), ["2", "3"]),
            (one_filter("lastmodifieddate", "LT", value=1_767_312_000_000), ["1"]),
        ],
    )
    async def test_filters_by(
        self, here: SimulatorHere, group: dict[str, Any], expected: list[str]
    ) -> None:
        """Texts in any case, numbers as numbers, times in either of their forms."""
        made = here.simulator.admin.make
        for number, properties in enumerate(
            [{"city": "Bern", "numemployees": "9"}, {"city": "Rom", "numemployees": "10"}, {}], 1
        ):
            day = here.simulator.stores.clock.now().replace(
                year=2026, month=1, day=number, hour=0, minute=0, second=0, microsecond=0
            )
            made(str(number), properties, created_at=day)

        assert await self.found(here, filterGroups=[group]) == expected

    async def test_joins_filters_by_and_and_groups_by_or(self, here: SimulatorHere) -> None:
        """That is how the two levels differ."""
        here.add_record("1", {"city": "Bern", "jobtitle": "CTO"})
        here.add_record("2", {"city": "Bern", "jobtitle": "CEO"})
        here.add_record("3", {"city": "Rom"})
        both = {
            "filters": [
                {"propertyName": "city", "operator": "EQ", "value": "Bern"},
                {"propertyName": "jobtitle", "operator": "EQ", "value": "CEO"},
            ]
        }
        rome = one_filter("city", "EQ", value="Rom")

        assert await self.found(here, filterGroups=[both]) == ["2"]
        assert await self.found(here, filterGroups=[both, rome]) == ["2", "3"]

    async def test_goes_on_page_by_page(self, here: SimulatorHere) -> None:
        """Each page says where the next begins, and the last says nothing."""
        for number in range(1, 6):
            here.add_record(str(number), {"city": "Bern"})
        asked: dict[str, Any] = {"limit": 2, "sorts": ["-hs_object_id"]}
        seen = []
        while True:
            body = (await post(here, _SEARCH, asked)).json
            seen += [result["id"] for result in body["results"]]
            if "paging" not in body:
                break
            asked["after"] = body["paging"]["next"]["after"]

        assert seen == ["5", "4", "3", "2", "1"]
        assert body["total"] == 5

    async def test_leaves_archived_contacts_out(self, here: SimulatorHere) -> None:
        """No filter brings them back."""
        here.simulator.admin.make("1", {"city": "Bern"}, is_archived=True)

        assert await self.found(here) == []

    @pytest.mark.parametrize(
        "content",
        [
            [],
            {"limit": 201},
            {"limit": 0},
            {"after": 9_999, "limit": 2},
            {"after": "x"},
            {"filterGroups": [one_filter("city", "HAS_PROPERTY")] * 6},
            {"filterGroups": [{"filters": [{"propertyName": "city"}]}]},
            {"filterGroups": [one_filter("city", "LIKE", value="x")]},
            {"filterGroups": [{"filters": []}]},
            {"sorts": ["a", "b"]},
            {"unknown": 1},
        ],
    )
    async def test_refuses_what_the_provider_refuses(
        self, here: SimulatorHere, content: object
    ) -> None:
        """A request past a limit is refused and never silently shortened."""
        heard = await post(here, _SEARCH, content)

        assert (heard.status, heard.json["category"]) == (400, "VALIDATION_ERROR")

    async def test_has_a_small_limit_of_its_own(self, here: SimulatorHere) -> None:
        """The sixth within a second is turned away, and record writes are not."""
        record = here.add_record().id

        statuses = [(await post(here, _SEARCH, {})).status for _ in range(5)]
        refused = await post(here, _SEARCH, {})
        written = await asyncio.to_thread(HUBSPOT.say, here, HUBSPOT.update(record, "after"))
        here.advance_clock(1)

        assert statuses == [200] * 5
        assert refused.status == 429
        assert refused.json["policyName"] == "SECONDLY"
        assert not [name for name in refused.headers if name.startswith(("x-hubspot", "retry"))]
        assert written.status == 200
        assert (await post(here, _SEARCH, {})).status == 200

    async def test_is_behind_even_when_nothing_is_wrong(self) -> None:
        """The provider promises new data after moments, so at once it is not there."""
        async with simulating("hubspot") as here:
            record = here.add_record(properties={"jobtitle": "before"}).id
            await asyncio.to_thread(HUBSPOT.say, here, HUBSPOT.update(record, "after"))

            assert HUBSPOT.found((await post(here, _SEARCH, {})).json) == [record]
            wish = HUBSPOT.search("after")
            assert HUBSPOT.found((await asyncio.to_thread(HUBSPOT.say, here, wish)).json) == []


class TestBatch:
    async def test_that_fails_in_part_names_both_parts(self, here: SimulatorHere) -> None:
        """207: what was done and what was not, each by its id."""
        here.add_record("501", {"jobtitle": "before"})
        inputs = [
            {"id": "501", "properties": {"jobtitle": "after"}},
            {"id": "502", "properties": {"jobtitle": "after"}},
        ]

        heard = await post(here, "/crm/v3/objects/contacts/batch/update", {"inputs": inputs})

        assert heard.status == 207
        assert [result["id"] for result in heard.json["results"]] == ["501"]
        [error] = heard.json["errors"]
        assert (error["category"], error["context"]) == ("OBJECT_NOT_FOUND", {"ids": ["502"]})
        assert [change.contact for change in here.changes()] == ["501"]

    async def test_that_is_done_is_a_plain_success(self, here: SimulatorHere) -> None:
        """200 without a list of errors."""
        here.add_record("501", {"jobtitle": "before"})
        inputs = [{"id": "501", "properties": {"jobtitle": "after"}}]

        heard = await post(here, "/crm/v3/objects/contacts/batch/update", {"inputs": inputs})

        assert heard.status == 200
        assert "errors" not in heard.json

    @pytest.mark.parametrize("inputs", [[], [{"id": 1}], "x", [{"id": "1"}], [{}] * 101])
    async def test_that_is_none_is_refused(self, here: SimulatorHere, inputs: object) -> None:
        """Nothing of it is done."""
        heard = await post(here, "/crm/v3/objects/contacts/batch/update", {"inputs": inputs})

        assert heard.status == 400
        assert here.changes() == []


class TestCreate:
    async def test_of_an_email_that_is_taken_names_whose_it_is(self, here: SimulatorHere) -> None:
        """409, with the id that a client may then look at."""
        here.add_record("501", {"email": "a@b.c"})

        heard = await post(here, "/crm/v3/objects/contacts", {"properties": {"email": "a@b.c"}})

        assert (heard.status, heard.json["category"]) == (409, "CONFLICT")
        assert "501" in heard.json["message"]


async def test_the_path_with_a_date_leads_to_the_same_records(here: SimulatorHere) -> None:
    """The provider is moving; both paths are the same operation while it does."""
    record = here.add_record().id
    method, target, body = HUBSPOT.update(record, "after")
    dated = target.replace("/crm/v3/objects/", "/crm/objects/2026-09/")

    heard = await asyncio.to_thread(HUBSPOT.say, here, (method, dated, body))

    assert heard.status == 200
    assert [change.contact for change in here.changes()] == [record]
