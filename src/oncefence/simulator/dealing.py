"""Faults without a rule for each: dealt by a seed, or in turn; no timing changes who gets which."""

import hashlib
import json
from collections.abc import Sequence
from typing import Protocol

from oncefence.simulator.faults import (
    SEARCH_FAULTS,
    SEEDED_FAULTS,
    AnyFault,
    Fault,
    Rule,
    ScriptedFault,
)


class Dealer(Protocol):
    """Decides which fault strikes a write or a search that no rule strikes."""

    def deal(self, name: str, nth: int) -> Rule | None:
        """The fault of the nth write for `name`, or None for a plain answer."""
        ...

    def deal_search(self, nth: int) -> Rule | None:
        """The fault of the nth search."""
        ...


class SeededFaults:
    """Faults dealt by seed, contact and count."""

    def __init__(
        self, *, seed: int, rate: float, faults: Sequence[Fault | ScriptedFault] = SEEDED_FAULTS
    ) -> None:
        self._seed = seed
        self._rate = rate
        self._faults, self._search_faults = _divided(faults)

    def deal(self, name: str, nth: int) -> Rule | None:
        """The fault of the nth write for the contact `name`, or None for a plain answer."""
        return self._dealt(self._faults, [self._seed, name, nth])

    def deal_search(self, nth: int) -> Rule | None:
        """The fault of the nth search."""
        return self._dealt(self._search_faults, [self._seed, "search", "", nth])

    def _dealt(self, faults: Sequence[Fault | ScriptedFault], what: list[object]) -> Rule | None:
        digest = hashlib.sha256(json.dumps(what).encode()).digest()
        if not faults or int.from_bytes(digest[:8]) / 2**64 >= self._rate:
            return None
        fault = faults[int.from_bytes(digest[8:16]) % len(faults)]
        coin = digest[16] % 2 == 0
        match fault:
            case Fault.RATE_LIMIT_429 if coin:
                return Rule(fault=fault, retry_after=1)
            case Fault.OVERWRITTEN:
                return Rule(fault=fault, apply=coin)
            case _:
                return Rule(fault=fault)


class TurnedFaults:
    """Each write of a record, and each search, meets the next fault; after the last the first."""

    def __init__(self, faults: Sequence[Fault | ScriptedFault]) -> None:
        self._faults, self._search_faults = _divided(faults)

    def deal(self, name: str, nth: int) -> Rule | None:  # noqa: ARG002  # everybody's turn is alike
        """The fault whose turn it is at the nth write of a record."""
        return _turn(self._faults, nth)

    def deal_search(self, nth: int) -> Rule | None:
        """The fault whose turn it is at the nth search."""
        return _turn(self._search_faults, nth)


def _turn(faults: Sequence[AnyFault], nth: int) -> Rule | None:
    return Rule(fault=faults[(nth - 1) % len(faults)]) if faults else None


def _divided(
    faults: Sequence[Fault | ScriptedFault],
) -> tuple[Sequence[Fault | ScriptedFault], Sequence[Fault | ScriptedFault]]:
    return (
        [fault for fault in faults if fault not in SEARCH_FAULTS],
        [fault for fault in faults if fault in SEARCH_FAULTS],
    )
