"""Bodies as HTML forms: nested keys in brackets, in one order, every character escaped."""

from collections.abc import Iterator, Mapping
from typing import Final
from urllib.parse import quote_plus

from oncefence.catalog.errors import PayloadRefused
from oncefence.catalog.field_values import JsonNumber

FORM_MEDIA_TYPE: Final = "application/x-www-form-urlencoded"


def is_form(media_type: str) -> bool:
    """Whether bodies of this media type are forms."""
    return media_type.partition(";")[0].strip() == FORM_MEDIA_TYPE


def form_body(value: object) -> bytes:
    """
    The form: `a[b]=c` for a table in a table, `a[0]=c` for a list, keys in sorted order.

    Raises:
        PayloadRefused: It holds null, which a form cannot say.
    """
    pairs = (f"{quote_plus(key)}={quote_plus(text)}" for key, text in _pairs(value, ""))
    return "&".join(pairs).encode("ascii")


def _pairs(value: object, where: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, member in sorted(value.items()):
            yield from _pairs(member, f"{where}[{key}]" if where else key)
    elif isinstance(value, list | tuple):
        for index, member in enumerate(value):
            yield from _pairs(member, f"{where}[{index}]")
    else:
        yield where, _text(value, where)


def _text(value: object, where: str) -> str:
    if value is None:
        raise PayloadRefused(where, "is null, which a form cannot say")
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.text if isinstance(value, JsonNumber) else str(value)
