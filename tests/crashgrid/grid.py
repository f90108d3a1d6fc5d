"""
A run of the grid: servers, slots, cells, and the verdict.

The process that forks has no event loop and no connection, and has imported everything before.
"""

import asyncio
import gc
import os
import pickle
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from oncefence.app.local_postgres import DATABASE, LocalPostgres
from oncefence.simulator.ledger import Ledger, read_ledger
from tests.crashgrid.cell import Cell
from tests.crashgrid.companion import Findings
from tests.crashgrid.ground import Servers
from tests.crashgrid.oracle import Verdict, judge
from tests.crashgrid.slot import Played, Slot, die, die_with_parent
from tests.crashgrid.warming import AimedEngine, warmed_engine
from tests.providers.simulated import Simulated, simulator_at
from tests.support import servers

SLOTS = 12
_NUMBER_BYTES = 4
_SETTINGS = {
    # No cell is a power cut.
    "fsync": "off",
    "full_page_writes": "off",
    "autovacuum": "off",
    "jit": "off",
    "max_connections": "400",
    # Every life makes its connections anew, and this is most of what one costs.
    "scram_iterations": "1",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What a run came to."""

    verdict: Verdict
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Report:
    played: Sequence[Played]
    findings: Findings


def run(cells: Sequence[Cell], *, slots: int = SLOTS) -> Run:
    """Play all cells and judge them."""
    began = time.monotonic()
    apart = [cell for cell in cells if cell.needs_own_servers]
    together = [cell for cell in cells if not cell.needs_own_servers]
    with _folder() as folder:
        pids = {}
        if apart:
            pids["apart"] = _fork(folder, "apart", lambda: _play_apart(apart, folder))
        with _servers(folder / "together") as (postgres, simulator):
            # One file position, shared by all slots, says which cell is next.
            queue = _queue(folder, len(together))
            aimed = _ready_to_fork(postgres, folder)
            for number in range(min(slots, len(together))):
                name = f"slot-{number}"
                here = _database(postgres, simulator, name.replace("-", "_"))
                pids[name] = _fork(
                    folder,
                    name,
                    lambda place=folder / name, here=here: _play(  # type: ignore[misc]  # bound now
                        Slot(here, aimed, place), together, queue
                    ),
                )
            _await(pids, folder)
        worlds = [
            world
            for world in (
                _world(folder, "apart", [name for name in pids if name == "apart"]),
                _world(folder, "together", [name for name in pids if name != "apart"]),
            )
            if world is not None
        ]
    return Run(verdict=judge(worlds), seconds=time.monotonic() - began)


# --- what a run stands on -------------------------------------------------------------------


@contextmanager
def _folder() -> Iterator[Path]:
    # In memory where there is such a place: the provider's ledger is synced row by row.
    memory = Path("/dev/shm")
    parent = memory if memory.is_dir() and os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="oncefence-grid-", dir=parent) as folder:
        yield Path(folder)


@contextmanager
def _servers(folder: Path) -> Iterator[tuple[LocalPostgres, Simulated]]:
    folder.mkdir()
    with (
        servers.own_folder() as data,
        LocalPostgres(data, settings=_SETTINGS) as postgres,
        simulator_at(folder / "ledger.jsonl") as simulator,
    ):
        # In a thread of its own, which is gone before anything is forked.
        with ThreadPoolExecutor(1) as thread:
            thread.submit(asyncio.run, servers.migrate_once(postgres)).result()
        yield postgres, simulator


def _database(
    postgres: LocalPostgres,
    simulator: Simulated,
    name: str,
    restart: Callable[[], None] | None = None,
) -> Servers:
    # One each: a sweep sees all orgs, and a frozen life may hold what it has seen.
    postgres.psql(f"CREATE DATABASE {name} TEMPLATE {DATABASE};", database="postgres")
    servers.bear_with_ill_orgs(postgres, name)
    return Servers(
        database_url=f"{postgres.app_url.rsplit('/', 1)[0]}/{name}",
        provider_port=simulator.port,
        admin_port=simulator.admin_port,
        restart_database=restart,
    )


# --- slots ----------------------------------------------------------------------------------


def _fork(folder: Path, name: str, play: Callable[[], None]) -> int:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            die_with_parent()
            play()
            code = 0
        except BaseException:  # noqa: BLE001  # told in the log, and by the code
            (folder / f"{name}.failure").write_text(traceback.format_exc())
        finally:
            die(code)
    return pid


def _ready_to_fork(postgres: LocalPostgres, folder: Path) -> AimedEngine:
    # At a provider of its own: what happens here is no cell, and stands in no cell's ledger.
    with simulator_at(folder / "warming.jsonl") as simulator:
        aimed = warmed_engine(_database(postgres, simulator, "warming"))
    # Nothing of all this is garbage, and looking at it would only copy it in every life.
    gc.collect()
    gc.freeze()
    return aimed


def _play(slot: Slot, cells: Sequence[Cell], queue: int) -> None:
    played = []
    while number := os.read(queue, _NUMBER_BYTES):
        played.append(slot.play(cells[int.from_bytes(number)]))
    _leave(slot, played)


def _play_apart(cells: Sequence[Cell], folder: Path) -> None:
    with _servers(folder / "apart") as (postgres, simulator):

        def restart() -> None:
            postgres.kill()
            postgres.start()

        here = _database(postgres, simulator, "apart", restart)
        slot = Slot(here, AimedEngine(here.database_url), folder / "apart")
        _leave(slot, [slot.play(cell) for cell in cells])


def _leave(slot: Slot, played: Sequence[Played]) -> None:
    report = _Report(played=played, findings=slot.findings())
    slot.close()
    slot.place.with_suffix(".report").write_bytes(pickle.dumps(report))


def _queue(folder: Path, count: int) -> int:
    path = folder / "queue"
    path.write_bytes(b"".join(number.to_bytes(_NUMBER_BYTES) for number in range(count)))
    return os.open(path, os.O_RDONLY)


def _await(pids: dict[str, int], folder: Path) -> None:
    failed = [name for name, pid in pids.items() if os.waitpid(pid, 0)[1] != 0]
    for name in failed:
        failure = folder / f"{name}.failure"
        sys.stderr.write(failure.read_text() if failure.exists() else f"{name} was killed\n")
    assert not failed, f"these slots did not come to their end: {failed}"


def _world(
    folder: Path, place: str, names: Sequence[str]
) -> tuple[list[Played], list[Findings], Ledger] | None:
    reports: list[_Report] = [
        pickle.loads((folder / f"{name}.report").read_bytes()) for name in names
    ]
    if not reports:
        return None
    played = [each for report in reports for each in report.played]
    shared = read_ledger(folder / place / "ledger.jsonl")
    own = [row for report in reports for row in report.findings.own_rows]
    ledger = Ledger(rows=(*shared.rows, *own))
    return played, [report.findings for report in reports], ledger
