"""
A grant: how the tokens of a binding's generation are renewed, and what a renewal came to.

A renewal is an effect at the provider (C286). What its answer means is a pure function of what was
seen on the wire and what the reply's body says.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from oncefence.domain.classification import AttemptFailure, Classified
from oncefence.domain.effect import Outcome

LEAST_GAP_SECONDS: Final = 1.0
"""Between two calls for one grant, whatever a pack says and however short its tokens live."""

ERROR_CODES: Final = frozenset(
    {
        "invalid_grant",
        "invalid_request",
        "invalid_client",
        "invalid_scope",
        "unauthorized_client",
        "unsupported_grant_type",
        "temporarily_unavailable",
        "server_error",
        "slow_down",
        "access_denied",
    }
)
"""The words of a token endpoint that are kept (RFC 6749); any other is a provider's own text."""

_WAIT_CURES: Final = frozenset({"temporarily_unavailable", "server_error", "slow_down"})
_WAIT_CURES_STATUS: Final = frozenset({408, 425, 429})
_INSTALLATION_GONE: Final = frozenset({404, 410})


class GrantRotation(StrEnum):
    """What a call for a new token does to what it is made with; whether it may be made twice."""

    NONE = "none"
    """There is no such call: a person hands tokens over."""

    ROTATING = "rotating"
    STATIC = "static"
    GRACE = "grace"
    MINT = "mint"

    @property
    def is_spent_by_use(self) -> bool:
        """Whether a call uses up what it is made with, and so is made once (C288)."""
        return self is GrantRotation.ROTATING


class GrantState(StrEnum):
    """Whether a grant's tokens can be renewed."""

    HEALTHY = "healthy"
    MISCONFIGURED = "misconfigured"
    """Its last call was refused for what we are or how we ask: it is tried again, rarely."""

    REFRESH_UNKNOWN = "refresh_unknown"
    """The answer that may have spent a rotating token is lost: only a person gets another."""

    NEEDS_REAUTHORIZATION = "needs_reauthorization"
    """The provider has ended it, or refuses what it gives."""

    REVOKED = "revoked"
    """Its generation has ended."""


class MadeBecause(StrEnum):
    """Why a token version was made (C283)."""

    ADDED = "added"
    CONNECTED = "connected"
    EXPIRED = "expired"
    SUSPECT = "suspect"
    REAUTHORIZED = "reauthorized"
    REWRAP = "rewrap"


class RefreshOutcome(StrEnum):
    """What came of one call for a token."""

    ACTIVATED = "activated"
    ANSWERED = "answered"
    """The provider refused, and nothing changed there."""

    UNSENT = "unsent"
    """Nothing of the request left."""

    UNKNOWN = "unknown"
    """It may have been answered, and the answer is lost."""

    SUPERSEDED = "superseded"
    """Its lease ended and another call was made, or its generation ended: it changes nothing."""


class Refusal(StrEnum):
    """What a token endpoint's refusal asks for."""

    REAUTHORIZE = "reauthorize"
    """A person must authorise it anew, unless the token was renewed by others meanwhile."""

    RECONFIGURE = "reconfigure"
    """Our own side is at fault: the binding is kept, and somebody is told."""

    WAIT = "wait"


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshVerdict:
    """
    What one call for a token came to.

    `refusal` says what a failure asks for; of UNKNOWN there is none. `failure_class` is a word of
    ours or of the standard, never a text of the provider.
    """

    outcome: RefreshOutcome
    refusal: Refusal | None = None
    failure_class: str | None = None


def refusal_of(*, status: int, error: str | None, is_mint: bool) -> Refusal:
    """What a complete refusal asks for; `error` is the word of its body, if it has a known one."""
    if status in _WAIT_CURES_STATUS or status >= 500 or error in _WAIT_CURES:
        return Refusal.WAIT
    if error == "invalid_grant" or (is_mint and status in _INSTALLATION_GONE):
        return Refusal.REAUTHORIZE
    # Anything else is about the app or the request: the account itself may be as good as before.
    return Refusal.RECONFIGURE


def verdict_of(
    classified: Classified, *, status: int | None, error: str | None, is_mint: bool
) -> RefreshVerdict:
    """
    What the class of a call for a token means for its grant (C289).

    `classified` is that of any request: a 4xx and what the pack declares are answers, and whatever
    left without one is unknown.
    """
    match classified.outcome:
        case Outcome.RETRYABLE_PRE_DISPATCH:
            fault = classified.is_configuration_fault
            return RefreshVerdict(
                outcome=RefreshOutcome.UNSENT,
                refusal=Refusal.RECONFIGURE if fault else Refusal.WAIT,
                failure_class=str(classified.failure_class),
            )
        case Outcome.ACCEPTED:
            return RefreshVerdict(outcome=RefreshOutcome.ACTIVATED)
        case Outcome.OUTCOME_UNKNOWN:
            return RefreshVerdict(
                outcome=RefreshOutcome.UNKNOWN, failure_class=str(classified.failure_class)
            )
        case Outcome.REJECTED | Outcome.REPLAY_SAFE_RETRY:
            assert status is not None, "a refusal has its status"
            if classified.failure_class is AttemptFailure.UNEXPECTED_REDIRECT:
                error = None
            known = error if error in ERROR_CODES else None
            return RefreshVerdict(
                outcome=RefreshOutcome.ANSWERED,
                refusal=refusal_of(status=status, error=known, is_mint=is_mint),
                failure_class=known or f"status_{status}",
            )


def expiry(lifetime_seconds: int, *, asked_at: datetime) -> datetime:
    """
    When a token of this life ends; a life of nothing has ended already.

    It counts from before its request left: from when the provider counts is not known, but it was
    no earlier than that.
    """
    return asked_at + timedelta(seconds=max(0, lifetime_seconds))


def spacing_seconds(min_gap_seconds: int) -> float:
    """The least time between two calls for one grant."""
    return max(float(min_gap_seconds), LEAST_GAP_SECONDS)
