"""The forms of names in pack and binding files."""

import re
from typing import Annotated

from pydantic import AfterValidator, Field

_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")
_HEADER_VALUE = re.compile(r"[!-~]([ -~]{0,998}[!-~])?")


def _pattern(text: str) -> str:
    try:
        re.compile(text, re.ASCII)
    except re.error as error:
        raise ValueError(f"is not a regular expression ({error.msg})") from None
    return text


def _header(name: str) -> str:
    if not _HEADER.fullmatch(name):
        raise ValueError("is not a header name")
    return name


def _header_value(value: str) -> str:
    if not _HEADER_VALUE.fullmatch(value):
        raise ValueError("is not a header value (printable ASCII, no blanks at either end)")
    return value


Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,62}\z")]
DottedName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.-]{0,99}\z")]
FieldName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_-]{0,99}\z")]
Pattern = Annotated[str, AfterValidator(_pattern)]
HeaderName = Annotated[str, AfterValidator(_header)]
HeaderValue = Annotated[str, AfterValidator(_header_value)]
DeadlineMs = Annotated[int, Field(ge=100, le=120_000)]
