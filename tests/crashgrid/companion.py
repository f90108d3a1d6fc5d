"""
A slot's second process: it carries the lives' lines, makes the ground of each cell, serves the
providers that cells have to themselves, and reads what is there when all is over.

The slot itself stays without an event loop and without connections, because it forks.
"""

import asyncio
import pickle
import socket
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy import text
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import AsyncEngine

from oncefence.domain.errors import StoreUnavailable
from oncefence.simulator.in_process import SimulatorHere
from oncefence.simulator.ledger import Row, read_ledger
from oncefence.storage.engine import make_engine
from oncefence.storage.phases.audit_invariants import Audit, audit_invariants
from oncefence.storage.phases.probe_store import probe_store
from tests.crashgrid.board import Board
from tests.crashgrid.cell import Cell
from tests.crashgrid.creating import provider_of
from tests.crashgrid.ground import Ground, Servers, make_ground
from tests.crashgrid.proxy import Line
from tests.crashgrid.renewing import TokenEndpoint
from tests.crashgrid.world import LIMITS, TOKEN

_ATTEMPTS = text(
    "SELECT org_id, attempt_id, command_id,"
    " CASE settled_as WHEN 'lost' THEN settled_at END AS given_up_at"
    " FROM oncefence.effect_attempts WHERE started_at IS NOT NULL"
)
_CREATES = text(
    "SELECT c.org_id, c.command_id, l.remote_id FROM oncefence.commands AS c"
    " JOIN oncefence.remote_links AS l ON l.org_id = c.org_id AND l.link_id = c.link_id"
    " WHERE c.remote_id IS NULL"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One that was started; `given_up_at` is when another life settled it as lost."""

    org: str
    command: str
    given_up_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Create:
    """A command that was to make a record; `linked` is the record that SQL has as made by it."""

    org: str
    command: str
    linked: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """
    What a slot's database says when all cells are over.

    `own_rows` are of the ledgers of the providers that its cells had to themselves, `tokens_shown`
    what came to the endpoint at which tokens are renewed.
    """

    audit: Audit
    attempts: Mapping[str, Attempt]
    creates: Sequence[Create]
    own_rows: Sequence[Row]
    tokens_shown: Sequence[str]


class Companion:
    """Serves one slot, one request after the other; the lines are carried meanwhile."""

    def __init__(
        self,
        *,
        servers: Servers,
        board: Board,
        place: Path,
        talk: socket.socket,
        controls: Sequence[socket.socket],
        listeners: Sequence[socket.socket],
        say: Callable[[str], None],
    ) -> None:
        self._servers = servers
        self._place = place
        self._talk = talk
        self._own_provider = AsyncExitStack()
        self._own_rows: list[Row] = []
        self._endpoint = TokenEndpoint(TOKEN)
        self._token_url = ""
        parsed = make_url(servers.database_url)
        target = (parsed.host or "127.0.0.1", parsed.port or 5432)
        self._lines = [Line(control, target, board, say) for control in controls]
        self._listeners = listeners
        self._engine: AsyncEngine = make_engine(servers.database_url, size=2)

    async def serve(self) -> None:
        """Answer requests until the slot hangs up."""
        for line, listener in zip(self._lines, self._listeners, strict=True):
            await line.open(listener)
        self._token_url = await self._endpoint.open()
        reader, writer = await asyncio.open_connection(sock=self._talk)
        try:
            while size := await reader.read(4):
                verb, given = pickle.loads(await reader.readexactly(int.from_bytes(size)))
                await self._reconnect()
                answer = pickle.dumps(await self._answer(verb, given))
                writer.write(len(answer).to_bytes(4) + answer)
                await writer.drain()
        finally:
            self._endpoint.close()
            await self._own_provider.aclose()
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
        await self._own_provider.aclose()
        if not cell.story.makes_record:
            return await make_ground(
                self._engine,
                self._servers,
                cell,
                token_url=self._token_url if cell.story.renews else None,
            )
        provider = await self._own_provider.enter_async_context(self._provider_of(cell))
        return await make_ground(self._engine, self._servers, cell, provider)

    @asynccontextmanager
    async def _provider_of(self, cell: Cell) -> AsyncIterator[SimulatorHere]:
        ledger = Path(f"{self._place}-{cell.name}.jsonl")
        async with provider_of(cell, ledger) as provider:
            yield provider
        self._own_rows += read_ledger(ledger).rows

    async def _find(self) -> Findings:
        await self._own_provider.aclose()
        audit = await audit_invariants(
            self._engine, time_scale=LIMITS.time_scale, with_standings=True
        )
        async with self._engine.connect() as connection:
            creates = [
                Create(org=row.org_id, command=str(row.command_id), linked=row.remote_id)
                for row in await connection.execute(_CREATES)
            ]
        return Findings(
            audit=audit,
            attempts=await read_attempts(self._engine),
            creates=creates,
            own_rows=self._own_rows,
            tokens_shown=self._endpoint.shown,
        )


async def read_attempts(engine: AsyncEngine) -> dict[str, Attempt]:
    """Every attempt that was started, by its id."""
    async with engine.connect() as connection:
        rows = await connection.execute(_ATTEMPTS)
        return {
            str(row.attempt_id): Attempt(
                org=row.org_id, command=str(row.command_id), given_up_at=row.given_up_at
            )
            for row in rows
        }
