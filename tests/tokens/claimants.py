"""
Claimants in processes of their own: `python -m tests.tokens.claimants`, told by JSON.

Each says that it is ready, waits until all are, and then runs its items, all at once, until they
have ended or park.
"""

import asyncio
import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

from oncefence.activities.attempt import AttemptActivity
from oncefence.activities.contracts import RunRequest, Step
from oncefence.activities.process_context import ProcessContext
from oncefence.domain.ids import OrgId, WorkId
from oncefence.domain.limits import Limits
from oncefence.storage.engine import make_engine
from oncefence.storage.phases.find_work import WorkRef
from oncefence.storage.phases.read_view import ViewShelf
from oncefence.storage.sealing import KeyRing
from tests.support.clubs import ClubsWorld

KEY_ID = "shared-key"
LIMITS = Limits()
DEADLINE_MS = 8_000
READY = "ready"
_PATIENCE_S = 60.0
_TURN_S = 0.02


async def nobody(ref: WorkRef) -> None:
    """Each process looks by itself."""


async def run_to_the_end(activity: AttemptActivity, org: str, work: str) -> str:
    """What became of the item: its state, or the verdict under which it is parked."""
    loop = asyncio.get_running_loop()
    give_up_at = loop.time() + _PATIENCE_S
    while loop.time() < give_up_at:
        ran = await activity.run_attempt(
            RunRequest(
                org_id=OrgId(org),
                work_id=str(UUID(work)),
                deadline_ms=DEADLINE_MS,
                # Whatever it is put off to has come: what holds it back then is a real lease.
                as_of=datetime.now(UTC) + timedelta(minutes=10),
                family="effect.dispatch",
            )
        )
        if ran.step is Step.FINISHED:
            return ran.item_state or ran.verdict
        if ran.step is Step.BLOCKED:
            return ran.verdict
        await asyncio.sleep(_TURN_S)
    return "never ended"


async def live(url: str, org: str, key: str, works: list[str]) -> list[str]:
    engine = make_engine(url, size=20)
    context = ProcessContext(
        engine=engine,
        ring=KeyRing({KEY_ID: bytes.fromhex(key)}),
        limits=LIMITS,
        owner=uuid4(),
        wake=nobody,
        views=ViewShelf(engine),
    )
    activity = AttemptActivity(context)
    sys.stdout.write(f"{READY}\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.readline)
    ends = await asyncio.gather(*(run_to_the_end(activity, org, work) for work in works))
    await engine.dispose()
    return ends


async def in_processes(
    world: ClubsWorld, key: bytes, works: Sequence[WorkId], *, processes: int
) -> list[str]:
    """What became of all items, dealt out to so many processes that begin at the same moment."""
    running = []
    for number in range(processes):
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.tokens.claimants",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdin is not None
        told = {
            "url": world.database.app_url,
            "org": world.org,
            "key": key.hex(),
            "works": [str(work) for work in works[number::processes]],
        }
        process.stdin.write(json.dumps(told).encode() + b"\n")
        running.append(process)
    try:
        for process in running:
            assert process.stdout is not None
            line = await asyncio.wait_for(process.stdout.readline(), _PATIENCE_S)
            assert line.strip().decode() == READY
        for process in running:
            assert process.stdin is not None
            process.stdin.write(b"go\n")
        ends = []
        for process in running:
            out, _ = await asyncio.wait_for(process.communicate(), 2 * _PATIENCE_S)
            ends += json.loads(out)
        return ends
    finally:
        for process in running:
            if process.returncode is None:
                process.kill()
                await process.wait()


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(live(**json.loads(sys.stdin.readline())))))
