"""
Late evidence: what an answer does that arrives after its attempt was settled by somebody else.

Evidence is always kept. What it may do depends on where the execution stands by then.
"""

from enum import StrEnum

from oncefence.domain.effect import Outcome


class EvidenceKind(StrEnum):
    """What the holder of an attempt's start token reports late."""

    ANSWER = "answer"
    UNSENT = "unsent"


class Consequence(StrEnum):
    """What late evidence does."""

    KEPT = "kept"
    LOOKUP_NOW = "lookup_now"
    """The execution is unknown: its lookup is due at once and settles by this evidence."""

    CONFIRMS = "confirms"
    """`not_found` becomes a proof of no effect."""

    CONTRADICTION = "contradiction"
    """It says otherwise than what stands, or a person decides by now: a person looks."""


def _says(kind: EvidenceKind, outcome: Outcome | None) -> str:
    if kind is EvidenceKind.UNSENT:
        return "no_effect"
    if outcome is Outcome.ACCEPTED:
        return "applied"
    if outcome is Outcome.OUTCOME_UNKNOWN or outcome is None:
        return "nothing"
    return "no_effect"


def consequence(
    kind: EvidenceKind,
    outcome: Outcome | None,
    *,
    execution_status: str,
    disposition: str | None,
) -> Consequence:
    """
    What evidence of `kind` does to an execution in `execution_status` (C106).

    `outcome` is the class of a late answer; `disposition` is the attempt's own, if it has one.
    """
    says = _says(kind, outcome)
    if says == "nothing":
        return Consequence.KEPT
    if execution_status == "unknown":
        return Consequence.LOOKUP_NOW
    if execution_status == "needs_attention":
        return Consequence.CONTRADICTION
    if execution_status == "succeeded":
        # A later attempt may have been the one that succeeded; then `unsent` fits.
        fits = says == "applied" or disposition == "no_effect_proof"
        return Consequence.KEPT if fits else Consequence.CONTRADICTION
    if says == "applied":
        return Consequence.CONTRADICTION
    if kind is EvidenceKind.UNSENT and execution_status == "failed":
        if disposition == "not_found":
            return Consequence.CONFIRMS
        if disposition in ("refused", "person"):
            return Consequence.CONTRADICTION
    return Consequence.KEPT
