"""
Lives of one program that a payload kills: `python -m tests.cases.crasher`, told by JSON.

Each life is a process of its own. When one dies, the next begins and takes up what is left;
at the end of the last one, the exit codes of all are written as JSON.
"""

import asyncio
import json
import os
import sys
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

from oncefence.activities.contracts import RunRequest, Step
from oncefence.activities.process_context import ProcessContext
from oncefence.activities.work import WorkActivity
from oncefence.domain.claim import WorkEnd
from oncefence.domain.ids import OrgId
from oncefence.domain.limits import Limits
from oncefence.storage.engine import make_engine
from oncefence.storage.phases.claim_work import ClaimedWork
from oncefence.storage.phases.find_work import WorkRef
from oncefence.storage.phases.read_view import ViewShelf
from oncefence.storage.sealing import KeyRing
from tests.conformance.toy import TOY, Toy

LIVES_MAX = 20
BRIEF = Limits(lease_margin_seconds=0.3)


async def kill(work: ClaimedWork) -> WorkEnd:
    os._exit(139)


async def nobody(ref: WorkRef) -> None:
    """Every life looks by itself."""


async def live(url: str, org: str, works: list[str]) -> None:
    engine = make_engine(url, size=4)
    context = ProcessContext(
        engine=engine,
        ring=KeyRing({"k": bytes(32)}),
        limits=BRIEF,
        owner=uuid4(),
        wake=nobody,
        views=ViewShelf(engine),
    )
    activity = WorkActivity(context, [Toy(acts={"poison": kill})])
    left = list(works)
    while left:
        for work in list(left):
            ran = await activity.run_work(
                RunRequest(
                    org_id=OrgId(org),
                    work_id=str(UUID(work)),
                    deadline_ms=1,
                    as_of=datetime.now(UTC) + timedelta(minutes=1),
                    family=TOY,
                )
            )
            if ran.step is Step.FINISHED:
                left.remove(work)
    await engine.dispose()


def main() -> None:
    told = json.loads(sys.stdin.readline())
    codes: list[int] = []
    while 0 not in codes and len(codes) < LIVES_MAX:
        # Nothing runs here beside this line: no loop and no thread is copied.
        life = os.fork()
        if life == 0:
            asyncio.run(live(**told))
            os._exit(0)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(life, 0)[1]))
    sys.stdout.write(json.dumps(codes))


if __name__ == "__main__":
    main()
