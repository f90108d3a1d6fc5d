"""The Execution: what the caller of an external operation may know."""

from enum import StrEnum

from oncefence.domain.lifecycle import Lifecycle, Transition


class ExecutionStatus(StrEnum):
    """What the caller of an external operation may know."""

    ACCEPTED = "accepted"
    """Retained; no attempt has begun."""

    RUNNING = "running"
    """An attempt is under way, or a callback is awaited."""

    RETRYING = "retrying"
    """Another attempt is safe and awaited."""

    UNKNOWN = "unknown"
    """The provider may have done it; it is being investigated."""

    NEEDS_ATTENTION = "needs_attention"
    """Investigation ended without an answer; a person decides."""

    SUCCEEDED = "succeeded"
    """The saved final answer reports success."""

    FAILED = "failed"
    """The saved final answer reports a classified failure."""

    CANCELLED = "cancelled"
    """Stopped without further work."""


EXECUTION = Lifecycle(
    name="execution",
    initial="accepted",
    states=tuple(ExecutionStatus),
    final=frozenset(("succeeded", "failed", "cancelled")),
    transitions=(
        Transition(
            source="accepted",
            target="running",
            trigger="begin_delivery",
            guard="admitted_and_unchanged",
            actor="worker",
        ),
        Transition(
            source="accepted",
            target="failed",
            trigger="refuse_admission",
            guard="waiting_caller_refused",
            actor="worker",
        ),
        Transition(
            source="running",
            target="succeeded",
            trigger="valid_answer",
            guard="answer_is_valid",
            actor="worker, callback",
        ),
        Transition(
            source="running",
            target="failed",
            trigger="attempt_failed",
            guard="terminal_or_exhausted",
            actor="worker, callback",
        ),
        Transition(
            source="running",
            target="retrying",
            trigger="prepare_safe_retry",
            guard="retry_is_safe",
            actor="worker",
        ),
        Transition(
            source="retrying",
            target="running",
            trigger="begin_retry",
            guard="admitted_and_unchanged",
            actor="worker",
        ),
        Transition(
            source="retrying",
            target="failed",
            trigger="stop_retrying",
            guard="budget_or_ceiling_spent",
            actor="worker",
        ),
        Transition(
            source="running",
            target="unknown",
            trigger="certainty_lost",
            guard="provider_may_have_received",
            actor="worker",
        ),
        Transition(
            source="running",
            target="unknown",
            trigger="attempt_lost",
            guard="attempt_past_its_bound",
            actor="sweep, re-run",
        ),
        Transition(
            source="retrying",
            target="unknown",
            trigger="continuation_orphaned",
            guard="continuation_missing",
            actor="sweep",
        ),
        Transition(
            source="accepted",
            target="unknown",
            trigger="completion_overdue",
            guard="completion_budget_spent",
            actor="sweep",
        ),
        Transition(
            source="unknown",
            target="succeeded",
            trigger="success_found",
            guard="success_is_confirmed",
            actor="investigator, callback",
        ),
        Transition(
            source="unknown",
            target="failed",
            trigger="failure_found",
            guard="failure_is_confirmed",
            actor="investigator, callback",
        ),
        Transition(
            source="unknown",
            target="needs_attention",
            trigger="investigation_exhausted",
            guard="investigation_is_spent",
            actor="investigator",
        ),
        Transition(
            source="needs_attention",
            target="succeeded",
            trigger="person_found_success",
            guard="finding_has_a_note",
            actor="operator",
        ),
        Transition(
            source="needs_attention",
            target="failed",
            trigger="person_found_failure",
            guard="finding_has_a_note",
            actor="operator",
        ),
        Transition(
            source="accepted",
            target="cancelled",
            trigger="cancel_before_first_attempt",
            guard="no_attempt_started",
            actor="operator, caller",
        ),
        Transition(
            source="running",
            target="cancelled",
            trigger="adapter_cancelled",
            guard="cancellation_was_requested",
            actor="callback",
        ),
        Transition(
            source="failed",
            target="retrying",
            trigger="operator_retry",
            guard="operator_retry_is_eligible",
            actor="operator",
        ),
        Transition(
            source="accepted",
            target="succeeded",
            trigger="completed_before_running_marker",
            guard="completion_wins",
            actor="callback",
        ),
        Transition(
            source="unknown",
            target="cancelled",
            trigger="late_cancellation",
            guard="late_cancellation_was_requested",
            actor="callback",
        ),
        Transition(
            source="accepted",
            target="failed",
            trigger="cannot_proceed",
            guard="nothing_was_sent",
            actor="worker, sweep",
        ),
        Transition(
            source="retrying",
            target="failed",
            trigger="cannot_proceed",
            guard="every_attempt_proven_unapplied",
            actor="worker, sweep",
        ),
        Transition(
            source="retrying",
            target="unknown",
            trigger="safety_ended",
            guard="an_attempt_may_have_applied",
            actor="worker, sweep",
        ),
    ),
    guards={
        "admitted_and_unchanged": "Admission succeeded, and status and attempt number are still those that were read.",
        "waiting_caller_refused": "A caller waits, admission was refused and nothing was sent.",
        "answer_is_valid": "The answer passed the validation of its frozen contract.",
        "terminal_or_exhausted": "The failure is final, or no attempt is left.",
        "retry_is_safe": "The request cannot have taken effect or is proven replay-safe, and attempts remain.",
        "budget_or_ceiling_spent": "Sensitive work outlived its synchronous budget, or the attempts are used up.",
        "provider_may_have_received": "The provider may have received the request, now or in an attempt before.",
        "attempt_past_its_bound": "The open attempt is past its bound and one minute more.",
        "continuation_missing": "Nothing is dispatched and nothing changed for more than eight hours.",
        "completion_budget_spent": "The operation completes by callback and its completion budget is spent.",
        "success_is_confirmed": "A lookup, a late answer or a late completion proves success.",
        "failure_is_confirmed": "A failure is proven, or the last lookup of work that is not sensitive found nothing.",
        "investigation_is_spent": "The lookups stayed inconclusive, or there is none that could be used.",
        "finding_has_a_note": "A person recorded the finding with a note; the provider is not called.",
        "no_attempt_started": "No attempt has been started.",
        "cancellation_was_requested": "The call is asynchronous, cancellation was requested and the adapter reports it.",
        "operator_retry_is_eligible": "Class, attempts left, input digest, effect and request key all permit one more try.",
        "completion_wins": "A valid completion is the first to settle.",
        "late_cancellation_was_requested": "The timeout is unresolved and the adapter reports the requested cancellation.",
        "nothing_was_sent": "What the command relies on is gone or its claims are spent, and nothing was sent.",
        "every_attempt_proven_unapplied": "What the command relies on is gone, and every attempt is proven not applied.",
        "an_attempt_may_have_applied": "Going on is no longer safe, and an attempt may have applied.",
    },
)
