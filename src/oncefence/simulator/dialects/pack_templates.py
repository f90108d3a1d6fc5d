"""The templates of a pack, read backwards: from a request to the values that are in it."""

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

_TOKEN = re.compile(r"\{\{|\}\}|\{([^{}]*)\}")
_FIELD = "field."
_ABSENT: Any = object()


class DoesNotFit(Exception):
    """The request is not what the template makes; the message says where."""


def matched(template: str, text: str) -> dict[str, str] | None:
    """The variables of a text that the template can make, or None."""
    found = re.fullmatch("".join(_pattern(template)), text, re.DOTALL)
    names = [token[1] for token in _TOKEN.finditer(template) if token[1] is not None]
    if found is None:
        return None
    return dict(zip(names, found.groups(), strict=True))


def path_matched(template: str, path: str) -> dict[str, str] | None:
    """The variables of a path, segment by segment, decoded; or None."""
    wanted, given = template.split("/"), path.split("/")
    if len(wanted) != len(given):
        return None
    values: dict[str, str] = {}
    for part, text in zip(wanted, given, strict=True):
        found = matched(part, unquote(text))
        if found is None or "" in found.values():
            return None
        values |= found
    return values


def query_matched(templates: Mapping[str, str], query: Mapping[str, str]) -> dict[str, str] | None:
    """The variables of a query that has all that the templates name, or None."""
    values: dict[str, str] = {}
    for name, template in templates.items():
        found = matched(template, query[name]) if name in query else None
        if found is None:
            return None
        values |= found
    return values


def filled(template: str, values: Mapping[str, str | None]) -> str:
    """The text that the template makes of the values."""

    def of(token: re.Match[str]) -> str:
        return token[0][0] if token[1] is None else (values.get(token[1]) or "")

    return _TOKEN.sub(of, template)


def body_matched(template: Any, body: Any, where: str = "body") -> dict[str, Any]:
    """
    The variables of a body; each written field as `field.NAME`.

    Raises:
        DoesNotFit: Something is missing, of another kind, or unknown.
    """
    if isinstance(template, str):
        return _text_matched(template, body, where)
    values: dict[str, Any] = {}
    if isinstance(template, Mapping):
        if not isinstance(body, Mapping):
            raise DoesNotFit(f"{where} must be an object")
        for key in body.keys() - template.keys():
            raise DoesNotFit(f"{where}.{key} is unknown")
        members = [(key, template[key], body.get(key, _ABSENT)) for key in template]
    elif isinstance(template, list | tuple):
        given = _listed(body)
        if given is None or len(given) > len(template):
            raise DoesNotFit(f"{where} must be a list of at most {len(template)}")
        padded = [*given, *[_ABSENT] * (len(template) - len(given))]
        members = [(str(n), part, padded[n]) for n, part in enumerate(template)]
    elif body != template and str(body).lower() != str(template).lower():
        raise DoesNotFit(f"{where} must be {template!r}")
    else:
        return values
    for key, part, member in members:
        if member is not _ABSENT:
            values |= body_matched(part, member, f"{where}.{key}")
        elif not _is_all_fields(part):
            raise DoesNotFit(f"{where}.{key} is missing")
    return values


def _text_matched(template: str, body: Any, where: str) -> dict[str, Any]:
    name = template[1:-1] if re.fullmatch(r"\{[^{}]+\}", template) else None
    if name == "fields":
        if not isinstance(body, Mapping):
            raise DoesNotFit(f"{where} must be an object")
        return {f"{_FIELD}{key}": value for key, value in body.items()}
    if name is not None and name.startswith(_FIELD):
        return {name: body}
    if name == "remote_id:integer":
        if not isinstance(body, int) and not (isinstance(body, str) and body.isdecimal()):
            raise DoesNotFit(f"{where} must be a whole number")
        return {"remote_id": str(body)}
    found = matched(template, body) if isinstance(body, str) else None
    if found is None:
        raise DoesNotFit(f"{where} must be {template!r}")
    return dict(found)


def _pattern(template: str) -> Iterator[str]:
    end = 0
    for token in _TOKEN.finditer(template):
        yield re.escape(template[end : token.start()])
        # One that is not alone takes as little as it can, so that the text around it still fits.
        yield "(.*?)" if token[1] is not None else re.escape(token[0][0])
        end = token.end()
    yield re.escape(template[end:])


def _listed(body: Any) -> list[Any] | None:
    """A list, also where a form has its places as keys."""
    if isinstance(body, list):
        return body
    if isinstance(body, Mapping) and all(str(key).isdecimal() for key in body):
        return [body[key] for key in sorted(body, key=int)]
    return None


def _is_all_fields(template: Any) -> bool:
    """Nothing but written fields is in it, and of those any may be missing."""
    if isinstance(template, str):
        return template.startswith(f"{{{_FIELD}")
    if isinstance(template, Mapping):
        return all(map(_is_all_fields, template.values()))
    return isinstance(template, list | tuple) and all(map(_is_all_fields, template))
