"""Reading the counts of quota: how much is used, and what is closed until when (C300)."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncEngine

from oncefence.domain.ids import OrgId
from oncefence.domain.operator import EVERY_ORG
from oncefence.storage.engine import one_statement, run_phase

# An account, and an address, may be several orgs' at once: each of those that have it sees what
# holds its own work back. The narrowest part of a count says whose it is.
COUNTS = text(
    """
    WITH counts AS (
        SELECT c.*, clock_timestamp() AS at FROM oncefence.quota_counts AS c
         WHERE (CAST(:key AS text) IS NULL OR c.quota_key = :key)
           AND (CAST(:of_all AS boolean) OR CASE
                WHEN c.org_id IS NOT NULL THEN c.org_id = ANY (CAST(:orgs AS text[]))
                ELSE EXISTS (
                    SELECT FROM oncefence.principal_bindings AS b
                      JOIN oncefence.binding_generations AS g
                        ON g.org_id = b.org_id AND g.binding_id = b.binding_id
                     WHERE b.org_id = ANY (CAST(:orgs AS text[])) AND b.provider = c.provider
                       AND CASE WHEN c.binding_id IS NOT NULL THEN b.binding_id = c.binding_id
                                WHEN c.account IS NOT NULL THEN g.account = c.account
                                WHEN c.base_url IS NOT NULL
                                THEN coalesce(g.base_url, b.base_url) = c.base_url
                                ELSE true END) END)
    ), present AS (
        SELECT c.*, n.resets_at AS ends_at,
               (SELECT sum(u) FROM unnest(n.used) AS u) AS units,
               (SELECT sum(u) FROM unnest(n.lookups) AS u) AS lookup_units,
               (SELECT sum(u) FROM unnest(n.cursors) AS u) AS cursor_units,
               c.closed_until > c.at AS is_closed, c.told_until > c.at AS is_told
          FROM counts AS c
         CROSS JOIN LATERAL oncefence.quota_at(
            (SELECT q FROM oncefence.quota_counts AS q WHERE q.quota_key = c.quota_key), c.at) AS n
    )
    SELECT * FROM present AS p
     WHERE CAST(:with_idle AS boolean) OR p.is_closed OR p.units > 0
     ORDER BY p.is_closed IS NOT TRUE, p.units::double precision / p.limit_units DESC NULLS LAST,
              p.quota_key
     LIMIT :limit
    """
)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaCount:
    """
    One count or gate, as it is now.

    `limit` is what the last request had declared, and `told_limit` what the provider says instead
    where that is lower. What is None of the scope is no part of it.
    """

    key: str
    provider: str
    dimension: str | None
    """None of a gate, which counts nothing."""

    org: OrgId | None
    binding: UUID | None
    account: str | None
    endpoint_class: str | None
    base_url: str | None
    window: str | None
    window_seconds: int | None
    limit: int | None
    told_limit: int | None
    used: int
    used_by_lookups: int
    used_by_cursors: int
    resets_at: datetime | None
    closed_until: datetime | None
    closed_because: str | None
    changed_at: datetime


async def list_quota(
    engine: AsyncEngine,
    orgs: Collection[OrgId],
    *,
    key: str | None = None,
    with_idle: bool = False,
    limit: int = 200,
) -> Sequence[QuotaCount]:
    """
    The counts that work of these orgs is held by, what is closed and what is fullest first.

    Left out are those of which nothing is used, unless they are asked for; `key` asks for one.
    """
    values = {
        "of_all": EVERY_ORG in orgs,
        "orgs": sorted(orgs),
        "key": key,
        "with_idle": with_idle or key is not None,
        "limit": limit,
    }

    async def transaction() -> Sequence[QuotaCount]:
        async with one_statement(engine).connect() as connection:
            return [_count_of(row) for row in (await connection.execute(COUNTS, values)).all()]

    return await run_phase("list_quota", transaction)


def _count_of(row: Row[Any]) -> QuotaCount:
    return QuotaCount(
        key=row.quota_key,
        provider=row.provider,
        dimension=row.dimension,
        org=row.org_id,
        binding=row.binding_id,
        account=row.account,
        endpoint_class=row.endpoint_class,
        base_url=row.base_url,
        window=row.time_window,
        window_seconds=row.window_seconds,
        limit=row.limit_units,
        told_limit=row.told_limit if row.is_told else None,
        used=row.units,
        used_by_lookups=row.lookup_units,
        used_by_cursors=row.cursor_units,
        resets_at=row.ends_at,
        closed_until=row.closed_until if row.is_closed else None,
        closed_because=row.closed_because if row.is_closed else None,
        changed_at=row.changed_at,
    )
