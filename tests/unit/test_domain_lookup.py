"""What a lookup's verdict does: the ladder of five tries, and who decides at its end."""

import pytest

from oncefence.domain.effect import Disposition
from oncefence.domain.execution import EXECUTION
from oncefence.domain.lookup import (
    TRIES_MAX,
    WAITS_SECONDS,
    Conclusion,
    FirstLook,
    Verdict,
    conclude,
    conclude_first_look,
)
from oncefence.domain.settlement import FailureClass

DECISIVE = {
    Verdict.APPLIED: ("succeeded", "success_found", Disposition.APPLIED),
    Verdict.REFUSED: ("failed", "failure_found", Disposition.REFUSED),
    Verdict.UNSENT: ("failed", "failure_found", Disposition.NO_EFFECT_PROOF),
    Verdict.UNUSABLE: ("needs_attention", "investigation_exhausted", None),
}
BEFORE = range(TRIES_MAX)
SENSITIVE = pytest.mark.parametrize("is_sensitive", [False, True])


def end(conclusion: Conclusion) -> tuple[str | None, str | None, Disposition | None]:
    return (
        conclusion.execution_status,
        conclusion.execution_trigger,
        conclusion.disposition,
    )


@SENSITIVE
@pytest.mark.parametrize("before", BEFORE)
class TestAtAnyTry:
    @pytest.mark.parametrize("verdict", DECISIVE)
    def test_a_decisive_verdict_settles(
        self, verdict: Verdict, before: int, is_sensitive: bool
    ) -> None:
        """What is proven need not be asked again (C268)."""
        does = conclude(verdict, tries_before=before, is_sensitive=is_sensitive)

        assert end(does) == DECISIVE[verdict]
        assert does.next_wait_seconds is None

    def test_a_closed_door_spends_no_try(self, before: int, is_sensitive: bool) -> None:
        """A provider that is down for a day must not decide by being down."""
        does = conclude(Verdict.UNREACHABLE, tries_before=before, is_sensitive=is_sensitive)

        assert end(does) == (None, None, None)
        assert does.next_wait_seconds == WAITS_SECONDS[before]
        assert not does.spends_try

    @pytest.mark.parametrize("verdict", Verdict)
    def test_every_verdict_settles_or_waits_and_never_both(
        self, verdict: Verdict, before: int, is_sensitive: bool
    ) -> None:
        """Neither would be silently idle; both would settle twice. Each settling move is legal."""
        does = conclude(verdict, tries_before=before, is_sensitive=is_sensitive)

        assert (does.execution_status is None) == (does.next_wait_seconds is not None)
        if does.execution_status is not None:
            assert does.execution_trigger is not None
            EXECUTION.check("unknown", does.execution_status, does.execution_trigger)


@SENSITIVE
@pytest.mark.parametrize("verdict", [Verdict.NOT_FOUND, Verdict.INCONCLUSIVE])
class TestBeforeTheLastTry:
    @pytest.mark.parametrize("before", BEFORE[:-1])
    def test_nothing_found_waits_for_the_next(
        self, verdict: Verdict, before: int, is_sensitive: bool
    ) -> None:
        """The n-th lookup waits the n-th wait; an early miss proves nothing (C269)."""
        does = conclude(verdict, tries_before=before, is_sensitive=is_sensitive)

        assert end(does) == (None, None, None)
        assert does.next_wait_seconds == WAITS_SECONDS[before + 1]
        assert does.spends_try


class TestAtTheLastTry:
    LAST = TRIES_MAX - 1

    def test_not_found_fails_what_is_not_sensitive(self) -> None:
        """It settles, and is no permission to send again (C270)."""
        does = conclude(Verdict.NOT_FOUND, tries_before=self.LAST, is_sensitive=False)

        assert end(does) == ("failed", "failure_found", Disposition.NOT_FOUND)

    def test_not_found_leaves_what_is_sensitive_to_a_person(self) -> None:
        """A wrong guess would cost too much."""
        does = conclude(Verdict.NOT_FOUND, tries_before=self.LAST, is_sensitive=True)

        assert end(does) == ("needs_attention", "investigation_exhausted", None)

    @SENSITIVE
    def test_an_inconclusive_one_leaves_it_to_a_person(self, is_sensitive: bool) -> None:
        """Five looks without an answer are no answer (C271)."""
        does = conclude(Verdict.INCONCLUSIVE, tries_before=self.LAST, is_sensitive=is_sensitive)

        assert end(does) == ("needs_attention", "investigation_exhausted", None)


def test_only_a_proof_permits_another_attempt() -> None:
    """Nothing that a lookup reads is a proof of no effect; the starter's own word is (C189)."""
    proofs = {
        verdict
        for verdict in Verdict
        for before in BEFORE
        for is_sensitive in (False, True)
        if conclude(verdict, tries_before=before, is_sensitive=is_sensitive).disposition
        is Disposition.NO_EFFECT_PROOF
    }

    assert proofs == {Verdict.UNSENT}


class TestTheLookBeforeACreate:
    @pytest.mark.parametrize("before", BEFORE)
    def test_permits_it_only_where_nothing_is_there(self, before: int) -> None:
        """Whatever else it says, nothing is sent on the strength of it (C342)."""
        permits = {
            look
            for look in FirstLook
            if (does := conclude_first_look(look, tries_before=before)).failure_class is None
            and does.wait_seconds is None
        }

        assert permits == {FirstLook.ABSENT}

    @pytest.mark.parametrize("before", BEFORE)
    @pytest.mark.parametrize(
        ("look", "failure"),
        [
            (FirstLook.THERE, FailureClass.ALREADY_THERE),
            (FirstLook.AMBIGUOUS, FailureClass.IDENTITY_AMBIGUOUS),
            (FirstLook.UNUSABLE, FailureClass.LOOK_UNUSABLE),
        ],
    )
    def test_ends_it_at_once_where_waiting_changes_nothing(
        self, look: FirstLook, failure: FailureClass, before: int
    ) -> None:
        """A record that is there is for a person to link (C28)."""
        does = conclude_first_look(look, tries_before=before)

        assert (does.failure_class, does.wait_seconds, does.spends_try) == (failure, None, False)

    def test_waits_for_a_closed_door_as_long_as_it_is_closed(self) -> None:
        """An outage is no answer, and spends no try (C265)."""
        does = conclude_first_look(FirstLook.UNREACHABLE, tries_before=0)

        assert (does.failure_class, does.wait_seconds, does.spends_try) == (
            None,
            WAITS_SECONDS[0],
            False,
        )

    def test_that_cannot_tell_is_one_of_five(self) -> None:
        """Each waits as long as a lookup would; the last one ends it, unsent."""
        found = [conclude_first_look(FirstLook.UNCLEAR, tries_before=each) for each in BEFORE]

        assert [does.wait_seconds for does in found] == [*WAITS_SECONDS[1:], None]
        assert all(does.spends_try for does in found)
        assert found[-1].failure_class is FailureClass.LOOK_INCONCLUSIVE
