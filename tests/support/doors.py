"""A real door on a real port over a real database, in the loop of the test."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import uvicorn
from sqlalchemy.ext.asyncio import AsyncEngine

from oncefence.app.api import Doors, make_api
from oncefence.app.doors import Connecting
from oncefence.domain.handoff import EffectHandoffKey, TrustedRuntimeWorkScope, payload_digest
from oncefence.domain.ids import OutboxId
from oncefence.domain.limits import Limits
from oncefence.storage.phases.find_work import WorkRef
from oncefence.storage.phases.register_runtime import register_runtime
from oncefence.storage.sealing import KeyRing
from tests.support.plain_http import NO_TLS
from tests.support.world import OPERATION

SUBJECT = "lead-1"
PAYLOAD = b'{"title": "Chief Engineer"}'
OTHER_PAYLOAD = b'{"title": "Chief Architect"}'

Announce = Callable[[WorkRef], Awaitable[None]]


def handoff(
    scope: TrustedRuntimeWorkScope, outbox: str, payload: bytes = PAYLOAD, **changes: object
) -> dict[str, object]:
    """The body of a handoff; `changes` replace members, and None takes one out."""
    body: dict[str, object] = {
        "handoff_key": str(EffectHandoffKey.for_outbox(scope, OutboxId(outbox))),
        "payload_digest": payload_digest(payload),
        "outbox_id": outbox,
        "operation": OPERATION,
        "subject": SUBJECT,
    } | changes
    return {name: value for name, value in body.items() if value is not None}


def rejection(
    scope: TrustedRuntimeWorkScope, outbox: str, payload: bytes = PAYLOAD, **changes: object
) -> dict[str, object]:
    """The body of a rejection, likewise."""
    return handoff(scope, outbox, payload, **({"operation": None, "subject": None} | changes))


@dataclass(kw_only=True, repr=False)
class OpenDoor:
    """A door that listens, what is behind it, and what it announced."""

    url: str
    engine: AsyncEngine
    ring: KeyRing
    key_file: Path
    announced: list[WorkRef]
    clients: list[httpx.AsyncClient] = field(default_factory=list)

    def client(self, credential: str | None) -> httpx.AsyncClient:
        """A bare HTTP client: what it sends is what the test says."""
        headers = {} if credential is None else {"Authorization": f"Bearer {credential}"}
        client = httpx.AsyncClient(
            base_url=self.url, headers=headers, trust_env=False, timeout=30.0, verify=NO_TLS
        )
        self.clients.append(client)
        return client

    async def register(self, scope: TrustedRuntimeWorkScope) -> str:
        """The credential of one more Runtime."""
        return await register_runtime(self.engine, self.ring, scope, actor="tests")


@asynccontextmanager
async def open_door(
    engine: AsyncEngine,
    folder: Path,
    announce: Announce | None = None,
    *,
    pack_folders: tuple[Path, ...] = (),
) -> AsyncIterator[OpenDoor]:
    """Serve the doors with uvicorn until the block ends; the folder keeps the key ring."""
    key_file = folder / "keys.json"
    if not key_file.exists():
        KeyRing.make_file(key_file)
    ring = KeyRing.load(key_file)
    announced: list[WorkRef] = []

    async def collect(ref: WorkRef) -> None:
        announced.append(ref)

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        doors = Doors(
            engine=engine,
            ring=ring,
            limits=Limits(),
            announce=announce or collect,
            connecting=Connecting(public_url=url, pack_folders=pack_folders),
        )
        server = _Server(
            uvicorn.Config(make_api(doors), log_config=None, access_log=False, lifespan="off")
        )
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        await until(lambda: server.started or serving.done())
        door = OpenDoor(
            url=url,
            engine=engine,
            ring=ring,
            key_file=key_file,
            announced=announced,
        )
        try:
            yield door
        finally:
            for client in door.clients:
                await client.aclose()
            server.should_exit = True
            await serving


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Ctrl-C is pytest's."""
        yield


async def until(is_so: Callable[[], bool], seconds: float = 10.0) -> None:
    """Wait for a condition, with a bound."""
    async with asyncio.timeout(seconds):
        while not is_so():
            await asyncio.sleep(0.01)


async def rows(admin_url: str, query: str, *values: object) -> list[dict[str, Any]]:
    """What stands in the database, read past every role and every phase."""
    connection = await asyncpg.connect(admin_url)
    try:
        return [dict(row) for row in await connection.fetch(query, *values)]
    finally:
        await connection.close()


async def put(client: httpx.AsyncClient, payload: bytes = PAYLOAD) -> str:
    """Stage `payload`, and give its digest."""
    digest = payload_digest(payload)
    response = await client.put(f"/v1/payloads/{digest}", content=payload)
    assert response.status_code == 200, response.text
    return digest


def refusal(response: httpx.Response) -> tuple[int, str]:
    """Status and code of a problem document that is whole."""
    assert response.headers["content-type"] == "application/problem+json"
    document = response.json()
    assert set(document) >= {"type", "title", "status", "detail", "code"}
    assert document["status"] == response.status_code
    assert document["type"].endswith(document["code"])
    return response.status_code, document["code"]
