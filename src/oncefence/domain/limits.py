"""The numbers that operators may set, with the defaults of the contract."""

from dataclasses import dataclass

from oncefence.domain.errors import ConfigurationRefused
from oncefence.domain.lookup import WAITS_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """
    Ceilings, margins and waits of one deployment.

    `time_scale` shortens lease margins, lookup waits, horizons and sweeps for demonstrations and
    tests; it never touches a send deadline. A scale other than 1 needs a development database.
    """

    attempts_max: int = 8
    claims_lost_max: int = 5
    admission_window: int = 32
    retry_spacing_seconds: float = 1.0
    lease_margin_seconds: float = 60.0
    sweep_period_seconds: float = 60.0
    sweep_grace_seconds: float = 30.0
    start_to_close_margin_seconds: float = 60.0
    retention_days: int = 400
    time_scale: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.time_scale <= 1:
            raise ConfigurationRefused(
                setting="ONCEFENCE_TIME_SCALE",
                reason=f"{self.time_scale} is not above 0 and at most 1",
                remedy="Leave it unset outside of demonstrations and tests",
            )
        if self.attempts_max < 1 or self.claims_lost_max < 1:
            raise ConfigurationRefused(
                setting="ONCEFENCE_ATTEMPTS_MAX",
                reason="ceilings count from 1",
                remedy="Set it to 1 or more",
            )
        if self.admission_window < 1:
            raise ConfigurationRefused(
                setting="ONCEFENCE_ADMISSION_WINDOW",
                reason="a window of none lets nothing run",
                remedy="Set it to 1 or more; to hold work back, pause it",
            )

    @property
    def lease_margin_scaled_seconds(self) -> float:
        """How long a dispatch lease outlives the send deadline; never under a tenth of a second."""
        return max(self.lease_margin_seconds * self.time_scale, 0.1)

    @property
    def sweep_period_scaled_seconds(self) -> float:
        """How often the sweep runs; a schedule cannot be finer than a second."""
        return max(self.sweep_period_seconds * self.time_scale, 1.0)

    @property
    def sweep_grace_scaled_seconds(self) -> float:
        """How long past its due time an item waits before the sweep nudges it."""
        return self.sweep_grace_seconds * self.time_scale

    def nudge_wait_seconds(self, nudges_before: int) -> float:
        """How long after the next nudge of an item another one may follow: 2, 4, .. 60 min."""
        minutes = min(2.0 ** min(nudges_before + 1, 6), 60.0)
        return minutes * 60.0 * self.time_scale

    @property
    def retry_spacing_scaled_seconds(self) -> float:
        """The least time between two runs of an item of which the first one failed."""
        return self.retry_spacing_seconds * self.time_scale

    @property
    def first_lookup_seconds(self) -> float:
        """How long after a lost answer the first lookup is due."""
        return WAITS_SECONDS[0] * self.time_scale

    def start_to_close_seconds(self, deadline_ms: int) -> float:
        """
        How long an activity may take that sends inside `deadline_ms`.

        Longer than the lease, so that a send is never cut off by anything but its own deadline
        and nobody but the sweep or a re-run ever calls it lost.
        """
        lease = deadline_ms / 1000 + self.lease_margin_scaled_seconds
        return lease + self.start_to_close_margin_seconds
