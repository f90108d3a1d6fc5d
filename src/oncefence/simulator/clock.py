"""
The provider's clock: the real one, and what tests have moved it by.

Records, idempotency keys and rate windows live by it; the ledger's `at` stays the real time.
"""

from datetime import datetime, timedelta

from oncefence.simulator.journal import Journal, utc_now
from oncefence.simulator.ledger import Kind, Ledger, Row


class Clock:
    """Runs with the real time, ahead of it by `offset`."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.offset = timedelta()

    def replay(self, ledger: Ledger) -> None:
        """The clock is as far ahead as the ledger left it."""
        for row in ledger.of(Kind.CLOCK):
            self.offset += timedelta(seconds=float(row.note or 0))

    def now(self) -> datetime:
        """What the provider takes for the time."""
        return utc_now() + self.offset

    def advance(self, seconds: float) -> None:
        """From now on it is so much later."""
        self._journal.append(Row(kind=Kind.CLOCK, note=f"{seconds!r}"))
        self.offset += timedelta(seconds=seconds)
