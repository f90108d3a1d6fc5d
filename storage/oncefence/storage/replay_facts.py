"""What decides about a replay, in one statement; under locks where something follows from it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection

from oncefence.domain.ids import OrgId, WorkId
from oncefence.domain.limits import Limits
from oncefence.domain.replay import REMEDIES, ReplayFacts, ReplayVerdict, judge
from oncefence.domain.work_item import EFFECTS


def _overtaken(lane: str) -> str:
    """
    Whether a later item of the lane has gone ahead.

    Claimed once is ahead for good; what was cancelled before that never was. What is alive and
    what has ended stand in two indexes.
    """
    later = (
        f"EXISTS (SELECT FROM oncefence.work_items AS o WHERE o.org_id = w.org_id"
        f" AND o.{lane}_lane = w.{lane}_lane AND o.{lane}_sequence > w.{lane}_sequence"
    )
    return (
        f"{later} AND o.state IN ('pending', 'processing', 'retry') AND o.ownership_epoch > 0)"
        f" OR {later} AND o.state IN ('succeeded', 'skipped', 'dead', 'cancelled',"
        " 'awaiting_legacy_outcome', 'legacy_outcome_unknown', 'reconciled_legacy_terminal')"
        " AND (o.ownership_epoch > 0 OR o.state <> 'cancelled'))"
    )


# In the order of acceptance, so that what is applied in this order never overtakes itself.
FACTS = text(
    f"""
    SELECT w.work_id, w.family, w.definition, w.provider, w.state, w.failure_class, w.changed_at,
           w.subject_kind, w.subject_id, w.command_id, w.execution_id,
           oncefence.work_version(w) AS version,
           r.work_id AS replayed_as, r.made_at AS replayed_at,
           e.status AS execution_status, coalesce(e.attempt, 0) AS attempts_started,
           w.command_id IS NOT NULL AND (
               oncefence.newest_doubt(w.org_id, w.command_id) IS NOT NULL
               OR EXISTS (SELECT FROM oncefence.contradictions AS x
                           WHERE x.org_id = w.org_id AND x.execution_id = w.execution_id)
           ) AS is_in_doubt,
           {_overtaken("source")} OR {_overtaken("target")}
           -- Or another item does the same for its command by now (C52).
           OR EXISTS (SELECT FROM oncefence.work_items AS o
                       WHERE o.org_id = w.org_id AND o.command_id = w.command_id
                         AND o.family = w.family AND o.work_id <> w.work_id
                         AND o.state IN ('pending', 'processing', 'retry',
                                         'awaiting_legacy_outcome', 'legacy_outcome_unknown')
           ) AS is_superseded,
           v.name AS view_name, v.revision AS pinned_revision, v.digest AS pinned_digest,
           n.revision AS current_revision, n.digest AS current_digest,
           NOT (w.definition = ANY (v.operations)) OR w.definition = ANY (n.operations)
               AS is_offered,
           p.binding_id IS NULL OR coalesce(
               b.binding_id = p.binding_id
               AND h.generation_id = coalesce(c.generation_id, h.generation_id), false)
               AS has_binding,
           g.ordinal AS pinned_generation, h.ordinal AS current_generation,
           c.link_version AS pinned_link_version, l.version AS current_link_version,
           c.link_id IS NULL OR (l.state = 'active' AND l.version = c.link_version) AS has_link,
           k.execution_id IS NULL OR k.wrapped_key IS NOT NULL AS has_content
      FROM oncefence.work_items AS w
      LEFT JOIN oncefence.work_items AS r
        ON r.org_id = w.org_id AND r.replays_work_id = w.work_id
      LEFT JOIN oncefence.executions AS e
        ON e.org_id = w.org_id AND e.execution_id = w.execution_id
      LEFT JOIN oncefence.commands AS c
        ON c.org_id = w.org_id AND c.command_id = w.command_id
      JOIN oncefence.binding_views AS v ON v.org_id = w.org_id AND v.view_id = w.view_id
      CROSS JOIN LATERAL (
        SELECT o.revision, o.digest, o.operations, o.principal_binding
          FROM oncefence.view_activations AS i
          JOIN oncefence.binding_views AS o ON o.org_id = i.org_id AND o.view_id = i.view_id
         WHERE i.org_id = v.org_id AND i.installation = v.installation AND i.name = v.name
         ORDER BY i.ordinal DESC LIMIT 1) AS n
      LEFT JOIN oncefence.principal_bindings AS p
        ON p.org_id = w.org_id AND p.binding_id = coalesce(c.binding_id, w.binding_id)
      LEFT JOIN oncefence.principal_bindings AS b
        ON b.org_id = w.org_id AND b.name = n.principal_binding
       AND b.subject IS NOT DISTINCT FROM p.subject
      LEFT JOIN oncefence.binding_generations AS g
        ON g.org_id = c.org_id AND g.generation_id = c.generation_id
      LEFT JOIN oncefence.binding_generations AS h
        ON h.org_id = p.org_id AND h.binding_id = p.binding_id AND h.state = 'current'
      LEFT JOIN oncefence.remote_links AS l ON l.org_id = c.org_id AND l.link_id = c.link_id
      LEFT JOIN oncefence.execution_keys AS k
        ON k.org_id = w.org_id AND k.execution_id = w.execution_id
     WHERE w.org_id = :org AND w.work_id = ANY (:works)
     ORDER BY coalesce(c.accepted_at, w.made_at), w.made_at, w.work_id
    """  # noqa: S608  # only constants are joined in
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanLine:
    """One item of a plan: what it pinned, what stands now, and what follows from both."""

    work: WorkId
    family: str
    definition: str
    provider: str | None
    version: str
    verdict: ReplayVerdict
    failure_class: str | None
    execution_status: str | None
    view: str
    pinned_revision: int
    pinned_digest: str
    current_revision: int
    current_digest: str
    pinned_generation: int | None
    current_generation: int | None
    pinned_link_version: int | None
    current_link_version: int | None
    attempts_started: int
    attempts_max: int
    replayed_as: UUID | None
    replayed_at: datetime | None

    @property
    def remedy(self) -> str:
        """What the verdict asks for."""
        return REMEDIES[self.verdict]

    @property
    def provider_calls(self) -> int:
        """How many calls a replay begins with; a retry of it may make more."""
        is_call = self.verdict is ReplayVerdict.SAFE_TO_REPLAY and self.family in EFFECTS
        return int(is_call)


async def plan_lines(
    connection: AsyncConnection, org: OrgId, works: Sequence[WorkId], limits: Limits
) -> list[PlanLine]:
    """A line for each of these items that exists, in the order of their acceptance."""
    rows = await connection.execute(FACTS, {"org": org, "works": list(works)})
    return [_line(row, limits) for row in rows.all()]


def _line(row: Row[Any], limits: Limits) -> PlanLine:
    facts = ReplayFacts(
        family=row.family,
        item_state=row.state,
        is_replayed=row.replayed_as is not None,
        execution_status=row.execution_status,
        is_in_doubt=row.is_in_doubt,
        is_superseded=row.is_superseded,
        has_binding=row.has_binding,
        has_link=row.has_link,
        is_offered=row.is_offered,
        has_attempts_left=row.attempts_started < limits.attempts_max,
        has_content=row.has_content,
    )
    return PlanLine(
        work=WorkId(row.work_id),
        family=row.family,
        definition=row.definition,
        provider=row.provider,
        version=row.version,
        verdict=judge(facts),
        failure_class=row.failure_class,
        execution_status=row.execution_status,
        view=row.view_name,
        pinned_revision=row.pinned_revision,
        pinned_digest=row.pinned_digest,
        current_revision=row.current_revision,
        current_digest=row.current_digest,
        pinned_generation=row.pinned_generation,
        current_generation=row.current_generation,
        pinned_link_version=row.pinned_link_version,
        current_link_version=row.current_link_version,
        attempts_started=row.attempts_started,
        attempts_max=limits.attempts_max,
        replayed_as=row.replayed_as,
        replayed_at=row.replayed_at,
    )
