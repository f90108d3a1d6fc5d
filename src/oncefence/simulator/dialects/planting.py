"""
Documents in which a pack's expressions find what they look for.

An expression is followed through its own parts, and what it reads on its way is put there. What
cannot be followed is said so when the pack is read, not when a request comes.
"""

from typing import Any

import jmespath
from jmespath.exceptions import JMESPathError
from jmespath.visitor import TreeInterpreter

_IDENTITY = {"to_string", "to_number", "not_null", "trim", "values", "keys", "length", "join"}
_PRESENT = "present"


class NotPlantable(Exception):
    """No document can be made for this expression."""


def planted(document: Any, expression: str, value: Any) -> Any:
    """
    The document with `value` where the expression looks.

    Raises:
        NotPlantable: It looks in a way that cannot be followed.
    """
    try:
        tree = jmespath.compile(expression).parsed
    except JMESPathError as reason:
        raise NotPlantable(f"{expression} is no JMESPath expression") from reason
    return _plant(document, tree, value)


def shown(document: Any, expression: str, value: Any = _PRESENT) -> Any:
    """
    The document in which the expression finds something; one that has it is left as it is.

    Raises:
        NotPlantable: It could not be made to find anything.
    """
    if found(document, expression) is not None:
        return document
    after = planted(document, expression, value)
    if found(after, expression) is None:
        raise NotPlantable(f"{expression} cannot be made to find anything")
    return after


def satisfied(document: Any, expression: str) -> Any:
    """
    The document in which the expression holds.

    Raises:
        NotPlantable: It could not be made to hold.
    """
    if found(document, expression):
        return document
    after = planted(document, expression, _PRESENT)
    if not found(after, expression):
        raise NotPlantable(f"{expression} cannot be made to hold")
    return after


def found(document: Any, expression: str) -> Any:
    """What the expression finds, or None."""
    try:
        return jmespath.search(expression, document)
    except JMESPathError:
        return None


def _plant(document: Any, node: Any, value: Any) -> Any:
    children: list[Any] = node["children"]
    match node["type"]:
        case "field":
            members = document if isinstance(document, dict) else {}
            return {**members, node["value"]: value}
        case "current" | "identity":
            return value
        case "index":
            place = node["value"]
            items = list(document) if isinstance(document, list) else []
            size = place + 1 if place >= 0 else -place
            items += [None] * (size - len(items))
            items[place] = value
            return items
        case "subexpression" | "index_expression" | "pipe":
            return _plant_along(document, children, value)
        case "or_expression":
            return _plant(document, children[0], value)
        case "and_expression":
            return _plant(_plant(document, children[0], value), children[1], value)
        case "comparator" if node["value"] == "eq":
            return _plant_equal(document, children)
        case "projection" | "filter_projection":
            item = _plant(None, children[1], value)
            if node["type"] == "filter_projection":
                item = _plant(item, children[2], value)
            return _plant(document, children[0], [item])
        case "function_expression" if node["value"] in _IDENTITY:
            return _plant(document, children[-1 if node["value"] == "join" else 0], value)
        case kind:
            raise NotPlantable(f"{kind} cannot be followed")


def _plant_along(document: Any, path: list[Any], value: Any) -> Any:
    first, *rest = path
    if not rest:
        return _plant(document, first, value)
    there = TreeInterpreter().visit(first, document)
    return _plant(document, first, _plant_along(there, rest, value))


def _plant_equal(document: Any, sides: list[Any]) -> Any:
    left, right = sides
    if right["type"] == "literal":
        return _plant(document, left, right["value"])
    if left["type"] == "literal":
        return _plant(document, right, left["value"])
    raise NotPlantable("a comparison of two places cannot be followed")
