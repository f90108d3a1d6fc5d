"""Pauses: what an operator holds back, and how it comes back."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from oncefence.domain.errors import ActRefused
from oncefence.domain.ids import OrgId, PrincipalBindingId
from oncefence.domain.operator import EVERY_ORG, Act

RAMP_SECONDS_MAX: Final = 86_400.0
"""A slow start that takes longer than a day is another pause."""
RAMP_SECONDS_DEFAULT: Final = 60.0
"""Of a resume that says nothing else: what was held back does not all come at once."""


class PauseState(StrEnum):
    """How a pause stands; also its version, for it changes once."""

    IN_FORCE = "in_force"
    RESUMED = "resumed"


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseScope:
    """
    What is held back: every item of the org, or of every org, that all the named parts fit.

    `definition` is an operation, or the family of an item that belongs to none.

    Raises:
        ActRefused: Of every org something must be named, and a binding is of one org alone.
    """

    org: OrgId
    provider: str | None = None
    definition: str | None = None
    binding: PrincipalBindingId | None = None

    def __post_init__(self) -> None:
        if self.org != EVERY_ORG:
            return
        if self.binding is not None:
            raise ActRefused(
                act=Act.PAUSE,
                subject=str(self),
                verdict="binding_of_one_org",
                remedy="a binding belongs to one org: name that org with it",
            )
        if self.provider is None and self.definition is None:
            raise ActRefused(
                act=Act.PAUSE,
                subject=str(self),
                verdict="too_wide",
                remedy="name a provider or an operation beside every org",
            )

    def __str__(self) -> str:
        parts = {
            "org": self.org,
            "provider": self.provider,
            "operation": self.definition,
            "binding": self.binding,
        }
        return ", ".join(f"{name} {value}" for name, value in parts.items() if value is not None)
