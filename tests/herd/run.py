"""Workers that are killed and frozen while commands keep coming, to the last figure."""

import asyncio
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx

from oncefence.app.demo.board import is_at_rest
from oncefence.app.stack import Stack
from oncefence.domain.limits import Limits
from oncefence.storage.engine import Store, make_engine
from oncefence.storage.phases.read_progress import read_progress
from oncefence.storage.sealing import KeyRing
from tests.herd.feeding import PER_SUBJECT, Feeding, lines_of, rules_for
from tests.herd.flock import Flock
from tests.herd.verdict import Verdict, judge
from tests.support.dialect import Dialect, Provider, shipped_dialect
from tests.support.servers import Database
from tests.support.station import ProviderWorld

TIME_SCALE = 0.001
"""The five looks at an unknown outcome take 26 seconds, and a lease outlives its deadline by
a tenth of one."""

_PER_SECOND = 6.0
_LOCAL_MS, _REGULAR_MS = 2_000, 8_500
_LONG_FREEZE_EVERY = 3
_TICK_SECONDS = 0.1
_READY_SECONDS = 90.0
# A breaker that the faults opened stands open for half a minute, and then for a whole one: its
# times are of the deployment, and are not scaled.
_SETTLE_SECONDS = 240.0
_FIRST_CONTACT = 10_000


class NotReady(Exception):
    """The herd could not even begin; the message says why."""


# A fifth of all goes wrong here, so accounts break and come back and break again. That takes real
# time, doubled each time, where everything else waits by the scale of the run.
_SHORT_BREAKS = (
    "UPDATE oncefence.breaker_rules SET open_first = interval '1 second',"
    " open_max = interval '2 seconds', between_writes = interval '1 second';"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is done to whom, and for how long."""

    seconds: float = 60.0
    workers: int = 4
    kill_every: float = 3.0
    freeze_every: float = 7.0
    seed: int = 1
    time_scale: float = TIME_SCALE
    with_long_ones: bool = True
    """Commands of long deadlines: where a kill strikes one, it is known a minute later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The verdict on a run, with what was done in it."""

    plan: Plan
    kills: int
    freezes: int
    handed_over: int
    tries: int
    seconds: float
    settle_seconds: float
    verdict: Verdict

    @property
    def holds(self) -> bool:
        """Whether nothing broke, and something was tried."""
        found = self.verdict
        broken = found.duplicates + found.lost + found.open + found.violations
        return broken == 0 and found.commands > 0

    def as_json(self) -> dict[str, Any]:
        """The figures for machines."""
        found = self.verdict
        return {
            "seconds": round(self.seconds, 1),
            "workers": self.plan.workers,
            "kills": self.kills,
            "freezes": self.freezes,
            "commands": found.commands,
            "provider_changes": found.provider_changes,
            "duplicates": found.duplicates,
            "lost": found.lost,
            "unknowns": found.unknowns,
            "settled_by_lookup": found.settled_by_lookup,
            "open": found.open,
            "violations": found.violations,
            "seed": self.plan.seed,
            "lookupable_unknowns": found.lookupable,
            "needs_attention": found.needs_attention,
            "attempts": found.attempts,
            "attempts_lost": found.attempts_lost,
            "handed_over": self.handed_over,
            "door_tries": self.tries,
            "settle_seconds": round(self.settle_seconds, 1),
            "by_status": dict(found.by_status),
            "faults_fired": dict(found.faults_fired),
            "violation_rows": list(found.rows),
        }


def run_herd(folder: Path, plan: Plan, say: Callable[[str], None]) -> Report:
    """
    The report on one run whose data is kept in `folder`.

    Raises:
        ConfigurationRefused: A server does not start.
        NotReady: The workers do not.
    """
    with Stack(folder, time_scale=plan.time_scale, say=say) as stack:
        postgres = stack._postgres  # its rules are nobody's to set but a migration's
        assert postgres is not None, "a stack of its own has a server of its own"
        postgres.psql(_SHORT_BREAKS)
        say(f"starting {plan.workers} workers")
        flock = Flock(stack, plan.workers)
        try:
            return asyncio.run(_Run(stack=stack, flock=flock, plan=plan, say=say).whole())
        finally:
            flock.close()


@dataclass(kw_only=True)
class _Run:
    stack: Stack
    flock: Flock
    plan: Plan
    say: Callable[[str], None]
    dice: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.dice = random.Random(self.plan.seed)

    async def whole(self) -> Report:
        store = make_engine(self.stack.database_url)
        try:
            return await self._whole(store)
        finally:
            await store.dispose()

    async def _whole(self, store: Store) -> Report:
        plan, flock = self.plan, self.flock
        world = await self._world(store)
        lines = lines_of(
            world, round(plan.seconds * _PER_SECOND), with_long_ones=plan.with_long_ones
        )
        self.say(f"linking {len(lines) // PER_SUBJECT + 1} subjects to records of the provider")
        for subject in dict.fromkeys(line.subject for line in lines):
            await world.link(subject)
        await self.stack.simulator.admin.add_rules(rules_for(world, lines, seed=plan.seed))
        await self._all_ready()
        feeding = Feeding(
            credential=world.credential,
            urls=[slot.url for slot in flock.slots],
            dice=random.Random(plan.seed),
        )
        began_at = time.monotonic()
        ends_at = began_at + plan.seconds
        self.say(f"{len(lines)} commands come, a worker is killed every {plan.kill_every:g} s")
        fed = asyncio.create_task(
            feeding.feed(
                lines,
                each_seconds=1 / _PER_SECOND,
                goes_on=lambda: time.monotonic() < ends_at,
            )
        )
        await self._strike_until(ends_at)
        self.say("no more of that: every worker goes on")
        flock.thaw_all()
        fed_at = time.monotonic()
        await self._settled(store, world, fed)
        settled_at = time.monotonic()
        self.say("stopping every worker, so that nothing moves while it is counted")
        ends = [*flock.ended_by_themselves, *flock.stop()]
        verdict = await judge(
            self.stack,
            store,
            handed_over=len(feeding.receipts),
            of_the_processes=[*ends, *_told_twice(feeding.receipts)],
        )
        return Report(
            plan=plan,
            kills=flock.kills,
            freezes=flock.freezes,
            handed_over=len(feeding.receipts),
            tries=feeding.tries,
            seconds=fed_at - began_at,
            settle_seconds=settled_at - fed_at,
            verdict=verdict,
        )

    async def _world(self, store: Store) -> ProviderWorld:
        stack, dialect = self.stack, _of_short_memory(shipped_dialect())
        # A world asks its database for nothing but the engine of the application.
        database = Database(
            name="oncefence",
            app_url=stack.database_url,
            migrator_url="",
            admin_url="",
            app_engine=store,
            migrator_engine=store,
        )
        return await ProviderWorld.on(
            database,
            Provider(
                base_url=stack.simulator.url,
                dialect=dialect,
                make_record=_Records(url=stack.simulator.admin_url).make,
            ),
            limits=replace(Limits(), time_scale=self.plan.time_scale),
            ring=KeyRing.load(stack.key_file),
            view=dialect.view(local_ms=_LOCAL_MS, regular_ms=_REGULAR_MS),
            token=stack.simulator.token_file.read_text().strip(),
        )

    async def _all_ready(self) -> None:
        give_up_at = time.monotonic() + _READY_SECONDS
        while not self.flock.are_ready():
            self.flock.tend()
            if self.flock.ended_by_themselves:
                raise NotReady(f"a worker does not start: {self.flock.ended_by_themselves[0]}")
            if time.monotonic() > give_up_at:
                raise NotReady(f"the workers were not ready after {_READY_SECONDS:.0f} s")
            await asyncio.sleep(_TICK_SECONDS)

    async def _strike_until(self, ends_at: float) -> None:
        plan, flock = self.plan, self.flock
        kill_at = time.monotonic() + plan.kill_every
        freeze_at = time.monotonic() + plan.freeze_every
        while (now := time.monotonic()) < ends_at:
            flock.tend()
            if now > freeze_at and flock.freeze_one(self.dice, self._freeze_seconds()):
                freeze_at += plan.freeze_every
            if now > kill_at and flock.kill_one(self.dice):
                kill_at += plan.kill_every
            await asyncio.sleep(_TICK_SECONDS)

    def _freeze_seconds(self) -> float:
        """Longer than the lease of what it sends just then."""
        is_long = self.flock.freezes % _LONG_FREEZE_EVERY == _LONG_FREEZE_EVERY - 1
        deadline_ms = _REGULAR_MS if is_long else _LOCAL_MS
        margin = Limits(time_scale=self.plan.time_scale).lease_margin_scaled_seconds
        return deadline_ms / 1000 + margin + self.dice.uniform(0.3, 1.5)

    async def _settled(self, store: Store, world: ProviderWorld, fed: asyncio.Task[None]) -> None:
        """Return when everything is at rest, or has had more time than it can need."""
        give_up_at = time.monotonic() + _SETTLE_SECONDS
        while True:
            self.flock.tend()
            progress = await read_progress(store, world.org)
            open_ones = [each for each in progress.commands if not is_at_rest(each)]
            if fed.done() and not open_ones and not progress.open_attempts:
                await fed
                return
            if time.monotonic() > give_up_at:
                self.say(f"{len(open_ones)} commands are not at rest; counting all the same")
                fed.cancel()
                return
            await asyncio.sleep(_TICK_SECONDS)


def _told_twice(receipts: Mapping[str, set[str]]) -> Sequence[Mapping[str, object]]:
    return [
        {"invariant": "one_receipt_per_key", "outbox_id": outbox, "commands": sorted(found)}
        for outbox, found in receipts.items()
        if len(found) != 1
    ]


def _of_short_memory(shipped: Dialect) -> Dialect:
    """A provider that closes the account for a second and not for ten, each time it says 429."""
    before, name, burst = shipped.pack_text.partition("[quota.burst]")
    assert name, "the shipped pack counts bursts"
    assert "window_s = 10\n" in burst, "over ten seconds"
    burst = burst.replace("window_s = 10\n", "window_s = 1\n", 1)
    assert before.count("TEN_SECONDLY_ROLLING = 10") == 1, "and says to wait for ten"
    before = before.replace("TEN_SECONDLY_ROLLING = 10", "TEN_SECONDLY_ROLLING = 1")
    return replace(shipped, pack_text=before + name + burst)


@dataclass(kw_only=True)
class _Records:
    """Records of the simulated provider, made one after the other."""

    url: str
    made: int = 0

    def make(self) -> str:
        self.made += 1
        contact = str(_FIRST_CONTACT + self.made)
        answer = httpx.post(
            f"{self.url}/contacts",
            json={"id": contact, "properties": {"jobtitle": "before"}},
            trust_env=False,
        )
        answer.raise_for_status()
        return contact
