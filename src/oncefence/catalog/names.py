"""The forms of names in pack and binding files."""

import re
from typing import Annotated

from pydantic import AfterValidator, Field

_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")
_MEDIA_TYPE = re.compile(r"[a-z0-9!#$&^_.+-]{1,60}/[a-z0-9!#$&^_.+-]{1,60}")
_HEADER_VALUE = re.compile(r"[!-~]([ -~]{0,998}[!-~])?")


def _pattern(text: str) -> str:
    try:
        re.compile(text, re.ASCII)
    except re.error as error:
        raise ValueError(f"is not a regular expression ({error.msg})") from None
    except (OverflowError, RecursionError):
        raise ValueError("is a regular expression of too many parts or repetitions") from None
    return text


def _header(name: str) -> str:
    if not _HEADER.fullmatch(name):
        raise ValueError("is not a header name")
    return name


def header_value(value: str) -> str:
    """
    The value, if it can stand in a header.

    Raises:
        ValueError: It cannot.
    """
    if not _HEADER_VALUE.fullmatch(value):
        raise ValueError("is not a header value (printable ASCII, no blanks at either end)")
    return value


def _ascending(statuses: tuple[int, ...]) -> tuple[int, ...]:
    if len(set(statuses)) != len(statuses):
        raise ValueError("names a status twice")
    return tuple(sorted(statuses))


def _media_type(text: str) -> str:
    if not _MEDIA_TYPE.fullmatch(text):
        raise ValueError("is not a media type; write it in lower case and without parameters")
    return text


Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,62}\z")]
DottedName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.-]{0,99}\z")]
FieldName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_-]{0,99}\z")]
Pattern = Annotated[str, AfterValidator(_pattern)]
HeaderName = Annotated[str, AfterValidator(_header)]
HeaderValue = Annotated[str, AfterValidator(header_value)]
DeadlineMs = Annotated[int, Field(ge=100, le=120_000)]
MediaType = Annotated[str, AfterValidator(_media_type)]
Statuses = Annotated[tuple[Annotated[int, Field(ge=200, le=599)], ...], AfterValidator(_ascending)]
WaitSeconds = Annotated[int, Field(ge=1, le=86_400)]
