"""Quota as an operator sees it, over the doors and on the command line."""

from collections.abc import Mapping
from typing import Any

import httpx
import pytest

from oncefence.domain.operator import Role
from tests.e2e.test_operator_pauses import client_of
from tests.storage.counting import Counter, a_dimension, counting
from tests.support.command_line import run
from tests.support.doors import OpenDoor, refusal
from tests.support.servers import Database
from tests.support.world import World

QUOTA = "/v1/operator/quota"
CLOSE = {
    "closes": "binding",
    "dimension": None,
    "seconds": 600.0,
    "until_midnight": False,
    "because": "limit DAILY",
}


async def listed(client: httpx.AsyncClient, **query: str) -> list[dict[str, Any]]:
    answer = await client.get(QUOTA, params=query)
    assert answer.status_code == 200, answer.text
    rows: list[dict[str, Any]] = answer.json()["counts"]
    return rows


async def of_world(counter: Counter, world: World) -> None:
    """The counter counts for the world's account."""
    counter.org, counter.binding, counter.account = world.org, world.binding, None
    counter.provider = "hubspot"


class TestOverTheDoors:
    async def test_what_is_used_and_what_is_closed_is_told(
        self, door: OpenDoor, world: World, database: Database
    ) -> None:
        """An operator sees why work waits, how long, and how near the limit is (C406)."""
        dimension = a_dimension(limit=10, purposes=["effect", "lookup"], window_s=10_000)
        async with counting(database) as (counter,):
            await of_world(counter, world)
            await counter.use(dimension, 3)
            await counter.use(dimension, 1, "lookup")
            await counter.tell(dimension, close=CLOSE)
        viewer = await client_of(door, Role.VIEWER)

        gate, count = await listed(viewer)

        assert (gate["dimension"], gate["closed_because"], gate["limit"]) == (
            None,
            "limit DAILY",
            None,
        )
        assert gate["closed_until"] is not None
        assert (count["dimension"], count["limit"], count["closed_until"]) == (
            dimension["name"],
            10,
            None,
        )
        assert (count["used"], count["used_by_lookups"], count["used_by_cursors"]) == (4, 1, 0)
        assert {gate["binding_id"], count["binding_id"]} == {str(world.binding)}
        assert await listed(viewer, key=count["key"]) == [count]

    async def test_what_is_idle_is_left_out_unless_it_is_asked_for(
        self, door: OpenDoor, world: World, database: Database
    ) -> None:
        """A row stays for as long as its account; a list is of what there is to see."""
        dimension = a_dimension()
        async with counting(database) as (counter,):
            await of_world(counter, world)
            await counter.give_back(await counter.reserve(dimension))
        viewer = await client_of(door, Role.VIEWER)

        assert await listed(viewer) == []
        (row,) = await listed(viewer, with_idle="true")
        assert (row["dimension"], row["used"]) == (dimension["name"], 0)

    @pytest.mark.parametrize("scope", [["org"], ["binding"], ["provider_key"], ["org", "binding"]])
    async def test_is_nobodys_but_theirs_whom_it_holds(
        self, door: OpenDoor, world: World, database: Database, scope: list[str]
    ) -> None:
        """What one org uses is not another's to see, whatever is asked for (C8)."""
        dimension = a_dimension(scope=scope)
        async with counting(database) as (counter,):
            await of_world(counter, world)
            await counter.use(dimension, 1)
        root = await client_of(door, Role.VIEWER, orgs=("*",), name="root")
        other = await client_of(door, Role.VIEWER, orgs=("other",), name="oleg")
        (row,) = await listed(root)

        assert await listed(other) == []
        assert await listed(other, key=row["key"], with_idle="true") == []
        assert refusal(await other.get(QUOTA, params={"org": "acme"})) == (403, "act_not_allowed")

    async def test_of_a_shared_address_is_seen_by_all_who_go_there(
        self, door: OpenDoor, world: World, database: Database
    ) -> None:
        """Maintenance holds everybody, and everybody may know."""
        await World.make(database, org="other")
        async with counting(database) as (counter,):
            await of_world(counter, world)
            await counter.tell(close=CLOSE | {"closes": "provider"})
        other = await client_of(door, Role.VIEWER, orgs=("other",), name="oleg")

        (row,) = await listed(other)

        assert (row["org"], row["binding_id"]) == (None, None)
        assert row["base_url"] == "http://127.0.0.1:1"


class TestOnTheCommandLine:
    @pytest.fixture
    async def settings(self, door: OpenDoor, world: World) -> Mapping[str, object]:
        """What an operator's shell has: the doors and a token."""
        client = await client_of(door, *Role, orgs=("*",))
        token = client.headers["Authorization"].removeprefix("Bearer ")
        return {"DOORS": door.url, "OPERATOR_TOKEN": token}

    async def test_one_is_listed_and_shown(
        self, settings: Mapping[str, object], world: World, database: Database
    ) -> None:
        """One key goes from verb to verb."""
        dimension = a_dimension(limit=7, window_s=10_000)
        async with counting(database) as (counter,):
            await of_world(counter, world)
            await counter.use(dimension, 2)

        told = await run("quota", "list", "--json", settings=settings)
        screen = await run("quota", "list", "--org", world.org, settings=settings)
        (row,) = told.document["counts"]
        shown = await run("quota", "show", row["key"], settings=settings)
        as_json = await run("quota", "show", row["key"], "--json", settings=settings)

        assert (row["used"], row["limit"]) == (2, 7)
        assert "rolling 10000 s" in screen.out
        assert dimension["name"] in shown.out
        assert as_json.document == row

    async def test_one_that_is_not_there_is_said_to_be_so(
        self, settings: Mapping[str, object]
    ) -> None:
        """And where to find the right name of it."""
        ended = await run("quota", "show", "nothing", settings=settings)

        assert ended.code == 2
        assert "oncefence quota list --all" in ended.message
