"""An open door, a world behind it, and a client that may come in."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from tests.support.doors import SUBJECT, OpenDoor, open_door, put
from tests.support.servers import Database
from tests.support.world import World


@pytest.fixture
async def door(database: Database, tmp_path: Path) -> AsyncIterator[OpenDoor]:
    async with open_door(database.app_engine, tmp_path) as opened:
        yield opened


@pytest.fixture
async def world(database: Database, door: OpenDoor) -> World:
    """A world in which a handoff of the usual subject is accepted once its payload was put."""
    made = await World.make(database, org="acme", ring=door.ring)
    await made.link(SUBJECT)
    return made


@pytest.fixture
async def client(door: OpenDoor, world: World) -> httpx.AsyncClient:
    """A client with the world's credential; the usual payload is put."""
    bare = door.client(world.credential)
    await put(bare)
    return bare
