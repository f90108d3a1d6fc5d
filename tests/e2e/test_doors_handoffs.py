"""Accepting and rejecting through the HTTP door: one key, one admission, for ever."""

import asyncio
from collections import Counter
from uuid import UUID

import httpx
import pytest

from oncefence.domain import ids
from oncefence.domain.handoff import payload_digest
from tests.support.doors import (
    OTHER_PAYLOAD,
    PAYLOAD,
    OpenDoor,
    handoff,
    put,
    refusal,
    rejection,
    rows,
    until,
)
from tests.support.servers import Database
from tests.support.world import World

ADMISSIONS = "SELECT * FROM oncefence.handoffs ORDER BY handoff_key"
COMMANDS = "SELECT * FROM oncefence.commands ORDER BY command_id"
CONFLICTS = "SELECT field, verb, offered_outbox_id FROM oncefence.handoff_conflicts ORDER BY field"


class TestAccepting:
    async def test_the_first_time_makes_a_command(
        self, client: httpx.AsyncClient, world: World
    ) -> None:
        """The receipt names the one command and execution that the key may ever have (C124)."""
        body = handoff(world.caller.scope, "outbox-1")

        response = await client.post("/v1/handoffs", json=body)

        assert response.status_code == 201
        receipt = response.json()
        command = ids.command_id(str(body["handoff_key"]))
        assert (receipt["admission"], receipt["handoff_key"]) == (
            "COMMAND_ACCEPTED",
            body["handoff_key"],
        )
        assert UUID(receipt["command_id"]) == command
        assert UUID(receipt["execution_id"]) == ids.execution_id(command)
        counted = [await world.count(each) for each in ("commands", "executions", "work_items")]
        assert counted == [1, 1, 1]

    async def test_again_gives_the_same_receipt(
        self, client: httpx.AsyncClient, world: World
    ) -> None:
        """A Runtime that lost the answer asks again and learns what it would have learnt (C131)."""
        body = handoff(world.caller.scope, "outbox-1")
        first = await client.post("/v1/handoffs", json=body)

        again = await client.post("/v1/handoffs", json=body)

        assert (first.status_code, again.status_code) == (201, 200)
        assert again.json() == first.json()
        assert await world.count("commands") == 1

    @pytest.mark.parametrize(
        ("changes", "field", "outbox"),
        [
            ({"payload_digest": payload_digest(OTHER_PAYLOAD)}, "payload digest", "outbox-1"),
            ({"outbox_id": "outbox-2"}, "outbox id", "outbox-2"),
        ],
    )
    async def test_of_a_taken_key_for_something_else_is_quarantined(
        self,
        client: httpx.AsyncClient,
        world: World,
        database: Database,
        *,
        changes: dict[str, object],
        field: str,
        outbox: str,
    ) -> None:
        """Neither the admission nor its command moves, and the conflict is on record (C130)."""
        await put(client, OTHER_PAYLOAD)
        await client.post("/v1/handoffs", json=handoff(world.caller.scope, "outbox-1"))
        before = (
            await rows(database.admin_url, ADMISSIONS),
            await rows(database.admin_url, COMMANDS),
        )
        body = handoff(world.caller.scope, "outbox-1") | changes

        answers = [await client.post("/v1/handoffs", json=body) for _ in range(2)]

        assert [refusal(answer) for answer in answers] == [(409, "handoff_conflict")] * 2
        after = await rows(database.admin_url, ADMISSIONS), await rows(database.admin_url, COMMANDS)
        assert after == before
        assert await rows(database.admin_url, CONFLICTS) == [
            {"field": field, "verb": "accept", "offered_outbox_id": outbox}
        ]

    async def test_from_twenty_connections_at_once_makes_one_command(
        self, door: OpenDoor, client: httpx.AsyncClient, world: World
    ) -> None:
        """However a Runtime retries, one key is one command (C120)."""
        body = handoff(world.caller.scope, "outbox-1")
        others = [door.client(world.credential) for _ in range(20)]
        # Connected before the race, so that twenty requests leave at the same moment.
        await asyncio.gather(*(other.get("/healthz") for other in others))
        barrier = asyncio.Barrier(len(others))

        async def accept(other: httpx.AsyncClient) -> httpx.Response:
            await barrier.wait()
            return await other.post("/v1/handoffs", json=body)

        answers = await asyncio.gather(*(accept(other) for other in others))

        assert Counter(answer.status_code for answer in answers) == {201: 1, 200: 19}
        assert len({answer.text for answer in answers}) == 1
        counted = [await world.count(each) for each in ("handoffs", "commands", "work_items")]
        assert counted == [1, 1, 1]

    async def test_keeps_an_outbox_id_that_is_no_key_part(
        self, client: httpx.AsyncClient, world: World, database: Database
    ) -> None:
        """Any text is an outbox id; the row has it as it came (C139)."""
        outbox = "urn:änderung/№ 1 😀"

        answer = await client.post("/v1/handoffs", json=handoff(world.caller.scope, outbox))

        assert answer.status_code == 201
        found = await rows(database.admin_url, ADMISSIONS)
        assert [row["outbox_id"] for row in found] == [outbox]


class TestRejecting:
    async def test_comes_before_accepting_for_ever(
        self, client: httpx.AsyncClient, world: World
    ) -> None:
        """Once rejected, however late the acceptance comes, there is no command (C129)."""
        body = rejection(world.caller.scope, "outbox-1", reason="withdrawn")

        first = await client.post("/v1/handoffs/reject", json=body)
        again = await client.post("/v1/handoffs/reject", json=body)
        late = await client.post("/v1/handoffs", json=handoff(world.caller.scope, "outbox-1"))

        assert (first.status_code, again.json()) == (200, first.json())
        assert (first.json()["admission"], first.json()["reason"]) == (
            "HANDOFF_REJECTED",
            "withdrawn",
        )
        assert "command_id" not in first.json()
        assert refusal(late) == (409, "handoff_already_rejected")
        assert [await world.count(each) for each in ("commands", "work_items")] == [0, 0]

    async def test_after_accepting_gives_the_acceptance(
        self, client: httpx.AsyncClient, world: World
    ) -> None:
        """A rejection never undoes a command; it tells that there is one (C128)."""
        accepted = await client.post("/v1/handoffs", json=handoff(world.caller.scope, "outbox-1"))

        told = await client.post(
            "/v1/handoffs/reject", json=rejection(world.caller.scope, "outbox-1")
        )

        assert (told.status_code, told.json()) == (200, accepted.json())

    async def test_at_the_same_time_as_accepting_yields_one_of_the_two(
        self, door: OpenDoor, client: httpx.AsyncClient, world: World
    ) -> None:
        """Whoever is later is told the earlier one's result (C133)."""
        other = door.client(world.credential)
        for number in range(8):
            outbox = f"outbox-{number}"
            accepted, rejected = await asyncio.gather(
                client.post("/v1/handoffs", json=handoff(world.caller.scope, outbox)),
                other.post("/v1/handoffs/reject", json=rejection(world.caller.scope, outbox)),
            )

            if accepted.status_code == 201:
                assert rejected.json() == accepted.json()
            else:
                assert refusal(accepted) == (409, "handoff_already_rejected")
                assert rejected.json()["admission"] == "HANDOFF_REJECTED"

    @pytest.mark.parametrize("missing", ["handoff_key", "payload_digest", "outbox_id"])
    async def test_needs_key_digest_and_outbox_id(
        self, client: httpx.AsyncClient, world: World, missing: str
    ) -> None:
        """What the caller leaves out is never looked up in its place (C127)."""
        body = rejection(world.caller.scope, "outbox-1", **{missing: None})

        response = await client.post("/v1/handoffs/reject", json=body)

        assert refusal(response) == (422, "body_invalid")
        assert response.json()["detail"] == f"{missing} is missing"
        assert await world.count("handoffs") == 0

    async def test_of_a_taken_key_for_something_else_is_quarantined(
        self, client: httpx.AsyncClient, world: World, database: Database
    ) -> None:
        """A rejection that means another payload proves nothing about this one (C130)."""
        await client.post("/v1/handoffs", json=handoff(world.caller.scope, "outbox-1"))

        response = await client.post(
            "/v1/handoffs/reject", json=rejection(world.caller.scope, "outbox-1", OTHER_PAYLOAD)
        )

        assert refusal(response) == (409, "handoff_conflict")
        assert await rows(database.admin_url, CONFLICTS) == [
            {"field": "payload digest", "verb": "reject", "offered_outbox_id": "outbox-1"}
        ]


class TestAsking:
    async def test_about_a_key_without_admission_is_undecided(
        self, client: httpx.AsyncClient, world: World
    ) -> None:
        """Nothing seen is no proof of anything, least of all of a rejection (C132)."""
        key = handoff(world.caller.scope, "outbox-1")["handoff_key"]

        response = await client.get(f"/v1/handoffs/{key}")

        assert (response.status_code, response.json()) == (200, {"admission": "UNDECIDED"})

    async def test_gives_the_receipt_that_stands(
        self, client: httpx.AsyncClient, world: World
    ) -> None:
        """The admission can be read again at any time, in the words of its first answer."""
        accepted = await client.post("/v1/handoffs", json=handoff(world.caller.scope, "a"))
        rejected = await client.post("/v1/handoffs/reject", json=rejection(world.caller.scope, "b"))

        for told in (accepted.json(), rejected.json()):
            asked = await client.get(f"/v1/handoffs/{told['handoff_key']}")
            assert (asked.status_code, asked.json()) == (200, told)


class TestAnnouncing:
    async def test_follows_every_acceptance_with_something_left_to_do(
        self, door: OpenDoor, client: httpx.AsyncClient, world: World
    ) -> None:
        """The first announcement may be lost, so a repeat announces again (C136)."""
        body = handoff(world.caller.scope, "outbox-1")
        await client.post("/v1/handoffs", json=body)
        await until(lambda: len(door.announced) == 1)

        await client.post("/v1/handoffs", json=body)
        await until(lambda: len(door.announced) == 2)

        work = ids.dispatch_work_id(ids.command_id(str(body["handoff_key"])), 1)
        stored = await world.item(work)
        for ref in door.announced:
            assert (ref.org, ref.work, ref.family) == ("acme", work, stored.family)
            assert ref.deadline_ms == stored.deadline_ms
            assert ref.run_after <= stored.run_after
            assert (stored.run_after - ref.run_after).total_seconds() < 1

    async def test_leaves_out_what_has_ended(
        self, door: OpenDoor, client: httpx.AsyncClient, world: World
    ) -> None:
        """A workflow for an item that is over would find nothing to do."""
        ended = await world.accept_command("lead-2", title="Director", outbox="ended")
        await world.lose(await world.start(ended))
        repeat = handoff(
            world.caller.scope, "ended", payload_digest=ended.handover.digest, subject="lead-2"
        )

        told = await client.post("/v1/handoffs", json=repeat)
        await client.post("/v1/handoffs", json=handoff(world.caller.scope, "fresh"))
        await until(lambda: len(door.announced) == 1)

        fresh = handoff(world.caller.scope, "fresh")["handoff_key"]
        assert told.status_code == 200
        assert [ref.work for ref in door.announced] == [
            ids.dispatch_work_id(ids.command_id(str(fresh)), 1)
        ]


async def test_the_digest_of_a_payload_is_not_what_is_stored(
    client: httpx.AsyncClient, world: World, database: Database
) -> None:
    """A short title could be guessed from its plain digest (C443)."""
    await client.post("/v1/handoffs", json=handoff(world.caller.scope, "outbox-1"))

    stored = await rows(database.admin_url, "SELECT payload_address FROM oncefence.handoffs")

    assert [row["payload_address"].hex() == payload_digest(PAYLOAD) for row in stored] == [False]
