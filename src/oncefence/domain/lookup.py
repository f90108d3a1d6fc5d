"""
The lookup: what reading the provider's record can say about an attempt of unknown outcome.

A lookup is a read. It settles an execution and is never a permission to send again.
"""

from dataclasses import dataclass
from enum import StrEnum

from oncefence.domain.effect import Disposition
from oncefence.domain.settlement import FailureClass

WAITS_SECONDS = (30.0, 120.0, 600.0, 3600.0, 21600.0)
"""The wait before each of the five lookups (C262), 7.2 hours in all; after the last a person
decides, because a guess could send twice."""

TRIES_MAX = len(WAITS_SECONDS)


class Verdict(StrEnum):
    """What one lookup, or late evidence in its place, says about the effect."""

    APPLIED = "applied"
    REFUSED = "refused"
    """The provider itself reports the failure."""

    UNSENT = "unsent"
    """The starter's own word, late, that not one byte left: the only proof among these."""

    NOT_FOUND = "not_found"
    INCONCLUSIVE = "inconclusive"
    UNREACHABLE = "unreachable"
    """No answer to go by; it spends none of the tries."""

    UNUSABLE = "unusable"
    """There is no lookup that could be made, now or later."""


class FirstLook(StrEnum):
    """What the read just before a create says; only the first permits the create."""

    ABSENT = "not_found"
    THERE = "already_there"
    """Exactly one record, and it is the one that was to be made."""

    AMBIGUOUS = "identity_ambiguous"
    """More than one. Which of them is meant must not be guessed."""

    UNCLEAR = "inconclusive"
    UNREACHABLE = "unreachable"
    UNUSABLE = "unusable"
    """There is no look that could be made, now or later."""


class Grade(StrEnum):
    """How strong the evidence for a verdict is."""

    RECEIPT = "receipt"
    """The answer to the very request."""

    STATE = "state"
    """The record as it stands, which a later hand may have made so."""

    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Conclusion:
    """
    What a verdict does.

    `execution_status` is None while the investigation goes on; `next_wait_seconds` is then the
    unscaled wait, else None. `spends_try` tells a try from a knock on a closed door.
    """

    execution_status: str | None
    execution_trigger: str | None
    disposition: Disposition | None
    next_wait_seconds: float | None
    spends_try: bool


def _settle(status: str, trigger: str, disposition: Disposition | None) -> Conclusion:
    return Conclusion(
        execution_status=status,
        execution_trigger=trigger,
        disposition=disposition,
        next_wait_seconds=None,
        spends_try=True,
    )


def conclude(verdict: Verdict, *, tries_before: int, is_sensitive: bool) -> Conclusion:
    """
    What `verdict` does after `tries_before` tries were spent (C268 to C272).

    A success, or a failure that the provider itself reports, settles at any try. Nothing found
    only waits until the last try, and then fails what is not sensitive.
    """
    this_try = tries_before + 1
    if verdict is Verdict.APPLIED:
        return _settle("succeeded", "success_found", Disposition.APPLIED)
    if verdict is Verdict.REFUSED:
        return _settle("failed", "failure_found", Disposition.REFUSED)
    if verdict is Verdict.UNSENT:
        return _settle("failed", "failure_found", Disposition.NO_EFFECT_PROOF)
    if verdict is Verdict.UNUSABLE:
        return _settle("needs_attention", "investigation_exhausted", None)
    if verdict is Verdict.UNREACHABLE:
        return Conclusion(
            execution_status=None,
            execution_trigger=None,
            disposition=None,
            next_wait_seconds=WAITS_SECONDS[min(tries_before, TRIES_MAX - 1)],
            spends_try=False,
        )
    if this_try < TRIES_MAX:
        return Conclusion(
            execution_status=None,
            execution_trigger=None,
            disposition=None,
            next_wait_seconds=WAITS_SECONDS[this_try],
            spends_try=True,
        )
    if verdict is Verdict.NOT_FOUND and not is_sensitive:
        return _settle("failed", "failure_found", Disposition.NOT_FOUND)
    return _settle("needs_attention", "investigation_exhausted", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstLookConclusion:
    """
    What the look before a create does.

    With a failure class the create ends, and nothing was sent; with a wait it is looked for again
    then; with neither it may be made now.
    """

    failure_class: FailureClass | None = None
    wait_seconds: float | None = None
    spends_try: bool = False


_ENDS_THE_CREATE = {
    FirstLook.THERE: FailureClass.ALREADY_THERE,
    FirstLook.AMBIGUOUS: FailureClass.IDENTITY_AMBIGUOUS,
    FirstLook.UNUSABLE: FailureClass.LOOK_UNUSABLE,
}


def conclude_first_look(look: FirstLook, *, tries_before: int) -> FirstLookConclusion:
    """
    What `look` does after `tries_before` looks that could not tell (C342).

    A record that is there is never taken for the one that we would have made: whether it is to be
    linked is for a person or the Runtime to say (C28). Failing is safe, since nothing was sent.
    """
    if look is FirstLook.ABSENT:
        return FirstLookConclusion()
    if look in _ENDS_THE_CREATE:
        return FirstLookConclusion(failure_class=_ENDS_THE_CREATE[look])
    if look is FirstLook.UNREACHABLE:
        return FirstLookConclusion(wait_seconds=WAITS_SECONDS[min(tries_before, TRIES_MAX - 1)])
    if tries_before + 1 < TRIES_MAX:
        return FirstLookConclusion(wait_seconds=WAITS_SECONDS[tries_before + 1], spends_try=True)
    return FirstLookConclusion(failure_class=FailureClass.LOOK_INCONCLUSIVE, spends_try=True)
