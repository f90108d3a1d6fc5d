"""Reading depth and age of what waits, as the newest revision has them."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from oncefence.domain.ids import OrgId
from oncefence.domain.operator import EVERY_ORG
from oncefence.storage.engine import one_statement, run_phase
from oncefence.storage.work_pressure import VIEW

READ = text(
    """
    SELECT r.revision, r.source_snapshot, r.source_time, r.is_dropped,
           extract(epoch FROM statement_timestamp() - r.source_time)::float8 AS age_seconds,
           p.org_id, p.family, p.provider, p.state, p.depth, p.due,
           extract(epoch FROM r.source_time - p.oldest_due_at)::float8 AS oldest_due_seconds,
           extract(epoch FROM r.source_time - p.oldest_made_at)::float8 AS oldest_made_seconds
      FROM oncefence.pressure_revisions AS r
      LEFT JOIN oncefence.work_pressure AS p
        ON p.revision = r.revision AND NOT r.is_dropped
       AND (:is_every_org OR p.org_id = ANY (CAST(:orgs AS text[])))
     WHERE r.view_name = :view
     ORDER BY p.org_id, p.family, p.provider, p.state
    """
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """How much of one kind waits in one state, and for how long the oldest has."""

    org: OrgId
    family: str
    provider: str
    """Empty where the family has none."""

    state: str
    depth: int
    due: int
    """How many of them are due: whoever is not, waits by order and not by pressure."""

    oldest_due_seconds: float | None
    oldest_made_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Pressure:
    """One reading; `waiting` is None where there is none, which is not the same as nothing."""

    revision: int
    source_snapshot: str | None
    source_time: datetime | None
    age_seconds: float | None
    waiting: Sequence[Waiting] | None

    @property
    def version(self) -> str:
        """What an operator's act names as the version that was seen."""
        return str(self.revision)


async def read_pressure(engine: AsyncEngine, orgs: Collection[OrgId]) -> Pressure:
    """The newest revision, of these orgs alone; EVERY_ORG stands for all."""

    async def transaction() -> Pressure:
        async with one_statement(engine).connect() as connection:
            rows = (
                await connection.execute(
                    READ,
                    {
                        "view": VIEW,
                        "is_every_org": EVERY_ORG in orgs,
                        "orgs": sorted(orgs),
                    },
                )
            ).all()
        if not rows:
            return Pressure(
                revision=0, source_snapshot=None, source_time=None, age_seconds=None, waiting=None
            )
        head = rows[0]
        return Pressure(
            revision=head.revision,
            source_snapshot=head.source_snapshot,
            source_time=head.source_time,
            age_seconds=head.age_seconds,
            waiting=None
            if head.is_dropped
            else [
                Waiting(
                    org=OrgId(row.org_id),
                    family=row.family,
                    provider=row.provider,
                    state=row.state,
                    depth=row.depth,
                    due=row.due,
                    oldest_due_seconds=row.oldest_due_seconds,
                    oldest_made_seconds=row.oldest_made_seconds,
                )
                for row in rows
                if row.org_id is not None
            ],
        )

    return await run_phase("read_pressure", transaction)
