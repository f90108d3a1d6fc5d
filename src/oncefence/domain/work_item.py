"""The WorkItem: when which claimant may run."""

from enum import StrEnum

from oncefence.domain.lifecycle import Lifecycle, Transition


class WorkItemState(StrEnum):
    """When which claimant may run."""

    PENDING = "pending"
    """Never claimed; waits for RunAfter and its lanes."""

    PROCESSING = "processing"
    """One claimant holds it under a token and an epoch."""

    RETRY = "retry"
    """Claimed before; waits for RunAfter."""

    SUCCEEDED = "succeeded"
    """Done."""

    SKIPPED = "skipped"
    """There was nothing to do."""

    DEAD = "dead"
    """Given up; the failure class says why."""

    CANCELLED = "cancelled"
    """Ended before it was dispatched."""

    AWAITING_LEGACY_OUTCOME = "awaiting_legacy_outcome"
    """Fenced by a rollback; the old owner may run its subject."""

    RECONCILED_LEGACY_TERMINAL = "reconciled_legacy_terminal"
    """The old owner ended it, and its receipt says how."""

    LEGACY_OUTCOME_UNKNOWN = "legacy_outcome_unknown"
    """Nobody can say how the old owner ended it; blocks a cutover."""


WORK_ITEM = Lifecycle(
    name="work_item",
    initial="pending",
    states=tuple(WorkItemState),
    final=frozenset(("succeeded", "skipped", "dead", "cancelled", "reconciled_legacy_terminal")),
    transitions=(
        Transition(
            source="pending",
            target="processing",
            trigger="claim",
            guard="is_claimable",
            actor="claimant",
        ),
        Transition(
            source="retry",
            target="processing",
            trigger="claim",
            guard="is_claimable",
            actor="claimant",
        ),
        Transition(
            source="processing",
            target="processing",
            trigger="reclaim",
            guard="lease_ended_with_nothing_open",
            actor="claimant",
        ),
        Transition(
            source="processing",
            target="succeeded",
            trigger="finish",
            guard="lease_is_held",
            actor="claimant",
        ),
        Transition(
            source="processing",
            target="skipped",
            trigger="skip",
            guard="nothing_to_do",
            actor="claimant",
        ),
        Transition(
            source="processing",
            target="retry",
            trigger="defer",
            guard="lease_is_held",
            actor="claimant",
        ),
        Transition(
            source="processing",
            target="dead",
            trigger="give_up",
            guard="held_or_poisoned",
            actor="claimant, sweep",
        ),
        Transition(
            source="processing",
            target="cancelled",
            trigger="acknowledge_cancel",
            guard="held_and_nothing_sent",
            actor="claimant",
        ),
        Transition(
            source="pending",
            target="cancelled",
            trigger="cancel",
            guard="is_unclaimed",
            actor="operator, bridge",
        ),
        Transition(
            source="retry",
            target="cancelled",
            trigger="cancel",
            guard="is_unclaimed",
            actor="operator, bridge",
        ),
        Transition(
            source="pending",
            target="awaiting_legacy_outcome",
            trigger="rollback_fence",
            guard="drained_and_never_dispatched",
            actor="rollback",
        ),
        Transition(
            source="retry",
            target="awaiting_legacy_outcome",
            trigger="rollback_fence",
            guard="drained_and_never_dispatched",
            actor="rollback",
        ),
        Transition(
            source="awaiting_legacy_outcome",
            target="reconciled_legacy_terminal",
            trigger="legacy_receipt",
            guard="receipt_is_valid",
            actor="projector",
        ),
        Transition(
            source="awaiting_legacy_outcome",
            target="legacy_outcome_unknown",
            trigger="legacy_ambiguous",
            guard="receipt_is_ambiguous",
            actor="projector",
        ),
        Transition(
            source="legacy_outcome_unknown",
            target="reconciled_legacy_terminal",
            trigger="legacy_receipt",
            guard="late_receipt_is_valid",
            actor="projector, operator",
        ),
        Transition(
            source="processing",
            target="dead",
            trigger="attempt_lost",
            guard="lease_ended_with_attempt_open",
            actor="sweep, re-run",
        ),
    ),
    guards={
        "is_claimable": "Due, its lanes free, its owner admitted and the engine capable enough.",
        "lease_ended_with_nothing_open": "The lease ended and no attempt is started and unsettled.",
        "lease_is_held": "The caller names the live token and epoch.",
        "nothing_to_do": "The caller names the live token and epoch, and there is nothing to do.",
        "held_or_poisoned": "The caller names the live token and epoch, or too many claims were lost with nothing open.",
        "held_and_nothing_sent": "The caller names the live token and epoch, and nothing was sent.",
        "is_unclaimed": "Nobody holds it, and its execution is not retrying unless both end together.",
        "drained_and_never_dispatched": "No claimant is left, and nothing of it was ever dispatched.",
        "receipt_is_valid": "A valid receipt of the legacy outcome is there.",
        "receipt_is_ambiguous": "The receipt is missing, conflicting or ambiguous.",
        "late_receipt_is_valid": "A valid late receipt, or one that an operator attests with a note.",
        "lease_ended_with_attempt_open": "The lease ended while an attempt was started and unsettled.",
    },
)

# Waiting for the old owner: held, but nobody may claim it.
NON_EXECUTABLE = frozenset(("awaiting_legacy_outcome", "legacy_outcome_unknown"))
ACTIVE = frozenset(("pending", "processing", "retry")) | NON_EXECUTABLE

DISPATCH = "effect.dispatch"
CONNECTED = "connected.deliver"
"""The same for an account of one person: it is counted, paused and listed apart (C29)."""

LOOKUP = "effect.lookup"
"""The families of this engine so far; a family is a registered handler, never a second loop."""

EFFECTS = frozenset((DISPATCH, CONNECTED))
"""Families whose run is an attempt to change a record: their claim is the dispatch mark."""
