"""What a call for a token came to: pure, and total."""

from datetime import UTC, datetime, timedelta

import pytest

from oncefence.domain.classification import AttemptFailure, Classified
from oncefence.domain.effect import Outcome
from oncefence.domain.grant import (
    ERROR_CODES,
    GrantRotation,
    RefreshOutcome,
    Refusal,
    expiry,
    refusal_of,
    spacing_seconds,
    verdict_of,
)

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def classified(outcome: Outcome, failure: AttemptFailure | None = None) -> Classified:
    return Classified(
        outcome=outcome,
        failure_class=failure,
        may_have_applied=outcome is Outcome.OUTCOME_UNKNOWN,
        is_configuration_fault=failure is AttemptFailure.GUARD_REFUSED,
    )


def test_only_a_rotating_token_is_spent_by_its_use() -> None:
    """Of the others a lost call is made again (C288)."""
    assert [each for each in GrantRotation if each.is_spent_by_use] == [GrantRotation.ROTATING]


@pytest.mark.parametrize(
    ("status", "error", "is_mint", "refusal"),
    [
        (400, "invalid_grant", False, Refusal.REAUTHORIZE),
        (401, "invalid_grant", False, Refusal.REAUTHORIZE),
        (400, "invalid_request", False, Refusal.RECONFIGURE),
        (401, "invalid_client", False, Refusal.RECONFIGURE),
        (400, "unauthorized_client", False, Refusal.RECONFIGURE),
        (400, None, False, Refusal.RECONFIGURE),
        (404, None, False, Refusal.RECONFIGURE),
        (404, None, True, Refusal.REAUTHORIZE),
        (410, None, True, Refusal.REAUTHORIZE),
        (401, None, True, Refusal.RECONFIGURE),
        (301, None, False, Refusal.RECONFIGURE),
        (429, None, False, Refusal.WAIT),
        (429, "invalid_grant", False, Refusal.WAIT),
        (408, None, False, Refusal.WAIT),
        (503, None, False, Refusal.WAIT),
        (503, "invalid_grant", False, Refusal.WAIT),
        (400, "temporarily_unavailable", False, Refusal.WAIT),
        (400, "slow_down", True, Refusal.WAIT),
    ],
)
def test_a_refusal_asks_for_a_person_a_mender_or_time(
    status: int, error: str | None, is_mint: bool, refusal: Refusal
) -> None:
    """Only what is final for the account makes a person connect it again (C289)."""
    assert refusal_of(status=status, error=error, is_mint=is_mint) is refusal


def test_a_word_that_the_standard_lacks_is_not_kept() -> None:
    """A provider's own text may hold anything (C290)."""
    verdict = verdict_of(
        classified(Outcome.REJECTED, AttemptFailure.REJECTED),
        status=400,
        error="token abc123 of bob@example.com",
        is_mint=False,
    )

    assert verdict.failure_class == "status_400"
    assert all(code.replace("_", "").isalpha() for code in ERROR_CODES)


@pytest.mark.parametrize(
    ("found", "outcome", "refusal"),
    [
        (
            classified(Outcome.RETRYABLE_PRE_DISPATCH, AttemptFailure.CONNECT),
            RefreshOutcome.UNSENT,
            Refusal.WAIT,
        ),
        (
            classified(Outcome.RETRYABLE_PRE_DISPATCH, AttemptFailure.GUARD_REFUSED),
            RefreshOutcome.UNSENT,
            Refusal.RECONFIGURE,
        ),
        (classified(Outcome.ACCEPTED), RefreshOutcome.ACTIVATED, None),
        (
            classified(Outcome.OUTCOME_UNKNOWN, AttemptFailure.LOST_ANSWER),
            RefreshOutcome.UNKNOWN,
            None,
        ),
        (
            classified(Outcome.REPLAY_SAFE_RETRY, AttemptFailure.RATE_LIMITED),
            RefreshOutcome.ANSWERED,
            Refusal.WAIT,
        ),
    ],
)
def test_each_class_of_a_request_has_its_verdict(
    found: Classified, outcome: RefreshOutcome, refusal: Refusal | None
) -> None:
    """By the same classes as any effect: how far it got decides (C289)."""
    verdict = verdict_of(found, status=429, error=None, is_mint=False)

    assert (verdict.outcome, verdict.refusal) == (outcome, refusal)


def test_a_life_counts_from_before_the_request() -> None:
    """When the provider's clock began to count is not known, but not before that."""
    assert expiry(3600, asked_at=NOON) == NOON + timedelta(hours=1)
    assert expiry(0, asked_at=NOON) == NOON
    assert expiry(-5, asked_at=NOON) == NOON


def test_calls_keep_a_second_between_them_and_more_where_the_pack_says_so() -> None:
    """Nothing makes a loop hot (C294)."""
    assert (spacing_seconds(0), spacing_seconds(60)) == (1.0, 60.0)
