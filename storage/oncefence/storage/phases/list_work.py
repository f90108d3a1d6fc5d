"""Listing work: what waits, what is held, and what keeps it, as far as one read tells."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from sqlalchemy import Row, TextClause, text
from sqlalchemy.ext.asyncio import AsyncEngine

from oncefence.domain.claim import ENGINE_CAPABILITY
from oncefence.domain.ids import OrgId
from oncefence.storage.dead_letters import Position
from oncefence.storage.engine import one_statement, run_phase

LIVE: Final = ("pending", "retry", "processing")

# What a claim would say now. How many a slow start lets through is only counted by a claim, so
# here it is a warning.
STANDING: Final = """
    CASE
      WHEN w.state = 'processing' AND w.lease_until <= clock_timestamp() THEN 'lease_ended'
      WHEN w.state = 'processing' AND w.cancel_requested_at IS NOT NULL THEN 'cancel_requested'
      WHEN w.state = 'processing' THEN 'held'
      WHEN w.state NOT IN ('pending', 'retry') THEN NULL
      WHEN w.engine_capability > :engine_capability THEN 'needs_newer_engine'
      WHEN NOT oncefence.lanes_are_free(w) THEN 'lane_blocked'
      WHEN EXISTS (SELECT FROM oncefence.pauses AS p
                    WHERE p.org_id IN ('*', w.org_id) AND p.resumed_at IS NULL
                      AND oncefence.is_paused_by(w, p)) THEN 'paused'
      WHEN w.run_after > clock_timestamp() THEN 'not_due'
      WHEN EXISTS (SELECT FROM oncefence.pauses AS p
                    WHERE p.org_id IN ('*', w.org_id) AND oncefence.is_paused_by(w, p)
                      AND p.resumed_at + make_interval(secs => p.ramp_seconds)
                          > clock_timestamp()) THEN 'slow_start'
      ELSE 'due'
    END
"""
_SELECT: Final = f"""
    SELECT w.org_id, w.work_id, w.family, w.definition, w.provider, w.subject_kind, w.subject_id,
           w.command_id, w.execution_id, w.state, w.via, {STANDING} AS standing, w.run_after,
           w.attempt, w.claims_lost, w.lease_until, w.cancel_requested_at, w.outcome,
           w.failure_class, w.summary, w.queue_class, w.replays_work_id, w.made_at, w.changed_at,
           oncefence.work_version(w) AS version
      FROM oncefence.work_items AS w
"""  # noqa: S608  # only the constant above is joined in
# Joined in only where it is asked for, as for dead letters.
_CONDITIONS: Final[Mapping[str, str]] = {
    "live": "w.queue_class >= '' AND w.state IN ('pending', 'processing', 'retry')",
    "states": "w.state = ANY (:states)",
    "org": "w.org_id = :org",
    "orgs": "w.org_id = ANY (:orgs)",
    "family": "w.family = :family",
    "provider": "w.provider = :provider",
    "definition": "w.definition = :definition",
    "failure_class": "w.failure_class = :failure_class",
    "after_at": "(w.made_at, w.work_id) < (:after_at, :after_work)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkFilter:
    """Which items; what is None does not narrow."""

    orgs: Sequence[OrgId] | None
    states: Sequence[str] = LIVE
    family: str | None = None
    provider: str | None = None
    definition: str | None = None
    failure_class: str | None = None


async def list_work(
    engine: AsyncEngine, which: WorkFilter, *, limit: int, after: Position | None = None
) -> Sequence[Row[Any]]:
    """A page of items, the youngest first; the next one begins behind the last row."""

    orgs = which.orgs
    is_one = orgs is not None and len(orgs) == 1
    is_live = set(which.states) == set(LIVE)
    given = {
        "live": True if is_live else None,
        "states": None if is_live else list(which.states),
        "org": orgs[0] if orgs is not None and is_one else None,
        "orgs": None if orgs is None or is_one else list(orgs),
        "family": which.family,
        "provider": which.provider,
        "definition": which.definition,
        "failure_class": which.failure_class,
        "after_at": None if after is None else after.at,
    }
    narrowed = {name: value for name, value in given.items() if value is not None}
    values: dict[str, object] = {"limit": limit, "engine_capability": ENGINE_CAPABILITY}
    values |= narrowed
    values |= {} if after is None else {"after_work": after.work}

    async def transaction() -> Sequence[Row[Any]]:
        async with one_statement(engine).connect() as connection:
            return (await connection.execute(_statement(tuple(narrowed)), values)).all()

    return await run_phase("list_work", transaction)


@cache
def _statement(narrowed_by: tuple[str, ...]) -> TextClause:
    conditions = " AND ".join(_CONDITIONS[name] for name in narrowed_by)
    return text(
        f"{_SELECT} WHERE {conditions} ORDER BY w.made_at DESC, w.work_id DESC LIMIT :limit"
    )
