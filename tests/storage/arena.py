"""Where many meet: the racers of one org, its items, and the locks before which they stand."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypeVar
from uuid import uuid4

from sqlalchemy import Row
from sqlalchemy.ext.asyncio import AsyncEngine

from oncefence.domain.command import Handover, Receipt
from oncefence.domain.effect import Outcome
from oncefence.domain.errors import StoreUnavailable
from oncefence.domain.handoff import EffectHandoffKey
from oncefence.domain.ids import LeaseToken, OutboxId, WorkId
from oncefence.storage.claims import NotStarted
from oncefence.storage.engine import make_engine
from oncefence.storage.phases.accept_handoff import accept_handoff
from oncefence.storage.phases.reject_handoff import reject_handoff
from oncefence.storage.phases.start_attempt import Started, start_attempt
from tests.storage.deaf_line import DeafLine, deaf_engine
from tests.storage.lifecycle_rows import move_item
from tests.storage.racing import barrier, waiting
from tests.support.servers import Database
from tests.support.world import Accepted, World

T = TypeVar("T")
Verb = Callable[[World, Handover, AsyncEngine], Awaitable[Receipt]]

IN_THE_WAY = (
    "INSERT INTO oncefence.handoffs (handoff_key, org_id, installation, capability,"
    " work_binding_digest, admission, outbox_id, payload_address, reason, retained_until)"
    " SELECT k, $2, $3, $4, $5, 'HANDOFF_REJECTED', 'x', ''::bytea, 'x', clock_timestamp()"
    " FROM unnest($1::text[]) AS k"
)
HOLD_ITEMS = (
    "SELECT FROM oncefence.work_items WHERE org_id = $1 AND work_id = ANY ($2::uuid[]) FOR UPDATE"
)
STANDING = """
    SELECT w.work_id, w.ownership_epoch, w.lease_token, w.attempt,
           count(a.attempt_id) AS attempts,
           array_agg(a.lease_token) FILTER (WHERE a.settled_at IS NULL) AS held_by
      FROM oncefence.work_items AS w
      LEFT JOIN oncefence.effect_attempts AS a USING (org_id, work_id)
     WHERE w.org_id = :org GROUP BY w.org_id, w.work_id
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arena:
    """A world with many connections, and as many on which the end of a transaction is not heard."""

    world: World
    wide: AsyncEngine
    deaf: AsyncEngine
    line: DeafLine

    async def over_deaf_line(self, ask: Callable[[AsyncEngine], Awaitable[T]]) -> T:
        """What `ask` comes to if its answer is lost and it is asked again (C171)."""
        try:
            return await ask(self.deaf)
        except StoreUnavailable:
            return await ask(self.wide)

    async def race(
        self, *waves: Sequence[Awaitable[T]], held: tuple[object, ...]
    ) -> list[list[T | BaseException]]:
        """
        What each racer of each wave came to; a wave comes when the one before stands in line.

        They stand before the lock that the statement of `held` takes, and go when it is let go.
        """
        statement, *values = held
        database = self.world.database
        running: list[list[asyncio.Future[T]]] = []
        async with barrier(database, str(statement), *values, commits=False):
            for wave in waves:
                tasks = [asyncio.ensure_future(racer) for racer in wave]
                running.append(tasks)
                await waiting(database, sum(map(len, running)))
            self.line.is_deaf = True
        ends = [await asyncio.gather(*tasks, return_exceptions=True) for tasks in running]
        self.line.is_deaf = False
        return ends


@asynccontextmanager
async def arena_on(store: Database) -> AsyncIterator[Arena]:
    """An arena whose world is new."""
    wide = make_engine(store.app_url, size=52)
    world = await World.make(store)
    world.engine = wide
    try:
        async with deaf_engine(store.app_url, size=20) as (deaf, line):
            yield Arena(world=world, wide=wide, deaf=deaf, line=line)
    finally:
        await wide.dispose()


def batches(of: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """The sequence in pieces of one size."""
    for begin in range(0, len(of), size):
        yield of[begin : begin + size]


def a_fresh_key_for(offer: Handover) -> Handover:
    """The same handover under a key of its own."""
    outbox = OutboxId(uuid4().hex)
    return replace(offer, outbox=outbox, key=EffectHandoffKey.for_outbox(offer.key.scope, outbox))


def in_the_way(of: Sequence[Handover]) -> tuple[object, ...]:
    """Admissions of these keys that are never committed: who wants one waits for their end."""
    scope = of[0].key.scope
    keys = [str(handover.key) for handover in of]
    digest = scope.work_binding_digest
    return IN_THE_WAY, keys, scope.org, scope.installation, scope.capability, digest


async def accept(world: World, handover: Handover, engine: AsyncEngine) -> Receipt:
    return await accept_handoff(engine, world.ring, world.caller, handover, world.limits)


async def reject(world: World, handover: Handover, engine: AsyncEngine) -> Receipt:
    return await reject_handoff(
        engine,
        world.caller,
        handover.key,
        digest=handover.digest,
        outbox=handover.outbox,
        reason="withdrawn",
        limits=world.limits,
    )


async def asking(
    arena: Arena,
    verb: Verb,
    handover: Handover,
    *,
    loses_answer: bool,
) -> Receipt:
    """What the verb says of the handover; where its answer is lost, what it says then."""
    if loses_answer:
        return await arena.over_deaf_line(lambda engine: verb(arena.world, handover, engine))
    return await verb(arena.world, handover, arena.wide)


async def claiming(
    arena: Arena,
    accepted: Accepted,
    token: LeaseToken,
    *,
    as_of: datetime,
    loses_answer: bool = False,
) -> Started | NotStarted:
    """What one claimant is told; where the answer is lost, what its token finds then (C172)."""
    world = arena.world

    async def claim(engine: AsyncEngine) -> Started | NotStarted:
        return await start_attempt(
            engine,
            world.org,
            accepted.work,
            as_of=as_of,
            owner=uuid4(),
            token=token,
            limits=world.limits,
        )

    return await (arena.over_deaf_line(claim) if loses_answer else claim(arena.wide))


async def fresh_item(world: World, subject: str) -> Accepted:
    """An item that nobody has claimed yet."""
    return await world.accept_command(subject)


async def retried_item(world: World, subject: str) -> Accepted:
    """An item that was claimed, sent nothing, and is to be tried again."""
    accepted = await world.accept_command(subject)
    await world.settle(await world.start(accepted), Outcome.RETRYABLE_PRE_DISPATCH)
    return accepted


async def reclaimed_item(world: World, subject: str) -> Accepted:
    """An item whose claimant marked nothing and is gone."""
    accepted = await world.accept_command(subject)
    await world.transaction(move_item("processing", "claim"), work=accepted.work)
    await world.expire_lease(accepted.work)
    return accepted


async def in_turns(all_of: Sequence[Awaitable[T]], *, at_once: int = 10) -> list[T]:
    """What all of them come to, a few at a time."""
    return [end for batch in batches(all_of, at_once) for end in await asyncio.gather(*batch)]


async def two_of(world: World, subject: str) -> tuple[Accepted, Accepted]:
    """Two commands of one subject in their order."""
    return await world.accept_command(subject), await world.accept_command(subject)


def works(pairs: Sequence[tuple[Accepted, Accepted]]) -> list[WorkId]:
    return [accepted.work for pair in pairs for accepted in pair]


async def standing(world: World) -> dict[WorkId, Row[Any]]:
    """Every item of the org with what is known of its claim and its attempts."""
    return {WorkId(row.work_id): row for row in await world.sql(STANDING)}
