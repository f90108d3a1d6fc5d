"""What a pack says about answers, and what one answer shows when it is read by that."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, Field

from oncefence.catalog.canonical import FrozenMap, Model
from oncefence.catalog.expressions import JmesPath, find, identity_text
from oncefence.catalog.names import HeaderName, Name
from oncefence.catalog.strict_json import JsonRefused, parse

ANSWER_DEPTH_MAX = 200
_SAFE_TEXT = re.compile(r"[ -~]{1,200}")
_SAFE_CODE = re.compile(r"[A-Za-z0-9_.:-]{1,64}")


def _ascending(statuses: tuple[int, ...]) -> tuple[int, ...]:
    if len(set(statuses)) != len(statuses):
        raise ValueError("names a status twice")
    return tuple(sorted(statuses))


Statuses = Annotated[tuple[Annotated[int, Field(ge=200, le=599)], ...], AfterValidator(_ascending)]


class RetryAfterForm(StrEnum):
    """How a provider writes the time to wait."""

    SECONDS = "seconds"
    HTTP_DATE = "http_date"
    ISO = "iso"
    """ISO 8601 with its zone."""

    ISO_UTC = "iso_utc"
    """ISO 8601 whose missing zone means UTC."""


class RetryAfterRule(Model):
    """Where the time to wait stands, and in which forms it may be written."""

    header: HeaderName = "Retry-After"
    forms: tuple[RetryAfterForm, ...] = Field(
        default=(RetryAfterForm.SECONDS, RetryAfterForm.HTTP_DATE), min_length=1
    )


class ReceiptSource(Model):
    """Where one piece of correlation evidence is read: in the body or in a header."""

    body: JmesPath | None = None
    header: HeaderName | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyReading:
    """What an answer shows; which class of outcome that makes is decided in the domain."""

    parseable: bool
    evidence_present: bool
    identity_matches: bool
    receipt: Mapping[str, str]
    """Whitelisted correlation evidence: short, printable, safe to store and to show."""

    error_code: str | None


class ResponseContract(Model):
    """The declared meaning of every answer; a status in none of the lists proves nothing."""

    success: Statuses = Field(min_length=1)
    rejected: Statuses = ()
    not_applied: Statuses = ()
    """Sent, and the provider's contract says that nothing was applied (C252)."""

    wait_min_s: FrozenMap[str, Annotated[int, Field(ge=1, le=86_400)]] = Field(default_factory=dict)
    evidence: tuple[JmesPath, ...] = Field(min_length=1)
    identity: JmesPath
    error_code: tuple[JmesPath, ...] = ()
    receipt: FrozenMap[Name, ReceiptSource] = Field(default_factory=dict)
    retry_after: RetryAfterRule = RetryAfterRule()

    def wait_min_seconds(self, status: int) -> int:
        """The least wait that the provider asks for after `status`; 0 where it names none."""
        return self.wait_min_s.get(str(status), 0)

    def read_body(
        self,
        status: int,
        headers: Mapping[str, str] | Iterable[tuple[str, str]],
        body: bytes,
        remote_id: str,
    ) -> BodyReading:
        """What this answer shows about the object `remote_id`; never raises for any bytes."""
        document, parseable = read_answer(body)
        code = None if status in self.success else self._error_code(document)
        return BodyReading(
            parseable=parseable,
            evidence_present=parseable and has_evidence(self.evidence, document),
            identity_matches=parseable
            and identity_text(find(self.identity, document)) == remote_id,
            receipt=self._receipt(headers, document),
            error_code=code,
        )

    def _error_code(self, document: object) -> str | None:
        for expression in self.error_code:
            code = find(expression, document)
            if isinstance(code, str) and _SAFE_CODE.fullmatch(code):
                return code
        return None

    def _receipt(
        self, headers: Mapping[str, str] | Iterable[tuple[str, str]], document: object
    ) -> dict[str, str]:
        pairs = headers.items() if isinstance(headers, Mapping) else headers
        received = {name.lower(): value for name, value in pairs}
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


def read_answer(body: bytes) -> tuple[object, bool]:
    """The JSON of an answer and True, or None and False where it is not sound JSON."""
    try:
        return parse(body, depth_max=ANSWER_DEPTH_MAX, exact=False), True
    except JsonRefused:
        return None, False


def has_evidence(expressions: Iterable[str], document: object) -> bool:
    """Whether every declared piece of evidence is there and not null."""
    return all(find(expression, document) is not None for expression in expressions)
