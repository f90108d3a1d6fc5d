"""
Rotation: every stored data key under the ring's current key, in steps that a kill only delays.

What is under another key says itself what is left to do, so a run that was interrupted anywhere
is taken up by the next one.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from oncefence.storage.engine import Store
from oncefence.storage.phases.read_key_use import KeyUse, read_key_use
from oncefence.storage.phases.rewrap_generation import (
    GenerationRef,
    Rewrapped,
    find_generations_to_rewrap,
    rewrap_generation,
)
from oncefence.storage.phases.rewrap_keys import KINDS, rewrap_keys
from oncefence.storage.sealing import KeyRing

GENERATIONS: Final = "binding_generations"

# A row that a transaction holds is free within a second; one that was made under the old key
# meanwhile, by a process that has not read the new file yet, is found by another round.
_ROUNDS_WITHOUT_PROGRESS_MAX: Final = 5
_PAUSE_SECONDS: Final = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Which keys there are, and what is under each."""

    ring: tuple[str, ...]
    """The keys of the ring, the current one first."""

    uses: Sequence[KeyUse]

    @property
    def current(self) -> str:
        return self.ring[0]

    @property
    def under_other_keys(self) -> int:
        return sum(use.keys for use in self.uses if use.key_id != self.current)

    @property
    def waiting(self) -> int:
        """Of these, those that no round could wrap anew now."""
        return sum(use.waiting for use in self.uses if use.key_id != self.current)

    @property
    def key_ids(self) -> tuple[str, ...]:
        """Of the ring and then of the database, each once."""
        return tuple(dict.fromkeys([*self.ring, *(use.key_id for use in self.uses)]))

    def under(self, key_id: str) -> dict[str, int]:
        """How many data keys of each table are under this one."""
        return {use.table: use.keys for use in self.uses if use.key_id == key_id}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotated:
    """What a run found, did and left."""

    before: Standing
    after: Standing
    rewrapped: dict[str, int]


async def standing(engine: Store, ring: KeyRing) -> Standing:
    """How it stands now."""
    return Standing(ring=ring.key_ids, uses=await read_key_use(engine))


async def rotate(
    engine: Store, ring: KeyRing, *, actor: str, tell: Callable[[str, int], None]
) -> Rotated:
    """
    Wrap all that is under another key anew; `tell` hears of each step, by table and count.

    Returns when nothing is left, or nothing but what waits or is held by others.

    Raises:
        ConfigurationRefused: The ring lacks a key that something is under.
    """
    before = after = await standing(engine, ring)
    done: dict[str, int] = {}
    idle_rounds = 0
    while after.under_other_keys and idle_rounds < _ROUNDS_WITHOUT_PROGRESS_MAX:
        if idle_rounds:
            await asyncio.sleep(_PAUSE_SECONDS)
        count = 0
        for kind in KINDS:
            while step := await rewrap_keys(engine, ring, kind, actor=actor):
                done[kind.table] = done.get(kind.table, 0) + step
                count += step
                tell(kind.table, done[kind.table])
        generations = await _rewrap_generations(engine, ring, actor)
        if generations:
            done[GENERATIONS] = done.get(GENERATIONS, 0) + generations
            tell(GENERATIONS, done[GENERATIONS])
        after = await standing(engine, ring)
        if after.under_other_keys == after.waiting:
            break
        idle_rounds = 0 if count or generations else idle_rounds + 1
    return Rotated(before=before, after=after, rewrapped=done)


async def _rewrap_generations(engine: Store, ring: KeyRing, actor: str) -> int:
    count = 0
    last: GenerationRef | None = None
    while found := await find_generations_to_rewrap(engine, ring, last):
        for each in found:
            came_of_it = await rewrap_generation(engine, ring, each, actor=actor)
            count += came_of_it is Rewrapped.DONE
        last = found[-1]
    return count
