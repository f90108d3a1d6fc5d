"""One wire, five outcomes: the table of C246 over the full product of what can be seen."""

from dataclasses import replace

import pytest

from oncefence.domain.classification import (
    AttemptFailure,
    BodyVerdict,
    Classified,
    ReplyContract,
    SendFault,
    WirePhase,
    classify,
    verdict_of_item,
)
from oncefence.domain.effect import Outcome
from tests.golden.classification import (
    AFTER,
    BEFORE,
    CONDITIONAL,
    KEYED,
    PAGE,
    PHASES,
    REDIRECTS,
    SILENT,
    Cell,
    cells,
    page_with,
    row_of,
)
from tests.golden.classification import PLAIN as CONTRACT

GOOD = BodyVerdict(complete=True, parseable=True, evidence_present=True, identity_matches=True)
REFUSAL = BodyVerdict(
    complete=True,
    parseable=True,
    evidence_present=False,
    identity_matches=False,
    declares_refusal=True,
)
NOT_APPLIED = {"declares_not_applied": True}
NEVER_FOLLOWED = {301, 307, 308}


def judge(cell: Cell) -> Classified:
    return classify(
        phase=cell.phase,
        status=cell.status,
        body=cell.body,
        contract=cell.contract,
        cause=cell.cause,
    )


def broken(cell: Cell, result: Classified) -> str | None:
    """Name the rule of the promise that this cell breaks, judged without the table."""
    phase, status, body, contract, cause = (
        *(cell.phase, cell.status, cell.body, cell.contract, cell.cause),
    )
    if (result.outcome is Outcome.RETRYABLE_PRE_DISPATCH) is not (phase < WirePhase.FIRST_BYTE_OUT):
        return "pre-dispatch is said exactly when no byte can have left"
    if (result.failure_class is None) is not (result.outcome is Outcome.ACCEPTED):
        return "every failure has a class"
    is_proven_harmless = (
        phase < WirePhase.FIRST_BYTE_OUT
        or status in NEVER_FOLLOWED
        or status in contract.rejected_statuses
        or status in contract.not_applied_statuses
        or (body is not None and body.complete and body.parseable and body.declares_refusal)
        or (body is not None and body.complete and body.declares_not_applied)
    )
    if result.outcome is Outcome.ACCEPTED:
        if result.may_have_applied:
            return "what is known to be applied leaves no doubt"
    elif not result.may_have_applied and not is_proven_harmless:
        return "nothing is called harmless without a proof"
    match result.outcome:
        case Outcome.ACCEPTED if not (
            phase is WirePhase.COMPLETE
            and status in contract.success_statuses
            and body == GOOD
            and cause is None
        ):
            return "accepted means declared, whole, evident and identical"
        case Outcome.REJECTED if cause in {SendFault.LOST, SendFault.GARBLED, SendFault.DEADLINE}:
            if phase is not WirePhase.COMPLETE:
                return "a refusal that broke off is no refusal"
        case Outcome.REPLAY_SAFE_RETRY if not (
            contract.has_live_idempotency_key
            or status in contract.not_applied_statuses
            or (body is not None and body.complete and body.declares_not_applied)
        ):
            return "a replay is safe by a declared sign or a live key"
        case Outcome.OUTCOME_UNKNOWN if not result.may_have_applied:
            return "unknown may have applied"
        case _:
            pass
    return None


class TestFullProduct:
    @pytest.mark.parametrize("phases", PHASES, ids=str)
    def test_no_cell_breaks_the_promise_or_leaves_the_table(
        self, phases: tuple[WirePhase, ...]
    ) -> None:
        """Every combination has one outcome, and none claims more than was seen (C246, C247)."""
        wrong: list[object] = []
        for first in cells(phases[0]):
            by_table = row_of(first).ends[first.contract.has_live_idempotency_key]
            for phase in phases:
                cell = first._replace(phase=phase)
                result = judge(cell)
                rule = broken(cell, result)
                if rule is not None or result != by_table:
                    wrong.append((rule, cell, result))

        assert wrong[:3] == []

    def test_no_phase_is_left_out(self) -> None:
        """A phase that is added is judged like the others, or the promise has a hole."""
        assert [phase for phases in PHASES for phase in phases] == list(WirePhase)

    def test_every_row_and_every_failure_is_needed(self) -> None:
        """A row that no combination reaches would be a promise without a meaning."""
        ends = (WirePhase.NOTHING, WirePhase.FIRST_BYTE_IN, WirePhase.COMPLETE)
        contracts = (CONTRACT, CONDITIONAL)
        reached = {id(row_of(cell)) for phase in ends for cell in cells(phase, contracts)}

        assert [row.what for row in (*BEFORE, *AFTER) if id(row) not in reached] == []
        # Whether an id is another link's is seen by the transaction that settles, and not here.
        of_an_answer = {*AttemptFailure} - {AttemptFailure.IDENTITY_TAKEN}
        assert {row.failure for row in (*BEFORE, *AFTER)} == {None, *of_an_answer}
        assert {row.outcome for row in (*BEFORE, *AFTER)} == set(Outcome)

    def test_the_page_shows_this_table(self) -> None:
        """Whoever asks why an attempt was called unknown reads it there."""
        page = PAGE.read_text(encoding="utf-8")

        assert page == page_with(page), "run `python -m tests.golden.classification`"


def after_send(
    status: int | None,
    body: BodyVerdict | None = GOOD,
    *,
    contract: ReplyContract = CONTRACT,
    cause: SendFault | None = None,
    phase: WirePhase = WirePhase.COMPLETE,
) -> Classified:
    return classify(phase=phase, status=status, body=body, contract=contract, cause=cause)


class TestBeforeTheFirstByte:
    @pytest.mark.parametrize(
        ("cause", "failure", "is_configuration_fault"),
        [
            (SendFault.DNS, AttemptFailure.DNS, False),
            (SendFault.CONNECT, AttemptFailure.CONNECT, False),
            (SendFault.TLS, AttemptFailure.TLS, False),
            (SendFault.CERTIFICATE, AttemptFailure.TLS, True),
            (SendFault.POOL, AttemptFailure.POOL, False),
            (SendFault.PROXY_CONNECT, AttemptFailure.PROXY_CONNECT, False),
            (SendFault.PROXY_REFUSED, AttemptFailure.PROXY_CONNECT, True),
            (SendFault.DEADLINE, AttemptFailure.DEADLINE_BEFORE_SEND, False),
            (SendFault.GUARD_REFUSED, AttemptFailure.GUARD_REFUSED, True),
            (SendFault.CREDENTIAL, AttemptFailure.CREDENTIAL, True),
            (SendFault.FENCE_LOST, AttemptFailure.NOT_SENT, False),
            (SendFault.LOST, AttemptFailure.NOT_SENT, False),
            (None, AttemptFailure.NOT_SENT, False),
        ],
    )
    def test_is_retryable_and_names_its_cause(
        self, cause: SendFault | None, failure: AttemptFailure, is_configuration_fault: bool
    ) -> None:
        """Nothing left, so another attempt is safe; settings that are wrong wait long (C249)."""
        expected = Classified(
            outcome=Outcome.RETRYABLE_PRE_DISPATCH,
            failure_class=failure,
            may_have_applied=False,
            is_configuration_fault=is_configuration_fault,
        )

        assert expected == classify(
            phase=WirePhase.CONNECTED, status=None, body=None, contract=CONTRACT, cause=cause
        )

    def test_a_proxys_status_is_not_the_providers(self) -> None:
        """A refused CONNECT proves that nothing went through, whatever the number (C246)."""
        result = classify(
            phase=WirePhase.CONNECTED,
            status=502,
            body=None,
            contract=CONTRACT,
            cause=SendFault.PROXY_CONNECT,
        )

        assert result.outcome is Outcome.RETRYABLE_PRE_DISPATCH


class TestSameCause:
    @pytest.mark.parametrize("cause", list(SendFault))
    def test_is_judged_by_the_phase_it_struck_in(self, cause: SendFault) -> None:
        """The same error before and after the first byte is two different facts (C247)."""
        before = classify(
            phase=WirePhase.TLS, status=None, body=None, contract=CONTRACT, cause=cause
        )
        after = classify(
            phase=WirePhase.FIRST_BYTE_OUT, status=None, body=None, contract=CONTRACT, cause=cause
        )

        assert before.outcome is Outcome.RETRYABLE_PRE_DISPATCH
        assert after.outcome is Outcome.OUTCOME_UNKNOWN
        assert after.may_have_applied


class TestWholeAnswer:
    @pytest.mark.parametrize(
        ("status", "outcome", "failure"),
        [
            (200, Outcome.ACCEPTED, None),
            (404, Outcome.REJECTED, AttemptFailure.REJECTED),
            (422, Outcome.REJECTED, AttemptFailure.REJECTED),
            (301, Outcome.REJECTED, AttemptFailure.UNEXPECTED_REDIRECT),
            (307, Outcome.REJECTED, AttemptFailure.UNEXPECTED_REDIRECT),
            (308, Outcome.REJECTED, AttemptFailure.UNEXPECTED_REDIRECT),
            (302, Outcome.OUTCOME_UNKNOWN, AttemptFailure.UNDECLARED_STATUS),
            (303, Outcome.OUTCOME_UNKNOWN, AttemptFailure.UNDECLARED_STATUS),
            (201, Outcome.OUTCOME_UNKNOWN, AttemptFailure.UNDECLARED_STATUS),
            (403, Outcome.OUTCOME_UNKNOWN, AttemptFailure.UNDECLARED_STATUS),
            (418, Outcome.OUTCOME_UNKNOWN, AttemptFailure.UNDECLARED_STATUS),
            (101, Outcome.OUTCOME_UNKNOWN, AttemptFailure.UNDECLARED_STATUS),
            (500, Outcome.OUTCOME_UNKNOWN, AttemptFailure.SERVER_ERROR),
            (502, Outcome.OUTCOME_UNKNOWN, AttemptFailure.SERVER_ERROR),
            (429, Outcome.REPLAY_SAFE_RETRY, AttemptFailure.RATE_LIMITED),
            (503, Outcome.REPLAY_SAFE_RETRY, AttemptFailure.NOT_APPLIED),
            (401, Outcome.REPLAY_SAFE_RETRY, AttemptFailure.CREDENTIAL),
        ],
    )
    def test_is_judged_by_the_frozen_statuses(
        self, status: int, outcome: Outcome, failure: AttemptFailure | None
    ) -> None:
        """A status means what the operation declares, and undeclared it proves nothing (C246)."""
        result = after_send(status)

        assert (outcome, failure) == (result.outcome, result.failure_class)

    @pytest.mark.parametrize("status", [401, 429, 503])
    def test_a_status_that_is_not_declared_proves_no_non_application(self, status: int) -> None:
        """A gateway may say it after the provider has acted (C252)."""
        assert after_send(status, contract=SILENT).outcome is Outcome.OUTCOME_UNKNOWN

    def test_a_declared_redirect_is_what_the_pack_says(self) -> None:
        """302 and 303 are unknown only until an operation declares them (C246)."""
        assert after_send(302, contract=REDIRECTS).outcome is Outcome.REJECTED
        assert after_send(303, contract=REDIRECTS).outcome is Outcome.ACCEPTED

    def test_an_unfollowed_redirect_is_a_configuration_fault(self) -> None:
        """The address in the binding is wrong, and no retry mends that."""
        assert after_send(308).is_configuration_fault


class TestSuccessStatus:
    @pytest.mark.parametrize(
        ("body", "failure"),
        [
            (None, AttemptFailure.EVIDENCE_MISSING),
            (
                BodyVerdict(
                    complete=True, parseable=False, evidence_present=True, identity_matches=True
                ),
                AttemptFailure.GARBLED_ANSWER,
            ),
            (
                BodyVerdict(
                    complete=True, parseable=True, evidence_present=False, identity_matches=True
                ),
                AttemptFailure.EVIDENCE_MISSING,
            ),
            (
                BodyVerdict(
                    complete=True, parseable=True, evidence_present=True, identity_matches=False
                ),
                AttemptFailure.IDENTITY_MISMATCH,
            ),
            (
                BodyVerdict(
                    complete=False, parseable=True, evidence_present=True, identity_matches=True
                ),
                AttemptFailure.GARBLED_ANSWER,
            ),
            (
                BodyVerdict(
                    complete=True,
                    parseable=True,
                    evidence_present=True,
                    identity_matches=True,
                    declares_refusal=True,
                ),
                AttemptFailure.CONTRADICTORY_ANSWER,
            ),
        ],
    )
    def test_without_its_evidence_is_unknown(
        self, body: BodyVerdict | None, failure: AttemptFailure
    ) -> None:
        """200 is a claim; what the operation declares as evidence is the proof (C246)."""
        result = after_send(200, body)

        assert (Outcome.OUTCOME_UNKNOWN, failure) == (result.outcome, result.failure_class)

    def test_with_a_declared_error_body_is_a_refusal(self) -> None:
        """A provider may refuse inside a 200, and then only the body says so."""
        assert after_send(200, REFUSAL).outcome is Outcome.REJECTED

    @pytest.mark.parametrize("cause", [SendFault.UNFRAMED, SendFault.ENCODED, SendFault.TOO_LARGE])
    def test_with_a_body_that_cannot_be_trusted_is_unknown(self, cause: SendFault) -> None:
        """The evidence would be in the part that we did not read or cannot tell from a cut."""
        phase = WirePhase.FIRST_BYTE_IN
        result = after_send(200, GOOD, cause=cause, phase=phase)

        assert result.outcome is Outcome.OUTCOME_UNKNOWN
        assert result.failure_class is AttemptFailure.GARBLED_ANSWER


class TestBrokenAnswer:
    @pytest.mark.parametrize("status", [200, 301, 404, 422, 429, 503])
    @pytest.mark.parametrize("cause", [SendFault.LOST, SendFault.GARBLED, SendFault.DEADLINE, None])
    def test_is_unknown_whatever_its_status(self, status: int, cause: SendFault | None) -> None:
        """An answer that broke off is not the provider's whole word (C246)."""
        result = after_send(status, None, cause=cause, phase=WirePhase.FIRST_BYTE_IN)

        assert result.outcome is Outcome.OUTCOME_UNKNOWN

    @pytest.mark.parametrize("cause", [SendFault.TOO_LARGE, SendFault.UNFRAMED, SendFault.ENCODED])
    @pytest.mark.parametrize(
        ("status", "outcome"),
        [
            (422, Outcome.REJECTED),
            (301, Outcome.REJECTED),
            (429, Outcome.REPLAY_SAFE_RETRY),
        ],
    )
    def test_a_refusal_survives_a_body_that_we_left_unread(
        self, status: int, outcome: Outcome, cause: SendFault
    ) -> None:
        """The status line says it all; the body adds nothing that could turn it round."""
        result = after_send(status, None, cause=cause, phase=WirePhase.FIRST_BYTE_IN)

        assert result.outcome is outcome


class TestLiveKey:
    @pytest.mark.parametrize(
        ("status", "phase", "cause"),
        [
            (None, WirePhase.ALL_OUT, SendFault.LOST),
            (None, WirePhase.ALL_OUT, SendFault.DEADLINE),
            (200, WirePhase.FIRST_BYTE_IN, SendFault.LOST),
            (500, WirePhase.COMPLETE, None),
            (503, WirePhase.COMPLETE, None),
        ],
    )
    def test_makes_a_missing_answer_safe_to_repeat_and_not_harmless(
        self, status: int | None, phase: WirePhase, cause: SendFault | None
    ) -> None:
        """The provider deduplicates the resend; the first send may still have worked (C84)."""
        result = after_send(status, None, contract=KEYED, phase=phase, cause=cause)

        assert result.outcome is Outcome.REPLAY_SAFE_RETRY
        assert result.may_have_applied

    @pytest.mark.parametrize("status", [201, 302, 409, 418])
    def test_does_not_repeat_an_answer_that_nobody_declared(self, status: int) -> None:
        """The key would bring the same answer again, and still nobody would know it."""
        assert after_send(status, contract=KEYED).outcome is Outcome.OUTCOME_UNKNOWN

    def test_does_not_repeat_a_whole_answer_about_another_object(self) -> None:
        """The key would bring the same answer again: someone has to look."""
        other = BodyVerdict(
            complete=True, parseable=True, evidence_present=True, identity_matches=False
        )

        assert after_send(200, other, contract=KEYED).outcome is Outcome.OUTCOME_UNKNOWN

    def test_a_429_is_harmless_even_under_a_key(self) -> None:
        """The contract proves that nothing was applied, so the proof wins (C84)."""
        assert not after_send(429, contract=KEYED).may_have_applied


class TestReplyContract:
    def test_refuses_a_failed_condition_that_is_no_refusal(self) -> None:
        """It would be judged by a list that it is not in."""
        with pytest.raises(ValueError, match="is a rejected one"):
            ReplyContract(
                success_statuses=frozenset({200}),
                rejected_statuses=frozenset({404}),
                not_applied_statuses=frozenset(),
                condition_failed_statuses=frozenset({412}),
                has_live_idempotency_key=False,
            )

    def test_refuses_a_status_with_two_meanings(self) -> None:
        """A status in two lists would be settled by the order of our code."""
        with pytest.raises(ValueError, match="404 is declared twice"):
            ReplyContract(
                success_statuses=frozenset({200, 404}),
                rejected_statuses=frozenset({404}),
                not_applied_statuses=frozenset(),
                has_live_idempotency_key=False,
            )


class TestSeveralInputs:
    """What an answer for several inputs says of each."""

    @pytest.mark.parametrize(
        ("applied", "refused", "outcome", "failure"),
        [
            (["501"], ["502"], Outcome.ACCEPTED, None),
            (["502"], ["501"], Outcome.REJECTED, AttemptFailure.REJECTED),
            ([], ["501"], Outcome.REJECTED, AttemptFailure.REJECTED),
            (["502"], [], Outcome.OUTCOME_UNKNOWN, AttemptFailure.EVIDENCE_MISSING),
            ([], [], Outcome.OUTCOME_UNKNOWN, AttemptFailure.EVIDENCE_MISSING),
            (["501"], ["501"], Outcome.OUTCOME_UNKNOWN, AttemptFailure.CONTRADICTORY_ANSWER),
            (["501", "501"], [], Outcome.OUTCOME_UNKNOWN, AttemptFailure.IDENTITY_MISMATCH),
        ],
    )
    def test_each_has_the_outcome_of_its_own_id(
        self,
        applied: list[str],
        refused: list[str],
        outcome: Outcome,
        failure: AttemptFailure | None,
    ) -> None:
        """The outcome is one effect's, and not one answer's (C246)."""
        verdict = verdict_of_item(
            "501", applied=applied, refused=refused, complete=True, parseable=True
        )

        result = after_send(207, verdict)

        assert (result.outcome, result.failure_class) == (outcome, failure)

    @pytest.mark.parametrize("lacks", ["complete", "parseable", "media_type_matches"])
    def test_none_is_accepted_by_half_an_answer(self, lacks: str) -> None:
        """What follows the cut could speak against what stands before it."""
        whole = {"complete": True, "parseable": True, "media_type_matches": True}
        verdict = verdict_of_item("501", applied=["501"], refused=[], **(whole | {lacks: False}))

        assert after_send(207, verdict).outcome is Outcome.OUTCOME_UNKNOWN


class TestWhatTheBodySays:
    """Signs that an operation declares for a status, beside the lists of statuses."""

    @pytest.mark.parametrize("status", [403, 418, 302, 500, 503, 429])
    def test_a_declared_refusal_counts_under_any_status(self, status: int) -> None:
        """A provider may say no under a number that by itself proves nothing (C246)."""
        assert after_send(status, REFUSAL).outcome is Outcome.REJECTED

    @pytest.mark.parametrize("cause", [SendFault.TOO_LARGE, SendFault.EARLY, SendFault.ENCODED])
    def test_only_of_a_body_that_is_all_there(self, cause: SendFault) -> None:
        """The part that was not read may say the opposite."""
        cut = BodyVerdict(
            complete=False,
            parseable=True,
            evidence_present=False,
            identity_matches=False,
            declares_refusal=True,
        )

        assert after_send(418, cut, cause=cause).outcome is Outcome.OUTCOME_UNKNOWN

    @pytest.mark.parametrize(
        ("status", "failure"),
        [
            (403, AttemptFailure.NOT_APPLIED),
            (404, AttemptFailure.NOT_APPLIED),
            (200, AttemptFailure.NOT_APPLIED),
            (429, AttemptFailure.RATE_LIMITED),
        ],
    )
    def test_a_declared_sign_that_nothing_was_applied_permits_another_attempt(
        self, status: int, failure: AttemptFailure
    ) -> None:
        """It is the frozen contract that proves it, also where the status says less (C252)."""
        result = after_send(status, replace(REFUSAL, declares_refusal=False, **NOT_APPLIED))

        assert (result.outcome, result.failure_class) == (Outcome.REPLAY_SAFE_RETRY, failure)
        assert not result.may_have_applied

    @pytest.mark.parametrize("status", [403, 200])
    def test_two_signs_against_each_other_are_none(self, status: int) -> None:
        """Whoever says both has proven neither."""
        assert after_send(status, replace(REFUSAL, **NOT_APPLIED)).may_have_applied

    def test_a_failed_condition_is_a_refusal_of_its_own_kind(self) -> None:
        """The record has moved on since it was read, and a person may want to look again."""
        result = after_send(412, contract=CONDITIONAL)

        assert result == Classified(
            outcome=Outcome.REJECTED,
            failure_class=AttemptFailure.PRECONDITION_FAILED,
            may_have_applied=False,
            is_configuration_fault=False,
        )

    def test_a_failed_condition_that_nobody_set_is_unknown(self) -> None:
        """Without a condition in the request, 412 is any undeclared status."""
        assert after_send(412).outcome is Outcome.OUTCOME_UNKNOWN

    @pytest.mark.parametrize(
        ("contract", "outcome"),
        [(CONTRACT, Outcome.OUTCOME_UNKNOWN), (KEYED, Outcome.REPLAY_SAFE_RETRY)],
    )
    def test_another_media_type_is_somebody_elses_success(
        self, contract: ReplyContract, outcome: Outcome
    ) -> None:
        """A page in between has answered; a key lets the request be asked again."""
        result = after_send(200, replace(GOOD, media_type_matches=False), contract=contract)

        assert result.outcome is outcome
        assert result.failure_class is AttemptFailure.MEDIA_TYPE_MISMATCH

    @pytest.mark.parametrize("status", [301, 307, 308])
    def test_a_redirect_that_is_declared_means_what_is_declared(self, status: int) -> None:
        """The pack's word goes before the rule for redirects that nobody declared."""
        results = {
            301: Outcome.REPLAY_SAFE_RETRY,
            307: Outcome.ACCEPTED,
            308: Outcome.REJECTED,
        }

        assert after_send(status, contract=REDIRECTS).outcome is results[status]
        assert not after_send(status, contract=REDIRECTS).is_configuration_fault
