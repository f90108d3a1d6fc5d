"""
What one life would prepare before it comes to anything is prepared before the forks.

The cells of a run are many and short. One story is lived in the process that forks, and leaves
behind compiled statements and filled caches; its loop is closed, and its connections with it.
"""

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from sqlalchemy import event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.ext.asyncio import AsyncEngine

from oncefence.simulator.faults import Fault
from oncefence.storage.engine import make_engine
from tests.crashgrid.board import Board
from tests.crashgrid.cell import Cell, Story
from tests.crashgrid.creating import provider_of
from tests.crashgrid.driver import Life, Role
from tests.crashgrid.ground import Ground, Servers, make_ground


class AimedEngine:
    """An engine that keeps what it has compiled, and connects to where it is pointed."""

    def __init__(self, url: str) -> None:
        self._aim = make_url(url)
        self.engine: AsyncEngine = make_engine(url, size=4)
        event.listen(self.engine.sync_engine, "do_connect", self._connect)

    def aim(self, url: URL) -> AsyncEngine:
        """From now on, and in this process alone, it leads there."""
        self._aim = url
        return self.engine

    def _connect(self, dialect: Any, record: Any, positional: Any, named: dict[str, Any]) -> None:
        named |= {
            "port": self._aim.port,
            "database": self._aim.database,
            "password": self._aim.password,
        }


def warmed_engine(servers: Servers) -> AimedEngine:
    """An engine that has been through acceptances, looks, sends, and lookups."""
    aimed = AimedEngine(servers.database_url)
    asyncio.run(_live_once(aimed.engine, servers))
    return aimed


async def _live_once(engine: AsyncEngine, servers: Servers) -> None:
    change = Cell(name="warming-0", story=Story.CONTEST, fault=Fault.RESET_AFTER_COMMIT)
    create = Cell(name="warming-1", story=Story.LOOK_FIRST, fault=Fault.RESET_AFTER_COMMIT)
    try:
        await _live(engine, change, await make_ground(engine, servers, change))
        with tempfile.TemporaryDirectory() as folder:
            async with provider_of(create, Path(folder) / "ledger.jsonl") as provider:
                await _live(engine, create, await make_ground(engine, servers, create, provider))
    finally:
        await engine.dispose()


async def _live(engine: AsyncEngine, cell: Cell, ground: Ground) -> None:
    await Life(cell, ground, Board(), engine, say=lambda _: None).live(Role.WORKER)
