"""Reading the breakers: how each stands, since when, and who said so (C304)."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncEngine

from oncefence.domain.breaker import BREAKER, BreakerKey, BreakerState
from oncefence.domain.ids import OrgId, PrincipalBindingId
from oncefence.domain.operator import EVERY_ORG
from oncefence.storage.engine import one_statement, run_phase

# From its time on an open one is half-open, whether anybody has come to say so or not.
STANDING = """
    SELECT b.*, b.state = 'open' AND b.until <= clock_timestamp() AS is_past,
           f.failing, f.seen
      FROM oncefence.breakers AS b
     CROSS JOIN oncefence.breaker_rules AS r
      LEFT JOIN LATERAL oncefence.orgs_telling(b.key, clock_timestamp() - r.signs_count_for) AS f
        ON b.org_id = '*'
"""
BREAKERS = text(
    f"""
    {STANDING}
     WHERE (CAST(:of_all AS boolean) OR b.org_id = '*' OR b.org_id = ANY (CAST(:orgs AS text[])))
       AND (CAST(:with_closed AS boolean) OR b.state <> 'closed')
     ORDER BY b.state = 'closed', b.org_id <> '*', b.org_id, b.key
     LIMIT :limit
    """
)
ONE = text(f"{STANDING} WHERE b.org_id = :org AND b.key = :key")
STATES = text(
    """
    SELECT b.org_id = '*' AS is_of_provider, b.provider,
           coalesce(b.endpoint_class, '') AS endpoint_class,
           CASE WHEN b.state = 'open' AND b.until <= clock_timestamp()
                THEN 'half_open' ELSE b.state END AS state, count(*) AS breakers
      FROM oncefence.breakers AS b
     WHERE b.state <> 'closed'
     GROUP BY 1, 2, 3, 4
     ORDER BY 1, 2, 3, 4
    """
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Breaker:
    """One breaker; what is None was never so."""

    key: BreakerKey
    provider: str
    state: BreakerState
    via: str
    version: str
    """What an act on it names as expected."""

    changed_at: datetime | None
    changed_by: str | None
    changed_note: str | None
    opens: int
    """How often it has opened since it was last closed."""

    opened_at: datetime | None
    until: datetime | None
    """Of one that is open, when it is half-open."""

    failures: int
    orgs_failing: int | None = None
    """Of a provider's, how many orgs' newest sign is a failure; of how many that tell at all."""

    orgs_seen: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakersStanding:
    """How many breakers of one kind stand in one state that is not closed."""

    is_of_provider: bool
    provider: str
    endpoint_class: str
    """Empty of those of bindings."""

    state: BreakerState
    breakers: int


async def list_breakers(
    engine: AsyncEngine, orgs: Collection[OrgId], *, with_closed: bool = False, limit: int = 200
) -> Sequence[Breaker]:
    """
    The breakers that hold something of these orgs back; those that are closed where asked for.

    One of a provider is shown to all, since it holds all back; what other orgs told of it is for
    whoever may see all of them (C8).
    """
    values = {
        "of_all": EVERY_ORG in orgs,
        "orgs": sorted(orgs),
        "with_closed": with_closed,
        "limit": limit,
    }

    async def transaction() -> Sequence[Row[Any]]:
        async with one_statement(engine).connect() as connection:
            return (await connection.execute(BREAKERS, values)).all()

    rows = await run_phase("list_breakers", transaction)
    return [breaker_of(row, tells_orgs=EVERY_ORG in orgs) for row in rows]


async def read_breaker(engine: AsyncEngine, key: BreakerKey, *, tells_orgs: bool) -> Breaker | None:
    """The breaker of `key`; None where nothing was ever told of it, so that it is closed."""

    async def transaction() -> Row[Any] | None:
        async with one_statement(engine).connect() as connection:
            found = await connection.execute(ONE, {"org": key.org, "key": key.row_key})
            return found.one_or_none()

    row = await run_phase("read_breaker", transaction)
    return None if row is None else breaker_of(row, tells_orgs=tells_orgs)


async def count_breakers(engine: AsyncEngine) -> Sequence[BreakersStanding]:
    """How many are not closed, by kind, provider, class and state; without any org."""

    async def transaction() -> Sequence[BreakersStanding]:
        async with one_statement(engine).connect() as connection:
            return [
                BreakersStanding(
                    is_of_provider=row.is_of_provider,
                    provider=row.provider,
                    endpoint_class=row.endpoint_class,
                    state=BreakerState(row.state),
                    breakers=row.breakers,
                )
                for row in (await connection.execute(STATES)).all()
            ]

    return await run_phase("count_breakers", transaction)


def never_told(key: BreakerKey) -> Breaker:
    """The breaker of `key` before anything was told of it: closed, and at the version of birth."""
    return Breaker(
        key=key,
        provider=key.provider or "",
        state=BreakerState(BREAKER.initial),
        via="create",
        version="0",
        changed_at=None,
        changed_by=None,
        changed_note=None,
        opens=0,
        opened_at=None,
        until=None,
        failures=0,
    )


def breaker_of(row: Row[Any], *, tells_orgs: bool = False) -> Breaker:
    """The breaker that a row of the table is."""
    is_past = getattr(row, "is_past", False)
    binding = None if row.binding_id is None else PrincipalBindingId(row.binding_id)
    return Breaker(
        key=BreakerKey(
            provider=row.provider if binding is None else None,
            endpoint_class=row.endpoint_class,
            org=OrgId(row.org_id),
            binding=binding,
        ),
        provider=row.provider,
        state=BreakerState.HALF_OPEN if is_past else BreakerState(row.state),
        via=row.via,
        version=str(row.version),
        changed_at=row.changed_at,
        changed_by=row.changed_by,
        changed_note=row.changed_note,
        opens=row.opens,
        opened_at=row.opened_at,
        until=row.until if row.state != "closed" else None,
        failures=row.failures,
        orgs_failing=row.failing if tells_orgs else None,
        orgs_seen=row.seen if tells_orgs else None,
    )
