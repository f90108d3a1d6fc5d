"""A sender that stands still in the middle of its own request."""

import asyncio
from collections.abc import Mapping
from typing import Any

from oncefence.activities.http_once import PhaseJournal, SendDeadline, http_once
from oncefence.domain.classification import SendFault, WirePhase
from tests.providers.raw_server import Call, raw_server
from tests.providers.sending import BODY, LOCAL, ManualClock, request_to


class _FrozenAfterTheHead(PhaseJournal):
    """The process is stopped when the head is out, and goes on long after its deadline."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self._boot_clock = clock

    async def trace(self, event: str, info: Mapping[str, Any]) -> None:
        await super().trace(event, info)
        if event == "http11.send_request_headers.complete":
            self._boot_clock.now += 60.0


async def test_what_is_left_of_a_request_does_not_leave_after_the_deadline() -> None:
    """By then it may be settled as lost, and looked up: finishing it would change a record late."""
    clock = ManualClock()
    seen = bytearray()

    async def script(call: Call) -> None:
        while data := await call.reader.read(65_536):
            seen.extend(data)

    async with raw_server(script) as server:
        result = await http_once(
            request_to(server),
            deadline=SendDeadline.anchor(8_000, clock=clock),
            policy=LOCAL,
            journal=_FrozenAfterTheHead(clock),
        )
        await asyncio.wait_for(server.finished.wait(), 5)

    assert BODY not in seen
    assert (result.phase, result.fault) == (WirePhase.FIRST_BYTE_OUT, SendFault.DEADLINE)
    assert result.status is None
