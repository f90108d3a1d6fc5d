"""A world whose provider is a bare socket, and one run of its items by a process."""

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from oncefence.activities.contracts import RunRequest, RunResult
from oncefence.activities.lookup import LookupActivity
from oncefence.activities.wire_message import WireAnswer
from oncefence.catalog.operations import BoundOperation
from oncefence.domain.classification import Classified, classify
from oncefence.domain.limits import Limits
from tests.cases.processes import Process
from tests.providers.raw_server import RawServer, Script, raw_server
from tests.support.dialect import Dialect, Provider
from tests.support.servers import Database
from tests.support.station import ProviderWorld
from tests.support.world import Accepted

DATA = Path(__file__).parents[1] / "data"
TOKEN = "token-of-the-wire"

REFUSES_IN_A_SUCCESS = (
    '\n[[operations."role.set".answer.refusals]]\nstatuses = [200]\nbody = "errors"\n'
    '\n[[operations."role.set".answer.refusals]]\nstatuses = [200]\nbody = "ok == `false`"\n'
)
IS_DONE_WITHOUT_A_BODY = (
    ("success = [200]", "success = [204]"),
    ('evidence = ["id"]\nidentity = "id"\n', "evidence = []\n"),
)
TELLS_ITEMS_APART = (("success = [200]", "success = [200, 207]"),)
WHERE_ITEMS_ARE = """
[operations."role.set".answer.items]
results = "done"
id = "key"
errors = "failed"
error_ids = "about.keys"
"""


def dialect(*changes: tuple[str, str], more: str = "") -> Dialect:
    """How the provider is spoken to, with parts of its pack replaced or added to its answers."""
    pack = (DATA / "packs" / "wire.toml").read_text("utf-8")
    before, name, after = pack.partition('\n[operations."role.set".lookup]')
    for old, new in changes:
        assert old in before, f"the pack no longer holds {old!r}"
        before = before.replace(old, new, 1)
    return Dialect(
        pack_name="wire",
        pack_text=before + more + name + after,
        binding_text=(DATA / "wire.binding.toml").read_text("utf-8"),
        token=TOKEN,
    )


def operation(*changes: tuple[str, str], more: str = "") -> BoundOperation:
    """The operation of such a dialect as a command freezes it."""
    spoken = dialect(*changes, more=more)
    return spoken.view().operation(spoken.operation)


def judged(
    bound: BoundOperation,
    answer: WireAnswer,
    *,
    remote_id: str = "501",
    is_only_input: bool = True,
    key_is_live: bool = False,
) -> Classified:
    """What an answer means by the operation, as an attempt judges it."""
    reading = None
    if answer.status is not None and answer.body is not None:
        reading = bound.response.read_body(
            answer.status, answer.headers, answer.body, remote_id, is_only_input=is_only_input
        )
    return classify(
        phase=answer.phase,
        status=answer.status,
        body=None if reading is None else reading.verdict(complete=answer.complete),
        contract=bound.reply_contract(answer.headers, key_is_live=key_is_live),
        cause=answer.fault,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """What one attempt came to, in the rows."""

    run: RunResult
    attempt: Any
    item: Any
    execution: Any
    waits_seconds: float
    """From the time of the run to the time at which the item is due again."""


class RawWorld(ProviderWorld):
    """A world on a raw server."""

    @classmethod
    async def at(
        cls,
        store: Database,
        base_url: str,
        *,
        spoken: Dialect | None = None,
        limits: Limits | None = None,
        local_ms: int | None = None,
    ) -> "RawWorld":
        """A world whose account is at this address."""
        spoken = spoken or dialect()
        ids = itertools.count(501)
        world = await cls.on(
            store,
            Provider(base_url=base_url, dialect=spoken, make_record=lambda: str(next(ids))),
            limits=limits or Limits(),
            view=spoken.view(local_ms=local_ms),
        )
        assert isinstance(world, cls)
        return world

    async def send(self, accepted: Accepted, process: Process | None = None) -> End:
        """One run of the command's dispatch item, and what the rows say afterwards."""
        as_of = max(await self.now(), (await self.item(accepted.work)).run_after)
        run = await (process or Process(self)).dispatch(accepted.work)
        attempts = await self.attempts(accepted)
        item = await self.item(accepted.work)
        return End(
            run=run,
            attempt=attempts[-1] if attempts else None,
            item=item,
            execution=await self.execution(accepted),
            waits_seconds=(item.run_after - as_of).total_seconds(),
        )

    async def read_back(self, accepted: Accepted, process: Process | None = None) -> RunResult:
        """One run of the command's lookup, as soon as it says something."""
        work = await self.lookup_work(accepted)
        assert work is not None, "an unknown outcome is looked up"
        row = await self.item(work)
        return await LookupActivity((process or Process(self)).context).run_lookup(
            RunRequest(
                org_id=self.org,
                work_id=str(work),
                deadline_ms=row.deadline_ms,
                as_of=max(await self.now(), row.run_after) + timedelta(minutes=2),
                family=row.family,
            )
        )


@asynccontextmanager
async def at_a_raw_server(
    store: Database, script: Script, **how: Any
) -> AsyncIterator[tuple[RawWorld, RawServer]]:
    """A world, and the server that its account is at."""
    async with raw_server(script) as server:
        yield await RawWorld.at(store, server.base_url, **how), server
