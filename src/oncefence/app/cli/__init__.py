"""The program `oncefence`: its entry point, and what every one of its verbs has in common."""

import atexit
import sys
import time


@atexit.register
def _let_the_sdk_end() -> None:
    """
    Wait a moment before the interpreter goes down, in a process that used Temporal.

    The SDK's runtime threads can crash an interpreter that is taken away under them, with SIGABRT
    or SIGSEGV instead of the exit code.
    """
    if "temporalio" in sys.modules:
        time.sleep(0.3)


from oncefence.app.cli.program import main  # noqa: E402  # the guard stands before everything else

__all__ = ["main"]
