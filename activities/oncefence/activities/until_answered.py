"""Asking a silent store again, which every phase allows."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from oncefence.activities.send_deadline import boot_clock
from oncefence.domain.errors import StoreUnavailable

T = TypeVar("T")

# Between two tries to reach a database that does not answer.
_PAUSE_SECONDS = 0.2
_PAUSE_SECONDS_MAX = 2.0


async def until_answered(ask: Callable[[], Awaitable[T]], *, patience_seconds: float) -> T:
    """Ask again while the store is silent; asking is safe, because every phase re-reads."""
    give_up_at = boot_clock() + patience_seconds
    pause = _PAUSE_SECONDS
    while True:
        try:
            return await ask()
        except StoreUnavailable:
            if boot_clock() + pause > give_up_at:
                raise
            await asyncio.sleep(pause * (0.5 + random.random()))  # noqa: S311  # jitter
            pause = min(pause * 2, _PAUSE_SECONDS_MAX)
