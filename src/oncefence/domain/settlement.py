"""
The one table in which the two lifecycles meet: what an attempt's outcome does to both.

The rows fill a database table by migration, and the settling function reads them from there.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import product

from oncefence.domain.effect import Outcome


class FailureClass(StrEnum):
    """Why an item or an execution ended without success."""

    REJECTED = "rejected"
    ATTEMPTS_EXHAUSTED = "attempts_exhausted"
    OUTCOME_UNKNOWN = "outcome_unknown"
    BINDING_GENERATION_STALE = "binding_generation_stale"
    LINK_CHANGED = "link_changed"
    CREDENTIAL_FAULT = "credential_fault"
    """The provider refuses the account's newest token too, or one that cannot be renewed."""

    POISON = "poison"
    ALREADY_THERE = "already_there"
    """The record that was to be created is there, and nothing was sent."""

    IDENTITY_AMBIGUOUS = "identity_ambiguous"
    """Several records look like the one that was to be created, and nothing was sent."""

    LOOK_INCONCLUSIVE = "look_inconclusive"
    """Five looks could not tell whether the record is there, and nothing was sent."""

    LOOK_UNUSABLE = "look_unusable"
    """Whether the record is there can no longer be looked at, and nothing was sent."""

    IDENTITY_TAKEN = "identity_taken"
    """The provider named a created record that another link stands for."""

    CONTRADICTED = "contradicted"
    """Evidence came that speaks against what another attempt was permitted by."""


class Effect(StrEnum):
    """What is known of the effect of an execution that failed."""

    NONE_PROVEN = "none_proven"
    REFUSED_BY_PROVIDER = "refused_by_provider"
    NOT_FOUND = "not_found"
    PERSON = "person"


class LookupDue(StrEnum):
    """When the first lookup of an unknown outcome is due."""

    NEVER = "never"
    AFTER_FIRST_WAIT = "after_first_wait"
    NOW = "now"


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """
    What decides beside the outcome.

    `at_ceiling`: no attempt is left. `may_have_applied`: this attempt or an earlier one may
    have taken effect and is not disposed. `replay_open`: the provider's own idempotency key,
    if there is one, still has room for a whole send.
    """

    at_ceiling: bool
    may_have_applied: bool
    replay_open: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """What becomes of the WorkItem and of the Execution, each with the trigger of its move."""

    item_state: str
    item_trigger: str
    execution_status: str
    execution_trigger: str
    failure_class: FailureClass | None
    lookup_due: LookupDue


_SUCCEEDED = Settlement(
    item_state="succeeded",
    item_trigger="finish",
    execution_status="succeeded",
    execution_trigger="valid_answer",
    failure_class=None,
    lookup_due=LookupDue.NEVER,
)
_REFUSED = Settlement(
    item_state="dead",
    item_trigger="give_up",
    execution_status="failed",
    execution_trigger="attempt_failed",
    failure_class=FailureClass.REJECTED,
    lookup_due=LookupDue.NEVER,
)
_AGAIN = Settlement(
    item_state="retry",
    item_trigger="defer",
    execution_status="retrying",
    execution_trigger="prepare_safe_retry",
    failure_class=None,
    lookup_due=LookupDue.NEVER,
)
_EXHAUSTED = Settlement(
    item_state="dead",
    item_trigger="give_up",
    execution_status="failed",
    execution_trigger="attempt_failed",
    failure_class=FailureClass.ATTEMPTS_EXHAUSTED,
    lookup_due=LookupDue.NEVER,
)
_UNCERTAIN = Settlement(
    item_state="dead",
    item_trigger="give_up",
    execution_status="unknown",
    execution_trigger="certainty_lost",
    failure_class=FailureClass.OUTCOME_UNKNOWN,
    lookup_due=LookupDue.AFTER_FIRST_WAIT,
)

LOST_ATTEMPT = Settlement(
    item_state="dead",
    item_trigger="attempt_lost",
    execution_status="unknown",
    execution_trigger="attempt_lost",
    failure_class=FailureClass.OUTCOME_UNKNOWN,
    lookup_due=LookupDue.NOW,
)
"""What becomes of both when whoever started an attempt is gone."""


def settlement(outcome: Outcome, situation: Situation) -> Settlement:
    """
    What `outcome` does in `situation`.

    A failure or another try is only possible where nothing may have been applied, or where the
    provider's own key makes a repeat harmless; everything else becomes unknown.
    """
    if outcome is Outcome.ACCEPTED:
        return _SUCCEEDED
    if outcome is Outcome.OUTCOME_UNKNOWN:
        return _UNCERTAIN
    if outcome is Outcome.REJECTED:
        return _UNCERTAIN if situation.may_have_applied else _REFUSED
    if situation.may_have_applied:
        may_repeat = situation.replay_open and not situation.at_ceiling
        return _AGAIN if may_repeat else _UNCERTAIN
    return _EXHAUSTED if situation.at_ceiling else _AGAIN


def rows() -> Iterator[tuple[Outcome, Situation, Settlement]]:
    """Every outcome in every situation: the whole table."""
    flags = (False, True)
    for outcome in Outcome:
        for ceiling, applied, replay in product(flags, flags, flags):
            situation = Situation(at_ceiling=ceiling, may_have_applied=applied, replay_open=replay)
            yield outcome, situation, settlement(outcome, situation)
