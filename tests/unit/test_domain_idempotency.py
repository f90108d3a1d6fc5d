"""For how long a provider's own key is relied on."""

import pytest

from oncefence.domain.idempotency import MARGIN_SECONDS_MAX, replay_window_seconds


@pytest.mark.parametrize(
    ("kept", "usable"),
    [(60, 54), (61, 54), (100, 90), (3_000, 2_700), (3_001, 2_701), (86_400, 86_100)],
)
def test_is_less_than_the_provider_keeps_it(kept: int, usable: int) -> None:
    """Clocks differ, and a repeat that comes a moment too late is a second effect (C94)."""
    assert replay_window_seconds(kept) == usable


def test_the_margin_never_takes_more_than_it_must() -> None:
    """A day of a day's window is worth having."""
    assert all(
        0 < kept - replay_window_seconds(kept) <= MARGIN_SECONDS_MAX for kept in range(60, 10_000)
    )
