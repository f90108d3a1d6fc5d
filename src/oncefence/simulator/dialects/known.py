"""The providers whose language is built in, by name; any other is spoken from its pack."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from oncefence.simulator.dialects.from_pack import FromPack
from oncefence.simulator.dialects.hubspot import HubSpot
from oncefence.simulator.dialects.outreach import Outreach
from oncefence.simulator.dialects.pack_file import PackUnusable
from oncefence.simulator.dialects.protocol import Dialect
from oncefence.simulator.dialects.stripe import Stripe

DIALECTS: Mapping[str, Callable[[], Dialect]] = {
    "hubspot": HubSpot,
    "outreach": Outreach,
    "stripe": Stripe,
}


def dialect_of(pack: str | Path | Mapping[str, Any]) -> Dialect:
    """
    The dialect of a name, or of a pack: its file, or the tables of one.

    Raises:
        PackUnusable: There is no such name, or the pack cannot be played.
    """
    if isinstance(pack, Mapping):
        return FromPack(pack)
    if isinstance(pack, str) and pack in DIALECTS:
        return DIALECTS[pack]()
    path = Path(pack)
    if path.suffix == ".toml":
        return FromPack(path)
    known = ", ".join(DIALECTS)
    raise PackUnusable(f"there is no pack {str(pack)!r}; there are {known}, or a file NAME.toml")
