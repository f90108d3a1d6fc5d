"""What the wire would refuse to send at all, told when a pack is read and not at the first send."""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from oncefence.catalog.findings import Finding
from oncefence.catalog.templates import pieces

# Set by the client, by a pack's other keys or by no request of ours at all.
_OWNED_HEADERS: Final = frozenset(
    {
        "accept-encoding",
        "authorization",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "cookie",
        "expect",
        "host",
        "keep-alive",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
# By these a server takes the request for one of another method than its first line says. A read
# that changes something would be one of them.
_METHOD_HEADERS: Final = frozenset({"x-http-method", "x-http-method-override", "x-method-override"})
RESERVED_HEADERS: Final = _OWNED_HEADERS | _METHOD_HEADERS
"""What no table of headers may hold, in lower case."""

_METHOD_PARAMETER: Final = "_method"

TARGET_LENGTH_MAX: Final = 8_192
"""Characters of path and query together."""

CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
"""What no target holds, escaped or not: gateways read it as the end of a line."""

# What a path may hold as it is; a value that is put in is escaped, and so is a query.
_PATH_CHARACTERS: Final = re.compile(r"[A-Za-z0-9\-._~!$&'()*+,;=:/\[\]]*")


def header_reason(header: str) -> str | None:
    """Why no table of headers may hold this one; None where one may."""
    name = header.lower()
    if name in _METHOD_HEADERS:
        return "names another method; write that one as the method"
    if name in _OWNED_HEADERS:
        return "is not for this table; auth, media_type or the client sets it"
    return None


def query_errors(at: str, query: Iterable[str]) -> Iterator[Finding]:
    """What is wrong in the names of a query."""
    if _METHOD_PARAMETER in query:
        yield f"{at}.query.{_METHOD_PARAMETER}", "names another method; write that as the method"


def path_errors(at: str, path: str) -> Iterator[Finding]:
    """Where a path template holds a character that no path holds unescaped."""
    for piece in pieces(path):
        if not piece.is_variable and not _PATH_CHARACTERS.fullmatch(piece.text):
            wrong = next(each for each in piece.text if not _PATH_CHARACTERS.fullmatch(each))
            yield f"{at}.path", f"holds {wrong!r}, which a path cannot hold as it is"
