"""
The way out as it really is: the HTTP door, PostgreSQL, a run of the attempt, and HTTP on a socket.

The provider answers with the bytes that a test gives it, and every byte that came is on record.
"""

import json
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from importlib.resources import files
from itertools import count
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx
from sqlalchemy import Row

from oncefence.activities.contracts import RunRequest, RunResult
from oncefence.catalog.loader import load_binding, load_pack
from oncefence.catalog.view import IntegrationBindingView, compile_view
from oncefence.domain import ids
from oncefence.domain.claim import ClaimVerdict
from oncefence.domain.ids import CommandId, LinkId, WorkId
from oncefence.domain.limits import Limits
from oncefence.storage.phases.adopt_link import adopt_link
from tests.cases.processes import Process
from tests.providers.raw_server import Call, RawServer, answer, raw_server
from tests.support.dialect import Provider, shipped_dialect
from tests.support.doors import OpenDoor, handoff, open_door, put, refusal, rejection
from tests.support.servers import Database
from tests.support.station import ProviderWorld

DATA = Path(__file__).parents[1] / "data" / "cases"
OPERATION = "lead.push"
TABLES = ("handoffs", "commands", "executions", "work_items", "effect_attempts")
_numbers = count(501)

# Rules and not names, so that they hold where no table of zones is installed.
ZONES = {
    "America/Los_Angeles": "PST8PDT,M3.2.0,M11.1.0",
    "Pacific/Auckland": "NZST-12NZDT,M9.5.0,M4.1.0/3",
    "Europe/London": "GMT0BST,M3.5.0/1,M10.5.0",
}


def cases(name: str) -> dict[str, dict[str, Any]]:
    """The cases of a file by their ids."""
    lines = (DATA / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return {case["id"]: case for case in map(json.loads, lines)}


def shipped(name: str) -> str:
    """The text of a pack that comes with the program."""
    return (files("oncefence.catalog") / "packs" / f"{name}.toml").read_text("utf-8")


def view_of(binding: str, pack: str | Path, more_fields: str = "") -> IntegrationBindingView:
    """The view of a binding in the data, with more fields, over a shipped pack or a file."""
    source = DATA / f"{binding}.binding.toml"
    if not more_fields:
        return compile_view(load_pack(pack), load_binding(source))
    assert isinstance(pack, Path), "what is not shipped as it is has a file of its own"
    bound = pack.with_suffix(".binding.toml")
    bound.write_text(source.read_text("utf-8") + more_fields, encoding="utf-8")
    return compile_view(load_pack(pack), load_binding(bound))


@contextmanager
def standing_in(zone: str) -> Iterator[None]:
    """This process as one whose machine is in `zone`."""
    before = os.environ.get("TZ")
    os.environ["TZ"] = ZONES[zone]
    time.tzset()
    try:
        assert time.tzname[0] in ZONES[zone], "the machine took the zone"
        yield
    finally:
        if before is None:
            del os.environ["TZ"]
        else:
            os.environ["TZ"] = before
        time.tzset()


Reply = Callable[[str], bytes]
"""The answer about a record."""

SUCCESSES = {
    "hubspot": '{"id":"RECORD","properties":{},"updatedAt":"2026-03-29T00:00:00Z"}',
    "outreach": '{"data":{"type":"prospect","id":RECORD,"attributes":{}}}',
    "figures": '{"sheet":RECORD,"values":{}}',
}


def says(body: str, *headers: str, status: str = "200 OK") -> Reply:
    """An answer with this body, in which RECORD stands for the record."""
    return lambda record: answer(status, body.replace("RECORD", record).encode(), *headers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrived:
    """One request as it came over the wire."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @classmethod
    def read(cls, data: bytes) -> "Arrived":
        head, _, body = data.partition(b"\r\n\r\n")
        first, *lines = head.decode("ascii").split("\r\n")
        method, target, _ = first.split(" ")
        pairs = (line.partition(": ") for line in lines)
        return cls(
            method=method,
            target=target,
            headers={name.lower(): value for name, _, value in pairs},
            body=body,
        )


@dataclass(slots=True, kw_only=True)
class Scripted:
    """What is answered to a request for a record, by the last part of its path."""

    server: RawServer = field(default_factory=RawServer)
    answers: dict[str, bytes] = field(default_factory=dict)

    async def script(self, call: Call) -> None:
        arrived = Arrived.read(await call.read_request())
        await call.send(self.answers[_record(arrived.target)])

    def requests(self, record: str) -> list[Arrived]:
        """Those for a record, in the order in which they came."""
        arrived = (Arrived.read(bytes(data)) for data in self.server.received if data)
        return [each for each in arrived if _record(each.target) == record]


def _record(target: str) -> str:
    return target.partition("?")[0].rpartition("/")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """An accepted command, and the record that it is about."""

    command: CommandId
    work: WorkId
    record: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What one run of a command left: on the wire, in SQL, and the time that it took."""

    command: Command
    result: RunResult
    as_of: datetime
    took: timedelta
    item: Row[Any]
    attempt: Row[Any]
    requests: list[Arrived]

    @property
    def waits(self) -> timedelta:
        """From the time of the run to the time at which the item is due again."""
        due: datetime = self.item.run_after
        return due - self.as_of

    def waits_for(self, seconds: float, *, rounded_s: float = 0.0) -> bool:
        """Whether it waits for no less, and for more by the spread of a first retry alone."""
        least = timedelta(seconds=seconds)
        return least <= self.waits < least + timedelta(seconds=2 + rounded_s) + self.took


@dataclass(frozen=True, slots=True, kw_only=True)
class Outbound:
    """An org whose account is at the provider, and a Runtime of it at the door."""

    world: ProviderWorld
    provider: Scripted
    door: OpenDoor
    client: httpx.AsyncClient
    view: IntegrationBindingView

    async def link(self, record: str | None = None) -> tuple[str, str]:
        """A subject of its own, linked to a record."""
        record = record or str(next(_numbers))
        subject = f"lead-{uuid4().hex}"
        operation = self.view.operation(OPERATION)
        link: LinkId = await adopt_link(
            self.world.engine,
            self.world.org,
            binding_name=self.view.principal,
            local_object=operation.local_object,
            subject=subject,
            remote_object=operation.remote_object,
            remote_id=record,
            actor="tests",
        )
        self.world.links[subject] = link
        return subject, record

    async def hand_over(
        self, payload: bytes, subject: str, outbox: str | None = None
    ) -> httpx.Response:
        """What the door says to exactly these bytes."""
        await put(self.client, payload)
        body = handoff(
            self.world.caller.scope,
            outbox or uuid4().hex,
            payload,
            operation=OPERATION,
            subject=subject,
        )
        return await self.client.post("/v1/handoffs", json=body)

    async def accept(self, payload: bytes, record: str | None = None) -> Command:
        """A command that the door accepted, on a record of its own unless told."""
        subject, record = await self.link(record)
        response = await self.hand_over(payload, subject)
        assert response.status_code == 201, response.text
        command = CommandId(UUID(response.json()["command_id"]))
        return Command(command=command, work=ids.dispatch_work_id(command, 1), record=record)

    async def run(self, command: Command, *, as_of: datetime | None = None) -> Ran:
        """One run of the command, as its workflow asks for it."""
        before = await self.world.item(command.work)
        as_of = as_of or max(await self.world.now(), before.run_after)
        began = time.monotonic()
        result = await self._run(command, as_of, before)
        took = timedelta(seconds=time.monotonic() - began)
        attempts = await self.world.sql(
            "SELECT * FROM oncefence.effect_attempts WHERE org_id = :org"
            " AND command_id = :command ORDER BY ordinal",
            command=command.command,
        )
        return Ran(
            command=command,
            result=result,
            as_of=as_of,
            took=took,
            item=await self.world.item(command.work),
            attempt=attempts[-1],
            requests=self.provider.requests(command.record),
        )

    async def is_held(self, command: Command) -> datetime | None:
        """Until when a run of the command, which sends nothing, finds that it has to wait."""
        before = await self.world.item(command.work)
        result = await self._run(command, max(await self.world.now(), before.run_after), before)
        after = await self.world.item(command.work)
        assert result.verdict == ClaimVerdict.QUOTA_HELD, result
        assert self.provider.requests(command.record) == []
        assert (after.state, after.attempt) == (before.state, before.attempt)
        return result.until

    async def _run(self, command: Command, as_of: datetime, item: Row[Any]) -> RunResult:
        return await Process(self.world).attempts.run_attempt(
            RunRequest(
                org_id=self.world.org,
                work_id=str(command.work),
                deadline_ms=item.deadline_ms,
                as_of=as_of,
                family=item.family,
            )
        )

    async def forget_quota(self) -> None:
        """
        What was used or closed so far is so no longer, as after a day.

        Quota is judged by the database's own clock, which no `as_of` moves.
        """
        await self.world.sql(
            "UPDATE oncefence.quota_counts SET head = 0, used = array_fill(0, ARRAY[65]),"
            " lookups = array_fill(0, ARRAY[65]), cursors = array_fill(0, ARRAY[65]),"
            " closed_until = NULL, closed_because = NULL, told_limit = NULL"
        )

    async def send(
        self,
        payload: bytes,
        reply: Reply | None = None,
        *headers: str,
        as_of: datetime | None = None,
        record: str | None = None,
    ) -> Ran:
        """A command accepted and run once: a success with `headers`, unless `reply` is another."""
        await self.forget_quota()
        command = await self.accept(payload, record)
        reply = reply or says(SUCCESSES[self.view.pack], *headers)
        self.provider.answers[command.record] = reply(command.record)
        return await self.run(command, as_of=as_of)

    async def body_of(self, payload: bytes) -> bytes:
        """The body that arrives for a payload; it arrives once and is accepted."""
        ran = await self.send(payload)
        (arrived,) = ran.requests
        assert ran.attempt.outcome == "ACCEPTED", ran.attempt
        return arrived.body

    async def refuse(self, payload: bytes) -> str:
        """
        What the Runtime is told of a payload that is refused at the door.

        No row of it is made, so that there is nothing that could ever be sent; nothing is; and the
        Runtime can end its own entry.
        """
        subject, record = await self.link()
        before = [await self.world.count(table) for table in TABLES]
        outbox = uuid4().hex
        response = await self.hand_over(payload, subject, outbox)
        assert refusal(response) == (422, "payload_refused"), response.text
        assert [await self.world.count(table) for table in TABLES] == before
        ended = await self.client.post(
            "/v1/handoffs/reject",
            json=rejection(self.world.caller.scope, outbox, payload, reason="refused"),
        )
        assert ended.json()["admission"] == "HANDOFF_REJECTED"
        await self.provider.server.was_left_alone()
        assert self.provider.requests(record) == []
        return str(response.json()["detail"])

    def will_succeed(self, command: Command) -> None:
        """From now on the provider answers with a success."""
        self.provider.answers[command.record] = says(SUCCESSES[self.view.pack])(command.record)

    async def kept_answer(self, ran: Ran) -> bytes:
        """The answer's body as it is kept with the attempt, opened."""
        execution = ids.execution_id(ran.command.command)
        (row,) = await self.world.sql(
            "SELECT k.wrapped_key, k.key_id, s.ciphertext FROM oncefence.execution_keys k"
            " JOIN oncefence.sealed_payloads s USING (org_id, execution_id)"
            " WHERE org_id = :org AND execution_id = :execution AND kind = 'answer'"
            " AND ordinal = :ordinal",
            execution=execution,
            ordinal=ran.attempt.ordinal,
        )
        org = self.world.org
        key = self.world.ring.unwrap(row.wrapped_key, row.key_id, "execution", org, execution)
        return key.open(row.ciphertext, "answer", org, execution, ran.attempt.ordinal)


@asynccontextmanager
async def outbound(
    store: Database, folder: Path, view: IntegrationBindingView
) -> AsyncIterator[Outbound]:
    """The whole way for one view, until the block ends."""
    scripted = Scripted()
    async with open_door(store.app_engine, folder) as door, raw_server(scripted.script) as server:
        scripted.server = server
        world = await ProviderWorld.on(
            store,
            Provider(
                base_url=server.base_url,
                dialect=shipped_dialect(),
                make_record=lambda: str(next(_numbers)),
            ),
            limits=Limits(),
            ring=door.ring,
            view=view,
        )
        yield Outbound(
            world=world,
            provider=scripted,
            door=door,
            client=door.client(world.credential),
            view=view,
        )
