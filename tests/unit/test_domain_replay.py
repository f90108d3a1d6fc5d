"""Whether ended work may be made anew: every verdict, and which one comes first."""

from dataclasses import replace

import pytest

from oncefence.domain.execution import ExecutionStatus
from oncefence.domain.replay import REMEDIES, ReplayFacts, ReplayVerdict, judge
from oncefence.domain.work_item import WORK_ITEM, WorkItemState

SAFE = ReplayFacts(
    family="effect.dispatch",
    item_state="dead",
    is_replayed=False,
    execution_status="failed",
    is_in_doubt=False,
    is_superseded=False,
    has_binding=True,
    has_link=True,
    is_offered=True,
    has_attempts_left=True,
    has_content=True,
)
OF_STATUS = {
    "failed": ReplayVerdict.SAFE_TO_REPLAY,
    "unknown": ReplayVerdict.NEEDS_LOOKUP,
    "needs_attention": ReplayVerdict.NEEDS_ATTENTION,
    "accepted": ReplayVerdict.NOT_TERMINAL,
    "running": ReplayVerdict.NOT_TERMINAL,
    "retrying": ReplayVerdict.NOT_TERMINAL,
    "succeeded": ReplayVerdict.SETTLED,
    "cancelled": ReplayVerdict.SETTLED,
}
# From the first that is looked at to the last.
ORDER = (
    ({"is_replayed": True}, ReplayVerdict.ALREADY_REPLAYED),
    ({"is_in_doubt": True}, ReplayVerdict.UNKNOWN),
    ({"is_superseded": True}, ReplayVerdict.SUPERSEDED),
    ({"has_binding": False}, ReplayVerdict.BINDING_GONE),
    ({"has_link": False}, ReplayVerdict.LINK_CHANGED),
    ({"is_offered": False}, ReplayVerdict.OPERATION_GONE),
    ({"has_attempts_left": False}, ReplayVerdict.ATTEMPTS_EXHAUSTED),
    ({"has_content": False}, ReplayVerdict.CONTENT_ERASED),
)


def test_every_verdict_has_a_remedy() -> None:
    """A refusal that says nothing more leaves its reader where he was."""
    assert set(REMEDIES) == set(ReplayVerdict)


@pytest.mark.parametrize("status", ExecutionStatus)
def test_the_execution_of_a_dispatch_decides_first(status: ExecutionStatus) -> None:
    """Only what failed is retried by an operator, and never what is unknown (C70, C404)."""
    assert judge(replace(SAFE, execution_status=status)) == OF_STATUS[status]


@pytest.mark.parametrize("status", ExecutionStatus)
def test_a_lookup_is_never_replayed(status: ExecutionStatus) -> None:
    """It is the execution's own (C98)."""
    verdict = judge(replace(SAFE, family="effect.lookup", execution_status=status))

    assert verdict is not ReplayVerdict.SAFE_TO_REPLAY


@pytest.mark.parametrize("state", WorkItemState)
def test_what_has_not_ended_is_not_made_a_second_time(state: WorkItemState) -> None:
    """Two items of one piece of work would both run (C48, C52)."""
    verdict = judge(replace(SAFE, item_state=state))

    assert (verdict is ReplayVerdict.NOT_TERMINAL) == (state not in WORK_ITEM.final)


@pytest.mark.parametrize("state", sorted(WORK_ITEM.final))
def test_of_another_family_only_what_did_not_succeed_is_replayed(state: str) -> None:
    """What was done, or needed nothing, needs nothing again."""
    verdict = judge(replace(SAFE, family="event.apply", item_state=state, execution_status=None))

    may_be = state in ("dead", "cancelled")
    assert verdict == (ReplayVerdict.SAFE_TO_REPLAY if may_be else ReplayVerdict.SETTLED)


@pytest.mark.parametrize("first", range(len(ORDER)))
def test_the_graver_reason_is_the_one_that_is_told(first: int) -> None:
    """Doubt about the effect is never called by a lesser name (C403)."""
    changes: dict[str, bool] = {}
    for change, _ in reversed(ORDER[first:]):
        changes |= change

    assert judge(replace(SAFE, **changes)) == ORDER[first][1]  # type: ignore[arg-type]  # booleans
