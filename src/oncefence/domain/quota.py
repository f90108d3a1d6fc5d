"""Quota: what requests are for, and how much of a limit each of those may have (C300)."""

from collections.abc import Collection
from enum import StrEnum
from typing import Final

SLOTS: Final = 64
"""A count remembers use in so many slices of its window, and in one more that is not over yet."""

HOLD: Final = 1.04
"""So many windows a unit counts at least. A request reaches the provider later than its unit was
reserved, and the next one may be quicker: without a margin the two would stand nearer to each other
there than here. One that left later than half of it is counted from when it left."""


class Purpose(StrEnum):
    """What a request is for; the database's functions know them by these names."""

    EFFECT = "effect"
    LOOKUP = "lookup"
    CURSOR = "cursor"


def share(limit: int, purposes: Collection[Purpose], purpose: Purpose) -> int:
    """
    How many of `limit` units `purpose` may have of a count that `purposes` use.

    Beside effects, lookups and cursors have a tenth each, so that reading never starves writing;
    and effects leave a twentieth to lookups, without which nothing that is unknown is settled.
    Where cursors share with lookups alone, they leave them a tenth. `quota_share` is its twin.
    """
    tenth = max(1, limit // 10)
    if purpose is Purpose.EFFECT:
        return limit - (limit // 20 if Purpose.LOOKUP in purposes else 0)
    if Purpose.EFFECT in purposes:
        return tenth
    if purpose is Purpose.CURSOR and Purpose.LOOKUP in purposes and limit > 1:
        return limit - tenth
    return limit
