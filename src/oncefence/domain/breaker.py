"""
Breakers: what one request says of a provider's health, and when it is left alone (C304).

One breaker stands for a provider and a class of its endpoints, of every org; another one for each
binding. What moves them is written in SQL, by these rows and these numbers.
"""

import re
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Final, Self
from uuid import UUID

from oncefence.domain.classification import AttemptFailure, Classified, SendFault, WirePhase
from oncefence.domain.effect import Outcome
from oncefence.domain.ids import OrgId, PrincipalBindingId
from oncefence.domain.lifecycle import Lifecycle, Transition
from oncefence.domain.operator import EVERY_ORG

OPEN_SECONDS_MAX: Final = 86_400.0
"""By a person, for a day at most: what is to be held back for longer, or until somebody says so,
is paused."""
OPEN_SECONDS_DEFAULT: Final = 600.0

_PROVIDER_KEY: Final = re.compile(
    r"provider:([a-z0-9][a-z0-9_-]{0,62}):([a-z0-9][a-z0-9_.-]{0,99})"
)
_BINDING_KEY: Final = re.compile(r"binding:([a-z0-9][a-z0-9_-]{0,62}):([0-9a-f-]{36})")
_NEVER_COUNTED: Final = frozenset((401, 403))


class Sign(StrEnum):
    """What one request says of the provider and of the account that it was made with."""

    SUCCESS = "success"
    FAILURE = "failure"


class BreakerState(StrEnum):
    """How a breaker stands."""

    CLOSED = "closed"
    """Everything passes."""

    OPEN = "open"
    """Nothing passes until its time."""

    HALF_OPEN = "half_open"
    """Reads pass one by one, and a write where no read has told anything for a while."""

    RAMP = "ramp"
    """Something succeeded: a few pass, then twice as many with each second, then all."""


_MEANT: Final = {
    "enough_failed": "a run of failures of the account, or most of the orgs seen, in one window",
    "time_is_over": "`until` has passed, and somebody has come whom it lets through",
    "probe_succeeded": "a request that began since it is half-open succeeded",
    "request_failed": (
        "a request that began since it is half-open, or in the ramp, failed; of a provider's, those"
        " of two orgs, and of most of those seen"
    ),
    "rate_is_reached": "the ramp's rate has doubled up to the highest",
    "act_names_version": "a note, and the version that the person looked at",
}


def _move(source: str, target: str, trigger: str, guard: str) -> Transition:
    actor = "operator" if guard == "act_names_version" else "worker"
    return Transition(source=source, target=target, trigger=trigger, guard=guard, actor=actor)


BREAKER: Final = Lifecycle(
    name="breaker",
    initial=BreakerState.CLOSED,
    states=tuple(BreakerState),
    final=frozenset(),
    transitions=(
        _move("closed", "open", "trip", "enough_failed"),
        _move("open", "half_open", "probe", "time_is_over"),
        _move("half_open", "ramp", "recover", "probe_succeeded"),
        _move("half_open", "open", "relapse", "request_failed"),
        _move("ramp", "open", "relapse", "request_failed"),
        _move("ramp", "closed", "ramp_over", "rate_is_reached"),
        *(
            _move(source, "open", "override_open", "act_names_version")
            for source in ("closed", "half_open", "ramp")
        ),
        *(
            _move(source, "closed", "override_close", "act_names_version")
            for source in ("open", "half_open", "ramp")
        ),
    ),
    guards=_MEANT,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerRules:
    """The numbers of all breakers of a deployment, as their one row in the database holds them."""

    signs_count_for: timedelta = timedelta(seconds=60)
    """The window."""

    failures_max: int = 10
    """Failures in a row, inside of the window, that open a binding's breaker."""

    orgs_min: int = 3
    """Orgs that open a provider's, where they are more than half of those seen."""

    watched_for: timedelta = timedelta(seconds=5)
    """From the first failure on; the others had that long to be seen."""

    open_first: timedelta = timedelta(seconds=30)
    open_max: timedelta = timedelta(seconds=600)
    between_reads: timedelta = timedelta(seconds=1)
    between_writes: timedelta = timedelta(seconds=10)
    ramp_rate_max: int = 32
    """Requests a second, from one doubling each second: the ramp is over where it is reached."""


RULES: Final = BreakerRules()


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerKey:
    """
    What a breaker is of: a provider and a class of its endpoints, or one binding of an org.

    Operators write it `provider:PROVIDER:CLASS` or `binding:ORG:ID`.
    """

    provider: str | None = None
    endpoint_class: str | None = None
    org: OrgId = EVERY_ORG
    binding: PrincipalBindingId | None = None

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """The key that operators write so; None where none is written so."""
        if (found := _PROVIDER_KEY.fullmatch(text)) is not None:
            return cls(provider=found[1], endpoint_class=found[2])
        if (found := _BINDING_KEY.fullmatch(text)) is not None:
            try:
                binding = PrincipalBindingId(UUID(found[2]))
            except ValueError:
                return None
            return cls(org=OrgId(found[1]), binding=binding)
        return None

    def __str__(self) -> str:
        if self.binding is None:
            return self.row_key
        return f"binding:{self.org}:{self.binding}"

    @property
    def row_key(self) -> str:
        """As the row is called beside its org."""
        if self.binding is None:
            return f"provider:{self.provider}:{self.endpoint_class}"
        return f"binding:{self.binding}"


_OF_THE_WAY_THERE: Final = frozenset(
    (AttemptFailure.DNS, AttemptFailure.CONNECT, AttemptFailure.TLS)
)
_OF_THE_WAY_THERE_FAULTS: Final = frozenset((SendFault.DNS, SendFault.CONNECT, SendFault.TLS))


def sign_of(classified: Classified, *, status: int | None) -> Sign | None:
    """
    What one attempt says of the provider's health; None where it says nothing of it.

    Every unknown counts, whether a repeat would be safe or not (C306); what the provider declares
    as not applied is a matter of its quota, what the credential is at fault for is one of the
    account (C305), and what never left us is ours.
    """
    if status in _NEVER_COUNTED or classified.failure_class is AttemptFailure.CREDENTIAL:
        return None
    match classified.outcome:
        case Outcome.OUTCOME_UNKNOWN:
            return Sign.FAILURE
        case Outcome.REPLAY_SAFE_RETRY:
            return Sign.FAILURE if classified.may_have_applied else None
        case _ if classified.is_configuration_fault:
            return None
        case Outcome.ACCEPTED | Outcome.REJECTED:
            return Sign.SUCCESS
        case Outcome.RETRYABLE_PRE_DISPATCH:
            is_the_providers = classified.failure_class in _OF_THE_WAY_THERE
            return Sign.FAILURE if is_the_providers else None


def sign_of_read(
    *, phase: WirePhase, status: int | None, is_whole: bool, cause: SendFault | None
) -> Sign | None:
    """
    What one read says of the provider's health; None where it says nothing of it.

    Any whole answer shows that the provider lives, whatever was found by it.
    """
    if phase < WirePhase.FIRST_BYTE_OUT:
        return Sign.FAILURE if cause in _OF_THE_WAY_THERE_FAULTS else None
    if status in (*_NEVER_COUNTED, 429):
        return None
    if status is None or not is_whole or status >= 500:
        return Sign.FAILURE
    return Sign.SUCCESS
