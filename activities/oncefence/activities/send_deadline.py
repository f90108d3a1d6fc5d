"""The instant after which a request must not begin, kept by a clock that never stands still."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self


def boot_clock() -> float:
    """
    Return seconds since boot, time asleep included.

    A machine that was suspended between its mark and its first byte must find its deadline
    passed when it wakes; a clock that pauses with the machine would still allow the send.
    """
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    # macOS: CLOCK_MONOTONIC runs on while asleep, and time.monotonic() does not.
    return time.clock_gettime(time.CLOCK_MONOTONIC)


@dataclass(frozen=True, slots=True, kw_only=True)
class SendDeadline:
    """A total deadline anchored before the mark (C165)."""

    total_ms: int
    expires_at: float
    clock: Callable[[], float] = field(repr=False)

    @classmethod
    def anchor(cls, total_ms: int, *, clock: Callable[[], float] = boot_clock) -> Self:
        """Start the deadline now: call it before the statement that marks the attempt leaves."""
        if total_ms <= 0:
            raise ValueError("a total send deadline is a positive number of milliseconds")
        return cls(total_ms=total_ms, expires_at=clock() + total_ms / 1000, clock=clock)

    def remaining(self) -> float:
        """Return the seconds left; zero or less means that nothing may be sent (C166)."""
        return self.expires_at - self.clock()

    def has_passed(self) -> bool:
        return self.remaining() <= 0.0
