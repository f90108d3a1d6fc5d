"""The program `oncefence`: its entry point, and what every one of its verbs has in common."""

import atexit
import time

# The Temporal SDK's runtime threads can crash an interpreter that is going down under them, with
# SIGABRT or SIGSEGV instead of the exit code. This short wait lets them end first.
atexit.register(time.sleep, 0.3)

from oncefence.app.cli.program import main  # noqa: E402  # the guard stands before everything else

__all__ = ["main"]
