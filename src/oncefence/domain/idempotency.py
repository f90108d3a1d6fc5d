"""A provider's own idempotency key: how long a repeat under it is taken for the first send."""

from typing import Final

MARGIN_SECONDS_MAX: Final = 300


def replay_window_seconds(kept_seconds: int) -> int:
    """
    For how long after the first attempt's mark a command may be repeated (C94).

    Less than the provider keeps the key: its clock, the workflow's and the database's differ,
    and a repeat that arrives too late is a second effect. A tenth of a short window is taken
    off, and five minutes of a long one.
    """
    return kept_seconds - min(-(-kept_seconds // 10), MARGIN_SECONDS_MAX)
