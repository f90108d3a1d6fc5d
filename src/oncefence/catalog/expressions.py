"""JMESPath as packs use it: checked when a pack is read, harmless when an answer surprises."""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Annotated

import jmespath
from jmespath.exceptions import JMESPathError
from jmespath.functions import Functions
from jmespath.parser import ParsedResult
from pydantic import AfterValidator


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
        parsed = _compiled(expression)
    except JMESPathError as error:
        column = getattr(error, "lex_position", getattr(error, "lexer_position", None))
        place = "" if column is None else f" (column {column + 1})"
        raise ValueError(f"is not a JMESPath expression{place}") from None
    nodes = list(_nodes(parsed.parsed))
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
    except JMESPathError:
        # A function met a type that it does not take: the answer is not of the declared shape.
        return None


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
