"""
Where a request may go: the binding's own host and nothing else.

A target that a rule refuses is a value, not an error: it becomes the fault `guard_refused`
of an attempt that sent nothing.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final
from urllib.parse import unquote_to_bytes

from oncefence.catalog.sendable import TARGET_LENGTH_MAX


class TargetRefusal(StrEnum):
    """The rule that a target, a request or an address broke."""

    BASE_URL = "base_url_is_not_an_origin"
    PLAIN_HTTP = "plain_http_on_a_binding_that_is_not_local"
    NOT_ROOTED = "target_is_absolute_or_does_not_begin_with_a_slash"
    SCHEME_RELATIVE = "target_is_scheme_relative"
    DOT_SEGMENT = "target_has_a_dot_segment"
    BACKSLASH = "target_has_a_backslash"
    AT_SIGN = "target_has_an_at_sign"
    CONTROL_CHARACTER = "target_has_a_control_character"
    FRAGMENT = "target_has_a_fragment"
    CHARACTER = "target_has_a_character_that_must_be_escaped"
    ESCAPE = "target_has_a_broken_percent_escape"
    LENGTH = "target_is_too_long"
    FINAL_URL = "final_url_differs_from_the_binding"
    ADDRESS = "host_resolves_to_an_address_that_is_not_public"
    METHOD = "method_is_not_known"
    HEADER = "header_is_malformed_or_not_the_callers_to_set"


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetPolicy:
    """What the binding permits. A local binding may use plain HTTP and private addresses."""

    is_local: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One checked origin and the path and query below it, as they go on the wire."""

    scheme: str
    host: str
    port: int
    path_and_query: str

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.authority}{self.path_and_query}"


_LABEL: Final = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_ORIGIN: Final = re.compile(
    rf"(?P<scheme>https?)://(?:(?P<host>{_LABEL}(?:\.{_LABEL})*)|\[(?P<literal>[0-9a-f:.]+)\])"
    r"(?::(?P<port>[0-9]{1,5}))?/?",
    # In ASCII alone: else a letter of another script stands for one of these.
    re.IGNORECASE | re.ASCII,
)
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_HOST_LENGTH_MAX: Final = 253

# What a path and a query may hold unescaped, and the brackets that JSON:API filters use.
_PLAIN: Final = re.compile(r"[A-Za-z0-9\-._~!$&'()*+,;=:/?%\[\]]*")
_BROKEN_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_CONTROL_BYTE: Final = re.compile(rb"[\x00-\x1f\x7f]")
_CONTROL_TEXT: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_DECODINGS_MAX: Final = 8

# A name whose last label is a number is an address to the resolvers of old: 127.1, 0x7f.1.
_READ_AS_AN_ADDRESS: Final = re.compile(r"(?:^|\.)(?:[0-9]+|0x[0-9a-f]*)$")
_THIS_MACHINE: Final = re.compile(r"(?:^|\.)localhost$")

_PUBLIC_IPV6: Final = ip_network("2000::/3")
# Inside the public range, but each of them stands for another address or for none.
_NOT_PUBLIC: Final = tuple(
    ip_network(text)
    for text in (
        "2001::/23",  # protocol assignments; Teredo wraps an IPv4 address
        "2001:db8::/32",
        "2002::/16",  # 6to4 wraps an IPv4 address
        "3fff::/20",
        "192.0.0.0/24",
        "192.88.99.0/24",  # 6to4 relays
    )
)


def check_target(base_url: str, target: str, policy: TargetPolicy) -> Target | TargetRefusal:
    """Return the checked target, or the rule that it breaks (C242)."""
    origin = _ORIGIN.fullmatch(base_url)
    if origin is None:
        return TargetRefusal.BASE_URL
    scheme = origin["scheme"].lower()
    host = (origin["host"] or origin["literal"]).lower()
    port = int(origin["port"] or _DEFAULT_PORTS[scheme])
    if len(host) > _HOST_LENGTH_MAX or not 0 < port < 65_536:
        return TargetRefusal.BASE_URL
    if scheme == "http" and not policy.is_local:
        return TargetRefusal.PLAIN_HTTP
    refusal = _refusal_of(target)
    if refusal is not None:
        return refusal
    return Target(scheme=scheme, host=host, port=port, path_and_query=target)


def _refusal_of(target: str) -> TargetRefusal | None:
    forbidden = {
        TargetRefusal.BACKSLASH: "\\" in target,
        TargetRefusal.CONTROL_CHARACTER: _CONTROL_TEXT.search(target) is not None,
        TargetRefusal.NOT_ROOTED: not target.startswith("/"),
        TargetRefusal.SCHEME_RELATIVE: target.startswith("//"),
        TargetRefusal.AT_SIGN: "@" in target,
        TargetRefusal.FRAGMENT: "#" in target,
        TargetRefusal.CHARACTER: _PLAIN.fullmatch(target.replace("@", "").replace("#", "")) is None,
        TargetRefusal.ESCAPE: _BROKEN_ESCAPE.search(target) is not None,
        TargetRefusal.LENGTH: len(target) > TARGET_LENGTH_MAX,
    }
    for refusal, is_broken in forbidden.items():
        if is_broken:
            return refusal
    path = target.partition("?")[0]
    if _CONTROL_BYTE.search(unquote_to_bytes(target)):
        return TargetRefusal.CONTROL_CHARACTER
    if b"\\" in unquote_to_bytes(path):
        return TargetRefusal.BACKSLASH
    if _climbs(path.encode()):
        return TargetRefusal.DOT_SEGMENT
    return None


def _climbs(path: bytes) -> bool:
    # One decoding is the rule; a gateway that decodes again must not find more, so it is
    # decoded until it stands still. `..;x` is a climb to servers that drop path parameters.
    for _ in range(_DECODINGS_MAX):
        if any(part.partition(b";")[0] in {b".", b".."} for part in re.split(rb"[/\\]", path)):
            return True
        decoded = unquote_to_bytes(path)
        if decoded == path:
            return False
        path = decoded
    return True


def refused_address(addresses: list[str], policy: TargetPolicy) -> TargetRefusal | None:
    """
    Return a refusal unless every address may be connected to (C243).

    One address in the wrong range refuses them all: a name that points both outward and
    inward is a trap or a mistake, and either is for a person.
    """
    if policy.is_local or all(is_public(ip_address(address)) for address in addresses):
        return None
    return TargetRefusal.ADDRESS


def refused_unresolved(host: str, policy: TargetPolicy) -> TargetRefusal | None:
    """
    Return a refusal where a host is plainly not public before anybody resolved it (C243).

    All that can be said of a name that somebody else will resolve: an address is judged as
    such, and what a resolver may read as an address or as this machine is refused.
    """
    if policy.is_local:
        return None
    try:
        return None if is_public(ip_address(host)) else TargetRefusal.ADDRESS
    except ValueError:
        is_trick = _READ_AS_AN_ADDRESS.search(host) or _THIS_MACHINE.search(host)
        return TargetRefusal.ADDRESS if is_trick else None


def is_public(address: IPv4Address | IPv6Address) -> bool:
    """Whether the address names one host of the public internet, and names it directly."""
    if isinstance(address, IPv6Address) and address not in _PUBLIC_IPV6:
        # Loopback, link-local, unique local, multicast, mapped, compatible and NAT64 alike.
        return False
    if any(address in network for network in _NOT_PUBLIC if network.version == address.version):
        return False
    return address.is_global and not address.is_multicast
