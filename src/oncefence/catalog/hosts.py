"""Hosts that a token may be sent to: fixed addresses, and those that a reply names."""

import re
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from oncefence.catalog.canonical import Model
from oncefence.catalog.expressions import JmesPath, find
from oncefence.catalog.templates import check_template, pieces

_HOST = re.compile(r"(\*\.)?([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]([a-z0-9-]{0,61}[a-z0-9])?")
_PATH = re.compile(r"(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)*")


def https_template(template: str, allowed: tuple[str, ...]) -> str:
    """
    The template of an address whose host is fixed and whose path may use `allowed` variables.

    Raises:
        ValueError: It is another kind of address.
    """
    check_template(template, allowed)
    url = "".join("x" if part.is_variable else part.text for part in pieces(template))
    parts = urlsplit(url)
    host = parts.hostname or ""
    if (
        not _HOST.fullmatch(host)
        or "{" in template.split("/", 3)[2]
        or not url.startswith(f"https://{host}/")
        or not _PATH.fullmatch(parts.path.rstrip("/"))
        or url != f"https://{host}{parts.path}"
    ):
        raise ValueError(
            "must be https:// with a lower-case host and a plain path: no port, no user, no query"
        )
    return template


def _https(url: str) -> str:
    return https_template(url, ())


def _host_pattern(pattern: str) -> str:
    if not _HOST.fullmatch(pattern):
        raise ValueError("must be a lower-case host name, or *. and one with a dot in it")
    return pattern


def _base_path(path: str) -> str:
    if not _PATH.fullmatch(path):
        raise ValueError("must be a plain path without a slash at its end, or empty")
    return path


HttpsUrl = Annotated[str, AfterValidator(_https)]


class BaseUrlRule(Model):
    """Where a token's reply names the host that its account lives on, and which are believed."""

    value: JmesPath
    hosts: tuple[Annotated[str, AfterValidator(_host_pattern)], ...] = Field(min_length=1)
    path: Annotated[str, AfterValidator(_base_path)] = ""
    """What follows the host there. It is part of each operation's path already."""

    def admits(self, host: str) -> bool:
        """Whether requests with a token may go to `host`."""
        return any(
            host == pattern or (pattern.startswith("*.") and host.endswith(pattern[1:]))
            for pattern in self.hosts
        )

    def read(self, document: object) -> str | None:
        """
        The base URL that a reply names, `https://` and host; None where it may not be used.

        A reply that could send a token to any host would be a way to steal it, so anything
        but https, the declared path and a host of the list is refused.
        """
        named = find(self.value, document)
        if not isinstance(named, str) or not re.fullmatch(r"[!-~]{1,300}", named):
            return None
        try:
            parts = urlsplit(named)
        except ValueError:
            return None
        host = parts.netloc.lower()
        if not _HOST.fullmatch(host) or host.startswith("*") or not self.admits(host):
            return None
        plain = f"{parts.scheme}://{parts.netloc}{parts.path}"
        if parts.scheme != "https" or plain != named or parts.path.removesuffix("/") != self.path:
            return None
        return f"https://{host}"
