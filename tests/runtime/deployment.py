"""oncefence as a Runtime meets it: facts in its own database, and processes that come and go."""

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from temporalio.client import Client

from oncefence.catalog.loader import load_binding, load_pack
from oncefence.catalog.view import IntegrationBindingView, compile_view
from oncefence.storage.phases.authenticate import authenticate
from oncefence.storage.phases.find_work import WorkRef
from oncefence.storage.phases.publish_view import publish_view
from oncefence.storage.phases.register_runtime import register_runtime
from oncefence.storage.sealing import KeyRing
from oncefence.workflows.schedules import ensure_search_attributes
from tests.providers.simulated import Simulated
from tests.runtime.doors import Address
from tests.support.dialect import simulated_provider
from tests.support.doors import open_door
from tests.support.servers import Database
from tests.support.station import ProviderWorld, Station, make_station, new_queue, until, working
from tests.support.world import INSTALLATION, UNCOUNTED, scope_of

CONTRACT = """
command = "lead.title.pushed"
version = 1
data = { object = "lead", field = "title" }
"""


def view_with(contract: str = CONTRACT) -> IntegrationBindingView:
    """The view of the example binding, with another local-completion contract where given."""
    text = UNCOUNTED
    assert text.count(CONTRACT.strip()) == 1, "the example's contract is this one"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "lead-title.binding.toml"
        path.write_text(text.replace(CONTRACT.strip(), contract.strip()), encoding="utf-8")
        return compile_view(load_pack("hubspot"), load_binding(path))


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Oncefence:
    """One deployment with one org; its Runtime is registered for all three doors."""

    world: ProviderWorld
    store: Database
    simulator: Simulated
    folder: Path
    client: Client
    temporal_address: str
    task_queue: str
    private_key: Ed25519PrivateKey

    @classmethod
    async def make(
        cls,
        store: Database,
        simulator: Simulated,
        client: Client,
        temporal_address: str,
        folder: Path,
    ) -> "Oncefence":
        """Its first revision is the example's; no process of it runs."""
        await ensure_search_attributes(client)
        KeyRing.make_file(folder / "keys.json")
        ring = KeyRing.load(folder / "keys.json")
        world = await ProviderWorld.on(
            store, simulated_provider(simulator), ring=ring, view=view_with()
        )
        private_key = Ed25519PrivateKey.generate()
        world.credential = await register_runtime(
            world.engine,
            ring,
            scope_of(world.org, capability="leads"),
            actor="tests",
            public_key=private_key.public_key().public_bytes_raw(),
        )
        caller = await authenticate(world.engine, ring, world.credential)
        assert caller is not None, "a registered credential is known"
        world.caller = caller
        return cls(
            world=world,
            store=store,
            simulator=simulator,
            folder=folder,
            client=client,
            temporal_address=temporal_address,
            task_queue=new_queue(),
            private_key=private_key,
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Address]:
        """Doors and a worker: what is handed over is done."""
        async with working(self._station()), self.doors_alone() as address:
            yield address

    @asynccontextmanager
    async def doors_alone(self) -> AsyncIterator[Address]:
        """Doors without a worker: what is handed over waits."""
        announce = self._station().announcer.announce
        async with open_door(self.world.engine, self.folder, announce) as door:
            yield Address(
                url=door.url,
                credential=self.world.credential,
                temporal_address=self.temporal_address,
                task_queue=self.task_queue,
                private_key=self.private_key.private_bytes_raw().hex(),
            )

    @asynccontextmanager
    async def worker_alone(self) -> AsyncIterator[None]:
        """A worker without doors: what was handed over is done."""
        async with working(self._station()):
            yield

    async def wake(self, ref: WorkRef) -> None:
        """Temporal is told of an item, as an operator's door tells it."""
        await self._station().announcer.wake(ref)

    async def publish(self, contract: str) -> int:
        """The revision with this local-completion contract, under which is accepted from now on."""
        made = await publish_view(
            self.world.engine,
            self.world.org,
            INSTALLATION,
            view_with(contract),
            actor="tests",
            activate=True,
        )
        assert made.is_new
        assert made.is_current
        return made.revision

    # --- what stands there -------------------------------------------------------------------

    async def commands(self) -> list[UUID]:
        """The commands of the org."""
        rows = await self.world.sql(
            "SELECT command_id FROM oncefence.commands WHERE org_id = :org ORDER BY accepted_at"
        )
        return [row.command_id for row in rows]

    async def settled(self, command: UUID) -> str:
        """The status of the command's execution, once that is final."""

        async def status() -> str | None:
            rows = await self.world.sql(
                "SELECT status FROM oncefence.executions WHERE org_id = :org"
                " AND command_id = :command AND status IN ('succeeded', 'failed', 'cancelled')",
                command=command,
            )
            return rows[0].status if rows else None

        return await until(status, what="a settlement") or ""

    def changes(self, command: UUID) -> int:
        """How often the provider was changed for it, by the provider's own ledger."""
        return len(self.simulator.ledger.changes_by_command().get(str(command), []))

    def _station(self) -> Station:
        return make_station(self.world, self.client, self.task_queue)
