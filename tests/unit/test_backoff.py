"""How long to wait, with the dice in the test's hand."""

import random
from collections import Counter
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncefence.domain.backoff import (
    CONFIGURATION_FAULT_SECONDS,
    clamp_retry_after,
    retry_delay_seconds,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ALMOST_ONE = 0.999999


class TestRetryDelay:
    @pytest.mark.parametrize(
        ("attempts_made", "window"), [(1, 2), (2, 4), (5, 32), (8, 256), (9, 300), (5000, 300)]
    )
    def test_is_drawn_from_a_doubling_window(self, attempts_made: int, window: int) -> None:
        """Full jitter over min(2^n s, 5 min), also where 2^n would overflow (C480)."""
        least = retry_delay_seconds(attempts_made=attempts_made, jitter=0.0)
        most = retry_delay_seconds(attempts_made=attempts_made, jitter=ALMOST_ONE)

        assert least == 0.0
        assert most == pytest.approx(window, rel=1e-4)

    @given(
        attempts_made=st.integers(1, 100),
        jitter=st.floats(0, 1, exclude_max=True),
        retry_after=st.floats(allow_nan=True, allow_infinity=True),
    )
    def test_is_never_before_retry_after(
        self, attempts_made: int, jitter: float, retry_after: float
    ) -> None:
        """The provider's wish is a floor that jitter only adds to (C250)."""
        delay = retry_delay_seconds(
            attempts_made=attempts_made, jitter=jitter, retry_after_seconds=retry_after
        )

        assert clamp_retry_after(retry_after) <= delay <= 86_400 + 300

    def test_spreads_after_retry_after_and_not_before_it(self) -> None:
        """All that wait for the same second would otherwise come back in it (C250)."""
        delay = retry_delay_seconds(attempts_made=3, jitter=0.5, retry_after_seconds=10)

        assert delay == 14.0

    def test_of_a_configuration_fault_is_long(self) -> None:
        """A wrong certificate or token is not mended by asking again in two seconds (C249)."""
        delay = retry_delay_seconds(attempts_made=1, jitter=0.0, is_configuration_fault=True)

        assert delay == CONFIGURATION_FAULT_SECONDS >= 600

    @pytest.mark.parametrize("jitter", [-0.1, 1.0, 2.0, float("nan")])
    def test_refuses_dice_outside_the_range(self, jitter: float) -> None:
        """A wrong number here would be a wrong wait everywhere."""
        with pytest.raises(ValueError, match="jitter"):
            retry_delay_seconds(attempts_made=1, jitter=jitter)

    def test_refuses_a_count_before_the_first_attempt(self) -> None:
        """There is nothing to wait for before something ended."""
        with pytest.raises(ValueError, match="attempts_made"):
            retry_delay_seconds(attempts_made=0, jitter=0.5)


class TestSpread:
    @pytest.mark.parametrize("attempts_made", [1, 4, 9])
    @pytest.mark.parametrize("retry_after", [None, 20.0])
    def test_of_a_herd_is_even_over_the_whole_window(
        self, attempts_made: int, retry_after: float | None
    ) -> None:
        """Whoever failed together comes back apart: each tenth of the window has its tenth."""
        dice = random.Random(20_771)
        window = min(2.0**attempts_made, 300.0)
        floor = retry_after or 0.0
        waits = [
            retry_delay_seconds(
                attempts_made=attempts_made,
                jitter=dice.random(),
                retry_after_seconds=retry_after,
            )
            for _ in range(10_000)
        ]

        tenths = Counter(int((wait - floor) / window * 10) for wait in waits)

        assert set(tenths) == set(range(10))
        assert all(850 < count < 1150 for count in tenths.values())
