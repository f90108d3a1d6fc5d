"""`oncefence submit`: lines through a real door, each judged alone and each accepted once."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from oncefence.app.cli.submit import IN_FLIGHT_MAX, hand_over_lines
from oncefence.app.client import DoorUnavailable, HandoffRefused, RuntimeClient
from oncefence.app.handoff_file import HandoffLine, read_handoff_file, read_handoff_line
from oncefence.domain.command import Receipt
from oncefence.domain.handoff import EffectHandoffKey, payload_digest
from tests.support.command_line import run
from tests.support.doors import OpenDoor, rows
from tests.support.servers import Database
from tests.support.world import OPERATION, World

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "lead-title-changes.jsonl"


def line(outbox: str, subject: str = "lead-1", title: str = "Chief") -> str:
    return json.dumps(
        {
            "outbox_id": outbox,
            "operation": OPERATION,
            "subject": subject,
            "payload": {"title": title},
        }
    )


def at(door: OpenDoor, world: World) -> dict[str, object]:
    return {"URL": door.url, "CREDENTIAL": world.credential}


class TestSubmit:
    async def test_accepts_the_example_once(
        self, door: OpenDoor, world: World, database: Database
    ) -> None:
        """The first file of a newcomer; run again it changes nothing (C122)."""
        lines = [each for each in read_handoff_file(EXAMPLE) if isinstance(each, HandoffLine)]
        for each in lines:
            await world.link(each.subject)

        first = await run("submit", EXAMPLE, "--json", settings=at(door, world))
        again = await run("submit", EXAMPLE, "--json", settings=at(door, world))

        assert (first.code, again.code, first.err, again.err) == (0, 0, "", "")
        counts = ("lines", "accepted_now", "accepted_before", "refused")
        assert [first.document[name] for name in counts] == [25, 25, 0, 0]
        assert [again.document[name] for name in counts] == [25, 0, 25, 0]
        assert [r["command_id"] for r in first.document["receipts"]] == [
            r["command_id"] for r in again.document["receipts"]
        ]
        kept = await rows(database.admin_url, "SELECT outbox_id, subject FROM oncefence.commands")
        assert {(row["outbox_id"], row["subject"]) for row in kept} == {
            (each.outbox, each.subject) for each in lines
        }

    async def test_stages_the_payload_as_it_was_written(
        self, door: OpenDoor, world: World, database: Database, tmp_path: Path
    ) -> None:
        """Blanks and escapes are the author's: the stored address is that of these bytes."""
        payload = r'{ "title":"Ch\u00e9f \/ 🚀" }'
        path = tmp_path / "handoffs.jsonl"
        head = json.dumps({"outbox_id": "o-1", "operation": OPERATION, "subject": "lead-1"})
        path.write_text(f'{head[:-1]}, "payload": {payload}}}\n', encoding="utf-8")

        ended = await run("submit", path, settings=at(door, world))

        assert ended.code == 0
        (kept,) = await rows(database.admin_url, "SELECT payload_address FROM oncefence.handoffs")
        expected = world.caller.org_key.address(payload_digest(payload.encode()))
        assert kept["payload_address"] == expected

    async def test_refuses_bad_lines_and_accepts_the_others(
        self, door: OpenDoor, world: World, database: Database, tmp_path: Path
    ) -> None:
        """Number and reason for each, wherever it was refused, and an own exit code (C582)."""
        path = tmp_path / "handoffs.jsonl"
        lines = [
            line("o-1"),
            "bad",
            "",
            line("o-4", subject="lead-without-link"),
            line("o-5").replace(OPERATION, "lead.title.burn"),
            line("o-6").replace('"title"', '"titel"'),
            line("o-1", title="another"),
            line("o-8"),
        ]
        path.write_text("\n".join(lines))

        ended = await run("submit", path, settings=at(door, world))

        assert ended.code == 3
        told = [text.removeprefix("oncefence: ") for text in ended.err.splitlines()]
        assert [text.split(":")[0] for text in told] == [f"line {n}" for n in (2, 4, 5, 6, 7)]
        assert told[0].startswith("line 2: the line is not JSON")
        assert told[1].endswith("`oncefence link adopt` (no_such_target)")
        assert "lead.title.burn" in told[2]
        assert told[3].endswith("(payload_refused)")
        assert told[4].endswith("(handoff_conflict)")
        kept = await rows(database.admin_url, "SELECT outbox_id FROM oncefence.commands")
        assert {row["outbox_id"] for row in kept} == {"o-1", "o-8"}
        assert [cell.strip() for cell in ended.out.splitlines()[-1].split("│")] == ["2", "0", "5"]

    async def test_reads_standard_input(self, door: OpenDoor, world: World) -> None:
        """A Runtime can pipe its outbox."""
        ended = await run(
            "submit", "-", "--json", settings=at(door, world), stdin=line("o-1").encode()
        )

        assert (ended.code, ended.document["accepted"]) == (0, 1)

    async def test_with_a_credential_of_nobody_is_told_once(
        self, door: OpenDoor, world: World, database: Database
    ) -> None:
        """It is wrong for every line, and the message does not repeat it."""
        ended = await run(
            "submit", EXAMPLE, "--url", door.url, "--credential", "ofc1_nobodys-credential"
        )

        assert ended.code == 1
        assert "credential_unknown" in ended.message
        assert "ofc1_nobodys" not in ended.err
        assert await rows(database.admin_url, "SELECT FROM oncefence.commands") == []

    async def test_of_a_file_without_lines_is_refused(
        self, door: OpenDoor, world: World, tmp_path: Path
    ) -> None:
        """Nothing to do is somebody's mistake."""
        path = tmp_path / "empty.jsonl"
        path.write_text("\n\n")

        ended = await run("submit", path, settings=at(door, world))

        assert (ended.code, ended.out) == (1, "")
        assert ended.message == f"{path}: holds no line; write one JSON object on each"


class Door(RuntimeClient):
    """A client whose door is a script: what it is asked, in order, and what it answers."""

    def __init__(self, world: World, answers: Mapping[str, Exception] | None = None) -> None:
        super().__init__("http://127.0.0.1:1", world.credential)
        self.asked: list[str] = []
        self.in_flight = self.in_flight_max = 0
        self.held: dict[str, asyncio.Event] = {}
        self._answers = answers or {}
        self._world = world

    async def hand_over(
        self, outbox_id: str, operation: str, subject: str, payload: bytes
    ) -> Receipt:
        self.asked.append(outbox_id)
        self.in_flight += 1
        self.in_flight_max = max(self.in_flight_max, self.in_flight)
        try:
            if outbox_id in self.held:
                await self.held[outbox_id].wait()
            # Everybody else gets a turn, so that an order that is not kept shows.
            await asyncio.sleep(0)
            if outbox_id in self._answers:
                raise self._answers[outbox_id]
            accepted = await self._world.accept_command("lead-1", outbox=outbox_id)
            return accepted.receipt
        finally:
            self.in_flight -= 1


def parsed(*texts: str) -> list[HandoffLine]:
    read = [read_handoff_line(n, text.encode()) for n, text in enumerate(texts, start=1)]
    assert all(isinstance(each, HandoffLine) for each in read), read
    return read  # type: ignore[return-value]  # just asserted


class TestHandOverLines:
    async def test_keeps_the_order_within_a_subject(self, world: World) -> None:
        """The second change of a record must not be accepted before the first (C221)."""
        client = Door(world)
        client.held = {"a-1": asyncio.Event(), "b-1": asyncio.Event()}
        lines = parsed(*(line(f"{s}-{n}", subject=s) for n in (1, 2, 3) for s in ("a", "b")))

        submitting = asyncio.create_task(hand_over_lines(client, iter(lines)))
        async with asyncio.timeout(10):
            while len(client.asked) < 2:
                await asyncio.sleep(0)
        client.held["b-1"].set()
        async with asyncio.timeout(10):
            while len(client.asked) < 4:
                await asyncio.sleep(0)
        assert client.asked == ["a-1", "b-1", "b-2", "b-3"]
        client.held["a-1"].set()
        done = await submitting

        assert client.asked[4:] == ["a-2", "a-3"]
        assert (len(done.accepted), done.refused, done.stopped_by) == (6, [], None)

    async def test_keeps_the_order_within_an_outbox_id(self, world: World) -> None:
        """The first line of an id is the one that is accepted, whatever subject the second has."""
        client = Door(world)
        client.held = {"same": asyncio.Event()}
        lines = parsed(line("same", subject="a"), line("same", subject="b"), line("x", subject="c"))

        submitting = asyncio.create_task(hand_over_lines(client, iter(lines)))
        async with asyncio.timeout(10):
            while len(client.asked) < 2:
                await asyncio.sleep(0)
        assert client.asked == ["same", "x"]
        client.held["same"].set()
        await submitting

        assert client.asked == ["same", "x", "same"]

    async def test_hands_over_several_at_a_time_and_no_more(self, world: World) -> None:
        """A large file must neither crawl nor flood the door."""
        client = Door(world)
        lines = parsed(*(line(f"o-{n}", subject=f"lead-{n}") for n in range(3 * IN_FLIGHT_MAX)))
        gate = asyncio.Event()
        client.held = {each.outbox: gate for each in lines}

        submitting = asyncio.create_task(hand_over_lines(client, iter(lines)))
        async with asyncio.timeout(10):
            while client.in_flight < IN_FLIGHT_MAX:
                await asyncio.sleep(0)
        gate.set()
        done = await submitting

        assert client.in_flight_max == IN_FLIGHT_MAX
        assert len(done.accepted) == 3 * IN_FLIGHT_MAX

    async def test_stops_where_the_door_stops_answering(self, world: World) -> None:
        """The open line may be accepted later than one after it: nothing more is sent."""
        client = Door(world, {"o-2": DoorUnavailable(verb="hand over", reason="ReadTimeout")})
        lines = parsed(*(line(f"o-{n}") for n in range(1, 6)))

        done = await hand_over_lines(client, iter(lines))

        assert client.asked == ["o-1", "o-2"]
        assert [each.number for each in done.accepted] == [1]
        assert str(done.stopped_by).startswith("stopped at line 2: hand over: no answer")
        assert str(done.stopped_by).endswith("what was accepted stays accepted")

    async def test_stops_where_the_caller_is_refused(self, world: World) -> None:
        """A credential that was withdrawn meanwhile would fail every line that is left."""
        refusal = HandoffRefused(code="credential_unknown", detail="unknown", status=401)
        client = Door(world, {"o-1": refusal})

        done = await hand_over_lines(client, iter(parsed(line("o-1"), line("o-2"))))

        assert (client.asked, done.refused, done.stopped_by) == (["o-1"], [], refusal)

    async def test_gives_the_key_of_the_credentials_scope(self, world: World) -> None:
        """The scope never comes from the file (C121)."""
        done = await hand_over_lines(Door(world), iter(parsed(line("o-1"))))

        (accepted,) = done.accepted
        assert accepted.receipt.key == EffectHandoffKey.for_outbox(
            world.caller.scope,
            accepted.receipt.key.local,  # type: ignore[arg-type]  # an id
        )


@pytest.fixture
async def world(database: Database, door: OpenDoor) -> World:
    """A world with the links that the lines name."""
    made = await World.make(database, org="acme", ring=door.ring)
    await made.link("lead-1")
    return made
