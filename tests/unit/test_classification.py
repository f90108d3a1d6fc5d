"""One wire, five outcomes: the table of C246 over the full product of what can be seen."""

from collections.abc import Iterator
from itertools import product

import pytest

from oncefence.domain.classification import (
    AttemptFailure,
    BodyVerdict,
    Classified,
    ReplyContract,
    SendFault,
    WirePhase,
    classify,
)
from oncefence.domain.effect import Outcome

GOOD = BodyVerdict(complete=True, parseable=True, evidence_present=True, identity_matches=True)
REFUSAL = BodyVerdict(
    complete=True,
    parseable=True,
    evidence_present=False,
    identity_matches=False,
    declares_refusal=True,
)
CONTRACT = ReplyContract(
    success_statuses=frozenset({200, 207}),
    rejected_statuses=frozenset({400, 404, 409, 422}),
    not_applied_statuses=frozenset({401, 429, 503}),
    has_live_idempotency_key=False,
)
KEYED = ReplyContract(
    success_statuses=frozenset({200}),
    rejected_statuses=frozenset({402, 404}),
    not_applied_statuses=frozenset({429}),
    has_live_idempotency_key=True,
)
SILENT = ReplyContract(
    success_statuses=frozenset(),
    rejected_statuses=frozenset(),
    not_applied_statuses=frozenset(),
    has_live_idempotency_key=False,
)
REDIRECT_DECLARED = ReplyContract(
    success_statuses=frozenset({303}),
    rejected_statuses=frozenset({302}),
    not_applied_statuses=frozenset(),
    has_live_idempotency_key=False,
)
NEVER_FOLLOWED = {301, 307, 308}

PHASES = list(WirePhase)
STATUSES = [
    *[None, -1, 0, 100, 101, 199, 200, 201, 204, 207, 299, 301, 302, 303, 304, 307, 308],
    *[400, 401, 402, 403, 404, 409, 422, 429, 499, 500, 502, 503, 504, 599, 600, 999],
]
BODIES = [
    None,
    *[
        BodyVerdict(
            complete=complete,
            parseable=parseable,
            evidence_present=evidence,
            identity_matches=identity,
            declares_refusal=refusal,
        )
        for complete, parseable, evidence, identity, refusal in product([True, False], repeat=5)
    ],
]
CONTRACTS = [CONTRACT, KEYED, SILENT, REDIRECT_DECLARED]
CAUSES = [None, *SendFault]

Cell = tuple[WirePhase, int | None, BodyVerdict | None, ReplyContract, SendFault | None]


def cells(
    phases: list[WirePhase], bodies: list[BodyVerdict | None]
) -> Iterator[tuple[Cell, Classified]]:
    for phase, status, body, contract, cause in product(
        phases, STATUSES, bodies, CONTRACTS, CAUSES
    ):
        result = classify(phase=phase, status=status, body=body, contract=contract, cause=cause)
        yield (phase, status, body, contract, cause), result


def broken(cell: Cell, result: Classified) -> str | None:
    """Name the rule of the promise that this cell breaks, judged without the table."""
    phase, status, body, contract, cause = cell
    if (result.outcome is Outcome.RETRYABLE_PRE_DISPATCH) is not (phase < WirePhase.FIRST_BYTE_OUT):
        return "pre-dispatch is said exactly when no byte can have left"
    if (result.failure_class is None) is not (result.outcome is Outcome.ACCEPTED):
        return "every failure has a class"
    is_proven_harmless = (
        phase < WirePhase.FIRST_BYTE_OUT
        or status in NEVER_FOLLOWED
        or status in contract.rejected_statuses
        or status in contract.not_applied_statuses
        or (status in contract.success_statuses and body is not None and body.declares_refusal)
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
            contract.has_live_idempotency_key or status in contract.not_applied_statuses
        ):
            return "a replay is safe by a declared status or a live key"
        case Outcome.OUTCOME_UNKNOWN if not result.may_have_applied:
            return "unknown may have applied"
        case _:
            pass
    return None


class TestFullProduct:
    @pytest.mark.parametrize("phase", PHASES)
    def test_no_cell_breaks_the_promise(self, phase: WirePhase) -> None:
        """Every combination has one outcome, and none claims more than was seen (C246, C247)."""
        wrong = [
            (rule, cell, result)
            for cell, result in cells([phase], BODIES)
            if (rule := broken(cell, result)) is not None
        ]

        assert wrong[:3] == []

    def test_every_outcome_and_every_failure_occurs(self) -> None:
        """A class that no cell produces would be a promise without a meaning."""
        ends = [WirePhase.NOTHING, WirePhase.COMPLETE]
        seen = [result for _, result in cells(ends, BODIES)]

        assert {result.outcome for result in seen} == set(Outcome)
        assert {result.failure_class for result in seen} == {None, *AttemptFailure}


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
        assert after_send(302, contract=REDIRECT_DECLARED).outcome is Outcome.REJECTED
        assert after_send(303, contract=REDIRECT_DECLARED).outcome is Outcome.ACCEPTED

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
    def test_refuses_a_status_with_two_meanings(self) -> None:
        """A status in two lists would be settled by the order of our code."""
        with pytest.raises(ValueError, match="404 is declared twice"):
            ReplyContract(
                success_statuses=frozenset({200, 404}),
                rejected_statuses=frozenset({404}),
                not_applied_statuses=frozenset(),
                has_live_idempotency_key=False,
            )
