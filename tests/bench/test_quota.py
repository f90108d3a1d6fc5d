"""What `./dev bench quota` holds against its bounds; a short run of it is a case of its own."""

from datetime import UTC, datetime, timedelta

import pytest

from tests.bench import quota

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


def moments(*seconds: float) -> list[datetime]:
    return [BEGAN + timedelta(seconds=each) for each in seconds]


def evenly(count: int, seconds: float) -> list[datetime]:
    return moments(*(place * seconds / count for place in range(count)))


@pytest.mark.parametrize(
    ("found", "most"),
    [
        ([], 0),
        ([0.0], 1),
        ([0.0, 0.999, 1.0], 2),
        ([0.0, 0.5, 0.999, 1.2, 1.4], 4),
        ([0.0, 1.0, 2.0], 1),
    ],
)
def test_a_window_is_any_second_and_not_one_of_the_clock(found: list[float], most: int) -> None:
    """Two halves of a limit around the turn of a second are more than one limit."""
    assert quota.most_in(moments(*found), timedelta(seconds=1)) == most


@pytest.mark.parametrize(
    ("reserved", "refused", "faults"),
    [
        (evenly(95, 10), 0, 0),
        (evenly(95, 10), 1, 1),
        (evenly(89, 10), 0, 1),
        ([*evenly(95, 10), *moments(*[9.95] * 10)], 0, 1),
        (evenly(10, 10), 3, 2),
    ],
)
def test_what_is_too_much_or_too_little_is_a_fault(
    reserved: list[datetime], refused: int, faults: int
) -> None:
    """A bound that nothing can break guards nothing."""
    plan = quota.Plan(seconds=10, limit=10)

    report = quota.report_of(plan, reserved, {"refused": refused})

    assert len(report["faults"]) == faults
