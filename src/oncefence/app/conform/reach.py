"""A sandbox that does not answer: why, and what to do about it."""

from collections.abc import Mapping
from typing import Final

from oncefence.app.conform.product import Place
from oncefence.domain.classification import SendFault
from oncefence.domain.errors import ConfigurationRefused

_SEE_URL: Final = "See that the URL is right, and that the provider can be reached from here"
_KNOWN: Final[Mapping[SendFault, tuple[str, str]]] = {
    SendFault.DNS: ("its name leads to no address", _SEE_URL),
    SendFault.CONNECT: ("the connection is refused or not taken", _SEE_URL),
    SendFault.TLS: ("it does not speak TLS", "Give the port of https, or http:// with --local"),
    SendFault.CERTIFICATE: (
        "its certificate is not trusted",
        "Trust the one who issued it on this machine, or use an address that it names",
    ),
    SendFault.GUARD_REFUSED: (
        "its address is not public, or no request may go there",
        "Say --local where that is meant",
    ),
    SendFault.DEADLINE: ("nothing came before the deadline", _SEE_URL),
    SendFault.GARBLED: ("what answers there is no HTTP", "Give the port of the provider's API"),
}


def not_answered(place: Place, fault: SendFault | None) -> ConfigurationRefused:
    """What to tell of a sandbox that gave no answer."""
    word = "no fault is known" if fault is None else fault.value
    reason, remedy = ("no answer came", _SEE_URL)
    if fault is not None:
        reason, remedy = _KNOWN.get(fault, (reason, remedy))
    return ConfigurationRefused(
        setting="--sandbox", reason=f"{place.base_url}: {reason} ({word})", remedy=remedy
    )
