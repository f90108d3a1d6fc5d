"""The certificate of a pack: each check of each operation, what was seen, and what it is worth."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

FORMAT: Final = "oncefence.certificate/1"

Fact = str | int | float | bool | None
"""What a certificate may hold of an exchange: closed words and numbers, never content."""


class Verdict(StrEnum):
    """How one check ended."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_APPLICABLE = "not_applicable"
    """It could not be run, or would say nothing; the reason says which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """One check of one operation."""

    check: str
    operation: str
    claim: str
    """What holds where it passed."""

    verdict: Verdict
    reason: str | None
    """Why it failed, or does not apply."""

    evidence: Sequence[Mapping[str, Fact]]
    """A row for each exchange: what was provoked, and how the product classed it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """All checks of one pack at one time."""

    pack: str
    pack_format: str
    pack_digest: str
    issued_at: datetime
    product: str
    """Name and version of what checked, and of the simulator that is a part of it."""

    provider: str
    """Against whom: the simulator and its dialect, or the origin of a sandbox."""

    truth: str
    """Whose word the pack was held against."""

    checks: Sequence[CheckReport]
    left_out: Sequence[str] = ()
    """What such a provider cannot be asked for."""

    @property
    def is_passed(self) -> bool:
        """Every check passed, as far as it applies, and there was one."""
        verdicts = [report.verdict for report in self.checks]
        return Verdict.PASSED in verdicts and Verdict.FAILED not in verdicts

    def count(self, verdict: Verdict) -> int:
        """How many checks ended so."""
        return sum(report.verdict is verdict for report in self.checks)

    def as_document(self) -> dict[str, Any]:  # JSON
        """The whole certificate for machines."""
        counts = {verdict.value: self.count(verdict) for verdict in Verdict}
        return {"format": FORMAT, "is_passed": self.is_passed, "counts": counts} | asdict(self)
