"""What one effect attempt can come to: the five outcomes (and nothing else)."""

from enum import StrEnum


class Outcome(StrEnum):
    """How an attempt ended on the wire."""

    ACCEPTED = "ACCEPTED"
    """The provider accepted and the evidence that the pack demands is stored."""

    REJECTED = "REJECTED"
    """The provider answered a complete, declared refusal."""

    RETRYABLE_PRE_DISPATCH = "RETRYABLE_PRE_DISPATCH"
    """Not one byte of the request left us."""

    REPLAY_SAFE_RETRY = "REPLAY_SAFE_RETRY"
    """Sent, and the frozen provider contract proves that sending again is safe."""

    OUTCOME_UNKNOWN = "OUTCOME_UNKNOWN"
    """A byte may have left, and no complete, conforming answer is stored."""


class Disposition(StrEnum):
    """How an attempt that may have applied was resolved afterwards; written once."""

    APPLIED = "applied"
    REFUSED = "refused"
    NOT_FOUND = "not_found"
    """A lookup found nothing. It settles the execution and permits no second send."""

    NO_EFFECT_PROOF = "no_effect_proof"
    """The only disposition that permits another attempt."""

    PERSON = "person"
