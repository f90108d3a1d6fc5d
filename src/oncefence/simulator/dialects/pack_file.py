"""
A pack file as the simulator reads it: with a reader of its own, and no more than it must know.

Whether a pack is sound is for others to say. What is read here is how requests will come and what
their answers must show.
"""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

_FIELD = re.compile(r"\{field\.([^{}]+)\}")


class PackUnusable(Exception):
    """The pack cannot be played; the message names the file, the key and the reason."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class Auth(_Part):
    """The header that carries the token."""

    header: str = "Authorization"
    template: str = "Bearer {token}"


class Trace(_Part):
    """The headers that carry the ids of whoever sends."""

    attempt_header: str | None = None
    command_header: str | None = None


class FieldRule(_Part):
    """A field of a record."""

    type: str = "string"
    clear: str = "refuse"
    max_length: int | None = None


class ObjectRule(_Part):
    """A kind of record."""

    remote_id: str
    fields: dict[str, FieldRule] = Field(min_length=1)


class Shape(_Part):
    """What is in a request besides method and path."""

    media_type: str = "application/json"
    query: dict[str, str] = Field(default_factory=dict)
    body: Any = None


class StatusAndBody(_Part):
    """Statuses under which a body says something."""

    statuses: tuple[int, ...] = ()
    body: str | None = None


class RetryAfter(_Part):
    """Where the time to come back stands."""

    header: str = "Retry-After"
    forms: tuple[str, ...] = ("seconds", "http_date")


class LimitNames(_Part):
    """Where a refused request names its limit."""

    value: str
    waits: dict[str, int | str]


class Rate(_Part):
    """The headers that tell what is left."""

    limit: str | None = None
    remaining: str | None = None
    reset: str | None = None
    reset_forms: tuple[str, ...] = ("seconds",)
    window_ms: str | None = None


class Receipt(_Part):
    """A piece of evidence in body or header."""

    body: str | None = None
    header: str | None = None


class AnswerRule(_Part):
    """What answers to a write look like."""

    success: tuple[int, ...] = Field(min_length=1)
    rejected: tuple[int, ...] = ()
    refusals: tuple[StatusAndBody, ...] = ()
    not_applied_when: tuple[StatusAndBody, ...] = ()
    media_types: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    identity: str | None = None
    error_code: tuple[str, ...] = ()
    receipt: dict[str, Receipt] = Field(default_factory=dict)
    retry_after: RetryAfter = RetryAfter()
    wait_by: LimitNames | None = None
    rate: dict[str, Rate] = Field(default_factory=dict)


class TimeRule(_Part):
    """Where a time stands, and how it is written."""

    value: str
    format: Literal["iso8601", "epoch_s", "epoch_ms"]


class SearchRule(_Part):
    """What the answer to a search holds."""

    items: str
    match: dict[str, str] = Field(default_factory=dict)
    cap: int | None = None
    more: str | None = None
    created_time: TimeRule | None = None


class LookupRule(_Part):
    """A read that tells what became of a write."""

    kind: Literal["by_id", "by_query"] = "by_id"
    method: str = "GET"
    path: str
    query: dict[str, str] = Field(default_factory=dict)
    media_type: str | None = None
    key_strength: str = "object_by_id"
    found: tuple[int, ...] = (200,)
    not_found: tuple[int, ...] = ()
    evidence: tuple[str, ...] = ()
    identity: str
    compare: dict[str, str] = Field(default_factory=dict)
    change_time: TimeRule | None = None
    search: SearchRule | None = None

    @model_validator(mode="after")
    def _query_has_items(self) -> Self:
        if self.kind == "by_query" and self.search is None:
            raise ValueError("a lookup by query needs its search table")
        return self

    def fields_used(self) -> set[str]:
        """The fields by which a record is searched for."""
        return {name for text in self.query.values() for name in _FIELD.findall(text)}


class Replayed(_Part):
    """How an answer says that it is an earlier one."""

    header: str
    value: str = "true"


class Idempotency(_Part):
    """How long the provider keeps a key."""

    header: str = "Idempotency-Key"
    window_s: int
    key_max_length: int = 255
    replayed: Replayed | None = None


class Condition(_Part):
    """The header of a conditional write."""

    header: str
    form: Literal["text", "http_date"] = "text"
    failed: tuple[int, ...] = (412,)


class OperationRule(_Part):
    """One write, and the read that looks for it."""

    object: str
    kind: Literal["update", "create"] = "update"
    method: str
    path: str
    idempotency: Idempotency | None = None
    condition: Condition | None = None
    request: Shape
    answer: AnswerRule
    lookup: LookupRule | None = None


class Pack(_Part):
    """A provider as its pack has it."""

    name: str
    display_name: str = ""
    auth: Auth = Auth()
    trace: Trace = Trace()
    objects: dict[str, ObjectRule] = Field(min_length=1)
    operations: dict[str, OperationRule] = Field(min_length=1)

    @model_validator(mode="after")
    def _objects_are_there(self) -> Self:
        for name, operation in self.operations.items():
            if operation.object not in self.objects:
                raise ValueError(f"operation {name} is of the unknown object {operation.object}")
        return self


def read_pack(source: Path | Mapping[str, Any]) -> Pack:
    """
    The pack in a file, or given as the tables of one.

    Raises:
        PackUnusable: It cannot be played.
    """
    place = str(source) if isinstance(source, Path) else "pack"
    try:
        content = tomllib.loads(source.read_text("utf-8")) if isinstance(source, Path) else source
        return Pack.model_validate(content)
    except OSError as reason:
        raise PackUnusable(f"{place} cannot be read: {reason.strerror}") from reason
    except ValidationError as reason:
        first = reason.errors(include_url=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        raise PackUnusable(": ".join(filter(None, (place, key, first["msg"])))) from reason
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as reason:
        raise PackUnusable(f"{place}: no TOML: {reason}") from reason
