"""What no single key shows: rules between the parts of a pack, and between pack and binding."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from json import dumps

from oncefence.catalog.answers import ReceiptSource, ResponseContract
from oncefence.catalog.bindings import IntegrationBinding, OperationBinding
from oncefence.catalog.definitions import ObjectDefinition, OperationDefinition, ProviderPack
from oncefence.catalog.errors import Problem
from oncefence.catalog.lanes import loosened
from oncefence.catalog.lookup import LookupDefinition
from oncefence.catalog.templates import (
    FIELD_PREFIX,
    FIELDS,
    PATH_TRICK_SAMPLES,
    REMOTE_ID,
    REMOTE_ID_INTEGER,
    texts,
    variables,
)
from oncefence.domain.lookup import WAITS_SECONDS

Found = tuple[list[Problem], list[Problem]]
"""Errors and warnings."""

_Finding = tuple[str, str]
"""A key and the reason."""

# Set by the client, by the pack's other keys or by no request of ours at all.
_OWNED_HEADERS = {
    "authorization",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "cookie",
    "expect",
    "host",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
}
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_WITHOUT_BODY = {204, 205, 304}


def key(*parts: str) -> str:
    """A key as TOML spells it: a part that is no bare word is quoted."""
    return ".".join(part if _BARE.fullmatch(part) else dumps(part) for part in parts)


def pack_problems(pack: ProviderPack) -> Found:
    """All that is wrong, and all that is risky, in a pack whose single keys are sound."""
    errors = [
        *_objects(pack),
        *_headers(pack, "headers", pack.headers),
        *_trace(pack),
    ]
    warnings: list[_Finding] = []
    for name, operation in pack.operations.items():
        at = key("operations", name)
        errors += _headers(pack, f"{at}.request.headers", operation.request.headers)
        common = {header.lower() for header in pack.headers}
        for header in operation.request.headers:
            if header.lower() in common:
                errors.append(
                    (f"{at}.request.headers.{header}", "is set by the pack's headers already")
                )
        errors += _answer(f"{at}.answer", operation.answer)
        if operation.object not in pack.objects:
            errors.append((f"{at}.object", _unknown("object", operation.object, pack.objects)))
            continue
        target = pack.objects[operation.object]
        errors += _request(at, operation, target)
        if operation.lookup is not None and operation.lanes.target == "none":
            # What another command of ours wrote would be read as this one's success or failure.
            errors.append(
                (f"{at}.lanes.target", "must be 'link' where there is a lookup of the record")
            )
        if operation.lookup is None:
            warnings.append((f"{at}.lookup", "is missing: every unknown goes to a person"))
            continue
        places = writable(operation, target)
        errors += _lookup(f"{at}.lookup", operation.lookup, places)
        warnings += _lookup_risks(f"{at}.lookup", operation.lookup)
    return _problems(pack.source, errors), _problems(pack.source, warnings)


def binding_problems(pack: ProviderPack, binding: IntegrationBinding) -> Found:
    """All that does not fit between a sound binding and a sound pack."""
    errors: list[_Finding] = []
    if binding.pack != pack.name:
        errors.append(("pack", f"names {binding.pack!r}, but this is the pack {pack.name!r}"))
    for name, bound in binding.operations.items():
        at = key("operations", name)
        definition = pack.operations.get(bound.operation)
        if definition is None:
            reason = _unknown(f"operation of pack {pack.name}", bound.operation, pack.operations)
            errors.append((f"{at}.operation", reason))
            continue
        if bound.remote_object != definition.object:
            errors.append(
                (
                    f"{at}.remote_object",
                    f"must be {definition.object!r}, which {bound.operation} writes",
                )
            )
        errors += [
            (f"{at}.lanes.{part}", why) for part, why in loosened(bound.lanes, definition.lanes)
        ]
        errors += _bound_fields(at, bound, definition, pack.objects[definition.object])
    return _problems(binding.source, errors), []


def _problems(source: str, findings: Iterable[_Finding]) -> list[Problem]:
    return [Problem(file=source, key=at, reason=reason) for at, reason in findings]


def _unknown(kind: str, name: str, known: Iterable[str]) -> str:
    return f"unknown {kind} {name!r}; known: {', '.join(sorted(known))}"


def _objects(pack: ProviderPack) -> Iterator[_Finding]:
    for name, target in pack.objects.items():
        at = key("objects", name)
        users = [operation for operation in pack.operations.values() if operation.object == name]
        if not users:
            yield at, "no operation uses it"
            continue
        placed = set[str]().union(*(writable(operation, target) for operation in users))
        for field in target.fields:
            if field not in placed:
                yield f"{at}.fields.{field}", "no operation's body has a place for it"
        tricks = [sample for sample in PATH_TRICK_SAMPLES if _admits(target.remote_id, sample)]
        if tricks:
            yield (
                f"{at}.remote_id",
                f"admits {tricks[0]!r}, which could lead to another path; name real characters",
            )


def _admits(pattern: str, sample: str) -> bool:
    return re.fullmatch(pattern, sample, re.ASCII) is not None


def _headers(pack: ProviderPack, at: str, headers: Iterable[str]) -> Iterator[_Finding]:
    owned = _OWNED_HEADERS | {pack.auth.header.lower()}
    for header, count in Counter(header.lower() for header in headers).items():
        if header in owned:
            yield f"{at}.{header}", "is not for this table; auth, media_type or the client sets it"
        if count > 1:
            yield f"{at}.{header}", "is given twice in different case"


def _trace(pack: ProviderPack) -> Iterator[_Finding]:
    taken = _OWNED_HEADERS | {pack.auth.header.lower()} | {name.lower() for name in pack.headers}
    for operation in pack.operations.values():
        taken |= {name.lower() for name in operation.request.headers}
    for part in ("attempt_header", "command_header"):
        header = getattr(pack.trace, part)
        if header is not None and header.lower() in taken:
            yield f"trace.{part}", f"{header} is already set otherwise"
        if header is not None:
            taken.add(header.lower())


def _request(
    at: str, operation: OperationDefinition, target: ObjectDefinition
) -> Iterator[_Finding]:
    request = operation.request
    used = [variable for _, text in texts(request.body) for variable in variables(text)]
    addressed = used + variables(operation.path)
    for template in request.query.values():
        addressed += variables(template)
    if REMOTE_ID not in addressed and REMOTE_ID_INTEGER not in addressed:
        yield f"{at}.path", "{remote_id} is used nowhere, so the request names no record"
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
            yield f"{at}.request.body", _unknown("field", name, target.fields)
        elif count > 1:
            yield f"{at}.request.body", f"places {{field.{name}}} twice"
    if FIELDS not in used and not placed:
        yield f"{at}.request.body", "places no field; use {fields} or {field.NAME}"


def writable(operation: OperationDefinition, target: ObjectDefinition) -> set[str]:
    """The fields that the operation's body has a place for."""
    used = {variable for _, text in texts(operation.request.body) for variable in variables(text)}
    if FIELDS in used:
        return set(target.fields)
    return {name for name in target.fields if FIELD_PREFIX + name in used}


def _answer(at: str, answer: ResponseContract) -> Iterator[_Finding]:
    lists = {
        "success": answer.success,
        "rejected": answer.rejected,
        "not_applied": answer.not_applied,
    }
    holder: dict[int, str] = {}
    for name, statuses in lists.items():
        for status in statuses:
            if status in holder:
                yield (
                    f"{at}.{name}",
                    f"{status} is in {holder[status]} too; a status has one meaning",
                )
            holder.setdefault(status, name)
            if (status < 300) != (name == "success"):
                yield (
                    f"{at}.{name}",
                    f"{status} cannot be there; success is 2xx and nothing else is",
                )
            elif name == "rejected" and status >= 500:
                yield f"{at}.{name}", f"{status} tells of a fault, not of a refusal"
        for status in sorted(_WITHOUT_BODY & set(statuses)) if name == "success" else ():
            yield f"{at}.success", f"{status} has no body, so the evidence could never be there"
    for text in answer.wait_min_s:
        if text not in map(str, answer.not_applied):
            yield f"{at}.wait_min_s.{text}", "has no effect: the status is not in not_applied"
    for name, source in answer.receipt.items():
        yield from _receipt(f"{at}.receipt.{name}", source)


def _receipt(at: str, source: ReceiptSource) -> Iterator[_Finding]:
    if (source.body is None) == (source.header is None):
        yield at, "needs either body or header, and only one of them"


def _lookup(at: str, lookup: LookupDefinition, places: set[str]) -> Iterator[_Finding]:
    if lookup.method == "HEAD":
        yield f"{at}.method", "a HEAD answer has no body to compare; use GET"
    used = variables(lookup.path)
    for template in lookup.query.values():
        used += variables(template)
    if REMOTE_ID not in used:
        yield f"{at}.path", "{remote_id} is used nowhere, so the lookup reads no record"
    for status in sorted(set(lookup.found) & set(lookup.not_found)):
        yield f"{at}.not_found", f"{status} is in found too; a status has one meaning"
    for name in lookup.compare:
        if name not in places:
            yield f"{at}.compare.{name}", _unknown("written field", name, places)
    for name in sorted(places - set(lookup.compare)):
        yield f"{at}.compare.{name}", "is missing: a lookup could not tell whether it was written"


def _lookup_risks(at: str, lookup: LookupDefinition) -> Iterator[_Finding]:
    ladder = int(sum(WAITS_SECONDS))
    if lookup.horizon_s > ladder:
        yield (
            f"{at}.horizon_s",
            f"is longer than all lookups together ({ladder} s), so not found ends with a person",
        )
    if lookup.change_time is None:
        yield f"{at}.change_time", "is missing: a different value always ends with a person"


def _bound_fields(
    at: str, bound: OperationBinding, definition: OperationDefinition, target: ObjectDefinition
) -> Iterator[_Finding]:
    places = writable(definition, target)
    holder: dict[str, str] = {}
    for local, field in bound.fields.items():
        here = f"{at}.fields.{local}"
        if field.remote not in places:
            reason = _unknown(f"field of {bound.operation}", field.remote, places)
            yield f"{here}.remote", reason
            continue
        if field.remote in holder:
            yield f"{here}.remote", f"{field.remote} is written by {holder[field.remote]} already"
        holder.setdefault(field.remote, local)
        remote = target.fields[field.remote]
        if field.type != remote.type:
            yield f"{here}.type", f"is {field.type}, but {field.remote} is {remote.type}"
        if (
            field.max_length is not None
            and remote.max_length is not None
            and field.max_length > remote.max_length
        ):
            yield f"{here}.max_length", f"the provider takes at most {remote.max_length}"
