"""How far one request got, noted while it goes (C244)."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from oncefence.domain.classification import SendFault, WirePhase


class PhaseJournal:
    """
    The phases that one request reached, each with its offset in milliseconds.

    The caller may keep it across a cancellation: what it holds is true at any moment, since
    each phase is noted before the step that it stands for can be seen from outside.
    """

    __slots__ = (
        *("_clock", "_offsets_ms", "_started"),
        *("bytes_in", "bytes_out", "fault", "note", "phase", "redirect_host"),
    )

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._started = clock()
        self._offsets_ms: dict[WirePhase, int] = {}
        self.phase = WirePhase.NOTHING
        self.bytes_out = 0
        self.bytes_in = 0
        self.note: str | None = None
        """A word from a closed list or the name of a type; never text from the provider."""

        self.fault: SendFault | None = None
        self.redirect_host: str | None = None
        """The host that an unfollowed redirect names: of the form of a host, and nothing else."""

    def reach(self, phase: WirePhase) -> None:
        """Note that `phase` is reached; an earlier one that comes late changes nothing."""
        self._offsets_ms.setdefault(phase, round((self._clock() - self._started) * 1000))
        self.phase = max(self.phase, phase)

    def seconds_since(self, phase: WirePhase) -> float | None:
        """How long ago `phase` was reached; None where it was not."""
        offset_ms = self._offsets_ms.get(phase)
        if offset_ms is None:
            return None
        return max(0.0, self._clock() - self._started - offset_ms / 1000)

    async def trace(self, event: str, info: Mapping[str, Any]) -> None:  # noqa: ARG002  # the extension's signature
        """
        Take one event of the transport's `trace` extension.

        The bytes themselves are watched where they pass (the guarded stream); the transport
        alone knows where the request ends.
        """
        if event == "http11.send_request_body.complete":
            self.reach(WirePhase.ALL_OUT)

    def as_evidence(self) -> dict[str, int | str]:
        """Return what a row may keep: numbers, closed words, and where a redirect pointed."""
        evidence: dict[str, int | str] = {
            "phase": self.phase.name.lower(),
            "bytes_out": self.bytes_out,
            "bytes_in": self.bytes_in,
        }
        for phase in sorted(self._offsets_ms):
            evidence[f"{phase.name.lower()}_ms"] = self._offsets_ms[phase]
        words = {"fault": self.fault, "note": self.note, "redirect_host": self.redirect_host}
        return evidence | {name: str(word) for name, word in words.items() if word is not None}
