"""
What the database must refuse of counted quota: windows that are none, and counts below nothing.

Each case breaks exactly one rule (see `guard_cases`).
"""

from tests.storage.guard_statements import check


def counted(**changes: str) -> str:
    """A row of one count, or of a gate, with these columns changed."""
    values = {
        "quota_key": "'nobody/burst'",
        "provider": "'nobody'",
        "dimension": "'burst'",
        "time_window": "'rolling'",
        "window_seconds": "10",
        **changes,
    }
    columns, row = ", ".join(values), ", ".join(values.values())
    return f"INSERT INTO oncefence.quota_counts ({columns}) VALUES ({row})"


BELOW_NOTHING = "array_fill(-1, ARRAY[65])"
CASES = (
    check(
        "quota_window_is_known", counted(time_window="'weekly'"), what="of a window of another kind"
    ),
    check("a_count_has_its_window", counted(window_seconds="NULL"), what="without a window"),
    check("a_told_limit_lets_something_through", counted(told_limit="0"), what="of a told limit"),
    check(
        "closed_with_its_reason", counted(closed_until="clock_timestamp()"), what="for no reason"
    ),
    check("units_are_never_negative", counted(used=BELOW_NOTHING), what="of less than nothing"),
)
