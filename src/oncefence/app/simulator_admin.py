"""
The admin surface of a running simulator, as `up` and `demo` use it.

Plain streams on loopback: this is no effect and no door, and has no business in either client.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from oncefence.domain.errors import Refused

_TIMEOUT_SECONDS: Final = 30.0


@dataclass(eq=False)
class SimulatorRefused(Refused):
    """The simulator did not do what it was asked for."""

    asked: str
    answer: str

    def __str__(self) -> str:
        return f"the simulator refused {self.asked}: {self.answer}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatorAdmin:
    """One request on one connection each time, as the simulator serves them."""

    port: int

    async def add_contact(self, contact: str, properties: Mapping[str, str]) -> bool:
        """Whether the record was made just now; one that is there stays as it is."""
        status, answer = await self._post("/contacts", {"id": contact, "properties": properties})
        if status not in (201, 409):
            raise SimulatorRefused(asked=f"contact {contact}", answer=answer)
        return status == 201

    async def add_rules(self, rules: Sequence[Mapping[str, Any]]) -> None:
        """From now on these rules strike as well, in this order."""
        if rules:
            status, answer = await self._post("/script", list(rules))
            if status != 201:
                raise SimulatorRefused(asked="the rules", answer=answer)

    async def close_port(self, seconds: float) -> None:
        """Connections to the provider are refused for as long; the admin surface stays open."""
        status, answer = await self._post("/close-listener", {"for_s": seconds})
        if status != 200:
            raise SimulatorRefused(asked="to close its port", answer=answer)

    async def open_port(self) -> None:
        """Connections are accepted again, however long the port was closed for."""
        status, answer = await self._post("/open-listener", {})
        if status != 200:
            raise SimulatorRefused(asked="to open its port", answer=answer)

    async def release(self, hold: str) -> None:
        """Nothing is held under this name any more."""
        status, answer = await self._post("/release", {"hold": hold})
        if status != 200:
            raise SimulatorRefused(asked=f"to release {hold}", answer=answer)

    async def _post(self, path: str, message: Any) -> tuple[int, str]:
        body = json.dumps(message).encode()
        head = (
            f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
            "Connection: close\r\n\r\n"
        )
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            try:
                writer.write(head.encode("ascii") + body)
                await writer.drain()
                answer = await reader.read()
            finally:
                writer.close()
        first, _, rest = answer.partition(b"\r\n")
        words = first.split(b" ", 2)
        if len(words) < 2 or not words[1].isdigit():
            raise SimulatorRefused(asked=path, answer="no HTTP answer came")
        return int(words[1]), rest.partition(b"\r\n\r\n")[2].decode(errors="replace")
