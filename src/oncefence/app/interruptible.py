"""
Running a coroutine so that Ctrl-C ends it whenever it comes.

`asyncio.run` has its handler called between two instructions of Python alone. A signal that comes
after the last of them and before the loop begins to wait for something is not seen until the wait
ends, and that may be never. The loop's own handler wakes it.
"""

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    """
    What `main` gives, run in an event loop of its own.

    Raises:
        KeyboardInterrupt: Ctrl-C was pressed; `main` was cancelled and had its time to end, unless
            it was pressed again.
    """
    return asyncio.run(_until_interrupted(main))


async def _until_interrupted(main: Coroutine[Any, Any, T]) -> T:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None, "a coroutine that runs is run by a task"
    is_pressed = False

    def press() -> None:
        nonlocal is_pressed
        if is_pressed:
            raise KeyboardInterrupt
        is_pressed = True
        task.cancel()

    loop.add_signal_handler(signal.SIGINT, press)
    try:
        return await main
    except asyncio.CancelledError:
        if is_pressed:
            raise KeyboardInterrupt from None
        raise
    finally:
        loop.remove_signal_handler(signal.SIGINT)
