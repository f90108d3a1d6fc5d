"""
A store that has been in use: settled commands of an earlier day, and statistics that know them.

The planner of a database without either takes any index that begins with the org, and keeps to
it until the first ANALYZE; that minute after the first migration is not what is measured.
"""

import asyncio
from itertools import count
from typing import Final
from uuid import uuid4

from oncefence.domain.command import Handover
from oncefence.domain.effect import Outcome
from oncefence.domain.handoff import EffectHandoffKey
from oncefence.domain.ids import LeaseToken, OutboxId
from oncefence.domain.limits import Limits
from oncefence.storage.engine import Store
from oncefence.storage.phases.accept_handoff import accept_handoff
from oncefence.storage.phases.settle_attempt import settle_attempt
from oncefence.storage.phases.start_attempt import Started, start_attempt
from oncefence.storage.sealing import KeyRing
from tests.bench.account import Account
from tests.support.dialect import Form
from tests.support.world import an_end

COMMANDS_MAX: Final = 1_000
_AT_ONCE: Final = 8


async def make_history(
    store: Store, ring: KeyRing, account: Account, limits: Limits, commands: int
) -> None:
    """Accept, mark and settle as many commands as make an index worth its while."""
    numbers = count(1)

    async def again_and_again() -> None:
        while (number := next(numbers)) <= commands:
            await _settled_command(store, ring, account, limits, number)

    async with asyncio.TaskGroup() as group:
        for _ in range(_AT_ONCE):
            group.create_task(again_and_again())


async def _settled_command(
    store: Store, ring: KeyRing, account: Account, limits: Limits, number: int
) -> None:
    contact = next(account.contacts)
    outbox = OutboxId(f"history-{number}")
    scope = account.caller.scope
    receipt = await accept_handoff(
        store,
        ring,
        account.caller,
        Handover(
            key=EffectHandoffKey.for_outbox(scope, outbox),
            outbox=outbox,
            digest=contact.digest,
            operation=account.operations[Form.LOCAL],
            subject=contact.subject,
        ),
        limits,
    )
    assert receipt.work is not None, "it was accepted"
    assert receipt.due is not None, "it was accepted just now"
    started = await start_attempt(
        store,
        scope.org,
        receipt.work,
        as_of=receipt.due,
        owner=uuid4(),
        token=LeaseToken(uuid4()),
        limits=limits,
    )
    assert isinstance(started, Started), started
    end = an_end(
        Outcome.ACCEPTED,
        response_status=200,
        receipt={"remote_id": contact.remote_id},
        sealed_answer=bytes(160),
    )
    await settle_attempt(
        store, started.fence, started.attempt, end, as_of=receipt.due, limits=limits
    )
