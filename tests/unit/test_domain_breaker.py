"""What one request says of a provider's health, and what a breaker is called."""

from uuid import UUID

import pytest

from oncefence.domain.breaker import BREAKER, BreakerKey, BreakerState, Sign, sign_of, sign_of_read
from oncefence.domain.classification import (
    AttemptFailure,
    BodyVerdict,
    ReplyContract,
    SendFault,
    WirePhase,
    classify,
)
from oncefence.domain.effect import Outcome
from oncefence.domain.ids import OrgId, PrincipalBindingId
from tests.golden.classification import cells

ID = "00000000-0000-8000-8000-0000000000ff"
CONTRACT = ReplyContract(
    success_statuses=frozenset((200,)),
    rejected_statuses=frozenset((400, 403)),
    not_applied_statuses=frozenset((401, 429, 503)),
    has_live_idempotency_key=False,
)
KEYED = ReplyContract(
    success_statuses=frozenset((200,)),
    rejected_statuses=frozenset((400,)),
    not_applied_statuses=frozenset((429,)),
    has_live_idempotency_key=True,
)
FINE = BodyVerdict(complete=True, parseable=True, evidence_present=True, identity_matches=True)


def answered(
    status: int, *, contract: ReplyContract = CONTRACT, body: BodyVerdict | None = FINE
) -> Sign | None:
    classified = classify(
        phase=WirePhase.COMPLETE, status=status, body=body, contract=contract, cause=None
    )
    return sign_of(classified, status=status)


def failed(cause: SendFault, phase: WirePhase = WirePhase.NOTHING) -> Sign | None:
    classified = classify(phase=phase, status=None, body=None, contract=CONTRACT, cause=cause)
    return sign_of(classified, status=None)


class TestAWrite:
    @pytest.mark.parametrize("status", [200, 400])
    def test_that_was_answered_shows_that_the_provider_lives(self, status: int) -> None:
        """A refusal is the answer of a provider that works (C304)."""
        assert answered(status) is Sign.SUCCESS

    @pytest.mark.parametrize("status", [401, 403])
    @pytest.mark.parametrize("contract", [CONTRACT, KEYED], ids=["declared", "undeclared"])
    def test_that_was_refused_for_its_credential_says_nothing(
        self, status: int, contract: ReplyContract
    ) -> None:
        """Not even where the pack forgot to declare it: the account is at fault (C305)."""
        assert answered(status, contract=contract) is None

    @pytest.mark.parametrize("status", [429, 503])
    def test_that_is_declared_not_applied_says_nothing(self, status: int) -> None:
        """How much a provider takes is a matter of its quota (C302)."""
        assert answered(status) is None

    @pytest.mark.parametrize("contract", [CONTRACT, KEYED], ids=["unsafe", "safe to repeat"])
    @pytest.mark.parametrize("status", [500, 502, 504])
    def test_that_may_have_applied_counts_whether_it_may_be_repeated_or_not(
        self, status: int, contract: ReplyContract
    ) -> None:
        """Unknowns count: a dark provider stops what is not replay-safe (C306)."""
        assert answered(status, contract=contract) is Sign.FAILURE

    @pytest.mark.parametrize(
        "phase", [WirePhase.FIRST_BYTE_OUT, WirePhase.ALL_OUT, WirePhase.FIRST_BYTE_IN]
    )
    def test_without_an_answer_counts(self, phase: WirePhase) -> None:
        """It is what a dark provider looks like (C306)."""
        assert failed(SendFault.LOST, phase) is Sign.FAILURE

    def test_with_an_answer_that_lacks_its_evidence_counts(self) -> None:
        """Whatever the reason, each further one would be one more unknown (C306)."""
        assert answered(200, body=None) is Sign.FAILURE

    @pytest.mark.parametrize("cause", [SendFault.DNS, SendFault.CONNECT, SendFault.TLS])
    def test_that_never_reached_the_provider_counts(self, cause: SendFault) -> None:
        """Nobody is there (C304)."""
        assert failed(cause) is Sign.FAILURE

    @pytest.mark.parametrize(
        "cause",
        [
            SendFault.CERTIFICATE,
            SendFault.POOL,
            SendFault.PROXY_CONNECT,
            SendFault.PROXY_REFUSED,
            SendFault.DEADLINE,
            SendFault.GUARD_REFUSED,
            SendFault.CREDENTIAL,
            SendFault.FENCE_LOST,
            SendFault.UNEXPECTED,
        ],
    )
    def test_that_never_left_for_a_reason_of_ours_says_nothing(self, cause: SendFault) -> None:
        """A drain, a guard or a setting of ours is not the provider's illness (C304)."""
        assert failed(cause) is None

    def test_that_was_redirected_says_nothing(self) -> None:
        """Somebody answered, and whether it was the provider nobody knows."""
        assert answered(301) is None

    def test_says_failure_of_all_that_is_in_doubt_and_of_nothing_that_is_accepted(self) -> None:
        """Over every combination of what can be seen (C306)."""
        signs = set()
        for cell in (cell for phase in WirePhase for cell in cells(phase)):
            found = classify(**cell._asdict())
            sign = sign_of(found, status=cell.status)
            signs.add(sign)
            if found.may_have_applied and cell.status not in (401, 403):
                assert sign is Sign.FAILURE, cell
            if found.outcome in (Outcome.ACCEPTED, Outcome.REJECTED):
                assert sign is not Sign.FAILURE, cell
            if found.failure_class is AttemptFailure.CREDENTIAL:
                assert sign is None, cell

        assert signs == {Sign.SUCCESS, Sign.FAILURE, None}


class TestARead:
    @pytest.mark.parametrize("status", [200, 204, 404, 410, 422])
    def test_that_was_answered_shows_that_the_provider_lives(self, status: int) -> None:
        """Also where it found nothing, or was not what it should be (C307)."""
        assert read(status) is Sign.SUCCESS

    @pytest.mark.parametrize("status", [401, 403, 429])
    def test_that_was_turned_away_says_nothing(self, status: int) -> None:
        """Neither the credential nor the quota tells of health (C305)."""
        assert read(status) is None

    @pytest.mark.parametrize("status", [500, 503])
    def test_that_met_an_error_counts(self, status: int) -> None:
        """It lives, and not well enough to be written to (C307)."""
        assert read(status) is Sign.FAILURE

    def test_that_was_cut_counts(self) -> None:
        """An answer that does not end is none."""
        assert read(200, is_whole=False) is Sign.FAILURE
        assert read(None, cause=SendFault.LOST, phase=WirePhase.ALL_OUT) is Sign.FAILURE

    def test_that_never_left_counts_where_the_provider_is_not_there(self) -> None:
        """A setting of ours that stops it says nothing (C304)."""
        assert read(None, cause=SendFault.CONNECT, phase=WirePhase.RESOLVED) is Sign.FAILURE
        assert read(None, cause=SendFault.GUARD_REFUSED, phase=WirePhase.NOTHING) is None


def read(
    status: int | None,
    *,
    is_whole: bool = True,
    cause: SendFault | None = None,
    phase: WirePhase = WirePhase.COMPLETE,
) -> Sign | None:
    return sign_of_read(
        phase=phase, status=status, is_whole=is_whole and status is not None, cause=cause
    )


class TestTheKey:
    def test_is_read_as_it_is_written(self) -> None:
        """What `breaker list` shows is what the other verbs take."""
        of_class = BreakerKey(provider="a-provider", endpoint_class="crm.objects.write")
        of_binding = BreakerKey(org=OrgId("acme"), binding=PrincipalBindingId(UUID(ID)))

        for key in (of_class, of_binding):
            assert BreakerKey.parse(str(key)) == key
        assert str(of_class) == "provider:a-provider:crm.objects.write"
        assert str(of_binding) == f"binding:acme:{ID}"

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "provider:a",
            "provider:a:b:c",
            "provider:*:b",
            f"binding:*:{ID}",
            "binding:acme:5",
            f"binding:acme:{'-' * 36}",
            f"binding:acme:{ID}\n",
            "a:b:c",
        ],
    )
    def test_is_nothing_else(self, text: str) -> None:
        """A key that is almost one would be of nothing."""
        assert BreakerKey.parse(text) is None


class TestTheLifecycle:
    def test_leads_back_to_closed_from_everywhere(self) -> None:
        """A breaker that could not close by itself would need a person for each outage (C307)."""
        reached = {BreakerState.CLOSED.value}
        for _ in BreakerState:
            reached |= {
                row.source
                for row in BREAKER.transitions
                if row.target in reached and row.actor == "worker"
            }

        assert reached == set(BreakerState)

    def test_never_closes_by_time_alone(self) -> None:
        """From open it leads to the probes, and a success leads on (C307)."""
        assert not any(
            row.source == "open" and row.actor == "worker" and row.target != "half_open"
            for row in BREAKER.transitions
        )
