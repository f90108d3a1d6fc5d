"""
Several processes on one database, some of them killed, for every family.

What they do is done once, for the items of all families together; each test looks at its part.
"""

import asyncio
import json
import sys
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from sqlalchemy import Row

from oncefence.domain.claim import ClaimVerdict
from oncefence.domain.ids import WorkId
from oncefence.storage.claims import NotStarted
from tests.conformance.family import FAMILIES, Family, Held
from tests.support.servers import Database
from tests.support.world import World

pytestmark = pytest.mark.asyncio(loop_scope="module")

ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 60
SHARED = 8
Works = Sequence[tuple[str, WorkId]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Aftermath:
    """What is left when all processes are gone: one killed before its claims, one after them."""

    world: World
    before: Mapping[str, Row[Any]]
    """The items that the first one never came to claim, as they were."""

    held: Mapping[str, WorkId]
    said: Sequence[str]
    """What the second one said that it holds."""

    shared: Mapping[str, Sequence[WorkId]]
    won: Counter[str]
    """What the others said that they finished."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def aftermath(store: Database) -> Aftermath:
    world = await World.make(store)
    unclaimed = {family.name: await family.pending(world) for family in FAMILIES}
    held = {family.name: await family.pending(world) for family in FAMILIES}
    shared = {
        family.name: [await family.pending(world) for _ in range(SHARED)] for family in FAMILIES
    }
    before = {name: await world.item(work) for name, work in unclaimed.items()}
    all_shared = [(name, work) for name, works in shared.items() for work in works]
    async with AsyncExitStack() as stack:
        killed, holder, *sharers = await asyncio.gather(
            stack.enter_async_context(claimant(world, [*unclaimed.items()], holds=True)),
            stack.enter_async_context(claimant(world, [*held.items()], holds=True)),
            stack.enter_async_context(claimant(world, all_shared, holds=False)),
            stack.enter_async_context(claimant(world, all_shared[::-1], holds=False)),
        )
        killed.kill()
        await killed.wait()
        await asyncio.gather(*(tell(each, "go") for each in (holder, *sharers)))
        said = [await hear(holder) for _ in held]
        holder.kill()
        ends = await asyncio.gather(*(rest_of(each) for each in sharers))
        won = Counter(work for each in ends for work in each)
    return Aftermath(world=world, before=before, held=held, said=said, shared=shared, won=won)


@asynccontextmanager
async def claimant(
    world: World, works: Works, *, holds: bool
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process that is ready to claim, and is gone at the end."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.conformance.claimant",
        cwd=ROOT,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    told = {
        "url": world.database.app_url,
        "org": world.org,
        "works": [(name, str(work)) for name, work in works],
        "holds": holds,
    }
    try:
        await tell(process, json.dumps(told))
        assert await hear(process) == "ready"
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def tell(process: asyncio.subprocess.Process, words: str) -> None:
    assert process.stdin is not None
    process.stdin.write(words.encode() + b"\n")
    await process.stdin.drain()


async def hear(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    async with asyncio.timeout(PATIENCE_SECONDS):
        return (await process.stdout.readline()).decode().strip()


async def rest_of(process: asyncio.subprocess.Process) -> list[str]:
    assert process.stdout is not None
    async with asyncio.timeout(PATIENCE_SECONDS):
        said = (await process.stdout.read()).decode().split()
    assert await process.wait() == 0
    return [word for word in said if word != "won"]


async def test_a_process_killed_before_its_claim_leaves_no_trace(
    aftermath: Aftermath, family: Family
) -> None:
    """The next one has the first epoch, and no claim was lost (C511)."""
    world, before = aftermath.world, aftermath.before[family.name]
    assert await world.item(WorkId(before.work_id)) == before

    held = await family.try_to_claim(world, WorkId(before.work_id))

    assert isinstance(held, Held)
    assert (held.fence.epoch, (await world.item(held.fence.work)).claims_lost) == (1, 0)


async def test_a_process_killed_after_its_claim_loses_nothing(
    aftermath: Aftermath, family: Family
) -> None:
    """Its item waits for the end of the lease and goes on; what it opened is lost (C511, C512)."""
    world, work = aftermath.world, aftermath.held[family.name]
    assert f"held {work} 1" in aftermath.said

    at_once = await family.try_to_claim(world, work)
    await world.expire_lease(work)
    later = await family.try_to_claim(world, work)

    assert isinstance(at_once, NotStarted)
    assert at_once.verdict is ClaimVerdict.IN_FLIGHT
    if family.name == "effect.dispatch":
        # It may have sent: nobody sends again, and the attempt is looked up.
        assert isinstance(later, NotStarted)
        assert later.verdict is ClaimVerdict.ATTEMPT_LOST
        assert await world.settle_as_lost(work) is not None
        assert await family.effects(world, work) == 1
    else:
        assert isinstance(later, Held)
        assert later.fence.epoch == 2
        assert (await world.item(work)).claims_lost == 1


async def test_several_processes_share_the_work(aftermath: Aftermath, family: Family) -> None:
    """Each item is had by one of them, once (C509, C518)."""
    world, works = aftermath.world, aftermath.shared[family.name]

    rows = [await world.item(work) for work in works]

    assert [aftermath.won[str(work)] for work in works] == [1] * SHARED
    assert {(row.state, row.ownership_epoch, row.claims_lost) for row in rows} == {
        ("succeeded", 1, 0)
    }
    assert [await family.effects(world, work) for work in works] == [1] * SHARED
