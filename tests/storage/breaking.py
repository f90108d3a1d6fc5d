"""Breakers in tests: what is told of them, how they stand, and time that passes for them."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

import asyncpg
from sqlalchemy import Row, text

from oncefence.domain.breaker import BreakerKey, Sign
from oncefence.domain.effect import Outcome
from oncefence.domain.ids import OrgId, PrincipalBindingId
from oncefence.storage.phases.settle_attempt import AttemptEnd
from tests.support.servers import Database
from tests.support.world import World, an_end

_providers = itertools.count(1)

PASS = """
    UPDATE oncefence.breakers AS b
       SET changed_at = changed_at - $3::interval, opened_at = opened_at - $3::interval,
           until = until - $3::interval, counts_from = counts_from - $3::interval,
           first_failed_at = first_failed_at - $3::interval,
           watched_from = watched_from - $3::interval, watched_until = watched_until - $3::interval,
           reads_from = reads_from - $3::interval, writes_from = writes_from - $3::interval
     WHERE b.org_id = $1 AND b.key = $2
"""
PASS_FOR_ORGS = """
    UPDATE oncefence.breaker_orgs
       SET last_failed_at = last_failed_at - $2::interval,
           last_succeeded_at = last_succeeded_at - $2::interval
     WHERE key = $1
"""


async def let_pass(database: Database, key: BreakerKey, seconds: float) -> None:
    """So many seconds pass for the breaker, and for nothing else."""
    connection = await asyncpg.connect(database.admin_url)
    try:
        async with connection.transaction():
            await connection.execute("SET LOCAL session_replication_role = replica")
            span = await connection.fetchval("SELECT make_interval(secs => $1::float8)", seconds)
            await connection.execute(PASS, key.org, key.row_key, span)
            await connection.execute(PASS_FOR_ORGS, key.row_key, span)
    finally:
        await connection.close()


async def standing(database: Database, key: BreakerKey) -> Row[Any] | None:
    """The row of the breaker; None where nothing was ever told of it."""
    async with database.app_engine.connect() as connection:
        found = await connection.execute(
            text(
                "SELECT *, xmin::text AS written_by FROM oncefence.breakers"
                " WHERE org_id = :org AND key = :key"
            ),
            {"org": key.org, "key": key.row_key},
        )
        return found.one_or_none()


def of_binding(world: World) -> BreakerKey:
    """The breaker of the world's account."""
    return BreakerKey(org=world.org, binding=world.binding)


def told(outcome: Outcome, sign: Sign | None) -> AttemptEnd:
    """The end of an attempt that says this of the provider."""
    return replace(an_end(outcome), sign=sign)


async def fail(world: World, times: int, *, sign: Sign | None = Sign.FAILURE) -> None:
    """So many commands go out together, and none of them gets there."""
    commands = [await world.accept_command(f"failing-{uuid4()}") for _ in range(times)]
    started = [await world.start(each) for each in commands]
    for each in started:
        await world.settle(each, told(Outcome.RETRYABLE_PRE_DISPATCH, sign))


async def succeed(world: World) -> None:
    """One command gets there."""
    started = await world.start(await world.accept_command(f"fine-{uuid4()}"))
    await world.settle(started, told(Outcome.ACCEPTED, Sign.SUCCESS))


@dataclass(frozen=True, slots=True, kw_only=True)
class Teller:
    """A provider that only the test knows, of which any org can tell."""

    database: Database
    name: str = field(default_factory=lambda: f"provider-{next(_providers)}")
    bindings: dict[str, UUID] = field(default_factory=dict)

    @property
    def key(self) -> BreakerKey:
        """Its breaker."""
        return BreakerKey(provider=self.name, endpoint_class="writes")

    def key_of(self, org: str) -> BreakerKey:
        """The breaker of the org's account there."""
        return BreakerKey(org=OrgId(org), binding=PrincipalBindingId(self.bindings[org]))

    def _of(self, org: str) -> dict[str, object]:
        # A binding for each call would be a breaker for each call: one for each org, as it is.
        binding = self.bindings.setdefault(org, uuid4())
        return {"org": org, "provider": self.name, "binding": binding}

    async def tell(
        self, sign: Sign, *orgs: str, is_read: bool = False, began_at: datetime | None = None
    ) -> None:
        """Each of the orgs tells that."""
        for org in orgs:
            await self._ask(
                "note_breaker(:org, :provider, 'writes', :binding, :is_read, :sign,"
                " coalesce(CAST(:began_at AS timestamptz), clock_timestamp()))",
                {**self._of(org), "is_read": is_read, "sign": sign, "began_at": began_at},
            )

    async def waits(self, org: str = "an-org", *, is_read: bool = False) -> datetime | None:
        """Until when a request of the org waits."""
        rows = await self._ask(
            "breaker_obstacle(:org, :provider, 'writes', :binding, :is_read)",
            {**self._of(org), "is_read": is_read},
        )
        until: datetime | None = rows[0].until
        return until

    async def passes(self, org: str = "an-org", *, is_read: bool = False) -> bool:
        """Whether a request of the org is let through; it takes its place if so."""
        rows = await self._ask(
            "take_breaker_place(:org, :provider, 'writes', :binding, :is_read) AS until",
            {**self._of(org), "is_read": is_read},
        )
        return rows[0].until is None

    async def _ask(self, call: str, values: dict[str, object]) -> Sequence[Row[Any]]:
        async with self.database.app_engine.begin() as connection:
            return (await connection.execute(text(f"SELECT * FROM oncefence.{call}"), values)).all()

    async def state(self) -> str | None:
        """How its breaker stands."""
        row = await standing(self.database, self.key)
        return None if row is None else row.state

    async def pass_time(self, seconds: float) -> None:
        """So many seconds pass for it."""
        await let_pass(self.database, self.key, seconds)

    async def go_dark(self, orgs: int = 3) -> None:
        """So many orgs fail, for long enough, and nobody else is seen."""
        names = [f"org-{self.name}-{each}" for each in range(orgs)]
        await self.tell(Sign.FAILURE, *names)
        await self.pass_time(6)
        await self.tell(Sign.FAILURE, names[0])
