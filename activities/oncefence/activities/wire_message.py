"""What goes to the wire and what comes back from it, free of any transport."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from oncefence.activities.phase_journal import PhaseJournal
from oncefence.activities.target import TargetRefusal
from oncefence.catalog.sendable import RESERVED_HEADERS
from oncefence.domain.classification import SendFault, WirePhase
from oncefence.domain.redaction import Secret


@dataclass(frozen=True, slots=True, kw_only=True)
class WireRequest:
    """What to send. Its repr shows neither path, headers, body nor secret."""

    base_url: str
    """Scheme, host and port of the binding."""

    method: str
    target: str = field(repr=False)
    """Path and query, beginning with a slash, escaped as it goes on the wire."""

    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: bytes | None = field(default=None, repr=False)
    authorization: Secret | None = None
    """The whole value of the header named by `authorization_header`."""

    authorization_header: str = "authorization"


@dataclass(frozen=True, slots=True, kw_only=True)
class WireAnswer:
    """What came of one send; `phase` and `fault` decide, the rest is evidence."""

    phase: WirePhase
    journal: PhaseJournal = field(repr=False)
    status: int | None
    headers: Mapping[str, str] = field(repr=False)
    """Names in lower case; the caller keeps only those that it knows."""

    body: bytes | None = field(repr=False)
    """What arrived, up to the limit; None without a status."""

    complete: bool
    """The answer arrived whole, in a framing and a coding that prove it."""

    fault: SendFault | None

    @property
    def redirect_host(self) -> str | None:
        """The host that a Location names, for the operator: no path, query or userinfo."""
        return host_named_by(self.headers.get("location", ""))


def host_named_by(location: str) -> str | None:
    """Return the host in a Location, unless what stands there is no plain name of a host."""
    try:
        host = urlsplit(location).hostname or ""
    except ValueError:
        return None
    return host if _HOST.fullmatch(host) else None


METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"})
_HOST: Final = re.compile(r"[a-z0-9_.:-]{1,253}")
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}")
_HEADER_VALUE: Final = re.compile(r"(?:[\x21-\x7e](?:[\x20-\x7e\t]*[\x21-\x7e])?)?")
# Framing, connection and coding are this module's, cookies are nobody's, the method is the first
# line's, and a secret comes in a type of its own. What the body is of goes with the body.
_RESERVED_HEADERS: Final = RESERVED_HEADERS - {"content-type"}


def checked_headers(request: WireRequest) -> list[tuple[str, str]] | TargetRefusal:
    """Return the headers as they go out, the secret among them, or the rule that they break."""
    own = [("user-agent", "oncefence"), ("accept-encoding", "identity"), ("connection", "close")]
    given = [(name.lower(), value) for name, value in request.headers.items()]
    names = [name for name, _ in given]
    is_refused = not _RESERVED_HEADERS.isdisjoint(names)
    if request.authorization is not None:
        names.append(request.authorization_header.lower())
        given.append((names[-1], request.authorization.reveal()))
        is_refused = is_refused or names[-1] in _RESERVED_HEADERS - {"authorization"}
    if (
        is_refused
        or len(set(names)) != len(names)
        or not all(_HEADER_NAME.fullmatch(name) for name in names)
        or not all(_HEADER_VALUE.fullmatch(value) for _, value in given)
    ):
        return TargetRefusal.HEADER
    return [pair for pair in own if pair[0] not in names] + given
