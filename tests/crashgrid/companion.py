"""
A slot's second process: it carries the lives' lines, makes the ground of each cell, and reads
what is there when all is over.

The slot itself stays without an event loop and without connections, because it forks.
"""

import asyncio
import pickle
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import text
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import AsyncEngine

from oncefence.domain.errors import StoreUnavailable
from oncefence.storage.engine import make_engine
from oncefence.storage.phases.audit_invariants import Audit, audit_invariants
from oncefence.storage.phases.probe_store import probe_store
from tests.crashgrid.board import Board
from tests.crashgrid.cell import Cell
from tests.crashgrid.ground import Ground, Servers, make_ground
from tests.crashgrid.proxy import Line
from tests.crashgrid.world import LIMITS

_ATTEMPTS = text(
    "SELECT org_id, attempt_id,"
    " CASE settled_as WHEN 'lost' THEN settled_at END AS given_up_at"
    " FROM oncefence.effect_attempts WHERE started_at IS NOT NULL"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One that was started; `given_up_at` is when another life settled it as lost."""

    org: str
    given_up_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What a slot's database says when all cells are over."""

    audit: Audit
    attempts: Mapping[str, Attempt]


class Companion:
    """Serves one slot, one request after the other; the lines are carried meanwhile."""

    def __init__(
        self,
        *,
        servers: Servers,
        board: Board,
        talk: socket.socket,
        controls: Sequence[socket.socket],
        listeners: Sequence[socket.socket],
        say: Callable[[str], None],
    ) -> None:
        self._servers = servers
        self._talk = talk
        parsed = make_url(servers.database_url)
        target = (parsed.host or "127.0.0.1", parsed.port or 5432)
        self._lines = [Line(control, target, board, say) for control in controls]
        self._listeners = listeners
        self._engine: AsyncEngine = make_engine(servers.database_url, size=2)

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
        return await make_ground(self._engine, self._servers, cell)

    async def _find(self) -> Findings:
        audit = await audit_invariants(
            self._engine, time_scale=LIMITS.time_scale, with_standings=True
        )
        return Findings(audit=audit, attempts=await read_attempts(self._engine))


async def read_attempts(engine: AsyncEngine) -> dict[str, Attempt]:
    """Every attempt that was started, by its id."""
    async with engine.connect() as connection:
        rows = await connection.execute(_ATTEMPTS)
        return {
            str(row.attempt_id): Attempt(org=row.org_id, given_up_at=row.given_up_at)
            for row in rows
        }
