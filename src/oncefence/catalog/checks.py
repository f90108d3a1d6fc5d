"""What no single key shows: rules between the parts of a pack, and between pack and binding."""

import re
from collections.abc import Iterable, Iterator

from oncefence.catalog.answer_checks import answer_errors, answer_risks
from oncefence.catalog.bindings import FieldBinding, IntegrationBinding, OperationBinding
from oncefence.catalog.definitions import (
    FieldDefinition,
    ObjectDefinition,
    OperationDefinition,
    ProviderPack,
)
from oncefence.catalog.errors import Problem
from oncefence.catalog.field_values import FieldType
from oncefence.catalog.findings import Finding, key, unknown
from oncefence.catalog.form_body import is_form
from oncefence.catalog.lanes import loosened
from oncefence.catalog.lookup_checks import lookup_errors, lookup_risks
from oncefence.catalog.request_checks import (
    auth_errors,
    body_errors,
    header_errors,
    request_errors,
    trace_errors,
    writable,
)
from oncefence.catalog.tables import table_findings
from oncefence.catalog.templates import PATH_TRICK_SAMPLES

Found = tuple[list[Problem], list[Problem]]
"""Errors and warnings."""

_TEXT_ALREADY = (FieldType.STRING, FieldType.DATE, FieldType.DATETIME)


def pack_problems(pack: ProviderPack) -> Found:
    """All that is wrong, and all that is risky, in a pack whose single keys are sound."""
    errors = [
        *_objects(pack),
        *auth_errors(pack),
        *header_errors(pack, "headers", pack.headers),
        *trace_errors(pack),
    ]
    warnings: list[Finding] = []
    for name, operation in pack.operations.items():
        at = key("operations", name)
        errors += request_errors(pack, at, operation)
        errors += answer_errors(
            f"{at}.answer", operation.answer, is_create=operation.kind == "create"
        )
        warnings += answer_risks(f"{at}.answer", operation.answer)
        if operation.object not in pack.objects:
            errors.append((f"{at}.object", unknown("object", operation.object, pack.objects)))
            continue
        target = pack.objects[operation.object]
        errors += body_errors(at, operation, target)
        if operation.lookup is None:
            warnings.append((f"{at}.lookup", "is missing: every unknown goes to a person"))
            continue
        places = writable(operation, target)
        errors += lookup_errors(f"{at}.lookup", operation.lookup, operation, places)
        warnings += lookup_risks(f"{at}.lookup", operation.lookup)
    found, risks = table_findings(pack)
    errors += found
    warnings += risks
    return _problems(pack.source, errors), _problems(pack.source, warnings)


def binding_problems(pack: ProviderPack, binding: IntegrationBinding) -> Found:
    """All that does not fit between a sound binding and a sound pack."""
    errors: list[Finding] = []
    if binding.pack != pack.name:
        errors.append(("pack", f"names {binding.pack!r}, but this is the pack {pack.name!r}"))
    for name in binding.quota:
        if name not in pack.quota:
            reason = unknown(f"quota dimension of pack {pack.name}", name, pack.quota)
            errors.append((key("quota", name), reason))
    for name, bound in binding.operations.items():
        at = key("operations", name)
        definition = pack.operations.get(bound.operation)
        if definition is None:
            reason = unknown(f"operation of pack {pack.name}", bound.operation, pack.operations)
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
        errors += _bound_needs(at, bound, definition)
    return _problems(binding.source, errors), []


def _problems(source: str, findings: Iterable[Finding]) -> list[Problem]:
    return [Problem(file=source, key=at, reason=reason) for at, reason in findings]


def _objects(pack: ProviderPack) -> Iterator[Finding]:
    for name, target in pack.objects.items():
        at = key("objects", name)
        users = [operation for operation in pack.operations.values() if operation.object == name]
        if not users:
            yield at, "no operation uses it"
            continue
        placed = set[str]().union(*(writable(operation, target) for operation in users))
        are_forms = all(is_form(operation.request.media_type) for operation in users)
        for field, definition in target.fields.items():
            if field not in placed:
                yield f"{at}.fields.{field}", "no operation's body has a place for it"
            yield from _field(f"{at}.fields.{field}", definition, are_forms=are_forms)
        tricks = [sample for sample in PATH_TRICK_SAMPLES if _admits(target.remote_id, sample)]
        if tricks:
            yield (
                f"{at}.remote_id",
                f"admits {tricks[0]!r}, which could lead to another path; name real characters",
            )


def _field(at: str, field: FieldDefinition, *, are_forms: bool) -> Iterator[Finding]:
    if field.max_length is not None and field.type is not FieldType.STRING:
        yield f"{at}.max_length", f"has no effect on the type {field.type}"
    if field.as_text and field.type in _TEXT_ALREADY:
        yield f"{at}.as_text", f"has no effect on the type {field.type}, which is text anyway"
    elif field.as_text and are_forms:
        yield f"{at}.as_text", "has no effect: in a form everything is text"


def _admits(pattern: str, sample: str) -> bool:
    return re.fullmatch(pattern, sample, re.ASCII) is not None


def _bound_fields(
    at: str, bound: OperationBinding, definition: OperationDefinition, target: ObjectDefinition
) -> Iterator[Finding]:
    places = writable(definition, target)
    holder: dict[str, str] = {}
    for local, field in bound.fields.items():
        here = f"{at}.fields.{local}"
        if field.remote not in places:
            reason = unknown(f"field of {bound.operation}", field.remote, places)
            yield f"{here}.remote", reason
            continue
        if field.remote in holder:
            yield f"{here}.remote", f"{field.remote} is written by {holder[field.remote]} already"
        holder.setdefault(field.remote, local)
        yield from _bound_field(here, field, target.fields[field.remote])


def _bound_field(at: str, field: FieldBinding, remote: FieldDefinition) -> Iterator[Finding]:
    if field.type != remote.type:
        yield f"{at}.type", f"is {field.type}, but {field.remote} is {remote.type}"
    if field.max_length is None:
        return
    if field.type is not FieldType.STRING:
        yield f"{at}.max_length", f"has no effect on the type {field.type}"
    elif remote.max_length is not None and field.max_length > remote.max_length:
        yield f"{at}.max_length", f"the provider takes at most {remote.max_length}"


def _bound_needs(
    at: str, bound: OperationBinding, definition: OperationDefinition
) -> Iterator[Finding]:
    condition = definition.condition
    if condition is not None and condition.payload_key in bound.fields:
        yield (
            f"{at}.fields.{condition.payload_key}",
            f"is the payload key of {bound.operation}'s condition; name the field otherwise",
        )
    if bound.user is not None and bound.user in bound.fields:
        yield f"{at}.user", "is a field that is written too; name the person under another key"
    elif bound.user is not None and condition is not None and condition.payload_key == bound.user:
        yield f"{at}.user", f"is the payload key of {bound.operation}'s condition"
    needed = definition.lookup.fields_used() if definition.lookup is not None else set()
    given = {field.remote for field in bound.fields.values() if field.required}
    for name in sorted(needed - given):
        yield (
            f"{at}.fields",
            f"must bind {name} with required = true: a lookup finds the new record by it",
        )
