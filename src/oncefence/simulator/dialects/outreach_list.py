"""Outreach's list request: filters in two spellings, sorting, and a cursor of value and id."""

import base64
import binascii
import json
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from oncefence.simulator.contacts import Contact
from oncefence.simulator.dialects.protocol import Search
from oncefence.simulator.wire import Head

_SIZE_DEFAULT = 50
_SIZE_MAX = 1_000
_OFFSET_MAX = 10_000
_TIMES = frozenset({"createdAt", "updatedAt", "trashedAt"})
_FILTERED = frozenset(
    {"emails", "tags", "firstName", "lastName", "title", "company", "externalSource", "externalId"}
    | {"id", *_TIMES}
)
_SORTED = frozenset({"id", "createdAt", "updatedAt", "firstName", "lastName", "title"})
_FILTER = re.compile(r"filter\[(?P<name>\w+)\](?:\[(?P<operator>\w*)\])?", re.ASCII)
_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "gte": lambda found, wanted: bool(found >= wanted),
    "gt": lambda found, wanted: bool(found > wanted),
    "lte": lambda found, wanted: bool(found <= wanted),
    "lt": lambda found, wanted: bool(found < wanted),
}

AttributeOf = Callable[[Contact, str], Any]
Matches = Callable[[Contact], bool]


class ListRefused(Exception):
    """The request is no list; the message says why."""

    def __init__(self, message: str, status: int = 422) -> None:
        super().__init__(message)
        self.status = status


def read_list(head: Head, attribute_of: AttributeOf) -> Search:
    """
    The list.

    Raises:
        ListRefused: The provider would refuse it.
    """
    query = dict(head.query)
    is_new = query.get("newFilterSyntax") == "true"
    filters = [
        _filter(name, value, is_new=is_new, attribute_of=attribute_of)
        for name, value in _grouped(head.query)
    ]
    names, is_descending = _sort(query.get("sort", "id"))
    start, size = _page(query, names, attribute_of, is_descending=is_descending)
    shows = query.get("fields[prospect]", "")
    base = f"http://{head.headers.get('host', 'localhost')}{head.path}"
    others = [
        f"{quote(name, safe='[]')}={quote(value)}"
        for name, value in head.query
        if not name.startswith("page[")
    ]
    first = f"{base}?{'&'.join([*others, f'page[size]={size}'])}"
    return Search(
        matches=lambda contact: all(each(contact) for each in filters),
        order=lambda contact: _position(contact, names, attribute_of),
        is_descending=is_descending,
        start=start,
        size=size,
        shows=tuple(name for name in shows.split(",") if name),
        asked={
            "first": first,
            "next": f"{first}&page[after]={{after}}",
            "counts": query.get("count") != "false",
            "sort": [(name, attribute_of) for name in names],
        },
    )


def cursor_of(
    contact: Contact, sort: Sequence[tuple[str, AttributeOf]], is_descending: bool
) -> str:
    """Where the next page goes on: the last value of the sort, and the last id."""
    names = [name for name, _ in sort]
    last = _position(contact, names, sort[0][1])
    text = json.dumps({"sort": names, "descending": is_descending, "last": last})
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _grouped(query: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """The filters; the members of an array as one list with commas."""
    grouped: dict[str, str] = {}
    for name, value in query:
        if name.startswith("filter["):
            is_more = name.endswith("[]") and name in grouped
            grouped[name] = f"{grouped[name]},{value}" if is_more else value
    return list(grouped.items())


def _filter(key: str, value: str, *, is_new: bool, attribute_of: AttributeOf) -> Matches:
    match = _FILTER.fullmatch(key)
    if match is None or match["name"] not in _FILTERED:
        raise ListRefused(f"{key} is no filter of a prospect", 400)
    name, operator = match["name"], match["operator"]
    if operator is not None and not is_new:
        raise ListRefused(f"{key} needs newFilterSyntax=true", 400)
    if operator:
        if operator not in _OPERATORS:
            raise ListRefused(f"{key} has no operator {operator}", 400)
        compare, wanted = _OPERATORS[operator], _value(name, value)
        return lambda contact: any(
            compare(each, wanted) for each in _values(contact, name, attribute_of)
        )
    if value in ("__null__", "__notnull__"):
        is_null = value == "__null__"
        return lambda contact: (attribute_of(contact, name) is None) is is_null
    low, dots, high = value.partition("..")
    if dots:
        least = None if low == "neginf" else _value(name, low)
        most = None if high == "inf" else _value(name, high)
        return lambda contact: any(
            (least is None or each >= least) and (most is None or each <= most)
            for each in _values(contact, name, attribute_of)
        )
    wanted_ones = [_value(name, each) for each in value.split(",")]
    return lambda contact: any(each in wanted_ones for each in _values(contact, name, attribute_of))


def _values(contact: Contact, name: str, attribute_of: AttributeOf) -> list[Any]:
    """What the record has under the name, each ready to be compared."""
    found = attribute_of(contact, name)
    if found is None:
        return []
    return [_value(name, str(each)) for each in (found if isinstance(found, list) else [found])]


def _value(name: str, text: str) -> Any:  # a number, a time or a text, by the attribute
    try:
        if name == "id":
            return int(text)
        if name in _TIMES:
            moment = datetime.fromisoformat(text)
            return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    except ValueError as reason:
        raise ListRefused(f"{text!r} is no value of {name}") from reason
    return text


def _sort(text: str) -> tuple[list[str], bool]:
    names = text.split(",")
    directions = {name.startswith("-") for name in names}
    plain = [name.removeprefix("-") for name in names]
    if len(directions) > 1:
        raise ListRefused("this simulator sorts all names in one direction")
    for name in plain:
        if name not in _SORTED:
            raise ListRefused(f"a list cannot be sorted by {name}")
    return plain, directions == {True}


def _page(
    query: dict[str, str], names: list[str], attribute_of: AttributeOf, *, is_descending: bool
) -> tuple[Callable[[Sequence[Contact]], int], int]:
    size = _whole(query.get("page[size]", query.get("page[limit]", str(_SIZE_DEFAULT))), "size")
    if not 1 <= size <= _SIZE_MAX:
        raise ListRefused(f"a page has 1 to {_SIZE_MAX} records")
    offset = _whole(query.get("page[offset]", "0"), "offset")
    if offset > _OFFSET_MAX:
        raise ListRefused(f"an offset is at most {_OFFSET_MAX}")
    if "page[after]" not in query:
        return lambda _: offset, size
    after = _cursor(query["page[after]"], names, is_descending=is_descending)

    def start(ordered: Sequence[Contact]) -> int:
        for index, contact in enumerate(ordered):
            position = _position(contact, names, attribute_of)
            if position < after if is_descending else position > after:
                return index
        return len(ordered)

    return start, size


def _cursor(text: str, names: list[str], *, is_descending: bool) -> list[Any]:
    try:
        content = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        if content["sort"] != names or content["descending"] is not is_descending:
            raise ListRefused("the cursor is of another list", 400)
        last: list[Any] = content["last"]
    except (binascii.Error, ValueError, KeyError, TypeError) as reason:
        raise ListRefused("the cursor is not one of ours", 400) from reason
    return last


def _position(contact: Contact, names: Sequence[str], attribute_of: AttributeOf) -> list[Any]:
    """Where the record stands in the order; equal values are told apart by id."""
    values = [attribute_of(contact, name) for name in names]
    return [*("" if value is None else value for value in values), int(contact.id)]


def _whole(text: str, name: str) -> int:
    if not re.fullmatch("[0-9]{1,7}", text):
        raise ListRefused(f"page {name} must be a whole number")
    return int(text)
