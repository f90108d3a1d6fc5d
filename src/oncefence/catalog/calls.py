"""A request that a pack fixes but for its variables: no effect of a command, no read of one."""

from collections.abc import Collection, Iterator
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, PlainSerializer

from oncefence.catalog.bodies import texts
from oncefence.catalog.canonical import FrozenMap, Model, plain, read_only
from oncefence.catalog.findings import Finding
from oncefence.catalog.names import (
    DeadlineMs,
    DottedName,
    HeaderName,
    MediaType,
    Statuses,
)
from oncefence.catalog.sendable import header_reason, path_errors, query_errors
from oncefence.catalog.templates import check_path, variables

INTEGER = ":integer"
FORM = "application/x-www-form-urlencoded"
_WITH_BODY = ("POST", "PATCH", "PUT")


def _call_path(template: str) -> str:
    # Each variable's value is percent-encoded when it is put in, so it can add no segment.
    return check_path(template, tuple(variables(template)))


def _template(template: str) -> str:
    variables(template)
    return template


def _call_body(body: object) -> object:
    if not isinstance(body, dict):
        raise ValueError("must be a table")  # noqa: TRY004  # pydantic's form of a finding
    for where, text in texts(body):
        try:
            used = variables(text)
        except ValueError as error:
            raise ValueError(f"at {where}: {error}") from None
        for variable in used:
            if variable.endswith(INTEGER) and text != f"{{{variable}}}":
                raise ValueError(f"at {where}: {{{variable}}} must be the whole value")
    return body


def _sendable(media_type: str) -> str:
    if media_type not in ("application/json", FORM) and not (
        media_type.startswith("application/") and media_type.endswith("+json")
    ):
        raise ValueError(f"must be application/json, application/...+json or {FORM}")
    return media_type


Template = Annotated[str, AfterValidator(_template)]


class Call(Model):
    """One declared request; which variables it may use is the matter of the table it is in."""

    method: Literal["GET", "POST", "PATCH", "PUT", "DELETE"]
    path: Annotated[str, AfterValidator(_call_path)]
    query: FrozenMap[str, Template] = Field(default_factory=dict)
    headers: FrozenMap[HeaderName, Template] = Field(default_factory=dict, max_length=16)
    media_type: Annotated[MediaType, AfterValidator(_sendable)] = "application/json"
    body: Annotated[
        object, AfterValidator(_call_body), AfterValidator(read_only), PlainSerializer(plain)
    ] = Field(default_factory=dict)
    endpoint_class: DottedName
    total_deadline_ms: DeadlineMs = 8_000
    success: Statuses = Field(default=(200,), min_length=1)
    credential: Literal["principal", "none"] = "principal"
    """`none` for what must still work when the principal's access is gone."""

    def variables(self) -> list[str]:
        """The variables that the request uses, without the mark of a number, in order."""
        used = variables(self.path)
        for template in (*self.query.values(), *self.headers.values()):
            used += variables(template)
        for _, text in texts(self.body):
            used += variables(text)
        return [variable.removesuffix(INTEGER) for variable in used]


def call_errors(at: str, call: Call, allowed: Collection[str]) -> Iterator[Finding]:
    """What is wrong in a declared request that may use the `allowed` variables."""
    known = ", ".join(f"{{{name}}}" for name in sorted(allowed)) or "none"
    for variable in dict.fromkeys(call.variables()):
        if variable not in allowed:
            yield at, f"uses the unknown variable {{{variable}}}; known here: {known}"
    if call.body and call.method not in _WITH_BODY:
        yield f"{at}.body", f"has no effect: a {call.method} is sent without a body"
    for header in call.headers:
        reason = header_reason(header)
        if header.lower() == "authorization":
            reason = "is for the credential, which is added when it is sent"
        if reason is not None:
            yield f"{at}.headers.{header}", reason
    yield from query_errors(at, call.query)
    yield from path_errors(at, call.path)
    for status in call.success:
        if status >= 300:
            yield f"{at}.success", f"{status} cannot be there; success is 2xx and nothing else is"
