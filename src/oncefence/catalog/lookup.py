"""Asking the provider what became of a write, and reading its answer by the frozen contract."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Literal
from uuid import UUID

from pydantic import AfterValidator, Field

from oncefence.catalog.answers import has_evidence, read_answer
from oncefence.catalog.canonical import FrozenMap, Model
from oncefence.catalog.creates import QueryRule
from oncefence.catalog.errors import PayloadRefused
from oncefence.catalog.expressions import JmesPath, find, identity_text
from oncefence.catalog.field_values import FieldType, shows_same
from oncefence.catalog.freeze import FrozenRequest
from oncefence.catalog.names import (
    DeadlineMs,
    DottedName,
    FieldName,
    HeaderValue,
    Pattern,
    Statuses,
)
from oncefence.catalog.record_times import ChangeTime
from oncefence.catalog.templates import (
    COMMAND,
    FIELD_PREFIX,
    REMOTE_ID,
    WRITTEN,
    check_field_template,
    check_path,
    check_remote_id,
    expand_target,
    variables,
)


class LookupReading(StrEnum):
    """What one read shows about a write; the ladder decides what that settles."""

    EQUAL = "equal"
    """Every written field has the written value; of a create, its one record is there."""

    DIFFERENT_UNCHANGED = "different_unchanged"
    """A field differs, and the object last changed before the mark minus the skew."""

    DIFFERENT_CHANGED = "different_changed"
    """A field differs, and the object may have changed since the mark."""

    DIFFERENT_NO_CHANGE_TIME = "different_no_change_time"
    """A field differs, and no change time can be read."""

    ABSENT = "absent"
    """The provider says that it has no such object."""

    NO_MATCH = "no_match"
    """Of a create: the whole answer holds no record that it made."""

    AMBIGUOUS = "ambiguous"
    """Of a create: what was found, or not found, does not tell whose it is."""

    CAPPED = "capped"
    """Of a create: the answer was cut, so what it does not hold may still be there."""

    UNREADABLE = "unreadable"
    """No declared answer to this question: it shows nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupFinding:
    """What one read shows, and the record that it shows."""

    reading: LookupReading
    remote_id: str | None = None


def _reading_method(method: str) -> str:
    if method not in ("GET", "HEAD"):
        raise ValueError("a lookup only reads: use GET (or HEAD), never a mutating method")
    return method


def _path(template: str) -> str:
    # No field here: an empty or dotted value would lead to another path.
    return check_path(template, (REMOTE_ID, COMMAND))


def _query_template(template: str) -> str:
    return check_field_template(template, (REMOTE_ID, WRITTEN, COMMAND))


class LookupDefinition(Model):
    """The read that tells what became of a write (C260, C263)."""

    kind: Literal["by_id", "by_query"] = "by_id"
    method: Annotated[str, AfterValidator(_reading_method)] = "GET"
    path: Annotated[str, AfterValidator(_path)]
    query: FrozenMap[str, Annotated[str, AfterValidator(_query_template)]] = Field(
        default_factory=dict
    )
    media_type: HeaderValue | None = None
    """Sent as Content-Type to a provider that asks for one although a read has no content."""

    endpoint_class: DottedName
    total_deadline_ms: DeadlineMs = 8_000
    key_strength: Literal["object_by_id", "idempotency_key", "unique_property", "fuzzy"]
    completeness: Literal["exact", "capped"]
    horizon_s: int = Field(ge=0)
    found: Statuses = Field(default=(200,), min_length=1)
    not_found: Statuses = ()
    evidence: tuple[JmesPath, ...] = ()
    identity: JmesPath
    """Of a lookup by query, within one of its items."""

    compare: FrozenMap[FieldName, JmesPath] = Field(default_factory=dict)
    change_time: ChangeTime | None = None
    search: QueryRule | None = None

    def fields_used(self) -> set[str]:
        """The written fields whose values the request or the match is made of."""
        templates = [*self.query.values(), *(self.search.match.values() if self.search else ())]
        used = {variable for template in templates for variable in variables(template)}
        return {name.removeprefix(FIELD_PREFIX) for name in used if name.startswith(FIELD_PREFIX)}


class LookupContract(LookupDefinition):
    """A LookupDefinition with all that it needs of the rest of its pack."""

    headers: tuple[tuple[str, str], ...]
    remote_id_pattern: Pattern
    cleared_reads_as_null: tuple[FieldName, ...]
    """Fields that are cleared by an empty text, which some providers then show as null."""

    types: FrozenMap[FieldName, FieldType] = Field(default_factory=dict)
    """Of the fields that are no strings."""

    def request(
        self, remote_id: str | None, written: Mapping[str, str | None], *, command: UUID
    ) -> FrozenRequest:
        """
        The read that shows what became of the `written` fields of `command`.

        Raises:
            PayloadRefused: The remote id cannot stand in a path, or there is none to read by.
        """
        return FrozenRequest(
            method=self.method,
            target=expand_target(self.path, self.query, self._values(remote_id, written, command)),
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
        remote_id: str | None,
        command: UUID,
    ) -> LookupFinding:
        """
        What the answer shows about the write of `written` that was marked at `mark_time`.

        Pure; `mark_time` carries its zone. An answer of another shape, about another object or
        with another type of value is UNREADABLE, so that it can prove no absence (C268).
        """
        if mark_time.tzinfo is None:
            raise ValueError("mark_time needs a time zone")
        if status in self.not_found:
            return LookupFinding(reading=LookupReading.ABSENT)
        if status not in self.found:
            return LookupFinding(reading=LookupReading.UNREADABLE)
        document, parseable = read_answer(body)
        if not parseable or not has_evidence(self.evidence, document):
            return LookupFinding(reading=LookupReading.UNREADABLE)
        if self.kind == "by_query":
            return self._created(document, mark_time, self._values(None, written, command))
        if identity_text(find(self.identity, document)) != remote_id:
            return LookupFinding(reading=LookupReading.UNREADABLE)
        return LookupFinding(
            reading=self._compared(document, written, mark_time), remote_id=remote_id
        )

    def judge_first(
        self, status: int, body: bytes, *, written: Mapping[str, str | None], command: UUID
    ) -> LookupFinding:
        """
        What the answer shows just before a create of `written` is sent: EQUAL where its record is
        there already, whoever made it and whenever.
        """
        document, parseable = read_answer(body)
        if status not in self.found or not parseable or not has_evidence(self.evidence, document):
            return LookupFinding(reading=LookupReading.UNREADABLE)
        return self._created(document, None, self._values(None, written, command))

    def _compared(
        self, document: object, written: Mapping[str, str | None], mark_time: datetime
    ) -> LookupReading:
        same = [
            self._same(name, value, find(self.compare[name], document))
            for name, value in written.items()
        ]
        if None in same:
            return LookupReading.UNREADABLE
        if all(same):
            return LookupReading.EQUAL
        unchanged = self.change_time and self.change_time.is_before(mark_time, document)
        if unchanged is None:
            return LookupReading.DIFFERENT_NO_CHANGE_TIME
        return LookupReading.DIFFERENT_UNCHANGED if unchanged else LookupReading.DIFFERENT_CHANGED

    def _same(self, name: str, written: str | None, shown: object) -> bool | None:
        if written == "" and shown is None:
            return name in self.cleared_reads_as_null
        return shows_same(self.types.get(name, FieldType.STRING), written, shown)

    def _created(
        self, document: object, mark_time: datetime | None, values: Mapping[str, str]
    ) -> LookupFinding:
        found = None
        if self.search is not None:
            found = self.search.read(document, self.identity, values, mark_time)
        if found is None or not all(map(self._is_id, found.ids)):
            return LookupFinding(reading=LookupReading.UNREADABLE)
        if self.key_strength == "fuzzy" or found.is_unsure or len(set(found.ids)) > 1:
            return LookupFinding(reading=LookupReading.AMBIGUOUS)
        if found.is_cut:
            return LookupFinding(reading=LookupReading.CAPPED)
        if found.ids:
            return LookupFinding(reading=LookupReading.EQUAL, remote_id=found.ids[0])
        # Records that were not asked for: the filter did not work, so nothing is proven by it.
        return LookupFinding(
            reading=LookupReading.UNREADABLE if found.has_strangers else LookupReading.NO_MATCH
        )

    def _is_id(self, remote_id: str) -> bool:
        try:
            check_remote_id(remote_id, self.remote_id_pattern)
        except PayloadRefused:
            return False
        return True

    def _values(
        self, remote_id: str | None, written: Mapping[str, str | None], command: UUID
    ) -> dict[str, str]:
        values = {WRITTEN: ",".join(sorted(written)), COMMAND: str(command)}
        if self.kind == "by_id":
            values[REMOTE_ID] = check_remote_id(remote_id, self.remote_id_pattern)
        for name in self.fields_used():
            if not (value := written.get(name)):
                # Acceptance refuses such a payload; an empty key would find anybody's record.
                raise PayloadRefused(name, "is not written, and the lookup finds the record by it")
            values[FIELD_PREFIX + name] = value
        return values
