"""What is wrong between the parts of a request: its headers, its variables, its fields."""

from collections import Counter
from collections.abc import Iterable, Iterator

from oncefence.catalog.bodies import texts
from oncefence.catalog.definitions import ObjectDefinition, OperationDefinition, ProviderPack
from oncefence.catalog.field_values import ClearRule
from oncefence.catalog.findings import Finding, unknown
from oncefence.catalog.form_body import is_form
from oncefence.catalog.replays import KEY_LENGTH
from oncefence.catalog.sendable import (
    RESERVED_HEADERS,
    header_reason,
    path_errors,
    query_errors,
)
from oncefence.catalog.templates import (
    COMMAND,
    FIELD_PREFIX,
    FIELDS,
    REMOTE_ID,
    REMOTE_ID_INTEGER,
    variables,
)


def auth_errors(pack: ProviderPack) -> Iterator[Finding]:
    """What is wrong in the header that carries the credential."""
    if pack.auth.header.lower() in RESERVED_HEADERS - {"authorization"}:
        yield "auth.header", f"{pack.auth.header} is the client's own, or set by media_type"


def header_errors(pack: ProviderPack, at: str, headers: Iterable[str]) -> Iterator[Finding]:
    """What is wrong in one table of headers."""
    for header, count in Counter(header.lower() for header in headers).items():
        reason = header_reason("authorization" if header == pack.auth.header.lower() else header)
        if reason is not None:
            yield f"{at}.{header}", reason
        if count > 1:
            yield f"{at}.{header}", "is given twice in different case"


def trace_errors(pack: ProviderPack) -> Iterator[Finding]:
    """What is wrong in the headers that carry our own ids."""
    taken = {pack.auth.header.lower(), *RESERVED_HEADERS, *(name.lower() for name in pack.headers)}
    for operation in pack.operations.values():
        taken |= {name.lower() for name in operation.request.headers}
        taken |= {header.lower() for _, header in _headers_of_rules(operation)}
    for part in ("attempt_header", "command_header"):
        header = getattr(pack.trace, part)
        if header is not None and header.lower() in taken:
            yield f"trace.{part}", f"{header} is already set otherwise"
        if header is not None:
            taken.add(header.lower())


def request_errors(
    pack: ProviderPack, at: str, operation: OperationDefinition
) -> Iterator[Finding]:
    """What is wrong in an operation's headers, and in its way to send again."""
    request = operation.request
    yield from path_errors(at, operation.path)
    yield from header_errors(pack, f"{at}.request.headers", request.headers)
    yield from query_errors(f"{at}.request", request.query)
    taken = {header.lower() for header in pack.headers}
    for header in request.headers:
        if header.lower() in taken:
            yield f"{at}.request.headers.{header}", "is set by the pack's headers already"
    taken |= {header.lower() for header in request.headers} | RESERVED_HEADERS
    taken.add(pack.auth.header.lower())
    for part, header in _headers_of_rules(operation):
        if header.lower() in taken:
            yield f"{at}.{part}.header", f"{header} is already set otherwise"
        taken.add(header.lower())
    yield from _replay(at, operation)
    yield from _condition(at, operation)


def body_errors(
    at: str, operation: OperationDefinition, target: ObjectDefinition
) -> Iterator[Finding]:
    """What is wrong in the variables of path, query and body."""
    request = operation.request
    used = [variable for _, text in texts(request.body) for variable in variables(text)]
    names_record = {REMOTE_ID, REMOTE_ID_INTEGER} & {*used, *addressed_by(operation)}
    if operation.kind == "update" and not names_record:
        yield f"{at}.path", "{remote_id} is used nowhere, so the request names no record"
    if operation.kind == "create" and names_record:
        yield f"{at}.path", "{remote_id} is used, but a create learns it from the answer"
    placed = [
        variable.removeprefix(FIELD_PREFIX)
        for variable in used
        if variable.startswith(FIELD_PREFIX)
    ]
    if used.count(FIELDS) > 1 or (FIELDS in used and placed):
        yield (
            f"{at}.request.body",
            "places a field twice; use {fields} once or each {field.NAME} once",
        )
    for name, count in Counter(placed).items():
        if name not in target.fields:
            yield f"{at}.request.body", unknown("field", name, target.fields)
        elif count > 1:
            yield f"{at}.request.body", f"places {{field.{name}}} twice"
    if FIELDS not in used and not placed:
        yield f"{at}.request.body", "places no field; use {fields} or {field.NAME}"
    for name in sorted(writable(operation, target)) if is_form(request.media_type) else ():
        if target.fields[name].clear is ClearRule.NULL:
            yield (
                f"{at}.request.media_type",
                f"a form has no null, by which {name} is cleared; use empty_string or refuse",
            )


def addressed_by(operation: OperationDefinition) -> list[str]:
    """The variables of path and query."""
    used = variables(operation.path)
    for template in operation.request.query.values():
        used += variables(template)
    return used


def carries_command(operation: OperationDefinition) -> bool:
    """Whether the provider is told the id of the command."""
    bodies = [variable for _, text in texts(operation.request.body) for variable in variables(text)]
    return COMMAND in (*bodies, *addressed_by(operation))


def writable(operation: OperationDefinition, target: ObjectDefinition) -> set[str]:
    """The fields that the operation's body has a place for."""
    used = {variable for _, text in texts(operation.request.body) for variable in variables(text)}
    if FIELDS in used:
        return set(target.fields)
    return {name for name in target.fields if FIELD_PREFIX + name in used}


def _headers_of_rules(operation: OperationDefinition) -> Iterator[tuple[str, str]]:
    if operation.condition is not None:
        yield "condition", operation.condition.header
    if operation.idempotency is not None:
        yield "idempotency", operation.idempotency.header


def _replay(at: str, operation: OperationDefinition) -> Iterator[Finding]:
    rule = operation.idempotency
    if operation.replay == "idempotency_key" and rule is None:
        yield f"{at}.idempotency", "is required and missing: replay is 'idempotency_key'"
    if operation.replay == "none" and rule is not None:
        yield f"{at}.idempotency", "has no effect: replay is 'none'"
    if rule is not None and rule.key_max_length < KEY_LENGTH:
        yield f"{at}.idempotency.key_max_length", f"is too short: our keys have {KEY_LENGTH}"


def _condition(at: str, operation: OperationDefinition) -> Iterator[Finding]:
    rule = operation.condition
    if rule is None:
        return
    if operation.kind == "create":
        yield f"{at}.condition", "cannot be: a create has no record whose state it could name"
    for status in rule.failed:
        if status not in operation.answer.rejected:
            yield f"{at}.condition.failed", f"{status} must be in answer.rejected"
