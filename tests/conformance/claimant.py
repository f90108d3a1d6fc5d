"""
A process of its own that claims items: `python -m tests.conformance.claimant`, told by JSON.

It says `ready`, waits for a line, then claims one item after the other. Holding, it says
`held <work> <epoch>` of each and waits to be killed; else it finishes each and says `won <work>`.
"""

import asyncio
import json
import sys
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncEngine

from oncefence.domain.ids import OrgId, WorkId
from oncefence.domain.limits import Limits
from oncefence.storage.engine import make_engine
from tests.conformance.family import BY_NAME, Held


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnPlace:
    """The store as this process reaches it."""

    engine: AsyncEngine
    org: OrgId
    limits: Limits


def say(words: str) -> None:
    sys.stdout.write(words + "\n")
    sys.stdout.flush()


async def run(url: str, org: str, works: list[tuple[str, str]], *, holds: bool) -> None:
    place = OwnPlace(engine=make_engine(url, size=2), org=OrgId(org), limits=Limits())
    for name, work in works:
        family = BY_NAME[name]
        held = await family.try_to_claim(place, WorkId(UUID(work)))
        if not isinstance(held, Held):
            continue
        if holds:
            say(f"held {work} {held.fence.epoch}")
        else:
            await family.finish(place, held)
            say(f"won {work}")
    if holds:
        sys.stdin.readline()
    await place.engine.dispose()


def main() -> None:
    told = json.loads(sys.stdin.readline())
    say("ready")
    if sys.stdin.readline():
        asyncio.run(run(**told))


if __name__ == "__main__":
    main()
