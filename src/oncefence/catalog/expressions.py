"""JMESPath as packs use it: checked when a pack is read, harmless when an answer surprises."""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Annotated, Final

import jmespath
from jmespath.exceptions import JMESPathError
from jmespath.functions import Functions
from jmespath.parser import ParsedResult
from pydantic import AfterValidator

EMPTY_ANSWERS: Final[tuple[object, ...]] = (None, {}, [], "")
"""What holds nothing. An expression that finds something in one of them says nothing of any."""

# What evaluating can raise beside the library's own error: it orders texts against numbers, looks
# for a number in a text, and takes steps of zero, infinite numbers and any depth as they come.
_UNFORESEEN: Final = (TypeError, ValueError, ArithmeticError, RecursionError)


@lru_cache(maxsize=1024)
def _compiled(expression: str) -> ParsedResult:
    return jmespath.compile(expression)


def check_expression(expression: str) -> str:
    """
    The expression, if it compiles and looks at the answer.

    Raises:
        ValueError: Saying why a pack must not hold it.
    """
    try:
        nodes = list(_nodes(_compiled(expression).parsed))
    except JMESPathError as error:
        column = getattr(error, "lex_position", getattr(error, "lexer_position", None))
        place = "" if column is None else f" (column {column + 1})"
        raise ValueError(f"is not a JMESPath expression{place}") from None
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    for node in nodes:
        if node["type"] == "function_expression" and node["value"] not in Functions.FUNCTION_TABLE:
            raise ValueError(f"JMESPath has no function {node['value']}()")
    # A literal is never null, so as evidence it would accept any answer at all.
    if not any(node["type"] in ("field", "index") for node in nodes):
        raise ValueError("reads nothing of the answer")
    return expression


def _nodes(node: Mapping[str, object]) -> Iterator[Mapping[str, object]]:
    yield node
    children = node.get("children")
    for child in children if isinstance(children, list | tuple) else ():
        if isinstance(child, Mapping):
            yield from _nodes(child)


def find(expression: str, document: object) -> object:
    """What the expression finds, or None; an answer of another shape finds nothing."""
    try:
        return _compiled(expression).search(document)
    except (JMESPathError, *_UNFORESEEN):
        # A function met a type that it does not take: the answer is not of the declared shape.
        return None


def shows(expression: str, document: object) -> bool:
    """Whether the expression finds evidence: neither null nor false, nor a list of nothing."""
    found = find(expression, document)
    return found is not None and found is not False and found != []


def holds(expression: str, document: object) -> bool:
    """Whether the expression finds more than null, false, zero or something empty."""
    return bool(find(expression, document))


def identity_text(value: object) -> str | None:
    """An id as text; some providers write ids as JSON integers."""
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return None


JmesPath = Annotated[str, AfterValidator(check_expression)]
