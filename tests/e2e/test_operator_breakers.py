"""Breakers as an operator sees and moves them, over the doors and on the command line."""

from collections.abc import Mapping
from typing import Any

import httpx
import pytest

from oncefence.domain.operator import Role
from tests.e2e.test_operator_pauses import client_of
from tests.storage.breaking import Teller, of_binding
from tests.support.backlog import pile_up
from tests.support.command_line import run
from tests.support.doors import OpenDoor, refusal, until
from tests.support.servers import Database
from tests.support.world import World, seconds

BREAKERS = "/v1/operator/breakers"
OF_CLASS = "provider:hubspot:crm.objects.write"
OPEN = {"note": "they told us on the phone", "expected_version": "0"}


async def listed(client: httpx.AsyncClient, **query: str) -> list[dict[str, Any]]:
    answer = await client.get(BREAKERS, params=query)
    assert answer.status_code == 200, answer.text
    rows: list[dict[str, Any]] = answer.json()["breakers"]
    return rows


class TestOverTheDoors:
    async def test_one_is_opened_listed_shown_and_closed(
        self, door: OpenDoor, world: World
    ) -> None:
        """Each step shows what the next one asks for (C406)."""
        olga = await client_of(door, Role.OPERATOR)
        path = f"{BREAKERS}/{of_binding(world)}"
        before = (await olga.get(path)).json()["breaker"]

        opened = await olga.post(f"{path}/open", json=OPEN | {"open_seconds": 90})
        (row,) = await listed(olga)
        shown = (await olga.get(path)).json()["breaker"]
        closed = await olga.post(
            f"{path}/close", json={"note": "back", "expected_version": row["version"]}
        )

        assert (before["state"], before["version"]) == ("closed", "0")
        assert opened.json()["is_new"]
        assert opened.json()["breaker"] == row == shown
        assert (row["state"], row["changed_by"], row["note"]) == (
            "open",
            "operator:olga",
            OPEN["note"],
        )
        assert closed.json()["breaker"]["state"] == "closed"
        assert await listed(olga) == []
        assert [each["key"] for each in await listed(olga, with_closed="true")] == [row["key"]]

    async def test_what_it_held_is_announced_when_it_is_closed(
        self, door: OpenDoor, world: World
    ) -> None:
        """A window of each class; the rest follows by itself (C393)."""
        olga = await client_of(door, Role.OPERATOR)
        path = f"{BREAKERS}/{of_binding(world)}"
        await olga.post(f"{path}/open", json=OPEN)
        backlog = await pile_up(world, 3, age=seconds(60))
        for ref in backlog:
            await world.sql(
                "SELECT oncefence.put_off(w, w.ctid, b.until) FROM oncefence.work_items AS w,"
                " oncefence.breakers AS b WHERE w.org_id = :org AND b.org_id = :org"
                " AND w.work_id = :work",
                work=ref.work,
            )

        await olga.post(f"{path}/close", json={"note": "back", "expected_version": "1"})
        await until(lambda: len(door.announced) == 3)

        assert {ref.work for ref in door.announced} == {ref.work for ref in backlog}

    @pytest.mark.parametrize(
        ("roles", "orgs", "of_class"),
        [
            ((Role.VIEWER, Role.REPAIRER, Role.ADMINISTRATOR), ("*",), False),
            ((Role.OPERATOR,), ("other",), False),
            ((Role.OPERATOR,), ("acme",), True),
        ],
        ids=["another role", "another org", "every org's"],
    )
    async def test_an_act_is_for_operators_of_that_scope(
        self,
        door: OpenDoor,
        world: World,
        roles: tuple[Role, ...],
        orgs: tuple[str, ...],
        of_class: bool,
    ) -> None:
        """Stopping everybody takes an operator of every org (C401, C407)."""
        somebody = await client_of(door, *roles, orgs=orgs)
        key = OF_CLASS if of_class else str(of_binding(world))

        answers = [
            await somebody.post(f"{BREAKERS}/{key}/open", json=OPEN),
            await somebody.post(f"{BREAKERS}/{key}/close", json=OPEN),
        ]

        assert {refusal(each) for each in answers} == {(403, "act_not_allowed")}
        assert await world.count("breakers") == 0

    async def test_of_a_provider_is_seen_by_those_it_holds(
        self, door: OpenDoor, world: World, database: Database
    ) -> None:
        """They must know why nothing moves; who else is ill is not theirs to know (C8)."""
        teller = Teller(database=database)
        await teller.go_dark()
        root = await client_of(door, Role.VIEWER, orgs=("*",), name="root")
        ada = await client_of(door, Role.VIEWER)

        (of_all,), (of_one,) = await listed(root), await listed(ada)

        assert (of_all["orgs_failing"], of_all["orgs_seen"]) == (3, 3)
        assert of_one == of_all | {"orgs_failing": None, "orgs_seen": None}
        assert (await ada.get(f"{BREAKERS}/{of_binding(world)}")).status_code == 200
        other = await client_of(door, Role.VIEWER, orgs=("other",), name="oleg")
        assert refusal(await other.get(f"{BREAKERS}/{of_binding(world)}")) == (
            403,
            "act_not_allowed",
        )

    @pytest.mark.parametrize(
        ("change", "told"),
        [
            ({"note": ""}, (422, "body_invalid")),
            ({"open_seconds": 0}, (422, "body_invalid")),
            ({"open_seconds": 86_401}, (422, "body_invalid")),
            ({"more": 1}, (422, "body_invalid")),
            ({"expected_version": "7"}, (409, "version_moved")),
        ],
    )
    async def test_is_told_what_is_wrong(
        self, door: OpenDoor, world: World, change: dict[str, object], told: tuple[int, str]
    ) -> None:
        """One message, and nothing is held back."""
        root = await client_of(door, Role.OPERATOR, orgs=("*",))

        answer = await root.post(f"{BREAKERS}/{of_binding(world)}/open", json=OPEN | change)

        assert refusal(answer) == told
        assert await world.count("breakers") == 0

    async def test_a_key_is_a_key(self, door: OpenDoor, world: World) -> None:
        """And of something that is there."""
        root = await client_of(door, Role.OPERATOR, orgs=("*",))

        bad = await root.get(f"{BREAKERS}/hubspot")
        nobody = await root.post(f"{BREAKERS}/provider:nobody:writes/open", json=OPEN)

        assert refusal(bad) == (422, "breaker_key_malformed")
        assert refusal(nobody) == (422, "no_such_target")


class TestOnTheCommandLine:
    @pytest.fixture
    async def settings(self, door: OpenDoor, world: World) -> Mapping[str, object]:
        """What an operator's shell has: the doors and a token."""
        client = await client_of(door, *Role, orgs=("*",))
        token = client.headers["Authorization"].removeprefix("Bearer ")
        return {"DOORS": door.url, "OPERATOR_TOKEN": token}

    async def test_one_is_opened_listed_shown_and_closed(
        self, settings: Mapping[str, object]
    ) -> None:
        """One key goes from verb to verb."""
        words = (OF_CLASS, "--seconds", "90", "--note", "planned", "--expected-version")

        first = await run("breaker", "open", *words, "0", settings=settings)
        again = await run("breaker", "open", *words, "0", settings=settings)
        shown = await run("breaker", "show", OF_CLASS, "--json", settings=settings)
        screen = await run("breaker", "list", settings=settings)
        over = await run(
            *("breaker", "close", OF_CLASS, "--note", "done"),
            *("--expected-version", shown.document["breaker"]["version"]),
            settings=settings,
        )

        assert (first.code, first.err) == (0, "")
        assert first.out.startswith(f"{OF_CLASS} is open until ")
        assert "that was done before" in again.message
        assert shown.document["breaker"]["state"] == "open"
        assert "planned" in screen.out
        assert over.out == f"{OF_CLASS} is closed, at version 2\n"

    @pytest.mark.parametrize(
        ("words", "says"),
        [
            (("hubspot", "--note", "x"), "provider:PROVIDER:CLASS or binding:ORG:ID"),
            ((OF_CLASS, "--note", ""), "the note must say why"),
            ((OF_CLASS, "--seconds", "0", "--note", "x"), "greater than or equal to 0.001"),
            (("provider:hubspot:paint", "--note", "x"), "no account or class of endpoints"),
        ],
    )
    async def test_a_slip_is_told_in_one_message(
        self, settings: Mapping[str, object], words: tuple[str, ...], says: str
    ) -> None:
        """And nothing is done (C12)."""
        told = await run("breaker", "open", *words, "--expected-version", "0", settings=settings)

        assert told.code != 0
        assert says in told.message
        assert "Traceback" not in told.err
