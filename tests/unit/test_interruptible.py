"""Ctrl-C ends a command whenever it comes, also while the loop only waits."""

import asyncio
import signal
import threading
from pathlib import Path

import pytest

from oncefence.app import interruptible

PATIENCE_SECONDS = 20.0


def sleeps(thread: int) -> bool:
    """Whether a thread of this process waits in the kernel just now."""
    stat = Path(f"/proc/self/task/{thread}/stat").read_text()
    return stat.rpartition(")")[2].split()[0] == "S"


def press_once(waiting: threading.Event, main: int) -> None:
    """
    Have the signal come by a thread that is not the main one, while that one sleeps.

    So the loop does not see it between two instructions, as when it comes just before the wait.
    """
    waiting.wait(PATIENCE_SECONDS)
    while not sleeps(main):
        pass
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)


def test_a_loop_that_waits_is_woken() -> None:
    """What comes between the last instruction and the wait is seen all the same."""
    waiting = threading.Event()
    pressing = threading.Thread(target=press_once, args=(waiting, threading.get_native_id()))
    pressing.start()
    was_deaf = False
    has_ended_well = False

    def wake(loop: asyncio.AbstractEventLoop) -> None:
        nonlocal was_deaf
        was_deaf = True
        loop.call_soon_threadsafe(lambda: None)

    async def wait() -> None:
        nonlocal has_ended_well
        # Whatever wakes the loop has it see the signal, this too: it must not come to that.
        patience = threading.Timer(PATIENCE_SECONDS, wake, [asyncio.get_running_loop()])
        patience.start()
        waiting.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            has_ended_well = not was_deaf
            patience.cancel()
            raise

    with pytest.raises(KeyboardInterrupt):
        interruptible.run(wait())
    pressing.join()

    assert has_ended_well


def test_what_it_runs_is_given_back() -> None:
    """Without Ctrl-C it is what any run of a coroutine is, and errors come through."""

    async def seven() -> int:
        return 7

    async def fail() -> None:
        raise LookupError("as it is")

    assert interruptible.run(seven()) == 7
    with pytest.raises(LookupError, match="as it is"):
        interruptible.run(fail())
