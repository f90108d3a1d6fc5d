"""How many requests of each kind were let in lately; sole owner of those counts."""

from collections import deque
from datetime import datetime
from typing import NamedTuple

from oncefence.simulator.clock import Clock
from oncefence.simulator.dialects.protocol import Window


class Room(NamedTuple):
    """What a window has left after a request that asked to be let in."""

    is_let_in: bool
    left: int
    resets_at: datetime


class Limits:
    """Rolling windows by the provider's clock. A restart empties them: no record depends on it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._let_in: dict[str, deque[datetime]] = {}

    def ask(self, window: Window) -> Room:
        """The request is let in and counted, or the window is full."""
        now = self._clock.now()
        times = self._let_in.setdefault(window.name, deque())
        while times and now - times[0] >= window.length:
            times.popleft()
        is_let_in = len(times) < window.requests_max
        if is_let_in:
            times.append(now)
        return Room(is_let_in, window.requests_max - len(times), times[0] + window.length)
