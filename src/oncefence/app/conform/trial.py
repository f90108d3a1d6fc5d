"""One run of a check: what it saw, and what was not as it should be."""

from collections.abc import Mapping

from oncefence.app.conform.certificate import Fact


class NotApplicable(Exception):
    """The check says nothing about this operation; the message says why."""


class NotProvoked(Exception):
    """The provider did not do what the check is about, so nothing was shown."""


class Trial:
    """Collects what a check sees; it fails where anything was not as expected."""

    def __init__(self) -> None:
        self.evidence: list[Mapping[str, Fact]] = []
        self.misfits: list[str] = []

    def saw(self, case: str, facts: Mapping[str, Fact]) -> None:
        """What was provoked, and what was seen then."""
        self.evidence.append({"case": case} | dict(facts))

    def expect(self, is_so: object, otherwise: str) -> None:
        """The check fails unless this holds."""
        if not is_so:
            self.misfits.append(otherwise)
