"""
The port of the suite: what a family has to say so that every rule is tried on it.

What needs the store alone takes a `Place`, so that other processes can do it; what makes rows
takes the world of a test.
"""

import itertools
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Protocol
from uuid import uuid4

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from oncefence.domain.claim import ClaimEnd, WorkEnd
from oncefence.domain.effect import Outcome
from oncefence.domain.fence import Fence
from oncefence.domain.ids import LeaseToken, OrgId, WorkId
from oncefence.domain.limits import Limits
from oncefence.domain.lookup import Grade, Verdict
from oncefence.storage.claims import NotStarted
from oncefence.storage.phases.claim_work import claim_work
from oncefence.storage.phases.settle_attempt import AttemptEnd, settle_attempt
from oncefence.storage.phases.settle_lookup import LookupEnd, settle_lookup
from oncefence.storage.phases.settle_work import settle_work
from oncefence.storage.phases.start_attempt import Started, start_attempt
from oncefence.storage.phases.start_lookup import LookupStarted, start_lookup
from tests.conformance.toy import TOY, toy_item

if TYPE_CHECKING:  # another process, which claims alone, needs no servers
    from tests.support.world import World

_numbers = itertools.count(1)

BY_HAND = """
    UPDATE oncefence.work_items
       SET state = 'processing', via = CASE state WHEN 'pending' THEN 'claim' ELSE 'reclaim' END,
           lease_owner = gen_random_uuid(), lease_token = gen_random_uuid(),
           lease_until = clock_timestamp() + interval '1 hour',
           ownership_epoch = ownership_epoch + 1,
           claims_lost = claims_lost + (state = 'processing')::integer
     WHERE org_id = :org AND work_id = :work
"""


class Place(Protocol):
    """A store, an org in it, and the limits that hold."""

    engine: AsyncEngine
    org: OrgId
    limits: Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """An item that somebody claimed, with what its family's claim gave."""

    fence: Fence
    given: object


class Family(Protocol):
    """One family, as the suite sees it."""

    name: str
    source_or_target: tuple[str, ...]
    """The lanes in which its items stand, each by itself or both together."""

    async def pending(self, world: "World", *, lane: str | None = None) -> WorkId:
        """A new item that is due; those of one `lane` (`source:x`, `target:x`) share it."""

    async def try_to_claim(
        self,
        place: Place,
        work: WorkId,
        *,
        as_of: datetime | None = None,
        token: LeaseToken | None = None,
    ) -> Held | NotStarted:
        """What its claim says; as of the moment the item is due, unless told."""

    async def finish(self, place: Place, held: Held) -> None:
        """The work was done."""

    async def defer(self, place: Place, held: Held) -> None:
        """It is due again in ten minutes."""

    async def retry(self, place: Place, held: Held) -> None:
        """It failed, and may be tried again."""

    async def give_up(self, place: Place, held: Held) -> None:
        """It failed for good."""

    async def abandon(self, world: "World", work: WorkId) -> Fence:
        """A claimant that opened nothing, did nothing, and whose lease is over."""

    async def lose(self, world: "World", held: Held) -> None:
        """The claimant is taken for dead: somebody else ended its claim."""

    async def effects(self, world: "World", work: WorkId) -> int:
        """How often something outside may have happened for the item."""


async def claim(family: Family, place: Place, work: WorkId) -> Held:
    """The item, held."""
    held = await family.try_to_claim(place, work)
    assert isinstance(held, Held), held
    return held


async def due(place: Place, work: WorkId) -> datetime:
    """The time at which the item is due, and now if that is past."""
    async with place.engine.begin() as connection:
        found = await connection.execute(
            text(
                "SELECT greatest(run_after, clock_timestamp()) FROM oncefence.work_items"
                " WHERE org_id = :org AND work_id = :work"
            ),
            {"org": place.org, "work": work},
        )
        moment: datetime = found.scalar_one()
        return moment


async def _by_claims(family: Family, world: "World", work: WorkId) -> Fence:
    held = await claim(family, world, work)
    await world.expire_lease(work)
    return held.fence


async def _by_a_reclaim(family: Family, world: "World", held: Held) -> None:
    await world.expire_lease(held.fence.work)
    await claim(family, world, held.fence.work)


class Dispatch:
    """`effect.dispatch`: its claim is the mark, and what counts is the attempt."""

    name = "effect.dispatch"
    source_or_target = ("both",)

    async def pending(self, world: "World", *, lane: str | None = None) -> WorkId:
        return (await world.accept_command(lane or f"lead-{next(_numbers)}")).work

    async def try_to_claim(
        self,
        place: Place,
        work: WorkId,
        *,
        as_of: datetime | None = None,
        token: LeaseToken | None = None,
    ) -> Held | NotStarted:
        found = await start_attempt(
            place.engine,
            place.org,
            work,
            as_of=as_of or await due(place, work),
            owner=uuid4(),
            token=token or LeaseToken(uuid4()),
            limits=place.limits,
        )
        return found if isinstance(found, NotStarted) else Held(fence=found.fence, given=found)

    async def _settle(self, place: Place, held: Held, outcome: Outcome, wait: float = 1.0) -> None:
        assert isinstance(held.given, Started)
        end = AttemptEnd(
            outcome=outcome,
            may_have_applied=outcome is Outcome.ACCEPTED,
            failure_class="by_the_suite",
            response_status=None,
            receipt={},
            phases={},
            sealed_answer=None,
            retry_after_seconds=wait,
        )
        await settle_attempt(
            place.engine,
            held.fence,
            held.given.attempt,
            end,
            as_of=await due(place, held.fence.work),
            limits=place.limits,
        )

    async def finish(self, place: Place, held: Held) -> None:
        await self._settle(place, held, Outcome.ACCEPTED)

    async def defer(self, place: Place, held: Held) -> None:
        await self._settle(place, held, Outcome.RETRYABLE_PRE_DISPATCH, 600)

    async def retry(self, place: Place, held: Held) -> None:
        await self._settle(place, held, Outcome.REPLAY_SAFE_RETRY)

    async def give_up(self, place: Place, held: Held) -> None:
        await self._settle(place, held, Outcome.REJECTED)

    async def abandon(self, world: "World", work: WorkId) -> Fence:
        # A claim without a mark is made by no phase: both are one statement.
        await world.sql(BY_HAND, work=work)
        await world.expire_lease(work)
        row = await world.item(work)
        return Fence(org=world.org, work=work, token=row.lease_token, epoch=row.ownership_epoch)

    async def lose(self, world: "World", held: Held) -> None:
        assert isinstance(held.given, Started)
        await world.lose(held.given)

    async def effects(self, world: "World", work: WorkId) -> int:
        rows = await world.sql(
            "SELECT count(*) FROM oncefence.effect_attempts WHERE org_id = :org AND work_id = :work"
            " AND started_at IS NOT NULL",
            work=work,
        )
        return int(rows[0][0])


class Lookup:
    """`effect.lookup`: a read, in no lane; what counts is the finding that it wrote."""

    name = "effect.lookup"
    source_or_target = ()

    async def pending(self, world: "World", *, lane: str | None = None) -> WorkId:
        _, _, work = await world.an_unknown_command(f"lead-{next(_numbers)}")
        return work

    async def try_to_claim(
        self,
        place: Place,
        work: WorkId,
        *,
        as_of: datetime | None = None,
        token: LeaseToken | None = None,
    ) -> Held | NotStarted:
        found = await start_lookup(
            place.engine,
            place.org,
            work,
            as_of=as_of or await due(place, work),
            owner=uuid4(),
            token=token or LeaseToken(uuid4()),
            limits=place.limits,
        )
        return found if isinstance(found, NotStarted) else Held(fence=found.fence, given=found)

    async def _settle(self, place: Place, held: Held, verdict: Verdict) -> None:
        assert isinstance(held.given, LookupStarted)
        end = LookupEnd(
            verdict=verdict,
            reading=verdict.value,
            grade=Grade.STATE,
            response_status=None,
            receipt={},
            phases={},
        )
        await settle_lookup(
            place.engine,
            held.fence,
            end,
            is_sensitive=False,
            as_of=await due(place, held.fence.work),
            limits=place.limits,
        )

    async def finish(self, place: Place, held: Held) -> None:
        await self._settle(place, held, Verdict.APPLIED)

    async def defer(self, place: Place, held: Held) -> None:
        await self._settle(place, held, Verdict.INCONCLUSIVE)

    async def retry(self, place: Place, held: Held) -> None:
        await self._settle(place, held, Verdict.INCONCLUSIVE)

    async def give_up(self, place: Place, held: Held) -> None:
        await self._settle(place, held, Verdict.UNUSABLE)

    async def abandon(self, world: "World", work: WorkId) -> Fence:
        return await _by_claims(self, world, work)

    async def lose(self, world: "World", held: Held) -> None:
        await _by_a_reclaim(self, world, held)

    async def effects(self, world: "World", work: WorkId) -> int:
        rows = await world.sql(
            "SELECT count(*) FROM oncefence.lookups WHERE org_id = :org AND work_id = :work",
            work=work,
        )
        return int(rows[0][0])


class OfAHandler:
    """The toy, and with it every family that is a handler alone; what counts is each run."""

    name = TOY
    source_or_target = ("source", "target")

    async def pending(self, world: "World", *, lane: str | None = None) -> WorkId:
        kind, _, _ = (lane or "").partition(":")
        lanes = {f"{kind}_lane": f"{world.org}:{lane}"} if kind else {}
        return (await toy_item(world, f"toy-{next(_numbers)}", **lanes)).work

    async def try_to_claim(
        self,
        place: Place,
        work: WorkId,
        *,
        as_of: datetime | None = None,
        token: LeaseToken | None = None,
    ) -> Held | NotStarted:
        found = await claim_work(
            place.engine,
            place.org,
            work,
            family=TOY,
            as_of=as_of or await due(place, work),
            owner=uuid4(),
            token=token or LeaseToken(uuid4()),
            limits=place.limits,
        )
        return found if isinstance(found, NotStarted) else Held(fence=found.fence, given=found)

    async def settle(self, place: Place, held: Held, end: WorkEnd) -> None:
        await settle_work(
            place.engine,
            held.fence,
            end,
            as_of=await due(place, held.fence.work),
            limits=place.limits,
        )

    async def finish(self, place: Place, held: Held) -> None:
        await self.settle(place, held, WorkEnd(end=ClaimEnd.FINISH))

    async def defer(self, place: Place, held: Held) -> None:
        await self.settle(place, held, WorkEnd(end=ClaimEnd.DEFER, wait_seconds=600))

    async def retry(self, place: Place, held: Held) -> None:
        await self.settle(place, held, WorkEnd(end=ClaimEnd.RETRY, failure_class="by_the_suite"))

    async def give_up(self, place: Place, held: Held) -> None:
        await self.settle(place, held, WorkEnd(end=ClaimEnd.GIVE_UP, failure_class="by_the_suite"))

    async def abandon(self, world: "World", work: WorkId) -> Fence:
        return await _by_claims(self, world, work)

    async def lose(self, world: "World", held: Held) -> None:
        await _by_a_reclaim(self, world, held)

    async def effects(self, world: "World", work: WorkId) -> int:
        return int((await world.item(work)).ownership_epoch)


FAMILIES: tuple[Family, ...] = (Dispatch(), Lookup(), OfAHandler())
BY_NAME = {family.name: family for family in FAMILIES}
