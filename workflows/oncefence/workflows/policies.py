"""How activities are called, each with its reason."""

from datetime import timedelta
from typing import Final

from temporalio.common import RetryPolicy

# One: a second execution would be a re-run by Temporal, and the workflow decides on those. The
# committed mark makes even a second execution harmless, but it is never asked for.
DISPATCH: Final = RetryPolicy(maximum_attempts=1)

# A sweep only reads and nudges; the next one comes within the minute.
SWEEP: Final = RetryPolicy(maximum_attempts=1)

# Where its process dies with it, the next sweep waits for as long.
SWEEP_TIMEOUT: Final = timedelta(seconds=20)

# Until a worker takes a regular attempt. Passing it means that nothing was sent.
SCHEDULE_TO_START: Final = timedelta(minutes=10)

# After an activity that failed without a word: its facts are in SQL, so ask there again.
PAUSE_SECONDS: Final = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0)

LEAST_PAUSE: Final = timedelta(milliseconds=50)

# A workflow does not continue as new: past this many events it ends, its fact is in SQL, and
# the sweep starts another.
EVENTS_MAX: Final = 2_000

# Histories that were recorded before waited in the workflow for what held their item back.
HELD_BACK_ENDS: Final = "held-back-ends"

WORKFLOW_TASK_TIMEOUT: Final = timedelta(seconds=3)
STICKY_TIMEOUT: Final = timedelta(seconds=1)

# Accepting and rejecting are safe to repeat. A silent store is asked again inside the activity,
# so these are for the activity that came to no end.
HANDOFF: Final = RetryPolicy(
    initial_interval=timedelta(milliseconds=200),
    maximum_interval=timedelta(seconds=5),
    maximum_attempts=3,
)
# The patience of the activity, and a connection that takes its time at the end of it.
HANDOFF_TIMEOUT: Final = timedelta(seconds=40)

# A handoff workflow that nobody asked anything readable ends after this.
HANDOFF_IDLE: Final = timedelta(seconds=10)
