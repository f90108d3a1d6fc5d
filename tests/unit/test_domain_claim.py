"""How a claim ends, in words that may be shown."""

import math

import pytest

from oncefence.domain.claim import (
    HELD_BACK,
    WAIT_MAX,
    ClaimEnd,
    ClaimVerdict,
    WorkEnd,
    failure_class_of,
)

WAITS = (ClaimEnd.DEFER, ClaimEnd.RETRY)


class TestAWait:
    @pytest.mark.parametrize("end", sorted(set(ClaimEnd) - set(WAITS)))
    def test_is_of_what_waits_alone(self, end: ClaimEnd) -> None:
        """An item that has ended is never due again (C48)."""
        with pytest.raises(ValueError, match="no wait"):
            WorkEnd(end=end, wait_seconds=1, failure_class="x")

    @pytest.mark.parametrize("end", WAITS)
    @pytest.mark.parametrize("wait", [-0.1, math.inf, math.nan, WAIT_MAX + 1])
    def test_is_a_time_that_comes(self, end: ClaimEnd, wait: float) -> None:
        """Found out in the handler, where it is a failure, and not when the claim is to end."""
        with pytest.raises(ValueError, match="no wait"):
            WorkEnd(end=end, wait_seconds=wait)

    @pytest.mark.parametrize("wait", [0.0, 0.5, WAIT_MAX])
    def test_may_be_none_at_all_or_a_year(self, wait: float) -> None:
        """Both ends of what is allowed."""
        assert WorkEnd(end=ClaimEnd.DEFER, wait_seconds=wait).wait_seconds == wait

    def test_of_what_is_deferred_is_told(self) -> None:
        """Only a failure has a back-off of the kernel's own."""
        with pytest.raises(ValueError, match="for how long"):
            WorkEnd(end=ClaimEnd.DEFER)
        assert WorkEnd(end=ClaimEnd.RETRY).wait_seconds is None


class TestAFailureClass:
    def test_is_there_when_something_is_given_up(self) -> None:
        """A dead item says why (C44)."""
        with pytest.raises(ValueError, match="has a failure class"):
            WorkEnd(end=ClaimEnd.GIVE_UP)

    @pytest.mark.parametrize(
        "words", ["no such contact: ann@example.org", "two\nlines", "\u00fcber", "x" * 81, "4xx"]
    )
    def test_is_a_name_and_never_a_sentence(self, words: str) -> None:
        """Operators and metrics see it, so nobody's data can be in it (C43, C517)."""
        with pytest.raises(ValueError, match="is a name"):
            WorkEnd(end=ClaimEnd.GIVE_UP, failure_class=words)

    def test_of_an_error_is_the_name_of_its_class(self) -> None:
        """Its text may hold anything (C517)."""
        assert failure_class_of(KeyError("ann@example.org")) == "KeyError"

    def test_of_an_error_without_a_plain_name_is_unclassified(self) -> None:
        """A class made at run time may be named anything, and its failure still counts."""
        error = type("no such contact: ann@example.org", (Exception,), {})()

        assert failure_class_of(error) == "unclassified"


class TestASummary:
    @pytest.mark.parametrize("summary", ["", "counted 10 of 10", "~" * 200])
    def test_is_a_short_line(self, summary: str) -> None:
        """It is shown as it is (C43)."""
        assert WorkEnd(end=ClaimEnd.FINISH, summary=summary).summary == summary

    @pytest.mark.parametrize("summary", ["two\nlines", "tab\t", "\u00fc", "\x1b[31m", "x" * 201])
    def test_holds_nothing_that_acts_on_a_screen(self, summary: str) -> None:
        """Control signs and other alphabets have no place in it (C517)."""
        with pytest.raises(ValueError, match="one line"):
            WorkEnd(end=ClaimEnd.FINISH, summary=summary)


def test_whoever_is_held_back_is_woken_and_has_no_time_of_its_own() -> None:
    """What ends by itself is waited for; what somebody lifts is not polled for (C228)."""
    assert HELD_BACK.isdisjoint(
        {ClaimVerdict.NOT_DUE, ClaimVerdict.IN_FLIGHT, ClaimVerdict.SLOW_START}
    )
