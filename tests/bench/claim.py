"""
`./dev bench claim`: what one claim touches and takes, with a long history and with a short one.

Two databases on one server hold the same but for the number of settled commands of the org that
claims. Claims take turns between them, one by one, so a machine that is slow is slow for both.
A B-tree over a hundred times the rows is a level taller, and each way down it touches one page
more: what is compared is how often a claim goes down each index, and what it touches of the rows.
"""

import asyncio
import os
import platform
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, Final
from uuid import UUID, uuid4

import asyncpg
from sqlalchemy import TextClause
from sqlalchemy.dialects.postgresql.asyncpg import PGDialect_asyncpg

from oncefence.app.local_postgres import LocalPostgres
from oncefence.domain.claim import ENGINE_CAPABILITY
from oncefence.domain.effect import Outcome
from oncefence.domain.limits import Limits
from oncefence.storage.claims import CLAIM
from oncefence.storage.phases.start_attempt import START
from tests.bench.copies import Model, copy, copy_as_other_family
from tests.bench.measuring import percentile
from tests.bench.sides import NotDone
from tests.bench.touched import Pages, Touched, Tree, touched_by, trees_of
from tests.support.servers import TEMPLATE, fresh_database, migrate_once
from tests.support.world import Accepted, World

SHORT: Final = 10_000
LONG: Final = 1_000_000
ROUNDS: Final = 7
TIME_RATIO_MAX: Final = 1.05
SIDES: Final = ("short", "long")
FAMILIES: Final = {"start_attempt_v3": "effect.dispatch", "claim_work": "bench.claimed"}
EACH_ROUND: Final = 100
_WARM_UP: Final = 20
_TOUCHED: Final = 15
_FIRST_MINUTE: Final = 5
_LIMITS: Final = Limits()
# By then whatever is pending is due.
_LATER: Final = datetime(9999, 1, 1, tzinfo=UTC)
# Nothing here is to survive a crash, and nothing may happen at a moment of its own.
_SETTINGS: Final = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "autovacuum": "off",
    "shared_buffers": "1GB",
    "max_wal_size": "8GB",
    "checkpoint_timeout": "1h",
    "maintenance_work_mem": "256MB",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How long the long history is, and how many claims a round has."""

    rows: int = LONG
    short: int = SHORT
    each_round: int = EACH_ROUND


@dataclass(kw_only=True)
class Ground:
    """One database: who claims in it, who owns it, and the items that wait to be claimed."""

    name: str
    org: str
    connection: asyncpg.Connection
    owner: asyncpg.Connection
    backend: int
    """The process of the server that serves `connection`."""

    model: Accepted
    """A command that waits, of which there are as many copies as are claimed."""

    waiting: dict[str, list[UUID]] = field(default_factory=dict)

    def worked_seconds(self) -> float:
        """The CPU time that the server has spent on `connection` so far."""
        # The first figure is in nanoseconds; what psutil reads is in hundredths of a second.
        counted = Path(f"/proc/{self.backend}/schedstat").read_text(encoding="ascii")
        return int(counted.split()[0]) / 1e9

    async def forget_claims(self) -> None:
        """Be idle: nothing that was claimed so far is left."""
        await self.owner.execute(
            "DELETE FROM oncefence.effect_attempts WHERE settled_at IS NULL;"
            " DELETE FROM oncefence.work_items WHERE state = 'processing'"
        )

    async def give_work(self, mark: str, count: int) -> None:
        """As many items of each kind as are claimed before the next are given."""
        await self.owner.execute("SET session_replication_role = replica")
        copies = Model(
            org=self.org, command=self.model.command, execution=self.model.execution, mark=mark
        )
        await copy(self.owner, copies, count)
        await copy_as_other_family(self.owner, copies, count, FAMILIES["claim_work"])
        for kind, family in FAMILIES.items():
            found = await self.owner.fetch(
                "SELECT work_id FROM oncefence.work_items WHERE org_id = $1 AND family = $2"
                " AND state = 'pending' AND work_id <> $3 ORDER BY work_id",
                self.org,
                family,
                self.model.work,
            )
            self.waiting[kind] = [row["work_id"] for row in found]

    async def claim(self, kind: str) -> float:
        """Claim the next item of this kind, in a transaction of its own; how long it took."""
        work = self.waiting[kind].pop()
        values = {
            "org": self.org,
            "work": work,
            "as_of": _LATER,
            "owner": uuid4(),
            "token": uuid4(),
            "lease_margin": timedelta(seconds=_LIMITS.lease_margin_scaled_seconds),
            "claims_lost_max": _LIMITS.claims_lost_max,
            "engine_capability": ENGINE_CAPABILITY,
            "ramp_claims_max": _LIMITS.admission_window,
            "may_start": True,
            "may_claim": True,
        }
        sql, names = STATEMENTS[kind]
        began = perf_counter()
        row = await self.connection.fetchrow(sql, *(values[name] for name in names))
        took = perf_counter() - began
        if row["verdict"] not in ("started", "claimed"):
            raise NotDone(f"{kind} over {self.name}: {row['verdict']}")
        return took


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """Over the short history and over the long, in ms: on the clock, and of the server's CPU."""

    ms: tuple[float, float]
    worked_ms: tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Both:
    """The two that are compared."""

    short: Ground
    long: Ground


def _compiled(statement: TextClause) -> tuple[str, Sequence[str]]:
    """The statement as the program's driver is given it."""
    compiled = statement.compile(dialect=PGDialect_asyncpg())
    return str(compiled), tuple(compiled.positiontup or ())


STATEMENTS: Final = {"start_attempt_v3": _compiled(START), "claim_work": _compiled(CLAIM)}


def run(plan: Plan, say: Callable[[str], None]) -> dict[str, Any]:
    """
    Measure, and give the report; whether it is as it must be stands in its `faults`.

    Raises:
        NotDone: A claim was refused: there are no figures.
    """
    with _server() as server:
        return asyncio.run(_run(plan, server, say))


@contextmanager
def _server() -> Iterator[LocalPostgres]:
    with (
        tempfile.TemporaryDirectory(prefix="oncefence-bench-") as name,
        LocalPostgres(Path(name) / "postgres", settings=_SETTINGS) as server,
    ):
        asyncio.run(migrate_once(server))
        server.psql(f"CREATE DATABASE {TEMPLATE} TEMPLATE oncefence;", database="postgres")
        yield server


async def _run(plan: Plan, server: LocalPostgres, say: Callable[[str], None]) -> dict[str, Any]:
    async with AsyncExitStack() as stack:
        grounds = []
        for rows in (plan.short, plan.rows):
            say(f"Writing a history of {rows:,} settled commands ...")
            grounds.append(await stack.enter_async_context(_ground(server, plan, rows)))
        both = Both(short=grounds[0], long=grounds[1])
        unknown = {kind: await _settled_plans(kind, both, _FIRST_MINUTE) for kind in STATEMENTS}
        for each in grounds:
            # What autovacuum does sooner or later, here while next to nothing waits or runs: of
            # all that is claimed below the statistics know nothing, as of a burst at daybreak.
            await each.forget_claims()
            await each.owner.execute("VACUUM (ANALYZE)", timeout=3600)
            await each.give_work("burst", _WARM_UP + _TOUCHED + ROUNDS * plan.each_round)
        trees = {name: await trees_of(getattr(both, name).owner) for name in SIDES}
        kinds = {}
        for kind in STATEMENTS:
            say(f"{kind}: {ROUNDS} rounds of {plan.each_round} claims ...")
            touched = await _settled_plans(kind, both, _TOUCHED)
            rounds = [await _round(kind, both, plan) for _ in range(ROUNDS)]
            kinds[kind] = figures_of(touched, unknown[kind], trees, rounds)
        return _report(plan, kinds)


@asynccontextmanager
async def _ground(server: LocalPostgres, plan: Plan, rows: int) -> AsyncIterator[Ground]:
    async with fresh_database(server) as database:
        world = await World.make(database, org="bench")
        owner = await asyncpg.connect(database.admin_url)
        # As the program connects; and statistics as they are now, each time they are read.
        connection = await asyncpg.connect(
            database.app_url,
            server_settings={"search_path": "oncefence", "stats_fetch_consistency": "none"},
        )
        try:
            done, started = await world.a_running_command("done")
            await world.settle(started, Outcome.ACCEPTED)
            await owner.execute("SET session_replication_role = replica")
            await copy(
                owner,
                Model(
                    org=world.org, command=done.command, execution=done.execution, mark="settled"
                ),
                rows,
            )
            ground = Ground(
                name=f"{rows:,} rows",
                org=world.org,
                connection=connection,
                owner=owner,
                backend=connection.get_server_pid(),
                model=await world.accept_command("waits"),
            )
            await ground.give_work("first", _WARM_UP + _FIRST_MINUTE)
            yield ground
        finally:
            await connection.close()
            await owner.close()


async def _in_turn(kind: str, both: Both, *, is_long_first: bool) -> tuple[float, float]:
    """One claim over each, and how long the two took: over the short history, over the long."""
    if is_long_first:
        long = await both.long.claim(kind)
        return await both.short.claim(kind), long
    return await both.short.claim(kind), await both.long.claim(kind)


async def _round(kind: str, both: Both, plan: Plan) -> Round:
    """One round: what a claim over each took, and what the server worked for it, in ms."""
    before = [ground.worked_seconds() for ground in (both.short, both.long)]
    took = [
        await _in_turn(kind, both, is_long_first=bool(number % 2))
        for number in range(plan.each_round)
    ]
    after = [ground.worked_seconds() for ground in (both.short, both.long)]
    short, long = zip(*took, strict=True)
    worked = [
        1000 * (now - past) / plan.each_round for past, now in zip(before, after, strict=True)
    ]
    return Round(
        ms=(1000 * _undisturbed(short), 1000 * _undisturbed(long)), worked_ms=(worked[0], worked[1])
    )


def _undisturbed(took: Sequence[float]) -> float:
    """What a claim takes that nothing interrupts: a quarter of them take no longer."""
    return percentile(took, 0.25)


async def _settled_plans(kind: str, both: Both, times: int) -> dict[str, Touched]:
    """What a claim touches once the session has made the plans that it keeps."""
    for _ in range(_WARM_UP):
        await _in_turn(kind, both, is_long_first=False)
    return {
        name: await touched_by(ground.connection, lambda: ground.claim(kind), times)  # noqa: B023
        for name in SIDES
        for ground in [getattr(both, name)]
    }


def figures_of(
    touched: Mapping[str, Touched],
    first_minute: Mapping[str, Touched],
    trees: Mapping[str, Mapping[str, Tree]],
    rounds: Sequence[Round],
) -> dict[str, Any]:
    """What a kind of claim came to, and where the two histories do not give the same."""
    short, long = (touched[name] for name in SIDES)
    ways = {name: touched[name].ways_down(trees[name]) for name in SIDES}
    ratios = [each.ms[1] / each.ms[0] for each in rounds]
    by_cpu = [each.worked_ms[1] / each.worked_ms[0] for each in rounds]
    return {
        "pages": {name: touched[name].pages for name in SIDES},
        "pages_of_rows": {name: sum(touched[name].rows.values()) for name in SIDES},
        "ways_down_indexes": {name: round(sum(ways[name].values()), 2) for name in SIDES},
        "first_minute_pages": {name: first_minute[name].pages for name in SIDES},
        "ms": {
            name: round(median(each.ms[number] for each in rounds), 3)
            for number, name in enumerate(SIDES)
        },
        "time_ratio": round(median(ratios), 3),
        "time_ratio_by_round": [round(ratio, 3) for ratio in ratios],
        "server_cpu_ratio": round(median(by_cpu), 3),
        "server_cpu_ms": {
            name: round(median(each.worked_ms[number] for each in rounds), 3)
            for number, name in enumerate(SIDES)
        },
        "differences": {
            "rows": _differences(short.rows, long.rows),
            "ways_down": _differences(ways["short"], ways["long"]),
        },
    }


def _differences(short: Pages, long: Pages) -> dict[str, list[float]]:
    """Where the two are not the same: over the short history and over the long."""
    both = {name: [short.get(name, 0), long.get(name, 0)] for name in {*short, *long}}
    return {name: pair for name, pair in sorted(both.items()) if pair[0] != pair[1]}


def faults_of(kinds: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """What is not as it must be; of indexes, how often they are gone down and not how deep."""
    faults = []
    for kind, figures in kinds.items():
        for what, tables in figures["differences"].items():
            faults += [
                f"{kind}: {what} of {table}: {short:g} over the short history and {long:g} over "
                "the long one"
                for table, (short, long) in tables.items()
            ]
        if figures["time_ratio"] > TIME_RATIO_MAX:
            faults.append(
                f"{kind}: takes {figures['time_ratio']} times as long over the long history; "
                f"at most {TIME_RATIO_MAX} is right"
            )
    return faults


def _report(plan: Plan, kinds: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    return {
        "benchmark": "claim",
        "unit": "pages in the shared buffers, and ms, of one claim with its commit",
        "kinds": dict(kinds),
        "time_ratio_max": TIME_RATIO_MAX,
        "faults": faults_of(kinds),
        "run": {
            "rows": {"short": plan.short, "long": plan.rows},
            "rounds": ROUNDS,
            "claims_each_round": plan.each_round,
            "cpus": os.cpu_count(),
            "load_average": [round(each, 2) for each in os.getloadavg()],
            "python": platform.python_version(),
        },
    }
