"""
The ways in which the simulator breaks, and the rules that say when.

The names are the vocabulary of the command line, of scripts and of the ledger's FAULT rows.
"""

import hashlib
import json
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator


class Fault(StrEnum):
    """
    What goes wrong with one request, or with the port.

    Each value is followed by what the client and the record see.
    """

    REFUSE = "refuse"
    """The next connections are reset at accept, or the port is closed for a time. Never by contact:
    nobody knows at accept what a connection will ask for."""
    RESET_BEFORE_READ = "reset_before_read"
    """RST with the request still unread in the socket; not applied."""
    RESET_MID_READ = "reset_mid_read"
    """RST after a part of the request was read; not applied."""
    RESET_BEFORE_ANSWER = "reset_before_answer"
    """RST after the whole request was read; not applied."""
    RESET_AFTER_COMMIT = "reset_after_commit"
    """Applied, then RST."""
    LOST_ANSWER = "lost_answer"
    """Applied, then silence until the client gives up. A later read finds the value."""
    LATE_ANSWER = "late_answer"
    """Applied only after `delay_s`, or without one when the client has given up; then answered."""
    NO_EFFECT_HANG = "no_effect_hang"
    """Silence until the client gives up; never applied. A later read finds it unchanged."""
    RATE_LIMIT_429 = "rate_limit_429"
    """429, with Retry-After where the rule has `retry_after`; not applied."""
    SERVER_ERROR_BEFORE_COMMIT = "server_error_before_commit"
    """500 or the rule's 5xx `status`; not applied."""
    SERVER_ERROR_AFTER_COMMIT = "server_error_after_commit"
    """500 or the rule's 5xx `status`; applied all the same."""
    CUT_BODY = "cut_body"
    """Applied; the body ends before its announced length."""
    WRONG_ID = "wrong_id"
    """Applied to the right contact; the answer names another."""
    DRIP = "drip"
    """Applied; the answer comes one byte each `delay_s` (0.2 s without one)."""
    GARBLED = "garbled"
    """Applied; the answer is 200 with a body that is not JSON."""
    REJECT_400 = "reject_400"
    """400 or the rule's 4xx `status` with a validation error; not applied."""
    UNAUTHORIZED_401 = "unauthorized_401"
    """401 although the token is right; not applied."""
    OVERWRITTEN = "overwritten"
    """Applied (unless the rule has `apply: false`), then a person edits the same properties, and
    the client gets no answer. A later read finds a third value and a later change time."""

    @property
    def needs_success(self) -> bool:
        """It happens around a change or an answer that only a valid request has."""
        return self in _NEED_SUCCESS

    @property
    def leaves_unread(self) -> bool:
        """It strikes before the request is read to its end."""
        return self in {Fault.RESET_BEFORE_READ, Fault.RESET_MID_READ}


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
# The order is part of what a seed means: append, never sort. `refuse` is not here because a seed
# deals by contact.
SEEDED_FAULTS: tuple[Fault, ...] = (
    Fault.RESET_BEFORE_READ,
    Fault.RESET_MID_READ,
    Fault.RESET_BEFORE_ANSWER,
    Fault.RESET_AFTER_COMMIT,
    Fault.LOST_ANSWER,
    Fault.LATE_ANSWER,
    Fault.NO_EFFECT_HANG,
    Fault.RATE_LIMIT_429,
    Fault.SERVER_ERROR_BEFORE_COMMIT,
    Fault.SERVER_ERROR_AFTER_COMMIT,
    Fault.CUT_BODY,
    Fault.WRONG_ID,
    Fault.DRIP,
    Fault.GARBLED,
    Fault.REJECT_400,
    Fault.UNAUTHORIZED_401,
    Fault.OVERWRITTEN,
)
_SERVER_ERRORS = {Fault.SERVER_ERROR_BEFORE_COMMIT, Fault.SERVER_ERROR_AFTER_COMMIT}
_ALLOWED_WITH: dict[str, set[Fault]] = {
    "delay_s": {Fault.LATE_ANSWER, Fault.DRIP},
    "retry_after": {Fault.RATE_LIMIT_429, *_SERVER_ERRORS},
    "status": {Fault.REJECT_400, *_SERVER_ERRORS},
    "apply": {Fault.OVERWRITTEN},
    "after_contact": {Fault.REFUSE},
    "refuse_for_s": {Fault.REFUSE},
}

Seconds = Annotated[float, Field(ge=0, le=3600, allow_inf_nan=False)]
Name = Annotated[str, Field(min_length=1, max_length=256)]
HeaderText = Annotated[str, Field(pattern=r"^[!-~]([ -~]{0,98}[!-~])?$")]


class ScriptError(Exception):
    """A rule cannot be used; the message names the rule, the key and the reason."""


class Rule(BaseModel):
    """
    Which requests a fault strikes, how often, and with what numbers.

    A rule without `fault` only holds. `retry_after` is a number of seconds, `date:N` or `iso:N`
    for a time N seconds ahead, or any other text as it stands.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    fault: Fault | None = None
    contact: Name | None = None
    command: Name | None = None
    nth: Annotated[int, Field(ge=1)] | None = None
    """The how-manieth request with this method for its contact."""
    method: Literal["PATCH", "GET", "*"] = "PATCH"
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
    """Armed when a PATCH of this contact has been answered."""
    refuse_for_s: Seconds | None = None
    """Close the port for this long, instead of resetting `times` connections."""

    @model_validator(mode="after")
    def _keys_go_with_the_fault(self) -> Self:
        if self.fault is None and self.hold is None:
            raise ValueError("name a fault, a hold, or both")
        for key, faults in _ALLOWED_WITH.items():
            if key in self.model_fields_set and self.fault not in faults:
                raise ValueError(f"{key} goes only with {', '.join(sorted(faults))}")
        if self.fault is Fault.REFUSE:
            for key in ("contact", "command", "nth", "method", "hold", "hold_at"):
                if key in self.model_fields_set:
                    raise ValueError(
                        f"refuse cannot be matched by {key}: nothing of a request is known at "
                        "accept; use times, after_contact, refuse_for_s or reset_before_read"
                    )
        return self

    @model_validator(mode="after")
    def _values_go_with_the_fault(self) -> Self:
        if self.refuse_for_s is not None and self.times != 1:
            raise ValueError("refuse_for_s closes the port once; leave times out")
        if self.fault in _SERVER_ERRORS and self.status is not None and self.status < 500:
            raise ValueError(f"status of {self.fault} is 500 to 599")
        if self.fault is Fault.REJECT_400 and self.status is not None and self.status >= 500:
            raise ValueError("status of reject_400 is 400 to 499")
        if self.fault is Fault.OVERWRITTEN and self.method != "PATCH":
            raise ValueError("overwritten goes only with method PATCH")
        if self.fault is not None and self.fault.leaves_unread and self.hold is not None:
            raise ValueError(f"{self.fault} leaves the request unread, so it cannot be held")
        if (
            self.hold_at == "commit"
            and self.fault is not None
            and (not self.fault.needs_success or self.fault is Fault.LATE_ANSWER or not self.apply)
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


def read_script(path: Path) -> dict[str, Rule]:
    """The rules of a script file under ids that stay the same while the rule and its place do."""
    try:
        text = path.read_bytes()
    except OSError as reason:
        raise ScriptError(f"script {path} cannot be read: {reason.strerror}") from reason
    rules = parse_rules(text, source=f"script {path}")
    return {f"script-{place}-{_digest(rule)}": rule for place, rule in enumerate(rules, start=1)}


class SeededFaults:
    """Faults dealt by seed, contact and count, so that no timing changes who gets which."""

    def __init__(self, *, seed: int, rate: float, faults: Sequence[Fault] = SEEDED_FAULTS) -> None:
        self._seed = seed
        self._rate = rate
        self._faults = tuple(faults)

    def deal(self, contact: str, nth: int) -> Rule | None:
        """The fault of the nth PATCH for `contact`, or None for a plain answer."""
        digest = hashlib.sha256(json.dumps([self._seed, contact, nth]).encode()).digest()
        if int.from_bytes(digest[:8]) / 2**64 >= self._rate:
            return None
        fault = self._faults[int.from_bytes(digest[8:16]) % len(self._faults)]
        coin = digest[16] % 2 == 0
        match fault:
            case Fault.RATE_LIMIT_429 if coin:
                return Rule(fault=fault, retry_after=1)
            case Fault.OVERWRITTEN:
                return Rule(fault=fault, apply=coin)
            case _:
                return Rule(fault=fault)


def _digest(rule: Rule) -> str:
    return hashlib.sha256(rule.model_dump_json().encode()).hexdigest()[:8]
