"""Pausing and resuming as an operator does it, over the doors and on the command line."""

from collections.abc import Mapping

import httpx
import pytest

from oncefence.domain.ids import OrgId
from oncefence.domain.operator import Role
from oncefence.storage.phases.add_operator import add_operator
from tests.support.backlog import pile_up
from tests.support.command_line import run
from tests.support.doors import OpenDoor, handoff, refusal, rows, until
from tests.support.servers import Database
from tests.support.world import OPERATION, World, seconds

PAUSES = "/v1/operator/pauses"
NOTE = "the provider asked us to wait"
ACME = {"org": "acme", "note": NOTE}
OVER = {"org": "acme", "note": "they are back", "expected_version": "in_force"}


async def client_of(
    door: OpenDoor, *roles: Role, orgs: tuple[str, ...] = ("acme",), name: str = "olga"
) -> httpx.AsyncClient:
    """The client of a new operator."""
    added = await add_operator(
        door.engine,
        name=name,
        roles=frozenset(roles),
        orgs=frozenset(map(OrgId, orgs)),
        actor="tests",
        note="for a test",
    )
    return door.client(added.token.reveal())


async def paused(client: httpx.AsyncClient, **parts: object) -> str:
    """The id of a new pause."""
    answer = await client.post(PAUSES, json=ACME | parts)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["pause"]["pause_id"])


class TestOverTheDoors:
    async def test_a_pause_is_made_listed_and_ended(self, door: OpenDoor, world: World) -> None:
        """Each step shows what the next one asks for."""
        olga = await client_of(door, Role.OPERATOR)
        await pile_up(world, 3, age=seconds(60))
        made = (await olga.post(PAUSES, json=ACME | {"provider": "hubspot"})).json()
        (listed,) = (await olga.get(PAUSES, params={"org": "acme"})).json()["pauses"]

        ended = await olga.post(
            f"{PAUSES}/{listed['pause_id']}/resume",
            json=OVER | {"expected_version": listed["version"], "ramp_seconds": 60},
        )
        after = (await olga.get(PAUSES)).json()["pauses"]
        on_record = (await olga.get(PAUSES, params={"with_ended": "true"})).json()["pauses"]

        assert made["is_new"]
        assert listed == made["pause"] | {
            "items": 3,
            "oldest_due_at": listed["oldest_due_at"],
        }
        assert (listed["provider"], listed["operation"], listed["note"]) == ("hubspot", None, NOTE)
        assert ended.json()["pause"]["ramp_seconds"] == 60
        assert after == []
        assert [row["version"] for row in on_record] == ["resumed"]

    async def test_what_it_held_is_announced_when_it_ends(
        self, door: OpenDoor, world: World
    ) -> None:
        """A window of it, in order; the rest follows by itself (C393)."""
        olga = await client_of(door, Role.OPERATOR)
        backlog = await pile_up(world, 40, age=seconds(60))
        pause = await paused(olga)

        await olga.post(f"{PAUSES}/{pause}/resume", json=OVER)
        await until(lambda: len(door.announced) == 32)

        assert door.announced == backlog[:32]

    async def test_what_comes_while_it_holds_is_accepted_and_told_to_nobody(
        self, door: OpenDoor, world: World, client: httpx.AsyncClient
    ) -> None:
        """The Runtime hands over as always; the item waits in SQL (C57)."""
        olga = await client_of(door, Role.OPERATOR)
        pause = await paused(olga, operation=OPERATION)

        answer = await client.post("/v1/handoffs", json=handoff(world.caller.scope, "outbox-9"))
        assert answer.status_code == 201, answer.text
        (row,) = (await olga.get(PAUSES)).json()["pauses"]
        assert (row["items"], door.announced) == (1, [])

        await olga.post(f"{PAUSES}/{pause}/resume", json=OVER)
        await until(lambda: door.announced != [])

        assert [ref.family for ref in door.announced] == ["effect.dispatch"]

    async def test_pausing_again_says_so(self, door: OpenDoor, world: World) -> None:
        """The answer is the pause in force, by whoever made it."""
        first = await client_of(door, Role.OPERATOR, name="olga")
        second = await client_of(door, Role.OPERATOR, name="oleg")
        pause = await paused(first)

        again = await second.post(PAUSES, json=ACME | {"note": "me too"})

        assert again.status_code == 200
        assert not again.json()["is_new"]
        assert again.json()["pause"]["pause_id"] == pause
        assert again.json()["pause"]["paused_by"] == "operator:olga"

    async def test_ending_what_somebody_else_ended_is_refused(
        self, door: OpenDoor, world: World
    ) -> None:
        """Look again, then decide (C406)."""
        first = await client_of(door, Role.OPERATOR, name="olga")
        second = await client_of(door, Role.OPERATOR, name="oleg")
        pause = await paused(first)
        await first.post(f"{PAUSES}/{pause}/resume", json=OVER)

        repeat = await first.post(f"{PAUSES}/{pause}/resume", json=OVER)
        other = await second.post(f"{PAUSES}/{pause}/resume", json=OVER)

        assert (repeat.status_code, repeat.json()["is_new"]) == (200, False)
        assert refusal(other) == (409, "version_moved")

    @pytest.mark.parametrize(
        ("roles", "orgs", "asked"),
        [
            ((Role.VIEWER, Role.REPAIRER, Role.ADMINISTRATOR), ("acme",), {}),
            ((Role.OPERATOR,), ("other",), {}),
            ((Role.OPERATOR,), ("acme",), {"org": "*", "provider": "hubspot"}),
        ],
        ids=["another role", "another org", "every org"],
    )
    async def test_is_for_operators_of_that_scope(
        self,
        door: OpenDoor,
        database: Database,
        roles: tuple[Role, ...],
        orgs: tuple[str, ...],
        asked: dict[str, str],
    ) -> None:
        """Stopping everybody takes an operator of every org (C401, C407)."""
        somebody = await client_of(door, *roles, orgs=orgs)

        answer = await somebody.post(PAUSES, json=ACME | asked)

        assert refusal(answer) == (403, "act_not_allowed")
        assert await rows(database.admin_url, "SELECT FROM oncefence.pauses") == []

    async def test_of_every_org_is_seen_by_those_it_holds(
        self, door: OpenDoor, world: World
    ) -> None:
        """They must know why nothing moves, and cannot end it."""
        root = await client_of(door, Role.OPERATOR, orgs=("*",), name="root")
        ada = await client_of(door, Role.OPERATOR)
        await pile_up(world, 2)
        pause = await paused(root, org="*", provider="hubspot")

        (seen,) = (await ada.get(PAUSES)).json()["pauses"]
        ended = await ada.post(f"{PAUSES}/{pause}/resume", json=OVER | {"org": "*"})
        hidden = await ada.post(f"{PAUSES}/{pause}/resume", json=OVER)

        assert (seen["pause_id"], seen["org"], seen["items"]) == (pause, "*", 2)
        assert refusal(ended) == (403, "act_not_allowed")
        assert refusal(hidden) == (422, "no_such_target")

    @pytest.mark.parametrize(
        ("change", "told"),
        [
            ({"note": ""}, (422, "body_invalid")),
            ({"provider": ""}, (422, "body_invalid")),
            ({"provider": "two words"}, (422, "body_invalid")),
            ({"binding_id": "main"}, (422, "body_invalid")),
            ({"more": 1}, (422, "body_invalid")),
            ({"binding_id": "6f0b2f0e-7d0c-4bb1-9a43-6a8f2ab0a001"}, (422, "no_such_target")),
            ({"org": "*"}, (409, "act_refused")),
        ],
    )
    async def test_is_told_what_is_wrong(
        self,
        door: OpenDoor,
        database: Database,
        change: dict[str, object],
        told: tuple[int, str],
    ) -> None:
        """One message, and nothing is held back."""
        root = await client_of(door, Role.OPERATOR, orgs=("*",))

        assert refusal(await root.post(PAUSES, json=ACME | change)) == told
        assert await rows(database.admin_url, "SELECT FROM oncefence.pauses") == []

    @pytest.mark.parametrize("ramp", [-1, 86_401, "soon", None])
    async def test_a_ramp_is_a_time(self, door: OpenDoor, world: World, ramp: object) -> None:
        """Of a day at most; the pause holds on."""
        olga = await client_of(door, Role.OPERATOR)
        pause = await paused(olga)

        answer = await olga.post(f"{PAUSES}/{pause}/resume", json=OVER | {"ramp_seconds": ramp})

        assert refusal(answer) == (422, "body_invalid")
        assert len((await olga.get(PAUSES)).json()["pauses"]) == 1


class TestOnTheCommandLine:
    @pytest.fixture
    async def settings(self, door: OpenDoor, world: World) -> Mapping[str, object]:
        """What an operator's shell has: the doors and a token."""
        client = await client_of(door, *Role, orgs=("*",))
        token = client.headers["Authorization"].removeprefix("Bearer ")
        return {"DOORS": door.url, "OPERATOR_TOKEN": token}

    async def test_work_is_paused_listed_and_resumed(
        self, settings: Mapping[str, object], world: World
    ) -> None:
        """One id goes from verb to verb."""
        await pile_up(world, 2)
        words = ("--org", "acme", "--operation", "record.applied", "--note", NOTE)

        first = await run("work", "pause", *words, settings=settings)
        again = await run("work", "pause", *words, settings=settings)
        shown = await run("work", "pauses", "--json", settings=settings)
        over = await run(
            *("work", "resume", first.out.strip(), "--org", "acme", "--ramp", "90"),
            *("--expected-version", shown.document["pauses"][0]["version"], "--note", "back"),
            settings=settings,
        )
        screen = await run("work", "pauses", "--ended", settings=settings)

        assert (first.code, first.err) == (0, "")
        assert again.out == first.out
        assert "paused before, by operator:" in again.message
        assert shown.document["pauses"][0]["items"] == 2
        assert over.out == f"{first.out.strip()} is over, within 90 s\n"
        assert NOTE.split(maxsplit=1)[0] in screen.out

    @pytest.mark.parametrize(
        ("words", "says"),
        [
            (("--note", "x"), "give either --org or --all-orgs"),
            (("--org", "acme", "--all-orgs", "--note", "x"), "give either --org or --all-orgs"),
            (("--all-orgs", "--note", "x"), "name a provider or an operation"),
            (("--org", "acme", "--note", ""), "the note must say why"),
            (("--org", "acme", "--binding", "main", "--note", "x"), "a valid UUID"),
        ],
    )
    async def test_a_slip_is_told_in_one_message(
        self, settings: Mapping[str, object], words: tuple[str, ...], says: str
    ) -> None:
        """Nothing is held back by mistake."""
        ended = await run("work", "pause", *words, settings=settings)
        listed = await run("work", "pauses", "--json", settings=settings)

        assert ended.code in (1, 2)
        assert says in ended.message
        assert listed.document["pauses"] == []
