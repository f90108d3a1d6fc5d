"""Stripe's lists and its search: newest first, pages by record or by token."""

import base64
import binascii
import re
from collections.abc import Callable, Sequence
from typing import Any

from oncefence.simulator.contacts import Contact
from oncefence.simulator.dialects.protocol import Search

_SIZE_DEFAULT = 10
_SIZE_MAX = 100
_SEARCHED = frozenset({"email", "name", "phone", "created"})
_CLAUSE = re.compile(
    r"\s*(?P<not>-)?(?P<field>\w+)(?:\[(?P<quote>['\"])(?P<key>[^'\"]+)(?P=quote)\])?"
    r"\s*(?P<operator>:|~|>=|<=|>|<)\s*"
    r"(?P<value>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|-?[0-9]+|null)"
)
_BETWEEN = re.compile(r"\s+(AND|OR)\s+")
_CREATED = re.compile(r"created(?:\[(gte?|lte?)\])?")
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "gte": lambda found, wanted: bool(found >= wanted),
    "gt": lambda found, wanted: bool(found > wanted),
    "lte": lambda found, wanted: bool(found <= wanted),
    "lt": lambda found, wanted: bool(found < wanted),
    "": lambda found, wanted: bool(found == wanted),
}
_NAMES = {">=": "gte", ">": "gt", "<=": "lte", "<": "lt", ":": ""}

FieldOf = Callable[[Contact, str], Any]
Matches = Callable[[Contact], bool]


class QueryRefused(Exception):
    """A parameter cannot be taken; `code` is the provider's word for why."""

    def __init__(self, message: str, parameter: str, code: str) -> None:
        super().__init__(message)
        self.parameter = parameter
        self.code = code


def read_list(
    query: Sequence[tuple[str, str]], known: Sequence[Contact], field_of: FieldOf
) -> Search:
    """
    A list by record: `starting_after` names the last one of the page before.

    Raises:
        QueryRefused: A parameter is unknown or cannot be.
    """
    matches: list[Matches] = []
    size, after = _SIZE_DEFAULT, None
    for name, value in query:
        created = _CREATED.fullmatch(name)
        if name == "limit":
            size = _size(value)
        elif name == "email":
            matches.append(_equal(field_of, "email", value))
        elif created is not None:
            matches.append(_created(field_of, _COMPARISONS[created[1] or ""], value, name))
        elif name == "starting_after":
            if all(contact.id != value for contact in known):
                raise QueryRefused(f"no such customer: '{value}'", name, "resource_missing")
            after = value
        elif name != "expand[]":
            raise QueryRefused(f"received unknown parameter: {name}", name, "parameter_unknown")

    def start(ordered: Sequence[Contact]) -> int:
        places = [index for index, contact in enumerate(ordered) if contact.id == after]
        return places[0] + 1 if places else 0

    return _newest_first(matches, start=start, size=size, route="list")


def read_search(query: Sequence[tuple[str, str]], field_of: FieldOf) -> Search:
    """
    A search by the query language.

    Raises:
        QueryRefused: The query is none.
    """
    given = dict(query)
    for name in given.keys() - {"query", "limit", "page", "expand[]"}:
        raise QueryRefused(f"received unknown parameter: {name}", name, "parameter_unknown")
    if "query" not in given:
        raise QueryRefused("missing required param: query", "query", "parameter_missing")
    begin = _offset(given["page"]) if "page" in given else 0
    return _newest_first(
        [_query(given["query"], field_of)],
        start=lambda _: begin,
        size=_size(given.get("limit", str(_SIZE_DEFAULT))),
        route="search",
    )


def page_token(end: int) -> str:
    """Where the next page of a search begins, as the answer says it."""
    return base64.urlsafe_b64encode(f"page:{end}".encode()).decode()


def _newest_first(
    matches: Sequence[Matches], *, start: Callable[[Sequence[Contact]], int], size: int, route: str
) -> Search:
    return Search(
        matches=lambda contact: all(each(contact) for each in matches),
        order=lambda contact: (contact.created_at, contact.id),
        is_descending=True,
        start=start,
        size=size,
        route=route,
        asked={},
    )


def _query(text: str, field_of: FieldOf) -> Matches:
    clauses, words, place = [], set(), 0
    while True:
        clause = _CLAUSE.match(text, place)
        if clause is None:
            raise QueryRefused(f"the query cannot be read from {text[place:]!r}", "query", "")
        clauses.append(_clause(clause, field_of))
        between = _BETWEEN.match(text, clause.end())
        if between is None:
            break
        words.add(between[1])
        place = between.end()
    if text[clause.end() :].strip() or len(words) > 1:
        raise QueryRefused("a query is clauses with AND or with OR between", "query", "")
    judge = any if words == {"OR"} else all
    return lambda contact: judge(each(contact) for each in clauses)


def _clause(clause: re.Match[str], field_of: FieldOf) -> Matches:
    name, key, operator = clause["field"], clause["key"], clause["operator"]
    if (name == "metadata") is (key is None) or (key is None and name not in _SEARCHED):
        raise QueryRefused(f"{name} cannot be searched", "query", "")
    field = f"{name}[{key}]" if key is not None else name
    value, is_not = clause["value"], clause["not"] is not None
    matches: Matches
    if value == "null":
        matches = lambda contact: field_of(contact, field) is None  # noqa: E731
    elif value[0] not in "'\"":
        if name != "created" or operator == "~":
            raise QueryRefused(f"{name} is compared with a text in quotes", "query", "")
        matches = _created(field_of, _COMPARISONS[_NAMES[operator]], value, "query")
    else:
        text = re.sub(r"\\(.)", r"\1", value[1:-1])
        if operator not in (":", "~") or name == "created":
            raise QueryRefused(f"{name} cannot be compared by {operator}", "query", "")
        matches = _equal(field_of, field, text) if operator == ":" else _part(field_of, field, text)
    return (lambda contact: not matches(contact)) if is_not else matches


def _equal(field_of: FieldOf, field: str, text: str) -> Matches:
    return lambda contact: str(field_of(contact, field) or "").lower() == text.lower()


def _part(field_of: FieldOf, field: str, text: str) -> Matches:
    if len(text) < 3:  # the provider's own least
        raise QueryRefused("a part of a text has at least 3 characters", "query", "")
    return lambda contact: text.lower() in str(field_of(contact, field) or "").lower()


def _created(
    field_of: FieldOf, compare: Callable[[Any, Any], bool], value: str, parameter: str
) -> Matches:
    if not re.fullmatch("-?[0-9]{1,12}", value):
        raise QueryRefused(f"invalid integer: {value}", parameter, "parameter_invalid_integer")
    return lambda contact: compare(field_of(contact, "created"), int(value))


def _size(text: str) -> int:
    if not re.fullmatch("[0-9]{1,4}", text) or not 1 <= int(text) <= _SIZE_MAX:
        raise QueryRefused(f"limit is 1 to {_SIZE_MAX}", "limit", "parameter_invalid_integer")
    return int(text)


def _offset(token: str) -> int:
    try:
        text = base64.urlsafe_b64decode(token).decode()
    except (binascii.Error, ValueError):
        text = ""
    if not re.fullmatch("page:[0-9]{1,9}", text):
        raise QueryRefused("the page is not one of ours", "page", "")
    return int(text.removeprefix("page:"))
