"""
How long to wait before the next attempt.

Pure: the dice are thrown by the caller and passed in, so a wait can be computed again.
"""

from typing import Final

# The numbers of clause C480.
RETRY_WINDOW_SECONDS_MAX: Final = 300.0
RETRY_AFTER_SECONDS_MIN: Final = 1.0
RETRY_AFTER_SECONDS_MAX: Final = 86_400.0
RETRY_AFTER_UNREADABLE_SECONDS: Final = 30.0

# Long enough that eight attempts leave a person hours to mend a setting, short enough that
# the work moves on its own soon after (C249).
CONFIGURATION_FAULT_SECONDS: Final = 1_800.0

# Past this exponent the window is at its maximum, and 2.0 ** n would overflow for a large n.
_EXPONENT_MAX: Final = 9


def retry_delay_seconds(
    *,
    attempts_made: int,
    jitter: float,
    retry_after_seconds: float | None = None,
    is_configuration_fault: bool = False,
) -> float:
    """
    Return the wait before the next attempt, drawn with full jitter (C250, C480).

    `jitter` is a random number in [0, 1). A Retry-After, already read into seconds, is a
    floor: jitter only adds to it, so that a herd does not return at one instant.
    """
    if attempts_made < 1:
        raise ValueError("attempts_made counts the attempt that just ended: at least 1")
    if not 0.0 <= jitter < 1.0:
        raise ValueError("jitter is a random number in [0, 1)")
    window = min(2.0 ** min(attempts_made, _EXPONENT_MAX), RETRY_WINDOW_SECONDS_MAX)
    floor = 0.0
    if is_configuration_fault:
        floor = CONFIGURATION_FAULT_SECONDS
    if retry_after_seconds is not None:
        floor = max(floor, clamp_retry_after(retry_after_seconds))
    return floor + jitter * window


def clamp_retry_after(seconds: float) -> float:
    """Return the seconds held between one second and a day; what is no number is unreadable."""
    if seconds != seconds:  # noqa: PLR0124  # only NaN differs from itself
        return RETRY_AFTER_UNREADABLE_SECONDS
    return min(max(seconds, RETRY_AFTER_SECONDS_MIN), RETRY_AFTER_SECONDS_MAX)
