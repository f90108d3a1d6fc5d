"""L1: a provider as data. This is what a pack file (`oncefence.pack/1`) may hold (C560)."""

import re
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, PlainSerializer

from oncefence.catalog.answers import ResponseContract
from oncefence.catalog.bodies import check_body
from oncefence.catalog.canonical import FileModel, FrozenMap, Model, plain, read_only
from oncefence.catalog.conditions import ConditionRule
from oncefence.catalog.errors import PayloadRefused
from oncefence.catalog.field_values import ClearRule, FieldType
from oncefence.catalog.form_body import FORM_MEDIA_TYPE, is_form
from oncefence.catalog.lanes import Lanes
from oncefence.catalog.lookup import LookupDefinition
from oncefence.catalog.names import (
    DeadlineMs,
    DottedName,
    FieldName,
    HeaderName,
    HeaderValue,
    Name,
    Pattern,
    header_value,
)
from oncefence.catalog.replays import IdempotencyRule
from oncefence.catalog.tables import PackTables
from oncefence.catalog.templates import (
    COMMAND,
    REMOTE_ID,
    check_path,
    check_template,
    expand,
    variables,
)

PACK_FORMAT = "oncefence.pack/1"


_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_HOST = re.compile(rf"(?=.{{1,253}}\Z){_LABEL}(?:\.{_LABEL})*")


def _base_url(url: str) -> str:
    parts = urlsplit(url)
    host = parts.hostname or ""
    if not _HOST.fullmatch(host) or url != f"https://{host}" + (
        f":{parts.port}" if parts.port else ""
    ):
        raise ValueError(
            "must be https:// with a lower-case host and nothing after it; "
            "put the rest into each operation's path"
        )
    return url


def _token_template(template: str) -> str:
    if variables(check_template(template, ("token",))) != ["token"]:
        raise ValueError("must use {token} exactly once")
    header_value(expand(template, {"token": "t"}, str))
    return template


def _path(template: str) -> str:
    return check_path(template, (REMOTE_ID, COMMAND))


def _query_template(template: str) -> str:
    return check_template(template, (REMOTE_ID, COMMAND))


def _body_media_type(media_type: str) -> str:
    kind = media_type.partition(";")[0].strip()
    if not (
        kind == "application/json"
        or (kind.startswith("application/") and kind.endswith("+json"))
        or is_form(media_type)
    ):
        raise ValueError(f"must be application/json, application/...+json or {FORM_MEDIA_TYPE}")
    return media_type


BodyTemplate = Annotated[
    object, AfterValidator(check_body), AfterValidator(read_only), PlainSerializer(plain)
]
Headers = Annotated[FrozenMap[HeaderName, HeaderValue], Field(max_length=16)]


class AuthRule(Model):
    """How a request names its principal; the token itself is never catalog data."""

    scheme: Literal["bearer"]
    header: HeaderName = "Authorization"
    template: Annotated[str, AfterValidator(_token_template)] = "Bearer {token}"

    def header_for(self, token: str) -> tuple[str, str]:
        """
        The header that carries `token`; it is built for one send and stored nowhere (C9).

        Raises:
            PayloadRefused: The token cannot stand in a header. It is not repeated.
        """
        if not re.fullmatch(r"[!-~]+", token):
            raise PayloadRefused("token", "must be printable ASCII without blanks")
        return self.header, expand(self.template, {"token": token}, str)


class TraceHeaders(Model):
    """Headers that carry our own ids to the provider, where it does not mind them (C245)."""

    attempt_header: HeaderName | None = None
    command_header: HeaderName | None = None


class FieldDefinition(Model):
    """A field of a remote object that operations may write."""

    type: FieldType
    clear: ClearRule = ClearRule.REFUSE
    max_length: int | None = Field(default=None, ge=1)
    as_text: bool = False
    """A number or a boolean goes as text where the body is JSON."""


class ObjectDefinition(Model):
    """A kind of remote record, the form of its ids and its writable fields."""

    remote_id: Pattern
    fields: FrozenMap[FieldName, FieldDefinition] = Field(min_length=1)


class RequestTemplate(Model):
    """What is sent besides method and path."""

    media_type: Annotated[HeaderValue, AfterValidator(_body_media_type)] = "application/json"
    query: FrozenMap[str, Annotated[str, AfterValidator(_query_template)]] = Field(
        default_factory=dict
    )
    headers: Headers = Field(default_factory=dict)
    body: BodyTemplate


class OperationDefinition(Model):
    """One write of fields to a remote record, and what each answer to it means."""

    object: Name
    kind: Literal["update", "create"] = "update"
    method: Literal["PATCH", "PUT", "POST"]
    path: Annotated[str, AfterValidator(_path)]
    endpoint_class: DottedName
    total_deadline_ms: DeadlineMs = 8_000
    # "none": no idempotency key, so a send that may have arrived is never repeated (C563).
    replay: Literal["none", "idempotency_key"]
    idempotency: IdempotencyRule | None = None
    condition: ConditionRule | None = None
    lanes: Lanes = Lanes()
    request: RequestTemplate
    answer: ResponseContract
    lookup: LookupDefinition | None = None


class ProviderPack(FileModel, PackTables):
    """One provider: where it is, how it is spoken to, and what it can be asked to do."""

    format: Literal["oncefence.pack/1"]
    name: Name
    display_name: str = Field(min_length=1, max_length=100)
    base_url: Annotated[str, AfterValidator(_base_url)]
    auth: AuthRule
    headers: Headers = Field(default_factory=dict)
    trace: TraceHeaders = TraceHeaders()
    objects: FrozenMap[Name, ObjectDefinition] = Field(min_length=1)
    operations: FrozenMap[DottedName, OperationDefinition] = Field(min_length=1)
