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


def says(kind: EvidenceKind, outcome: Outcome, *, may_have_applied: bool) -> str:
    """
    What late evidence says of the effect: "applied", "no_effect" or "nothing".

    A 5xx under a provider's key is an answer and says nothing: the effect may be there.
    """
    if kind is EvidenceKind.UNSENT:
        return "no_effect"
    if outcome is Outcome.ACCEPTED:
        return "applied"
    return "nothing" if may_have_applied else "no_effect"


def consequence(
    kind: EvidenceKind,
    outcome: Outcome,
    *,
    may_have_applied: bool,
    execution_status: str,
    disposition: str | None,
) -> Consequence:
    """
    What evidence of `kind` does to an execution in `execution_status` (C106).

    `outcome` is the class of a late answer; `disposition` is the attempt's own, if it has one.
    """
    said = says(kind, outcome, may_have_applied=may_have_applied)
    if said == "nothing":
        return Consequence.KEPT
    if execution_status == "unknown":
        return Consequence.LOOKUP_NOW
    if execution_status == "needs_attention":
        return Consequence.CONTRADICTION
    if execution_status == "succeeded":
        # A later attempt may have been the one that succeeded; then `unsent` fits.
        fits = said == "applied" or disposition == "no_effect_proof"
        return Consequence.KEPT if fits else Consequence.CONTRADICTION
    if said == "applied":
        return Consequence.CONTRADICTION
    if kind is EvidenceKind.UNSENT and execution_status == "failed":
        if disposition == "not_found":
            return Consequence.CONFIRMS
        if disposition in ("refused", "person"):
            return Consequence.CONTRADICTION
    return Consequence.KEPT
