"""What a run needs: servers of its own, one process with one Client and two Workers, an account."""

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from os import getpid
from pathlib import Path
from typing import Final

import httpx
from sqlalchemy import text

from oncefence.app.bootstrap import (
    connect_temporal,
    keep_namespace,
    make_announcer,
    make_context,
    make_worker,
    open_store,
)
from oncefence.app.config import Settings
from oncefence.app.local_postgres import LocalPostgres
from oncefence.app.local_temporal import LocalTemporal
from oncefence.app.processes import ChildProcess, free_port
from oncefence.storage.engine import Store
from oncefence.storage.sealing import KeyRing
from oncefence.workflows.starting import EagerStarts
from tests.bench.account import make_account
from tests.bench.history import COMMANDS_MAX, make_history
from tests.bench.sides import Bare, Effect, NotDone, bare_client, bare_worker
from tests.support.dialect import Form
from tests.support.servers import migrate_once

_ROOT: Final = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Servers:
    """Where everything listens, and which processes they are."""

    settings: Settings
    provider_url: str
    processes: Mapping[str, int]
    postgres: LocalPostgres


@contextmanager
def servers() -> Iterator[Servers]:
    """
    PostgreSQL that writes through to the disk, Temporal on a file, and the fast provider.

    In the system's folder for temporary files: set TMPDIR where that one is kept in memory.
    """
    with (
        tempfile.TemporaryDirectory(prefix="oncefence-bench-") as name,
        LocalPostgres(Path(name) / "postgres") as postgres,
        LocalTemporal(Path(name) / "temporal") as temporal,
    ):
        asyncio.run(migrate_once(postgres))
        key_file = Path(name) / "keys.json"
        KeyRing.make_file(key_file)
        port = free_port()
        provider = ChildProcess.start(
            "provider",
            [sys.executable, "-m", "tests.bench.provider", str(port)],
            log_path=Path(name) / "provider.log",
            folder=_ROOT,
        )
        try:
            provider.wait_until(lambda: provider.listens_on(port))
            yield Servers(
                settings=Settings.from_environment(
                    {
                        "ONCEFENCE_DATABASE_URL": postgres.app_url,
                        "ONCEFENCE_TEMPORAL_ADDRESS": temporal.address,
                        "ONCEFENCE_KEY_FILE": str(key_file),
                    }
                ),
                provider_url=f"http://127.0.0.1:{port}",
                processes={
                    "doors, worker and driver": getpid(),
                    "Temporal": temporal.pid,
                    "PostgreSQL": postgres.pid,
                    "provider": provider.pid,
                },
                postgres=postgres,
            )
        finally:
            provider.stop()


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """The sides, ready to run, and what is asked when all is over."""

    local: Effect
    regular: Effect
    bare: Bare
    bare_eager: Bare
    store: Store
    eager: EagerStarts
    provider_url: str
    history: int

    async def refuse_what_went_wrong(self) -> None:
        """
        Hold the figures against what SQL and the provider say.

        Raises:
            NotDone: An effect is not settled as succeeded, something was sent twice, or an eager
                start was asked for and not given.
        """
        org = self.local.account.caller.scope.org
        async with self.store.connect() as connection:
            found = await connection.execute(
                text(
                    "SELECT status, count(*) FROM oncefence.executions"
                    " WHERE org_id = :org GROUP BY status"
                ),
                {"org": org},
            )
            by_status = {str(row[0]): int(row[1]) for row in found.all()}
        if set(by_status) != {"succeeded"}:
            raise NotDone(f"executions by status: {by_status}")
        effects = by_status["succeeded"] - self.history
        async with httpx.AsyncClient(trust_env=False) as http:
            sends = (await http.get(f"{self.provider_url}/sends")).json()
        due = {
            "effects": effects,
            "attempts": effects,
            "bare": self.bare.done + self.bare_eager.done,
        }
        if sends != due:
            raise NotDone(f"sends at the provider: {sends}, due: {due}")
        started = (self.eager.asked, self.eager.given)
        if started != (effects, effects):
            raise NotDone(f"eager starts asked and given: {started}, effects: {effects}")
        given = (self.bare.eager_given, self.bare_eager.eager_given)
        if given != (0, self.bare_eager.done):
            raise NotDone(f"eager starts of the two bare sides: {given}")


@asynccontextmanager
async def stage(
    servers: Servers, *, in_flight: int, history: int = COMMANDS_MAX
) -> AsyncIterator[Stage]:
    """One process as the program makes it, and beside it the floor's Worker on the same Client."""
    settings = servers.settings
    ring = KeyRing.load(settings.key_file)
    async with open_store(settings, ring) as store:
        client = await connect_temporal(settings)
        await keep_namespace(client, settings)
        announcer = make_announcer(client, settings)
        context = make_context(store, ring, announcer, settings.limits)
        account = await make_account(store, ring, servers.provider_url)
        await make_history(store, ring, account, settings.limits, commands=history)
        # What autovacuum does within the minute.
        await asyncio.to_thread(servers.postgres.psql, "ANALYZE;")
        floor_queue = f"{settings.task_queue}-floor"

        def effect(form: Form) -> Effect:
            return Effect(
                form=form,
                client=client,
                engine=store,
                ring=ring,
                announcer=announcer,
                account=account,
            )

        def bare(*, is_eager: bool) -> Bare:
            return Bare(client=client, task_queue=floor_queue, account=account, is_eager=is_eager)

        async with (
            bare_client(servers.provider_url, account.token, in_flight=in_flight) as http,
            make_worker(client, settings.task_queue, context),
            bare_worker(client, floor_queue, http),
        ):
            yield Stage(
                local=effect(Form.LOCAL),
                regular=effect(Form.REGULAR),
                bare=bare(is_eager=False),
                bare_eager=bare(is_eager=True),
                store=store,
                eager=announcer.starter.eager,
                provider_url=servers.provider_url,
                history=history,
            )
