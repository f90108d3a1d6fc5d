"""Commands that keep coming, through whichever door answers."""

import asyncio
import itertools
import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from oncefence.app.client import DoorUnavailable, RuntimeClient
from oncefence.app.demo.faults import dealt
from oncefence.app.handoff_file import HandoffLine
from oncefence.domain.handoff import EffectHandoffKey
from oncefence.domain.ids import OutboxId, command_id
from oncefence.simulator.faults import Fault
from tests.support.dialect import Form
from tests.support.station import ProviderWorld

PER_SUBJECT = 3
"""So many commands of a lane come one right after the other."""

_LONG_EVERY = 8
_PATIENCE_SECONDS = 1.5
_PAUSE_SECONDS = 0.05
_SENDERS = 16
_SLOW_SHARE = 0.4


def lines_of(world: ProviderWorld, count: int, *, with_long_ones: bool) -> list[HandoffLine]:
    """Commands on few subjects at a time; one in eight with a long deadline, where asked for."""
    dialect = world.provider.dialect

    def form_of(number: int) -> Form:
        is_long = with_long_ones and number % _LONG_EVERY == 0
        return Form.REGULAR if is_long else Form.LOCAL

    return [
        HandoffLine(
            number=number,
            outbox=OutboxId(f"herd-{number}"),
            operation=dialect.operation_of(form_of(number)),
            subject=f"lead:{number // PER_SUBJECT}",
            payload=json.dumps({"title": f"Title {number}"}).encode(),
        )
        for number in range(count)
    ]


def rules_for(
    world: ProviderWorld, lines: Sequence[HandoffLine], *, seed: int
) -> list[Mapping[str, Any]]:
    """
    What these commands meet: faults as a run of the demo deals them, and slow answers.

    Of what is slow there is always something in flight when a worker is killed or frozen.
    """
    commands = {
        str(command_id(str(EffectHandoffKey.for_outbox(world.caller.scope, line.outbox)))): line
        for line in lines
    }
    names = {line.number: UUID(command) for command, line in commands.items()}
    plan = dealt(lines, world.remote_ids, lambda line: names[line.number], seed=seed)
    rules = [_bearable(rule) for rule in plan.rules if _is_usable(rule)]
    dice = random.Random(seed)
    unfaulted = sorted(commands.keys() - {rule.get("command") for rule in rules})
    slow = (command for command in unfaulted if dice.random() < _SLOW_SHARE)
    rules += ({"command": command, **_slow(dice)} for command in slow)
    return rules


def _is_usable(rule: Mapping[str, Any]) -> bool:
    # A provider that applies a request whenever it likes is told by a horizon, and that is
    # scaled to less than a busy machine takes.
    return "hold" not in rule and rule.get("fault") != Fault.LATE_ANSWER


def _bearable(rule: Mapping[str, Any]) -> Mapping[str, Any]:
    # A provider that asks for more than a second would only make the end come later.
    return {**rule, "retry_after": 1} if rule.get("fault") == Fault.RATE_LIMIT_429 else rule


def _slow(dice: random.Random) -> Mapping[str, Any]:
    """Before the change or after it; over before anybody may take the sender for dead."""
    if dice.random() < 0.5:
        return {"fault": Fault.LATE_ANSWER, "delay_s": round(dice.uniform(0.3, 1.2), 2)}
    return {"fault": Fault.DRIP, "delay_s": 0.004}


@dataclass(kw_only=True)
class Feeding:
    """Hands lines over, each until it has a receipt."""

    credential: str = field(repr=False)
    urls: Sequence[str]
    dice: random.Random
    receipts: dict[str, set[str]] = field(default_factory=dict)
    """The commands that a line was ever told to be; more than one is none too few."""

    tries: int = 0
    _room: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_SENDERS))

    async def feed(
        self, lines: Sequence[HandoffLine], *, each_seconds: float, goes_on: Callable[[], bool]
    ) -> None:
        """Begin with a line each so many seconds as long as it goes on; then end what is begun."""
        clients = [
            RuntimeClient(url, self.credential, timeout_seconds=_PATIENCE_SECONDS, pause=_briefly)
            for url in self.urls
        ]
        try:
            async with asyncio.TaskGroup() as group:
                for line in lines:
                    if not goes_on():
                        break
                    await self._room.acquire()
                    group.create_task(self._hand_over(line, clients))
                    await asyncio.sleep(each_seconds)
        finally:
            for client in clients:
                await client.close()

    async def _hand_over(self, line: HandoffLine, clients: Sequence[RuntimeClient]) -> None:
        first = self.dice.randrange(len(clients))
        try:
            for client in itertools.islice(itertools.cycle(clients), first, None):
                self.tries += 1
                try:
                    receipt = await client.hand_over(
                        line.outbox, line.operation, line.subject, line.payload
                    )
                except DoorUnavailable:
                    await asyncio.sleep(_PAUSE_SECONDS)
                    continue
                self.receipts.setdefault(line.outbox, set()).add(str(receipt.command))
                return
        finally:
            self._room.release()


async def _briefly(_: float) -> None:
    """A frozen door is not worth waiting for: there are others."""
    await asyncio.sleep(_PAUSE_SECONDS)
