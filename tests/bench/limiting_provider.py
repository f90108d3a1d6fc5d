"""
A provider that lets so many requests in each second, in a process of its own.

`python -m tests.bench.limiting_provider PORT LIMIT` refuses by 429 whatever comes above the limit
of any second that ends now, by its own clock. GET /sends tells what it let in and refused.
"""

import asyncio
import json
import sys
import time
from collections import deque

from tests.bench.provider import Sends, serve

_WINDOW_SECONDS = 1.0


class LimitedSends(Sends):
    """What was let in during the last second, and what has been since the start."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self._limit = limit
        self._lately: deque[float] = deque()
        self._let_in = self._refused = self._most = 0

    def note(self, head: bytes) -> bool:
        """Whether there is room for the request."""
        super().note(head)
        now = time.monotonic()
        while self._lately and now - self._lately[0] >= _WINDOW_SECONDS:
            self._lately.popleft()
        if len(self._lately) >= self._limit:
            self._refused += 1
            return False
        self._lately.append(now)
        self._let_in += 1
        self._most = max(self._most, len(self._lately))
        return True

    def told(self) -> bytes:
        """The figures as JSON."""
        return json.dumps(
            {"let_in": self._let_in, "refused": self._refused, "most_in_a_second": self._most}
        ).encode()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), LimitedSends(int(sys.argv[2]))))
