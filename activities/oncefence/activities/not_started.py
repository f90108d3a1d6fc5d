"""What a workflow does with an item that its run could not take, whatever the family."""

from oncefence.activities.contracts import RunResult, Step
from oncefence.domain.claim import HELD_BACK, ClaimVerdict
from oncefence.storage.claims import NotStarted


def rest(found: NotStarted) -> RunResult:
    """
    Wait for a time, for a wake, or not at all.

    What is held back waits without a time of its own: nobody polls for it (C228).
    """
    step = Step.FINISHED
    if found.verdict in HELD_BACK or (
        found.verdict is ClaimVerdict.CREDENTIAL_HELD and found.until is None
    ):
        step = Step.BLOCKED
    elif found.verdict is ClaimVerdict.IN_FLIGHT:
        step = Step.IN_FLIGHT
    elif found.verdict in (
        ClaimVerdict.NOT_DUE,
        ClaimVerdict.SLOW_START,
        ClaimVerdict.NOT_MARKED,
        ClaimVerdict.BREAKER_OPEN,
        ClaimVerdict.TOKEN_STALE,
        ClaimVerdict.TOKEN_BUSY,
        ClaimVerdict.CREDENTIAL_HELD,
        ClaimVerdict.QUOTA_HELD,
        # The look was too long ago by the time of the mark: it is made anew.
        ClaimVerdict.LOOK_FIRST,
    ):
        step = Step.WAIT
    return RunResult(
        step=step,
        verdict=found.verdict,
        until=found.until,
        execution_status=found.execution_status,
        failure_class=found.failure_class,
    )
