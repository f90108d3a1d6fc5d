"""What is wrong in a lookup: what it cannot find, cannot compare, or need not say."""

from collections.abc import Iterator

from oncefence.catalog.answer_checks import evidence_errors
from oncefence.catalog.creates import QueryRule
from oncefence.catalog.definitions import OperationDefinition
from oncefence.catalog.findings import Finding, unknown
from oncefence.catalog.lookup import LookupDefinition
from oncefence.catalog.request_checks import carries_command
from oncefence.catalog.sendable import path_errors, query_errors
from oncefence.catalog.templates import COMMAND, FIELD_PREFIX, REMOTE_ID, variables
from oncefence.domain.lookup import WAITS_SECONDS


def lookup_errors(
    at: str, lookup: LookupDefinition, operation: OperationDefinition, places: set[str]
) -> Iterator[Finding]:
    """All that no single key of `lookup` shows; `places` are the fields that are written."""
    yield from path_errors(at, lookup.path)
    yield from query_errors(at, lookup.query)
    yield from evidence_errors(at, lookup.evidence, lookup.identity)
    if lookup.method == "HEAD":
        yield f"{at}.method", "a HEAD answer has no body to compare; use GET"
    for status in sorted(set(lookup.found) & set(lookup.not_found)):
        yield f"{at}.not_found", f"{status} is in found too; a status has one meaning"
    if operation.kind == "create":
        yield from _by_query(at, lookup, operation, places)
    else:
        yield from _by_id(at, lookup, operation, places)


def lookup_risks(at: str, lookup: LookupDefinition) -> Iterator[Finding]:
    """What is sound and still leaves unknowns to people."""
    ladder = int(sum(WAITS_SECONDS))
    if lookup.horizon_s > ladder:
        yield (
            f"{at}.horizon_s",
            f"is longer than all lookups together ({ladder} s), so not found ends with a person",
        )
    if lookup.kind == "by_id" and lookup.change_time is None:
        yield f"{at}.change_time", "is missing: a different value always ends with a person"
    if lookup.key_strength == "fuzzy":
        yield f"{at}.key_strength", "proves nothing by itself: every unknown ends with a person"


def _by_id(
    at: str, lookup: LookupDefinition, operation: OperationDefinition, places: set[str]
) -> Iterator[Finding]:
    if lookup.kind != "by_id":
        yield f"{at}.kind", "must be 'by_id': an update's record is known"
        return
    if operation.lanes.target == "none":
        # What another command of ours wrote would be read as this one's success or failure.
        lanes = f"{at.removesuffix('.lookup')}.lanes.target"
        yield lanes, "must be 'link' where there is a lookup of the record"
    if lookup.key_strength != "object_by_id":
        yield f"{at}.key_strength", "must be 'object_by_id' for a lookup by id"
    if lookup.completeness != "exact":
        yield f"{at}.completeness", "must be 'exact' for a lookup by id"
    if REMOTE_ID not in _used(lookup):
        yield f"{at}.path", "{remote_id} is used nowhere, so the lookup reads no record"
    if lookup.search is not None:
        yield f"{at}.search", "has no effect on a lookup by id"
    if not lookup.not_found:
        yield f"{at}.not_found", "is required and missing"
    for name in lookup.compare:
        if name not in places:
            yield f"{at}.compare.{name}", unknown("written field", name, places)
    for name in sorted(places - set(lookup.compare)):
        yield f"{at}.compare.{name}", "is missing: a lookup could not tell whether it was written"
    for name in sorted(lookup.fields_used()):
        yield f"{at}.query", f"{{field.{name}}} has no use: a lookup by id reads by {{remote_id}}"


def _by_query(
    at: str, lookup: LookupDefinition, operation: OperationDefinition, places: set[str]
) -> Iterator[Finding]:
    if lookup.kind != "by_query":
        yield f"{at}.kind", "must be 'by_query': a create's record is not known yet"
        return
    if lookup.key_strength == "object_by_id":
        yield (
            f"{at}.key_strength",
            "must be 'idempotency_key', 'unique_property' or 'fuzzy' for a lookup by query",
        )
    if REMOTE_ID in _used(lookup):
        yield f"{at}.path", "{remote_id} is used, but a create's record is not known yet"
    if not any(name == COMMAND or name.startswith(FIELD_PREFIX) for name in _used(lookup)):
        yield f"{at}.query", "asks the same for every create; use {command} or {field.NAME}"
    for name in ("not_found", "compare", "change_time"):
        if getattr(lookup, name):
            yield f"{at}.{name}", "has no effect on a lookup by query"
    for name in sorted(lookup.fields_used() - places):
        yield f"{at}.query", unknown("written field", name, places)
    if lookup.search is None:
        yield f"{at}.search", "is required and missing for a lookup by query"
        return
    yield from _search(f"{at}.search", lookup, lookup.search, operation)


def _search(
    at: str, lookup: LookupDefinition, rule: QueryRule, operation: OperationDefinition
) -> Iterator[Finding]:
    matched = {name for template in rule.match.values() for name in variables(template)}
    if COMMAND in matched and not carries_command(operation):
        yield f"{at}.match", "looks for {command}, which the request writes nowhere"
    if lookup.key_strength == "idempotency_key" and COMMAND not in matched:
        yield f"{at}.match", "must use {command}, or key_strength be 'unique_property'"
    if lookup.completeness == "capped" and rule.cap is None:
        yield f"{at}.cap", "is required and missing where completeness is 'capped'"
    for name in ("cap", "more"):
        if lookup.completeness == "exact" and getattr(rule, name) is not None:
            yield f"{at}.{name}", "has no effect: completeness is 'exact'"
    if lookup.key_strength == "unique_property" and rule.created_time is None:
        yield (
            f"{at}.created_time",
            "is required and missing: a record that was there before would be taken for ours",
        )
    if lookup.key_strength == "idempotency_key" and rule.created_time is not None:
        yield f"{at}.created_time", "has no effect: the command's id is in no older record"


def _used(lookup: LookupDefinition) -> list[str]:
    used = variables(lookup.path)
    for template in lookup.query.values():
        used += variables(template)
    return used
