"""Asking the provider what became of a write, and reading its answer by the frozen contract."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from oncefence.catalog.answers import Statuses, has_evidence, read_answer
from oncefence.catalog.canonical import FrozenMap, Model
from oncefence.catalog.expressions import JmesPath, find, identity_text
from oncefence.catalog.freeze import FrozenRequest
from oncefence.catalog.names import DeadlineMs, DottedName, FieldName, Pattern
from oncefence.catalog.templates import (
    REMOTE_ID,
    WRITTEN,
    check_path,
    check_remote_id,
    check_template,
    expand_target,
)


class LookupReading(StrEnum):
    """What one read of the object shows about a write; the ladder decides what that settles."""

    EQUAL = "equal"
    """Every written field has the written value."""

    DIFFERENT_UNCHANGED = "different_unchanged"
    """A field differs, and the object last changed before the mark minus the skew."""

    DIFFERENT_CHANGED = "different_changed"
    """A field differs, and the object may have changed since the mark."""

    DIFFERENT_NO_CHANGE_TIME = "different_no_change_time"
    """A field differs, and no change time can be read."""

    ABSENT = "absent"
    """The provider says that it has no such object."""

    UNREADABLE = "unreadable"
    """No declared answer about this object: it shows nothing."""


class TimeFormat(StrEnum):
    """How a provider writes a point in time."""

    ISO8601 = "iso8601"
    """With its zone; without one it is not read."""

    EPOCH_S = "epoch_s"
    EPOCH_MS = "epoch_ms"


class ChangeTime(Model):
    """Where the object's last change is read, and how far the two clocks may be apart."""

    value: JmesPath
    format: TimeFormat
    skew_s: int = Field(default=5, ge=0, le=3_600)


def _reading_method(method: str) -> str:
    if method not in ("GET", "HEAD"):
        raise ValueError("a lookup only reads: use GET (or HEAD), never a mutating method")
    return method


def _query_template(template: str) -> str:
    return check_template(template, (REMOTE_ID, WRITTEN))


class LookupDefinition(Model):
    """The read that tells what became of a write (C260, C263)."""

    method: Annotated[str, AfterValidator(_reading_method)] = "GET"
    path: Annotated[str, AfterValidator(check_path)]
    query: FrozenMap[str, Annotated[str, AfterValidator(_query_template)]] = Field(
        default_factory=dict
    )
    endpoint_class: DottedName
    total_deadline_ms: DeadlineMs = 8_000
    key_strength: Literal["object_by_id"]
    completeness: Literal["exact"]
    horizon_s: int = Field(ge=0)
    found: Statuses = Field(default=(200,), min_length=1)
    not_found: Statuses = Field(min_length=1)
    evidence: tuple[JmesPath, ...] = ()
    identity: JmesPath
    compare: FrozenMap[FieldName, JmesPath] = Field(min_length=1)
    change_time: ChangeTime | None = None


class LookupContract(LookupDefinition):
    """A LookupDefinition with all that it needs of the rest of its pack."""

    headers: tuple[tuple[str, str], ...]
    remote_id_pattern: Pattern
    cleared_reads_as_null: tuple[FieldName, ...]
    """Fields that are cleared by an empty text, which some providers then show as null."""

    def request(self, remote_id: str, written: Mapping[str, str | None]) -> FrozenRequest:
        """
        The read that shows the `written` fields of the object.

        Raises:
            PayloadRefused: The remote id cannot stand in a path.
        """
        values = {
            REMOTE_ID: check_remote_id(remote_id, self.remote_id_pattern),
            WRITTEN: ",".join(sorted(written)),
        }
        return FrozenRequest(
            method=self.method,
            target=expand_target(self.path, self.query, values),
            headers=self.headers,
            body=b"",
            written=dict(written),
        )

    def judge(
        self,
        status: int,
        body: bytes,
        *,
        written: Mapping[str, str | None],
        mark_time: datetime,
        remote_id: str,
    ) -> LookupReading:
        """
        What the answer shows about the write of `written` that was marked at `mark_time`.

        Pure; `mark_time` carries its zone. An answer of another shape, about another object or
        with another type of value is UNREADABLE, so that it can prove no absence (C268).
        """
        if mark_time.tzinfo is None:
            raise ValueError("mark_time needs a time zone")
        if status in self.not_found:
            return LookupReading.ABSENT
        if status not in self.found:
            return LookupReading.UNREADABLE
        document, parseable = read_answer(body)
        if (
            not parseable
            or identity_text(find(self.identity, document)) != remote_id
            or not has_evidence(self.evidence, document)
        ):
            return LookupReading.UNREADABLE
        shown = {name: find(self.compare[name], document) for name in written}
        if any(not isinstance(value, str | None) for value in shown.values()):
            return LookupReading.UNREADABLE
        if all(self._same(name, value, shown[name]) for name, value in written.items()):
            return LookupReading.EQUAL
        return self._different(document, mark_time)

    def _same(self, name: str, written: str | None, shown: object) -> bool:
        if written == "" and shown is None:
            return name in self.cleared_reads_as_null
        return written == shown

    def _different(self, document: object, mark_time: datetime) -> LookupReading:
        if self.change_time is None:
            return LookupReading.DIFFERENT_NO_CHANGE_TIME
        changed = read_time(find(self.change_time.value, document), self.change_time.format)
        if changed is None:
            return LookupReading.DIFFERENT_NO_CHANGE_TIME
        if changed < mark_time - timedelta(seconds=self.change_time.skew_s):
            return LookupReading.DIFFERENT_UNCHANGED
        return LookupReading.DIFFERENT_CHANGED


def read_time(value: object, form: TimeFormat) -> datetime | None:
    """The point in time, or None where it is not in the declared form."""
    if form is TimeFormat.ISO8601:
        return _iso_time(value)
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,16}", value):
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    unit = timedelta(seconds=1) if form is TimeFormat.EPOCH_S else timedelta(milliseconds=1)
    try:
        return datetime(1970, 1, 1, tzinfo=UTC) + value * unit
    except OverflowError:
        return None


def _iso_time(value: object) -> datetime | None:
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None
