"""
`./dev bench quota`: whether several workers together stay under one limit, and use it up.

Four processes send through one account of a provider that lets so many requests in each second.
What was reserved is read from the attempts, by the database's own time; what came of it is told by
the provider. Halfway one process is killed and another takes its place.
"""

import asyncio
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any, Final

import httpx
from sqlalchemy import text

from oncefence.app.local_postgres import LocalPostgres
from oncefence.app.processes import ChildProcess, free_port
from oncefence.domain.limits import Limits
from oncefence.storage.engine import Store, make_engine
from oncefence.storage.sealing import KeyRing
from tests.bench.sides import NotDone
from tests.support.dialect import Form, Provider, shipped_dialect
from tests.support.servers import Database, migrate_once
from tests.support.station import ProviderWorld
from tests.support.world import NO_QUOTA

USED_MIN: Final = 0.9
"""So much of the limit is to be used: the margin of the window costs 4 %, its slots one more."""

_ROOT: Final = Path(__file__).parents[2]
_WINDOW: Final = timedelta(seconds=1)
_IN_FLIGHT: Final = 6
_ACCEPTING: Final = 8

RESERVED = text(
    "SELECT (q ->> 'at')::timestamptz AS at FROM oncefence.effect_attempts AS a,"
    " jsonb_array_elements(a.quota) AS q WHERE a.org_id = :org ORDER BY 1"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How long, with how many workers, against how many requests a second."""

    seconds: float = 20.0
    workers: int = 4
    limit: int = 50


def run(plan: Plan, say: Callable[[str], None]) -> dict[str, Any]:
    """
    Measure, and give the report; whether it is as it must be stands in its `faults`.

    Raises:
        NotDone: A worker ended by itself: there are no figures.
    """
    say("Starting PostgreSQL and a provider that counts ...")
    with (
        tempfile.TemporaryDirectory(prefix="oncefence-bench-") as name,
        LocalPostgres(Path(name) / "postgres") as postgres,
        _provider(Path(name), plan.limit) as provider_url,
    ):
        asyncio.run(migrate_once(postgres))
        key_file = Path(name) / "keys.json"
        KeyRing.make_file(key_file)
        told, org = asyncio.run(_commands(plan, postgres, key_file, provider_url, say))
        say(f"{plan.workers} workers for {plan.seconds:g} s, one of them killed halfway")
        _work(plan, told)
        reserved = asyncio.run(_reserved(postgres.app_url, org))
        sends = httpx.get(f"{provider_url}/sends", trust_env=False).json()
    return report_of(plan, reserved, sends)


def report_of(plan: Plan, reserved: Sequence[datetime], sends: Mapping[str, int]) -> dict[str, Any]:
    """The report on what was reserved when, and what the provider says to it."""
    most = most_in(reserved, _WINDOW)
    ends_at = reserved[0] + timedelta(seconds=plan.seconds)
    used = sum(moment < ends_at for moment in reserved) / (plan.limit * plan.seconds)
    faults = []
    if most > plan.limit:
        faults.append(f"{most} were reserved in one second; at most {plan.limit} is right")
    if sends["refused"]:
        faults.append(f"the provider refused {sends['refused']} requests; none is right")
    if used < USED_MIN:
        faults.append(f"{used:.1%} of the limit was used; at least {USED_MIN:.0%} is right")
    return {
        "benchmark": "quota",
        "machine": {"platform": platform.platform(), "python": platform.python_version()},
        "workers": plan.workers,
        "seconds": plan.seconds,
        "limit_per_second": plan.limit,
        "reserved": len(reserved),
        "most_reserved_in_a_second": most,
        "used_share": round(used, 3),
        "used_share_min": USED_MIN,
        "provider": dict(sends),
        "faults": faults,
    }


def most_in(moments: Sequence[datetime], window: timedelta) -> int:
    """How many of the ordered moments one window holds at most."""
    most = first = 0
    for place, moment in enumerate(moments):
        while moment - moments[first] >= window:
            first += 1
        most = max(most, place - first + 1)
    return most


@contextmanager
def _provider(folder: Path, limit: int) -> Iterator[str]:
    port = free_port()
    provider = ChildProcess.start(
        "provider",
        [sys.executable, "-m", "tests.bench.limiting_provider", str(port), str(limit)],
        log_path=folder / "provider.log",
        folder=_ROOT,
    )
    try:
        provider.wait_until(lambda: provider.listens_on(port))
        yield f"http://127.0.0.1:{port}"
    finally:
        provider.stop()


async def _commands(
    plan: Plan,
    postgres: LocalPostgres,
    key_file: Path,
    provider_url: str,
    say: Callable[[str], None],
) -> tuple[list[Mapping[str, Any]], str]:
    """What each worker is to do, and the org whose commands they are."""
    store = make_engine(postgres.app_url)
    try:
        world = await _world(store, postgres, key_file, provider_url, plan.limit)
        wanted = round(plan.limit * plan.seconds * 1.1)
        say(f"accepting {wanted} commands")
        works: list[str] = []
        numbers = iter(range(wanted))

        async def accept() -> None:
            for number in numbers:
                accepted = await world.accept_in(Form.LOCAL, f"lead-{number}")
                works.append(str(accepted.work))

        async with asyncio.TaskGroup() as group:
            for _ in range(_ACCEPTING):
                group.create_task(accept())
        operation = world.view.operation(world.provider.dialect.operation_of(Form.LOCAL))
        return [
            {
                "database_url": postgres.app_url,
                "key_file": str(key_file),
                "org": world.org,
                "works": works[worker :: plan.workers],
                "deadline_ms": operation.total_deadline_ms,
                "in_flight": _IN_FLIGHT,
                "seconds": plan.seconds,
            }
            for worker in range(plan.workers)
        ], world.org
    finally:
        await store.dispose()


async def _world(
    store: Store, postgres: LocalPostgres, key_file: Path, provider_url: str, limit: int
) -> ProviderWorld:
    shipped = shipped_dialect()
    before, name, after = shipped.pack_text.partition("[quota.burst]")
    assert name, "the shipped pack counts bursts"
    # Of writes alone: what is left to lookups would stay unused here.
    burst = after.replace('["crm.objects.write", "crm.objects.read"]', '["crm.objects.write"]', 1)
    burst = burst.replace("limit = 100", f"limit = {limit}", 1)
    dialect = replace(
        shipped,
        pack_text=before + name + burst.replace("window_s = 10\n", "window_s = 1\n", 1),
        binding_text=shipped.binding_text.replace(NO_QUOTA, "\n[quota]\ndaily = false\n"),
    )
    numbers = count(100_000)
    # A world asks its database for nothing but the engine of the application.
    database = Database(
        name="oncefence",
        app_url=postgres.app_url,
        migrator_url="",
        admin_url="",
        app_engine=store,
        migrator_engine=store,
    )
    return await ProviderWorld.on(
        database,
        Provider(base_url=provider_url, dialect=dialect, make_record=lambda: str(next(numbers))),
        limits=Limits(),
        ring=KeyRing.load(key_file),
    )


def _work(plan: Plan, told: Sequence[Mapping[str, Any]]) -> None:
    """Have the workers work to the end; the first is killed halfway, and replaced."""
    workers = [_start(each) for each in told]
    try:
        for worker in workers:
            _await_ready(worker)
        began_at = time.monotonic()
        for worker in workers:
            _begin(worker)
        _let_pass(workers, began_at + plan.seconds / 2)
        workers[0].kill()
        workers[0].wait()
        workers[0] = _start(told[0])
        _await_ready(workers[0])
        _begin(workers[0])
        _let_pass(workers, began_at + plan.seconds)
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
            for pipe in (worker.stdin, worker.stdout):
                if pipe is not None:
                    pipe.close()


def _start(told: Mapping[str, Any]) -> subprocess.Popen[str]:
    worker = subprocess.Popen(
        [sys.executable, "-P", "-m", "tests.bench.quota_worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=_ROOT,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [str(_ROOT), *sys.path]))},
        text=True,
    )
    _write(worker, json.dumps(told))
    return worker


def _await_ready(worker: subprocess.Popen[str]) -> None:
    assert worker.stdout is not None
    if worker.stdout.readline() != "ready\n":
        raise NotDone(f"a worker ended by {worker.wait()} before it began")


def _begin(worker: subprocess.Popen[str]) -> None:
    _write(worker, "begin")


def _write(worker: subprocess.Popen[str], line: str) -> None:
    assert worker.stdin is not None
    worker.stdin.write(line + "\n")
    worker.stdin.flush()


def _let_pass(workers: Sequence[subprocess.Popen[str]], until: float) -> None:
    """Wait until then; no worker ends of itself before."""
    while time.monotonic() < until:
        for worker in workers:
            if worker.poll() not in (None, 0):
                raise NotDone(f"a worker ended by {worker.returncode}")
        time.sleep(0.02)


async def _reserved(url: str, org: str) -> list[datetime]:
    store = make_engine(url)
    try:
        async with store.connect() as connection:
            return [row.at for row in (await connection.execute(RESERVED, {"org": org})).all()]
    finally:
        await store.dispose()
