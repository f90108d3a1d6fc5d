"""
A worker process of `./dev bench quota`: it runs items as their workflows would, until a time.

What it is to do comes as one JSON object on a line. It says when it is ready, and begins at the
next line. Temporal is left out: a workflow only waits for the time that a run names, and that is
done here.
"""

import asyncio
import json
import sys
import time
from collections.abc import Mapping
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from oncefence.activities.attempt import AttemptActivity
from oncefence.activities.contracts import RunRequest, Step
from oncefence.activities.process_context import ProcessContext
from oncefence.activities.waking import AdmissionWindow
from oncefence.app.bootstrap import make_context
from oncefence.domain.ids import OrgId, WorkId
from oncefence.domain.limits import Limits
from oncefence.storage.engine import make_engine
from oncefence.storage.phases.find_work import WorkRef
from oncefence.storage.sealing import KeyRing


class _Nobody:
    """Whom this process wakes: every item is somebody's here already."""

    async def wake(self, ref: WorkRef) -> None:
        """Nothing to do."""


class _NoWindow(AdmissionWindow):
    """Likewise, no item waits for a place in the window of its class."""

    async def wake_successors(self, org: OrgId, work: WorkId) -> None:
        """Nothing to do."""


class _Context(ProcessContext):
    """The program's own, but for the window."""

    @property
    def window(self) -> AdmissionWindow:
        return _NoWindow(engine=self.engine, limits=self.limits, wake=self.wake)


async def work(told: Mapping[str, Any]) -> None:
    """Run the items, so many at once, until each is done or the time is over."""
    engine = make_engine(told["database_url"])
    ring = KeyRing.load(Path(told["key_file"]))
    made = make_context(engine, ring, _Nobody(), Limits())  # type: ignore[arg-type]  # wakes nobody
    runs = AttemptActivity(
        _Context(**{each.name: getattr(made, each.name) for each in fields(made)})
    )
    works = iter(told["works"])
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.readline)
    ends_at = time.monotonic() + told["seconds"]

    async def one_after_the_other() -> None:
        for each in works:
            while time.monotonic() < ends_at:
                result = await runs.run_attempt(
                    RunRequest(
                        org_id=told["org"],
                        work_id=each,
                        deadline_ms=told["deadline_ms"],
                        as_of=datetime.now(UTC),
                        family="effect.dispatch",
                    )
                )
                if result.step is not Step.WAIT:
                    break
                due = result.until or datetime.now(UTC) + timedelta(milliseconds=100)
                await asyncio.sleep(max(0.001, (due - datetime.now(UTC)).total_seconds()))

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(told["in_flight"]):
                group.create_task(one_after_the_other())
    finally:
        await engine.dispose()


if __name__ == "__main__":
    asyncio.run(work(json.loads(sys.stdin.readline())))
