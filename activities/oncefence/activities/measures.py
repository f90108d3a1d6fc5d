"""
What every family of work is measured by, counted where the kernel passes (C25, C461).

A family gets its measures by running through the kernel and brings no code for them. Counting is
an addition to a number in this process; whoever exports the numbers reads them when it is asked.
No label holds an org, an id, a subject or any text of a provider or of a handler.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from time import perf_counter
from typing import Any, Final, Protocol, TypeAlias

from oncefence.activities.contracts import RunResult
from oncefence.storage.claims import NotStarted
from oncefence.storage.phases.find_work import WorkRef

Wake: TypeAlias = Callable[[WorkRef], Awaitable[None]]

CLAIMED: Final = "claimed"
RAISED: Final = "raised"
"""The end of a run that came to no result: the store was away, or there is a fault."""


class Seconds(Protocol):
    """Where durations go."""

    def record(self, amount: float, attributes: Mapping[str, str]) -> None:
        """Take one duration, with its labels."""


class _Unrecorded:
    def record(self, amount: float, attributes: Mapping[str, str]) -> None:
        """Nobody listens."""


class Measures:
    """The counts of one process since it began, each by its labels."""

    def __init__(self, run_seconds: Seconds | None = None) -> None:
        self._run_seconds = run_seconds or _Unrecorded()
        self.claims: Counter[tuple[str, ...]] = Counter()
        """By family and verdict; `claimed`, or why not."""

        self.attempts: Counter[tuple[str, ...]] = Counter()
        """Effect attempts that this process settled, by provider and outcome."""

        self.refreshes: Counter[tuple[str, ...]] = Counter()
        """Calls for a token that this process settled, by provider and what came of them."""

        self.renewals: Counter[tuple[str, ...]] = Counter()
        """By family."""

        self.fences_lost: Counter[tuple[str, ...]] = Counter()
        """Claims that somebody else had taken over when this process came to end them."""

        self.wakes: Counter[tuple[str, ...]] = Counter()
        """By family; `given`, or `failed` where Temporal did not answer."""

    async def run(self, family: str, run: Coroutine[Any, Any, RunResult]) -> RunResult:
        """Let one run of an item come to its end, and take how long it took and which it was."""
        began, end = perf_counter(), RAISED
        try:
            result = await run
            end = str(result.verdict)
            return result
        finally:
            self._run_seconds.record(perf_counter() - began, {"family": family, "end": end})

    def claim(self, family: str, found: object) -> None:
        """Count what came of asking for a claim."""
        verdict = str(found.verdict) if isinstance(found, NotStarted) else CLAIMED
        self.claims[family, verdict] += 1

    def attempt(self, provider: str, outcome: str) -> None:
        """Count an attempt that was settled by its starter."""
        self.attempts[provider, outcome] += 1

    def refresh(self, provider: str, outcome: str) -> None:
        """Count a call for a token that was settled by its beginner."""
        self.refreshes[provider, str(outcome)] += 1

    def renewal(self, family: str) -> None:
        """Count a claim that was renewed."""
        self.renewals[(family,)] += 1

    def fence_lost(self, family: str) -> None:
        """Count a claim that was somebody else's by the time it should end."""
        self.fences_lost[(family,)] += 1

    def counting(self, wake: Wake) -> Wake:
        """The same wake, which counts each nudge that it gives."""

        async def counted(ref: WorkRef) -> None:
            given = "failed"
            try:
                await wake(ref)
                given = "given"
            finally:
                self.wakes[ref.family, given] += 1

        return counted
