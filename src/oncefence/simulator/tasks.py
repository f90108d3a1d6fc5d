"""Ending tasks that wait on a socket."""

import asyncio
from typing import Any


async def end(*tasks: asyncio.Task[Any]) -> None:
    """
    Every task is over.

    A socket must not be closed while a task still waits on it: its number may be given to the
    next connection, and the late clean-up would strike that one.
    """
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
