"""
The ways in which the simulator breaks, and the rules that say when.

The names are the vocabulary of the command line, of scripts and of the ledger's FAULT rows. What
each does is told in `fault_texts`.
"""

import hashlib
from collections.abc import Collection
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from oncefence.simulator.marks import Operation


class Fault(StrEnum):
    """What can happen to one request, or to the port, whoever the provider is; a seed deals it."""

    REFUSE = "refuse"
    RESET_BEFORE_READ = "reset_before_read"
    RESET_MID_READ = "reset_mid_read"
    RESET_BEFORE_ANSWER = "reset_before_answer"
    RESET_AFTER_COMMIT = "reset_after_commit"
    LOST_ANSWER = "lost_answer"
    LATE_ANSWER = "late_answer"
    NO_EFFECT_HANG = "no_effect_hang"
    RATE_LIMIT_429 = "rate_limit_429"
    SERVER_ERROR_BEFORE_COMMIT = "server_error_before_commit"
    SERVER_ERROR_AFTER_COMMIT = "server_error_after_commit"
    CUT_BODY = "cut_body"
    WRONG_ID = "wrong_id"
    DRIP = "drip"
    GARBLED = "garbled"
    REJECT_400 = "reject_400"
    UNAUTHORIZED_401 = "unauthorized_401"
    OVERWRITTEN = "overwritten"

    @property
    def needs_success(self) -> bool:
        """It happens around a change or an answer that only a valid request has."""
        return self in _NEED_SUCCESS

    @property
    def leaves_unread(self) -> bool:
        """It strikes before the request is read to its end."""
        return self in {Fault.RESET_BEFORE_READ, Fault.RESET_MID_READ}


class ScriptedFault(StrEnum):
    """
    What a provider may do besides, by its own rules or against its word.

    Only a rule deals these: under some of them the provider itself breaks the promise that the
    ledger is counted by, and others need a search or a key that most requests do not have.
    """

    INDEX_LAG = "index_lag"
    CAPPED_SEARCH = "capped_search"
    IGNORED_FILTER = "ignored_filter"
    ERROR_INSIDE_200 = "error_inside_200"
    SECONDLY_LIMIT_429 = "secondly_limit_429"
    DAILY_LIMIT_429 = "daily_limit_429"
    QUOTA_SPENT = "quota_spent"
    MAINTENANCE_503 = "maintenance_503"
    REDIRECT_301 = "redirect_301"
    REDIRECT_302 = "redirect_302"
    REDIRECT_303 = "redirect_303"
    REDIRECT_307 = "redirect_307"
    REDIRECT_308 = "redirect_308"
    DUPLICATE_APPLY = "duplicate_apply"
    KEY_EXPIRY = "key_expiry"
    ACCOUNT_SWITCH = "account_switch"
    CLOCK_SKEW = "clock_skew"
    HUGE_BODY = "huge_body"
    CUT_GZIP = "cut_gzip"
    CUT_CHUNKED = "cut_chunked"
    EMPTY_204 = "empty_204"

    @property
    def needs_success(self) -> bool:
        """It happens around a change or an answer that only a valid request has."""
        return self not in _ANSWERED_AT_ONCE

    @property
    def leaves_unread(self) -> bool:
        """None of these does."""
        return False


_NEED_SUCCESS = frozenset(
    {
        Fault.RESET_AFTER_COMMIT,
        Fault.LOST_ANSWER,
        Fault.LATE_ANSWER,
        Fault.SERVER_ERROR_AFTER_COMMIT,
        Fault.CUT_BODY,
        Fault.WRONG_ID,
        Fault.DRIP,
        Fault.GARBLED,
        Fault.OVERWRITTEN,
    }
)
REDIRECTS: dict[ScriptedFault, int] = {
    ScriptedFault.REDIRECT_301: 301,
    ScriptedFault.REDIRECT_302: 302,
    ScriptedFault.REDIRECT_303: 303,
    ScriptedFault.REDIRECT_307: 307,
    ScriptedFault.REDIRECT_308: 308,
}
_ANSWERED_AT_ONCE = frozenset(
    {
        ScriptedFault.SECONDLY_LIMIT_429,
        ScriptedFault.DAILY_LIMIT_429,
        ScriptedFault.MAINTENANCE_503,
        *REDIRECTS,
    }
)
SEARCH_FAULTS = frozenset(
    {ScriptedFault.INDEX_LAG, ScriptedFault.CAPPED_SEARCH, ScriptedFault.IGNORED_FILTER}
)
# The order is part of what a seed means: append, never sort. `refuse` is not here because a seed
# deals by contact.
SEEDED_FAULTS: tuple[Fault, ...] = tuple(fault for fault in Fault if fault is not Fault.REFUSE)
FAULTS: dict[str, Fault | ScriptedFault] = {
    **{fault.value: fault for fault in Fault},
    **{fault.value: fault for fault in ScriptedFault},
}
_SERVER_ERRORS = {Fault.SERVER_ERROR_BEFORE_COMMIT, Fault.SERVER_ERROR_AFTER_COMMIT}
_NOT_APPLIED_UNLESS_SAID = {ScriptedFault.ERROR_INSIDE_200, ScriptedFault.ACCOUNT_SWITCH}
_ALLOWED_WITH: dict[str, set[Fault | ScriptedFault]] = {
    "delay_s": {Fault.LATE_ANSWER, Fault.DRIP},
    "retry_after": {
        Fault.RATE_LIMIT_429,
        ScriptedFault.SECONDLY_LIMIT_429,
        ScriptedFault.DAILY_LIMIT_429,
        ScriptedFault.MAINTENANCE_503,
        *_SERVER_ERRORS,
    },
    "status": {Fault.REJECT_400, *_SERVER_ERRORS},
    "apply": {Fault.OVERWRITTEN, *_NOT_APPLIED_UNLESS_SAID},
    "after_contact": {Fault.REFUSE},
    "refuse_for_s": {Fault.REFUSE},
    "lag_s": {ScriptedFault.INDEX_LAG},
    "cap": {ScriptedFault.CAPPED_SEARCH},
    "skew_s": {ScriptedFault.CLOCK_SKEW},
    "location": set(REDIRECTS),
    "size_mib": {ScriptedFault.HUGE_BODY},
    "framing": {ScriptedFault.HUGE_BODY},
}
_AT_ACCEPT = ("contact", "command", "nth", "method", "operation", "hold", "hold_at")

Seconds = Annotated[float, Field(ge=0, le=3600, allow_inf_nan=False)]
Name = Annotated[str, Field(min_length=1, max_length=256)]
HeaderText = Annotated[str, Field(pattern=r"^[!-~]([ -~]{0,98}[!-~])?$")]


def _known(name: object) -> object:
    if isinstance(name, str) and name not in FAULTS:
        raise ValueError(f"there is no fault {name!r}; there are {', '.join(FAULTS)}")
    return FAULTS[name] if isinstance(name, str) else name


AnyFault = Annotated[Fault | ScriptedFault, BeforeValidator(_known)]


class ScriptError(Exception):
    """A rule cannot be used; the message names the rule, the key and the reason."""


class Rule(BaseModel):
    """
    Which requests a fault strikes, how often, and with what numbers.

    A rule without `fault` only holds. `retry_after` is a number of seconds, `date:N`, `iso:N` or
    `iso-naive:N` for a time N seconds ahead, or any other text as it stands.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    fault: AnyFault | None = None
    contact: Name | None = None
    """The id of the record, whatever the provider calls it."""
    command: Name | None = None
    nth: Annotated[int, Field(ge=1)] | None = None
    """The how-manieth request with this method for its contact."""
    method: Literal["PATCH", "GET", "POST", "*"] | None = None
    """Without `method` and `operation`: whatever writes; for a fault of searches, searches."""
    operation: Operation | None = None
    times: Annotated[int, Field(ge=1)] = 1
    delay_s: Seconds | None = None
    retry_after: Annotated[int, Field(ge=0)] | HeaderText | None = None
    status: Annotated[int, Field(ge=400, le=599)] | None = None
    hold: Name | None = None
    """Wait under this name until released; the client leaving ends a held exchange."""
    hold_at: Literal["read", "commit"] = "read"
    """Hold before the change, or after it and before the answer."""
    apply: bool = True
    after_contact: Name | None = None
    """Armed when a write of this contact has been answered."""
    refuse_for_s: Seconds | None = None
    """Close the port for this long, instead of resetting `times` connections."""
    lag_s: Seconds = 60.0
    """How old the index is that a search is answered from."""
    cap: Annotated[int, Field(ge=0, le=10_000)] = 1
    skew_s: Annotated[float, Field(ge=-86_400, le=86_400, allow_inf_nan=False)] = -300.0
    """How far the provider's clock is off for this request; negative is behind."""
    location: HeaderText | None = None
    """Where a redirect points; without it back to where the request came."""
    size_mib: Annotated[int, Field(ge=1, le=65_536)] = 256
    framing: Literal["chunked", "length"] = "chunked"

    @property
    def applies(self) -> bool:
        """The change is made although the answer is no plain success."""
        return (
            self.apply
            if "apply" in self.model_fields_set
            else self.fault not in _NOT_APPLIED_UNLESS_SAID
        )

    @model_validator(mode="after")
    def _keys_go_with_the_fault(self) -> Self:
        if self.fault is None and self.hold is None:
            raise ValueError("name a fault, a hold, or both")
        for key, faults in _ALLOWED_WITH.items():
            if key in self.model_fields_set and self.fault not in faults:
                raise ValueError(f"{key} goes only with {', '.join(sorted(faults))}")
        if self.fault is Fault.REFUSE:
            for key in _AT_ACCEPT:
                if key in self.model_fields_set:
                    raise ValueError(
                        f"refuse cannot be matched by {key}: nothing of a request is known at "
                        "accept; use times, after_contact, refuse_for_s or reset_before_read"
                    )
        if self.fault in SEARCH_FAULTS:
            for key in ("contact", "operation"):
                if key in self.model_fields_set:
                    raise ValueError(f"{self.fault} strikes searches and lists; leave {key} out")
        return self

    @model_validator(mode="after")
    def _values_go_with_the_fault(self) -> Self:
        if self.refuse_for_s is not None and self.times != 1:
            raise ValueError("refuse_for_s closes the port once; leave times out")
        if self.fault in _SERVER_ERRORS and self.status is not None and self.status < 500:
            raise ValueError(f"status of {self.fault} is 500 to 599")
        if self.fault is Fault.REJECT_400 and self.status is not None and self.status >= 500:
            raise ValueError("status of reject_400 is 400 to 499")
        if self.fault is Fault.OVERWRITTEN and (
            self.method in ("GET", "*") or self.operation in (Operation.READ, Operation.SEARCH)
        ):
            raise ValueError("overwritten goes only with method PATCH or another that writes")
        if self.fault is not None and self.fault.leaves_unread and self.hold is not None:
            raise ValueError(f"{self.fault} leaves the request unread, so it cannot be held")
        if self.fault is ScriptedFault.KEY_EXPIRY and self.hold is not None:
            raise ValueError("key_expiry strikes before a request can be held")
        if (
            self.hold_at == "commit"
            and self.fault is not None
            and (
                not self.fault.needs_success or self.fault is Fault.LATE_ANSWER or not self.applies
            )
        ):
            raise ValueError(f"{self.fault} has no change before its answer to hold after")
        return self


_RULES = TypeAdapter(list[Rule])


def parse_rules(text: str | bytes, *, source: str) -> list[Rule]:
    """
    The rules in a JSON list.

    Raises:
        ScriptError: One message that names `source`, the rule, the key and the reason.
    """
    try:
        return _RULES.validate_json(text)
    except ValidationError as reason:
        first = reason.errors(include_url=False)[0]
        place = list(first["loc"])
        where = [f"rule {place[0] + 1}"] if place and isinstance(place[0], int) else []
        where += [str(part) for part in place[1:2]]
        what = "give a JSON list of rules" if first["type"] == "list_type" else first["msg"]
        raise ScriptError(": ".join([source, *where, what])) from reason


def check_for(cannot_show: Collection[ScriptedFault], title: str, rule: Rule) -> None:
    """
    The rule can strike where these faults cannot show.

    Raises:
        ScriptError: Its fault would silently never fire.
    """
    if rule.fault in cannot_show:
        raise ScriptError(f"fault: {rule.fault} cannot strike here: {title} has nothing for it")


def read_script(path: Path) -> dict[str, Rule]:
    """The rules of a script file under ids that stay the same while the rule and its place do."""
    try:
        text = path.read_bytes()
    except OSError as reason:
        raise ScriptError(f"script {path} cannot be read: {reason.strerror}") from reason
    rules = parse_rules(text, source=f"script {path}")
    return {f"script-{place}-{_digest(rule)}": rule for place, rule in enumerate(rules, start=1)}


def _digest(rule: Rule) -> str:
    return hashlib.sha256(rule.model_dump_json(exclude_unset=True).encode()).hexdigest()[:8]
