"""The one table in which both lifecycles meet: total, legal on both sides, and never hopeful."""

from itertools import product

import pytest

from oncefence.domain.effect import Outcome
from oncefence.domain.execution import EXECUTION
from oncefence.domain.settlement import (
    LOST_ATTEMPT,
    FailureClass,
    LookupDue,
    Settlement,
    Situation,
    rows,
    settlement,
)
from oncefence.domain.work_item import WORK_ITEM

ROWS = list(rows())


def named(row: tuple[Outcome, Situation, Settlement]) -> str:
    outcome, situation, _ = row
    flags = ("at_ceiling", "may_have_applied", "replay_open")
    return "-".join([outcome, *(flag for flag in flags if getattr(situation, flag))])


def after(outcome: Outcome, **situation: bool) -> Settlement:
    defaults = {"at_ceiling": False, "may_have_applied": False, "replay_open": False}
    return settlement(outcome, Situation(**{**defaults, **situation}))


def test_it_covers_every_outcome_in_every_situation_once() -> None:
    """A missing row would stop a settlement in the middle of the night (C82)."""
    keys = [
        (outcome, situation.at_ceiling, situation.may_have_applied, situation.replay_open)
        for outcome, situation, _ in ROWS
    ]

    assert sorted(keys) == sorted(product(Outcome, *[(False, True)] * 3))


@pytest.mark.parametrize("row", ROWS, ids=named)
class TestEveryRow:
    def test_is_a_legal_move_of_both(self, row: tuple[Outcome, Situation, Settlement]) -> None:
        """The database would refuse anything else, and the answer would be lost."""
        done = row[2]

        WORK_ITEM.check("processing", done.item_state, done.item_trigger)
        EXECUTION.check("running", done.execution_status, done.execution_trigger)

    def test_never_fails_or_repeats_what_may_have_applied(
        self, row: tuple[Outcome, Situation, Settlement]
    ) -> None:
        """Without a proof there is no failure, and no other try but under the key (C83)."""
        outcome, situation, done = row
        if not situation.may_have_applied or outcome is Outcome.ACCEPTED:
            return

        assert done.execution_status != "failed"
        if done.execution_status == "retrying":
            assert situation.replay_open
            assert outcome is not Outcome.OUTCOME_UNKNOWN

    def test_never_tries_again_past_the_ceiling(
        self, row: tuple[Outcome, Situation, Settlement]
    ) -> None:
        """Attempts are counted so that they end."""
        _, situation, done = row

        assert not (situation.at_ceiling and done.execution_status == "retrying")

    def test_has_a_lookup_exactly_where_it_is_unknown(
        self, row: tuple[Outcome, Situation, Settlement]
    ) -> None:
        """Unknown and nobody looks would be silently idle (C81)."""
        done = row[2]

        assert (done.lookup_due is not LookupDue.NEVER) == (done.execution_status == "unknown")

    def test_keeps_the_two_together(self, row: tuple[Outcome, Situation, Settlement]) -> None:
        """An item that waits has an execution that waits; an ended one says why."""
        done = row[2]
        item = {
            "succeeded": "succeeded",
            "retrying": "retry",
            "failed": "dead",
            "unknown": "dead",
        }

        assert done.item_state == item[done.execution_status]
        assert (done.failure_class is not None) == (done.item_state == "dead")


class TestEachOutcome:
    def test_accepted_succeeds_in_any_situation(self) -> None:
        """The provider said so, whatever was in doubt before."""
        ends = {done.execution_status for outcome, _, done in ROWS if outcome is Outcome.ACCEPTED}

        assert ends == {"succeeded"}

    def test_unknown_is_unknown_in_any_situation(self) -> None:
        """Nothing makes an unknown outcome known but a lookup, a word or a person (C67)."""
        ends = {
            (done.execution_status, done.failure_class)
            for outcome, _, done in ROWS
            if outcome is Outcome.OUTCOME_UNKNOWN
        }

        assert ends == {("unknown", FailureClass.OUTCOME_UNKNOWN)}

    def test_a_refusal_fails_only_where_nothing_is_in_doubt(self) -> None:
        """An earlier attempt may have done what this one was refused."""
        assert after(Outcome.REJECTED).failure_class is FailureClass.REJECTED
        assert after(Outcome.REJECTED, may_have_applied=True).execution_status == "unknown"

    @pytest.mark.parametrize("outcome", [Outcome.RETRYABLE_PRE_DISPATCH, Outcome.REPLAY_SAFE_RETRY])
    def test_a_retry_ends_failed_or_unknown_by_the_fold(self, outcome: Outcome) -> None:
        """At the ceiling, what may have applied is unknown and what cannot have is failed (C85)."""
        assert after(outcome).execution_status == "retrying"
        assert after(outcome, may_have_applied=True).execution_status == "unknown"
        assert after(outcome, may_have_applied=True, replay_open=True).item_state == "retry"
        exhausted = after(outcome, at_ceiling=True)
        assert exhausted.failure_class is FailureClass.ATTEMPTS_EXHAUSTED
        assert exhausted.execution_status == "failed"
        in_doubt = after(outcome, at_ceiling=True, may_have_applied=True, replay_open=True)
        assert in_doubt.execution_status == "unknown"

    def test_a_lost_attempt_is_looked_up_at_once(self) -> None:
        """Its lease was the wait; and both moves are legal."""
        WORK_ITEM.check("processing", LOST_ATTEMPT.item_state, LOST_ATTEMPT.item_trigger)
        EXECUTION.check("running", LOST_ATTEMPT.execution_status, LOST_ATTEMPT.execution_trigger)

        assert LOST_ATTEMPT.execution_status == "unknown"
        assert LOST_ATTEMPT.lookup_due is LookupDue.NOW
        assert after(Outcome.OUTCOME_UNKNOWN).lookup_due is LookupDue.AFTER_FIRST_WAIT
