"""What a pack says about answers, and what one answer shows when it is read by that."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from pydantic import Field

from oncefence.catalog.canonical import FrozenMap, Model
from oncefence.catalog.expressions import JmesPath, find, holds, identity_text, shows
from oncefence.catalog.items import ItemsRule
from oncefence.catalog.limits import (
    LimitNames,
    NamedLimit,
    RateHeaders,
    RateReading,
    RetryAfterRule,
)
from oncefence.catalog.names import HeaderName, MediaType, Name, Statuses, WaitSeconds
from oncefence.catalog.strict_json import JsonRefused, parse
from oncefence.domain.backoff import RETRY_AFTER_UNREADABLE_SECONDS, clamp_retry_after
from oncefence.domain.classification import BodyVerdict

ANSWER_DEPTH_MAX = 200
REDIRECTS: Final = frozenset({302, 303})
"""Redirects that a pack may declare; they are not followed, and their body shows nothing."""

_SAFE_TEXT = re.compile(r"[ -~]{1,200}")
_SAFE_CODE = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
_JSON_TYPE = re.compile(r"application/(?:[a-z0-9!#$&^_.+-]+\+)?json")

AnswerHeaders = Mapping[str, str] | Iterable[tuple[str, str]]


class ReceiptSource(Model):
    """Where one piece of correlation evidence is read: in the body or in a header."""

    body: JmesPath | None = None
    header: HeaderName | None = None


class RefusalRule(Model):
    """A body that says, under one of `statuses`, that the request was refused for good."""

    statuses: Statuses = Field(min_length=1)
    body: JmesPath


class NotAppliedRule(Model):
    """What an answer must show under one of `statuses` to prove that nothing was applied."""

    statuses: Statuses = Field(min_length=1)
    body: JmesPath | None = None
    retry_after: bool = False
    """The answer names a time to come back, in one of the declared forms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyReading:
    """What an answer shows; which class of outcome that makes is decided in the domain."""

    parseable: bool
    """It is sound JSON, or there is none and none is declared to be needed."""

    evidence_present: bool
    """All declared evidence is there; of an answer that also declares a refusal, any of it."""

    identity_matches: bool
    """It names the object that was addressed; for a create, it names one at all."""

    receipt: Mapping[str, str]
    """Whitelisted correlation evidence: short, printable, safe to store and to show."""

    error_code: str | None
    media_type_matches: bool = True
    """The body is of a media type that the pack takes for the provider's own."""

    declares_refusal: bool = False
    """The body carries a terminal refusal that the pack declares for this status."""

    declares_not_applied: bool = False
    """The answer carries what the pack declares as proof that nothing was applied."""

    remote_id: str | None = None
    """The object that the answer names; for a create, the new one."""

    limit: NamedLimit | None = None
    """The limit that the body names."""

    def verdict(self, *, complete: bool) -> BodyVerdict:
        """The same for the domain, which knows no headers and no bodies."""
        return BodyVerdict(
            complete=complete,
            parseable=self.parseable,
            evidence_present=self.evidence_present,
            identity_matches=self.identity_matches,
            declares_refusal=self.declares_refusal,
            declares_not_applied=self.declares_not_applied,
            media_type_matches=self.media_type_matches,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Signs:
    evidence: bool = False
    matches: bool = False
    refused: bool = False
    not_applied: bool = False


class ResponseContract(Model):
    """The declared meaning of every answer; a status in none of the lists proves nothing."""

    success: Statuses = Field(min_length=1)
    rejected: Statuses = ()
    not_applied: Statuses = ()
    """Sent, and the provider's contract says that nothing was applied (C252)."""

    refusals: tuple[RefusalRule, ...] = ()
    not_applied_when: tuple[NotAppliedRule, ...] = ()
    contradicted_by: tuple[JmesPath, ...] = ("error", "errors")
    """What a success answer does not hold; one that does proves neither side (C246)."""

    media_types: tuple[MediaType, ...] = ()
    """Of a success answer; none named is any kind of JSON."""

    wait_min_s: FrozenMap[str, WaitSeconds] = Field(default_factory=dict)
    wait_by: LimitNames | None = None
    evidence: tuple[JmesPath, ...]
    identity: JmesPath | None = None
    items: ItemsRule | None = None
    error_code: tuple[JmesPath, ...] = ()
    receipt: FrozenMap[Name, ReceiptSource] = Field(default_factory=dict)
    retry_after: RetryAfterRule = RetryAfterRule()
    rate: FrozenMap[Name, RateHeaders] = Field(default_factory=dict)

    def wait_min_seconds(self, status: int) -> int:
        """The least wait that the provider asks for after `status`; 0 where it names none."""
        return self.wait_min_s.get(str(status), 0)

    def wait_seconds(
        self, status: int, headers: AnswerHeaders, limit: NamedLimit | None, *, now: datetime
    ) -> float:
        """
        How long to wait after an answer that permits another attempt (C250).

        The longest of what the header, the limit's name and the status ask for; half a minute
        where none of them does, or where the header or the limit is none that we know.
        """
        asked: list[float] = []
        header = self.retry_after.wait_seconds(lower_case(headers), now=now)
        if header is not None:
            asked.append(header)
        if limit is not None:
            named = limit.seconds(now=now)
            asked.append(RETRY_AFTER_UNREADABLE_SECONDS if named is None else named)
        if least := self.wait_min_seconds(status):
            asked.append(float(least))
        return clamp_retry_after(max(asked, default=RETRY_AFTER_UNREADABLE_SECONDS))

    def rates(self, headers: AnswerHeaders, *, now: datetime) -> dict[str, RateReading]:
        """What an answer shows of each declared limit; garbage shows nothing (C302)."""
        received = lower_case(headers)
        return {name: rate.read(received, now=now) for name, rate in self.rate.items()}

    def read_body(
        self,
        status: int,
        headers: AnswerHeaders,
        body: bytes,
        remote_id: str | None,
        *,
        is_only_input: bool = True,
    ) -> BodyReading:
        """
        What this answer shows about the object `remote_id`; never raises for any bytes.

        None is a create, which learns its id from the answer. `is_only_input` is False where
        the request carried more inputs than this one.
        """
        received = lower_case(headers)
        document, parseable = read_answer(body)
        media_type_matches = True
        if status not in self.success:
            signs = self._failure(status, received, document)
        elif self._needs_no_body(status, body):
            parseable, signs = True, _Signs(evidence=True, matches=True)
        else:
            media_type_matches = self._is_of_provider(received)
            if not media_type_matches:
                document = None
            signs = _Signs()
            if parseable and media_type_matches:
                signs = self._success(status, received, document, remote_id, is_only_input)
        is_failure = signs.refused or status not in self.success
        return BodyReading(
            parseable=parseable,
            media_type_matches=media_type_matches,
            evidence_present=signs.evidence,
            identity_matches=signs.matches,
            receipt=self._receipt(received, document),
            error_code=self._error_code(document) if is_failure else None,
            declares_refusal=signs.refused,
            declares_not_applied=signs.not_applied,
            remote_id=self._identity(document),
            limit=self.wait_by.read(document) if self.wait_by is not None else None,
        )

    def _success(
        self,
        status: int,
        received: Mapping[str, str],
        document: object,
        remote_id: str | None,
        is_only_input: bool,
    ) -> _Signs:
        if self.items is not None and status in self.items.statuses:
            listed = self.items.read(document, only_input=remote_id if is_only_input else None)
            return _Signs(
                evidence=remote_id in listed.applied,
                matches=listed.applied.count(remote_id or "") == 1,
                refused=remote_id in listed.refused,
            )
        signs = _Signs(
            evidence=has_evidence(self.evidence, document),
            matches=self._names(remote_id, document),
        )
        has_some = any(shows(part, document) for part in self.evidence)
        refused = self._refuses(status, document)
        not_applied = self._proves_not_applied(status, received, document)
        if (refused or not_applied) and (has_some or (refused and not_applied)):
            # A sign of success beside one of failure: the answer proves neither.
            return _Signs(evidence=True, matches=signs.matches, refused=True)
        if refused or not_applied:
            return _Signs(refused=refused, not_applied=not_applied)
        if any(holds(expression, document) for expression in self.contradicted_by):
            return _Signs(evidence=signs.evidence, refused=signs.evidence)
        return signs

    def _failure(self, status: int, received: Mapping[str, str], document: object) -> _Signs:
        refused = self._refuses(status, document)
        not_applied = self._proves_not_applied(status, received, document)
        if refused and not_applied:
            return _Signs()
        return _Signs(refused=refused, not_applied=not_applied)

    def _needs_no_body(self, status: int, body: bytes) -> bool:
        if self.evidence or self.identity is not None or self.items is not None:
            return False
        return not body or status in REDIRECTS

    def _is_of_provider(self, received: Mapping[str, str]) -> bool:
        kind = received.get("content-type", "").partition(";")[0].strip().lower()
        if self.media_types:
            return kind in self.media_types
        return not kind or _JSON_TYPE.fullmatch(kind) is not None

    def _refuses(self, status: int, document: object) -> bool:
        return any(status in rule.statuses and _says(rule.body, document) for rule in self.refusals)

    def _proves_not_applied(
        self, status: int, received: Mapping[str, str], document: object
    ) -> bool:
        return any(
            status in rule.statuses
            and (rule.body is None or _says(rule.body, document))
            and (not rule.retry_after or self.retry_after.is_readable(received))
            for rule in self.not_applied_when
        )

    def _identity(self, document: object) -> str | None:
        return None if self.identity is None else identity_text(find(self.identity, document))

    def _names(self, remote_id: str | None, document: object) -> bool:
        if remote_id is None:
            return self._identity(document) is not None
        return self.identity is None or self._identity(document) == remote_id

    def _error_code(self, document: object) -> str | None:
        for expression in self.error_code:
            code = find(expression, document)
            if isinstance(code, str) and _SAFE_CODE.fullmatch(code):
                return code
        return None

    def _receipt(self, received: Mapping[str, str], document: object) -> dict[str, str]:
        receipt: dict[str, str] = {}
        for name, source in self.receipt.items():
            if source.body is not None:
                value = identity_text(find(source.body, document))
            else:
                value = received.get((source.header or "").lower())
            # Dropped rather than cut: half an id would correlate with nothing.
            if value is not None and _SAFE_TEXT.fullmatch(value):
                receipt[name] = value
        return receipt


def lower_case(headers: AnswerHeaders) -> dict[str, str]:
    """The headers by their names in lower case."""
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return {name.lower(): value for name, value in pairs}


def read_answer(body: bytes) -> tuple[object, bool]:
    """The JSON of an answer and True, or None and False where it is not sound JSON."""
    try:
        return parse(body, depth_max=ANSWER_DEPTH_MAX, exact=False), True
    except JsonRefused:
        return None, False


def has_evidence(expressions: Iterable[str], document: object) -> bool:
    """Whether every declared piece of evidence is there."""
    return all(shows(expression, document) for expression in expressions)


def _says(expression: str, document: object) -> bool:
    # Of an answer that is no sound JSON there is no document, and `!ok` would hold of it.
    return document is not None and holds(expression, document)
