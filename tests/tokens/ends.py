"""How calls for a token end, for tests that make none."""

from datetime import UTC, datetime

from oncefence.domain.grant import RefreshOutcome, RefreshVerdict, Refusal, expiry
from oncefence.domain.redaction import Secret
from oncefence.storage.phases.settle_refresh import RefreshEnd, RenewedTokens


def a_token(
    access: str = "A1",
    refresh: str | None = "R1",
    *,
    lifetime_s: int = 1800,
    asked_at: datetime | None = None,
) -> RefreshEnd:
    """The endpoint gave these."""
    return RefreshEnd(
        verdict=RefreshVerdict(outcome=RefreshOutcome.ACTIVATED),
        wait_seconds=1.0,
        response_status=200,
        phases={"phase": "complete"},
        tokens=RenewedTokens(
            access=Secret(access),
            refresh=None if refresh is None else Secret(refresh),
            expires_at=expiry(lifetime_s, asked_at=asked_at or datetime.now(UTC)),
            refresh_expires_at=None,
        ),
    )


def a_refusal(
    failure_class: str = "invalid_grant", refusal: Refusal = Refusal.REAUTHORIZE
) -> RefreshEnd:
    """The endpoint refused."""
    return _end(RefreshOutcome.ANSWERED, failure_class, refusal, status=400)


def an_unsent_call() -> RefreshEnd:
    """Nothing of the request left."""
    return _end(RefreshOutcome.UNSENT, "connect", Refusal.WAIT)


def a_lost_answer() -> RefreshEnd:
    """The request left, and no answer came."""
    return _end(RefreshOutcome.UNKNOWN, "lost_answer", None)


def _end(
    outcome: RefreshOutcome, failure_class: str, refusal: Refusal | None, status: int | None = None
) -> RefreshEnd:
    return RefreshEnd(
        verdict=RefreshVerdict(outcome=outcome, refusal=refusal, failure_class=failure_class),
        wait_seconds=5.0,
        response_status=status,
        phases={},
    )
