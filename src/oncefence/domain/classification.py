"""
From what was seen on the wire to one of the five outcomes.

The phase decides: whether a byte of the request may have left. Neither the name of an
exception nor the HTTP method has a say (C247).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from types import MappingProxyType
from typing import Final

from oncefence.domain.effect import Outcome


class WirePhase(IntEnum):
    """How far one request got; a phase is reached or passed, never left (C244)."""

    NOTHING = 0
    RESOLVED = 1
    CONNECTED = 2
    TLS = 3
    FIRST_BYTE_OUT = 4
    """Set before the first byte is handed over: from here on it may have left."""

    ALL_OUT = 5
    FIRST_BYTE_IN = 6
    COMPLETE = 7
    """The answer ended where its own framing says that it ends."""


class SendFault(StrEnum):
    """What went wrong in one send. A refinement for people: it never decides the class alone."""

    DNS = "dns"
    CONNECT = "connect"
    TLS = "tls"
    CERTIFICATE = "certificate"
    POOL = "pool"
    PROXY_CONNECT = "proxy_connect"
    PROXY_REFUSED = "proxy_refused"
    """The proxy answered CONNECT with a refusal that waiting does not cure (403, 407)."""

    DEADLINE = "deadline"
    GUARD_REFUSED = "guard_refused"
    CREDENTIAL = "credential"
    FENCE_LOST = "fence_lost"
    LOST = "lost"
    """The connection ended, or was reset, before the answer did."""

    GARBLED = "garbled"
    """What arrived is not one HTTP answer."""

    TOO_LARGE = "too_large"
    """We stopped reading at the cap; the provider may have sent a whole answer."""

    UNFRAMED = "unframed"
    """The answer declares no length, so its end cannot be told from a cut."""

    ENCODED = "encoded"
    """The body is in a content coding that was not asked for and is not decoded."""

    EARLY = "early"
    """The answer began before all of the request was out: it may refuse, but prove nothing done."""

    UNEXPECTED = "unexpected"
    """An error that nobody foresaw; the journal holds its type."""


class AttemptFailure(StrEnum):
    """Why an attempt was not accepted: the closed list that rows, metrics and views use."""

    DNS = "dns"
    CONNECT = "connect"
    TLS = "tls"
    POOL = "pool"
    PROXY_CONNECT = "proxy_connect"
    DEADLINE_BEFORE_SEND = "deadline_before_send"
    GUARD_REFUSED = "guard_refused"
    CREDENTIAL = "credential"
    NOT_SENT = "not_sent"
    LOST_ANSWER = "lost_answer"
    GARBLED_ANSWER = "garbled_answer"
    MEDIA_TYPE_MISMATCH = "media_type_mismatch"
    SERVER_ERROR = "server_error"
    UNDECLARED_STATUS = "undeclared_status"
    EVIDENCE_MISSING = "evidence_missing"
    IDENTITY_MISMATCH = "identity_mismatch"
    IDENTITY_TAKEN = "identity_taken"
    """A create was accepted as a record that another link stands for."""

    CONTRADICTORY_ANSWER = "contradictory_answer"
    RATE_LIMITED = "rate_limited"
    NOT_APPLIED = "not_applied"
    REJECTED = "rejected"
    PRECONDITION_FAILED = "precondition_failed"
    UNEXPECTED_REDIRECT = "unexpected_redirect"


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyVerdict:
    """What the pack's rules found in the body of an answer."""

    complete: bool
    parseable: bool
    """It can be read as the operation declares; true of no body where none is needed."""

    evidence_present: bool
    """All evidence that the operation declares; true where it declares none."""

    identity_matches: bool
    """The object that the answer names is the link's; true where none is declared."""

    declares_refusal: bool = False
    """The body carries a terminal refusal that the operation declares for this status."""

    media_type_matches: bool = True
    """The body is of a media type that the provider's answers have; true where none is declared."""

    declares_not_applied: bool = False
    """The answer carries what the operation declares as proof that nothing was applied."""


def verdict_of_item(
    item: str,
    *,
    applied: Sequence[str],
    refused: Sequence[str],
    complete: bool,
    parseable: bool,
    media_type_matches: bool = True,
) -> BodyVerdict:
    """
    Return what one answer for several inputs says of the input `item` (C246).

    `applied` and `refused` are the ids that its two lists name, as often as they name them. Of
    an input in neither nothing was said; one in both was said two things of.
    """
    return BodyVerdict(
        complete=complete,
        parseable=parseable,
        evidence_present=item in applied,
        identity_matches=applied.count(item) == 1,
        declares_refusal=item in refused,
        media_type_matches=media_type_matches,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyContract:
    """What the frozen operation says about statuses; every other status proves nothing."""

    success_statuses: frozenset[int]
    rejected_statuses: frozenset[int]
    not_applied_statuses: frozenset[int]
    has_live_idempotency_key: bool
    condition_failed_statuses: frozenset[int] = frozenset()
    """Those of the rejected that say: the record is not in the state that the write names."""

    def __post_init__(self) -> None:
        if not self.condition_failed_statuses <= self.rejected_statuses:
            raise ValueError("a status that says that a condition failed is a rejected one")
        doubled = (
            (self.success_statuses & self.rejected_statuses)
            | (self.success_statuses & self.not_applied_statuses)
            | (self.rejected_statuses & self.not_applied_statuses)
        )
        if doubled:
            statuses = ", ".join(str(status) for status in sorted(doubled))
            raise ValueError(f"status {statuses} is declared twice: keep it in one of the lists")


@dataclass(frozen=True, slots=True, kw_only=True)
class Classified:
    """One attempt's outcome, and what settlement and the operator need beside it."""

    outcome: Outcome
    failure_class: AttemptFailure | None
    may_have_applied: bool
    is_configuration_fault: bool


_NEVER_FOLLOWED: Final = frozenset({301, 307, 308})

_FAILURE_BEFORE_SEND: Final[Mapping[SendFault, AttemptFailure]] = MappingProxyType(
    {
        SendFault.DNS: AttemptFailure.DNS,
        SendFault.CONNECT: AttemptFailure.CONNECT,
        SendFault.TLS: AttemptFailure.TLS,
        SendFault.CERTIFICATE: AttemptFailure.TLS,
        SendFault.POOL: AttemptFailure.POOL,
        SendFault.PROXY_CONNECT: AttemptFailure.PROXY_CONNECT,
        SendFault.PROXY_REFUSED: AttemptFailure.PROXY_CONNECT,
        SendFault.DEADLINE: AttemptFailure.DEADLINE_BEFORE_SEND,
        SendFault.GUARD_REFUSED: AttemptFailure.GUARD_REFUSED,
        SendFault.CREDENTIAL: AttemptFailure.CREDENTIAL,
    }
)

# Time alone cures none of these, so they wait long and raise an alert (C249).
_CONFIGURATION_FAULTS: Final = frozenset(
    {
        SendFault.CERTIFICATE,
        SendFault.PROXY_REFUSED,
        SendFault.GUARD_REFUSED,
        SendFault.CREDENTIAL,
    }
)

# A refusal is said by its status line. A body that we left unread, that has no declared end or
# that we cannot decode takes nothing from it; one that broke off shows a connection that failed.
_LEAVES_THE_STATUS_WHOLE: Final = frozenset(
    {SendFault.TOO_LARGE, SendFault.UNFRAMED, SendFault.ENCODED, SendFault.EARLY}
)

_GARBLES_THE_ANSWER: Final = _LEAVES_THE_STATUS_WHOLE | {SendFault.GARBLED}


def classify(
    *,
    phase: WirePhase,
    status: int | None,
    body: BodyVerdict | None,
    contract: ReplyContract,
    cause: SendFault | None,
) -> Classified:
    """Name the outcome of one attempt; every combination of arguments has exactly one (C246)."""
    if phase < WirePhase.FIRST_BYTE_OUT:
        # A status cannot be the provider's here: a proxy, or someone who speaks unasked.
        return _nothing_left(cause)
    is_whole = phase is WirePhase.COMPLETE and (body is None or body.complete)
    if status is None or not (is_whole or cause in _LEAVES_THE_STATUS_WHOLE):
        return _no_answer(status, cause, contract)
    if status in contract.success_statuses:
        return _success_status(status, body, contract, is_whole=is_whole, cause=cause)
    if status in contract.condition_failed_statuses:
        return _refused(AttemptFailure.PRECONDITION_FAILED)
    if body is not None and is_whole and cause is None:
        # What the body says is meant for this very answer, so it goes before the status's lists;
        # two signs that speak against each other are none.
        is_refusal = body.parseable and body.media_type_matches and body.declares_refusal
        if is_refusal and not body.declares_not_applied:
            return _refused(AttemptFailure.REJECTED)
        if body.declares_not_applied and not body.declares_refusal:
            return _not_applied(status)
    if status in contract.rejected_statuses:
        return _refused(AttemptFailure.REJECTED)
    if status in contract.not_applied_statuses:
        return _not_applied(status)
    if status in _NEVER_FOLLOWED:
        return Classified(
            outcome=Outcome.REJECTED,
            failure_class=AttemptFailure.UNEXPECTED_REDIRECT,
            may_have_applied=False,
            is_configuration_fault=True,
        )
    if 500 <= status <= 599:
        return _may_have_applied(AttemptFailure.SERVER_ERROR, replay_is_safe=contract)
    return _may_have_applied(AttemptFailure.UNDECLARED_STATUS)


def _nothing_left(cause: SendFault | None) -> Classified:
    failure = AttemptFailure.NOT_SENT
    if cause is not None:
        failure = _FAILURE_BEFORE_SEND.get(cause, AttemptFailure.NOT_SENT)
    return Classified(
        outcome=Outcome.RETRYABLE_PRE_DISPATCH,
        failure_class=failure,
        may_have_applied=False,
        is_configuration_fault=cause in _CONFIGURATION_FAULTS,
    )


def _no_answer(status: int | None, cause: SendFault | None, contract: ReplyContract) -> Classified:
    if cause in _GARBLES_THE_ANSWER or (status is not None and cause is None):
        return _may_have_applied(AttemptFailure.GARBLED_ANSWER, replay_is_safe=contract)
    return _may_have_applied(AttemptFailure.LOST_ANSWER, replay_is_safe=contract)


def _success_status(
    status: int,
    body: BodyVerdict | None,
    contract: ReplyContract,
    *,
    is_whole: bool,
    cause: SendFault | None,
) -> Classified:
    if not is_whole or cause is not None:
        return _may_have_applied(AttemptFailure.GARBLED_ANSWER, replay_is_safe=contract)
    if body is not None and not body.media_type_matches:
        # Something in between spoke, not the provider, and a repeat may well get through to it.
        return _may_have_applied(AttemptFailure.MEDIA_TYPE_MISMATCH, replay_is_safe=contract)
    # From here on the answer is whole and says something odd. The provider's own key would
    # repeat the same answer, so a lookup or a person decides instead of a resend.
    if body is None:
        return _may_have_applied(AttemptFailure.EVIDENCE_MISSING)
    if not body.parseable:
        return _may_have_applied(AttemptFailure.GARBLED_ANSWER)
    signs = (body.evidence_present, body.declares_refusal, body.declares_not_applied)
    if sum(signs) > 1:
        return _may_have_applied(AttemptFailure.CONTRADICTORY_ANSWER)
    if body.declares_refusal:
        return _refused(AttemptFailure.REJECTED)
    if body.declares_not_applied:
        return _not_applied(status)
    if not body.evidence_present:
        return _may_have_applied(AttemptFailure.EVIDENCE_MISSING)
    if not body.identity_matches:
        return _may_have_applied(AttemptFailure.IDENTITY_MISMATCH)
    return Classified(
        outcome=Outcome.ACCEPTED,
        failure_class=None,
        # Applied, and known to be: there is no doubt left that could hold a lane.
        may_have_applied=False,
        is_configuration_fault=False,
    )


def _refused(failure: AttemptFailure) -> Classified:
    return Classified(
        outcome=Outcome.REJECTED,
        failure_class=failure,
        may_have_applied=False,
        is_configuration_fault=False,
    )


def _not_applied(status: int) -> Classified:
    failure = {429: AttemptFailure.RATE_LIMITED, 401: AttemptFailure.CREDENTIAL}.get(
        status, AttemptFailure.NOT_APPLIED
    )
    return Classified(
        outcome=Outcome.REPLAY_SAFE_RETRY,
        failure_class=failure,
        may_have_applied=False,
        is_configuration_fault=failure is AttemptFailure.CREDENTIAL,
    )


def _may_have_applied(
    failure: AttemptFailure, *, replay_is_safe: ReplyContract | None = None
) -> Classified:
    # A key makes the *resend* harmless; it does not undo what the first send may have done (C84).
    may_repeat = replay_is_safe is not None and replay_is_safe.has_live_idempotency_key
    return Classified(
        outcome=Outcome.REPLAY_SAFE_RETRY if may_repeat else Outcome.OUTCOME_UNKNOWN,
        failure_class=failure,
        may_have_applied=True,
        is_configuration_fault=False,
    )
