"""
A slot's second process: it carries the lives' lines, makes the ground of each cell, and reads
what is there when all is over.

The slot itself stays without an event loop and without connections, because it forks.
"""

import asyncio
import http.client
import json
import pickle
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import text
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import AsyncEngine

from oncefence.domain.errors import StoreUnavailable
from oncefence.domain.ids import OrgId
from oncefence.domain.redaction import Secret
from oncefence.simulator.faults import Fault
from oncefence.storage.engine import make_engine
from oncefence.storage.phases.add_principal_binding import add_principal_binding
from oncefence.storage.phases.adopt_link import adopt_link
from oncefence.storage.phases.audit_invariants import Audit, audit_invariants
from oncefence.storage.phases.probe_store import probe_store
from oncefence.storage.phases.publish_view import publish_view
from oncefence.storage.phases.register_runtime import register_runtime
from tests.crashgrid.board import Board
from tests.crashgrid.cell import Cell, Story
from tests.crashgrid.proxy import Line
from tests.crashgrid.world import LIMITS, RING, SUBJECT, TOKEN, Ground, operation_of, view_of
from tests.support.world import INSTALLATION, scope_of

_ATTEMPTS = text(
    "SELECT org_id, attempt_id, command_id FROM oncefence.effect_attempts"
    " WHERE started_at IS NOT NULL"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What a slot's database says when all cells are over."""

    audit: Audit
    attempts: Mapping[str, str]
    """The command of each attempt that was started."""


class Companion:
    """Serves one slot, one request after the other; the lines are carried meanwhile."""

    def __init__(
        self,
        *,
        url: str,
        provider_port: int,
        admin_port: int,
        board: Board,
        talk: socket.socket,
        controls: Sequence[socket.socket],
        listeners: Sequence[socket.socket],
        say: Callable[[str], None],
    ) -> None:
        self._url = url
        self._provider_port = provider_port
        self._admin_port = admin_port
        self._talk = talk
        parsed = make_url(url)
        target = (parsed.host or "127.0.0.1", parsed.port or 5432)
        self._lines = [Line(control, target, board, say) for control in controls]
        self._listeners = listeners
        self._engine: AsyncEngine = make_engine(url, size=2)

    async def serve(self) -> None:
        """Answer requests until the slot hangs up."""
        for line, listener in zip(self._lines, self._listeners, strict=True):
            await line.open(listener)
        reader, writer = await asyncio.open_connection(sock=self._talk)
        try:
            while size := await reader.read(4):
                verb, given = pickle.loads(await reader.readexactly(int.from_bytes(size)))
                await self._reconnect()
                answer = pickle.dumps(await self._answer(verb, given))
                writer.write(len(answer).to_bytes(4) + answer)
                await writer.drain()
        finally:
            await self._engine.dispose()

    async def _reconnect(self) -> None:
        """Since the last time the server may have crashed, as the cell asked it to."""
        try:
            await probe_store(self._engine)
        except StoreUnavailable:
            await self._engine.dispose()

    async def _answer(self, verb: str, given: Any) -> Any:
        match verb:
            case "ground":
                return await self._make_ground(given)
            case "findings":
                return await self._find()
        raise AssertionError(f"{verb} is not known here")

    async def _make_ground(self, cell: Cell) -> Ground:
        for line in self._lines:
            line.hang_up()
        contact = str(100_000 + int(cell.name.rsplit("-", 1)[-1]))
        self._admin("/contacts", {"id": contact, "properties": {"jobtitle": "before"}})
        rules = _rules(cell, contact)
        if rules:
            self._admin("/script", rules)
        ground = Ground(
            org=cell.name,
            contact=contact,
            base_url=f"http://127.0.0.1:{self._provider_port}",
            credential=None,
        )
        if cell.story is Story.SETUP:
            return ground
        return await self._account(cell, ground)

    async def _account(self, cell: Cell, ground: Ground) -> Ground:
        engine, org, view = self._engine, OrgId(ground.org), view_of(cell)
        operation = view.operation(operation_of(cell.form))
        credential = await register_runtime(engine, RING, scope_of(org), actor="grid")
        await publish_view(engine, org, INSTALLATION, view, actor="grid")
        await add_principal_binding(
            engine,
            RING,
            org,
            name=view.principal,
            provider=view.pack,
            base_url=ground.base_url,
            is_local=True,
            token=Secret(TOKEN),
            actor="grid",
        )
        await adopt_link(
            engine,
            org,
            binding_name=view.principal,
            local_object=operation.local_object,
            subject=SUBJECT,
            remote_object=operation.remote_object,
            remote_id=ground.contact,
            actor="grid",
        )
        return Ground(
            org=ground.org,
            contact=ground.contact,
            base_url=ground.base_url,
            credential=credential,
        )

    async def _find(self) -> Findings:
        audit = await audit_invariants(
            self._engine, time_scale=LIMITS.time_scale, with_standings=True
        )
        async with self._engine.connect() as connection:
            rows = await connection.execute(_ATTEMPTS)
            attempts = {str(row.attempt_id): str(row.command_id) for row in rows}
        return Findings(audit=audit, attempts=attempts)

    def _admin(self, path: str, body: object) -> None:
        # Blocking, and short: no life of this slot runs while its ground is made.
        connection = http.client.HTTPConnection("127.0.0.1", self._admin_port, timeout=10)
        try:
            connection.request("POST", path, json.dumps(body).encode())
            answer = connection.getresponse()
            said = answer.read().decode()
            assert answer.status == 201, said
        finally:
            connection.close()


def _rules(cell: Cell, contact: str) -> list[dict[str, object]]:
    rules: list[dict[str, object]] = []
    if cell.fault is Fault.REFUSE:
        # Nobody knows at accept what a connection will ask for, so it is not told of whom.
        rules.append({"fault": cell.fault.value})
    elif cell.fault is not None:
        rules.append({"fault": cell.fault.value, "contact": contact})
    if cell.lookup_fault is not None:
        rules.append({"fault": cell.lookup_fault.value, "contact": contact, "method": "GET"})
    return rules
