"""HubSpot's search request: groups of filters, one sort, and a page by offset."""

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from oncefence.simulator.contacts import Contact
from oncefence.simulator.dialects.hubspot_contacts import DEFAULT_PROPERTIES
from oncefence.simulator.dialects.protocol import Search

_GROUPS_MAX = 5
_FILTERS_MAX = 6
_PAGE_MAX = 200
_RESULTS_MAX = 10_000
_PAGE_DEFAULT = 10
_TEXT_PROPERTIES = ("email", "firstname", "lastname", "company", "phone", "jobtitle", "website")
_KEYS = {"filterGroups", "sorts", "query", "properties", "limit", "after"}

PropertyOf = Callable[[Contact, str], str | None]
Matches = Callable[[Contact], bool]


class SearchRefused(Exception):
    """The request is no search; the message says why."""


def read_search(content: object, property_of: PropertyOf) -> Search:
    """
    The search.

    Raises:
        SearchRefused: The provider would answer 400.
    """
    if not isinstance(content, dict) or set(content) - _KEYS:
        raise SearchRefused(f"the body must be an object with keys of {sorted(_KEYS)}")
    matches = _groups(content.get("filterGroups", []), property_of)
    words = _text(content.get("query", ""), "query").lower().split()
    size, after = content.get("limit", _PAGE_DEFAULT), content.get("after", 0)
    start = int(after) if re.fullmatch("[0-9]{1,6}", str(after)) else -1
    if not isinstance(size, int) or isinstance(size, bool) or not 1 <= size <= _PAGE_MAX:
        raise SearchRefused(f"limit must be 1 to {_PAGE_MAX}")
    if start < 0 or start + size > _RESULTS_MAX:
        raise SearchRefused(f"after and limit must stay within {_RESULTS_MAX} results")
    name, is_descending = _sort(content.get("sorts", []))
    shows = content.get("properties") or DEFAULT_PROPERTIES

    def has_words(contact: Contact) -> bool:
        text = " ".join(property_of(contact, each) or "" for each in _TEXT_PROPERTIES).lower()
        return all(word in text for word in words)

    return Search(
        matches=lambda contact: matches(contact) and has_words(contact),
        order=lambda contact: _comparable(property_of(contact, name) or ""),
        is_descending=is_descending,
        start=lambda _: start,
        size=size,
        shows=tuple(_text(each, "properties") for each in _list(shows, "properties")),
        asked={},
    )


def _groups(groups: object, property_of: PropertyOf) -> Matches:
    each_matches = []
    for group in _list(groups, "filterGroups"):
        filters = _list(group.get("filters") if isinstance(group, dict) else None, "filters")
        if not 1 <= len(filters) <= _FILTERS_MAX:
            raise SearchRefused(f"a group has 1 to {_FILTERS_MAX} filters")
        each_matches.append([_filter(each, property_of) for each in filters])
    if len(each_matches) > _GROUPS_MAX:
        raise SearchRefused(f"there are at most {_GROUPS_MAX} groups")
    if not each_matches:
        return lambda _: True
    return lambda contact: any(all(each(contact) for each in group) for group in each_matches)


def _filter(content: object, property_of: PropertyOf) -> Matches:
    if not isinstance(content, dict):
        raise SearchRefused("a filter is an object")
    name = _text(content.get("propertyName"), "propertyName")
    operator = _text(content.get("operator"), "operator")

    def given(contact: Contact) -> str | None:
        return property_of(contact, name) or None

    match operator:
        case "HAS_PROPERTY":
            return lambda contact: given(contact) is not None
        case "NOT_HAS_PROPERTY":
            return lambda contact: given(contact) is None
        case "IN" | "NOT_IN":
            wanted = {_text(each, "values").lower() for each in _list(content.get("values"), name)}
            is_in = operator == "IN"
            return lambda contact: ((given(contact) or "").lower() in wanted) is is_in
        case "BETWEEN":
            low = _comparable(_text(content.get("value"), "value"))
            high = _comparable(_text(content.get("highValue"), "highValue"))
            return lambda contact: (
                given(contact) is not None and low <= _comparable(given(contact) or "") <= high
            )
        case _:
            return _comparison(operator, _text(content.get("value"), "value"), given)


def _comparison(operator: str, value: str, given: Callable[[Contact], str | None]) -> Matches:
    wanted = _comparable(value)
    compare: dict[str, Callable[[Any], bool]] = {
        "EQ": lambda found: found == wanted,
        "NEQ": lambda found: found != wanted,
        "LT": lambda found: found < wanted,
        "LTE": lambda found: found <= wanted,
        "GT": lambda found: found > wanted,
        "GTE": lambda found: found >= wanted,
    }
    word = value.strip("*").lower()
    if operator == "CONTAINS_TOKEN":
        return lambda contact: word in (given(contact) or "").lower()
    if operator == "NOT_CONTAINS_TOKEN":
        return lambda contact: word not in (given(contact) or "").lower()
    if operator not in compare:
        raise SearchRefused(f"there is no operator {operator}")
    # What has no value is greater and less than nothing, and other than all.
    if_absent = operator == "NEQ"
    return lambda contact: (
        if_absent if (found := given(contact)) is None else compare[operator](_comparable(found))
    )


def _sort(sorts: object) -> tuple[str, bool]:
    given = _list(sorts, "sorts")
    if len(given) > 1:
        raise SearchRefused("there is at most one sort")
    if not given:
        return "createdate", False
    first = given[0]
    if isinstance(first, str):
        return first.removeprefix("-"), first.startswith("-")
    if not isinstance(first, dict):
        raise SearchRefused("a sort is an object or a name")
    return _text(first.get("propertyName"), "propertyName"), first.get("direction") == "DESCENDING"


def _comparable(text: str) -> tuple[int, Any]:
    """A value that can be ordered: times and numbers by what they mean, before all other text."""
    moment = _moment(text)
    if moment is not None:
        return (0, moment)
    return (1, text.lower())


def _moment(text: str) -> Decimal | None:
    # Times are written as ISO 8601 or as milliseconds since 1970: both become the latter.
    try:
        number = Decimal(text)
        return number if number.is_finite() else None
    except InvalidOperation:
        pass  # no number; it may be a time
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return Decimal(round(moment.timestamp() * 1000))


def _list(content: object, name: str) -> Sequence[Any]:
    if not isinstance(content, list | tuple):
        raise SearchRefused(f"{name} must be a list")
    return content


def _text(content: object, name: str) -> str:
    if isinstance(content, int) and not isinstance(content, bool):
        return str(content)
    if not isinstance(content, str):
        raise SearchRefused(f"{name} must be a string")
    return content
