"""Showing one item: all that it is, where it comes from, and what was made of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from oncefence.domain.claim import ENGINE_CAPABILITY
from oncefence.domain.errors import NoSuchTarget
from oncefence.domain.ids import OrgId, WorkId
from oncefence.storage.engine import run_phase
from oncefence.storage.phases.list_work import STANDING
from oncefence.storage.phases.read_command import SNAPSHOT

# Every column but the tokens of claims: whoever has one could speak for the claim.
ITEM = text(
    f"""
    SELECT w.org_id, w.work_id, w.family, w.subject_kind, w.subject_id, w.command_id,
           w.execution_id, w.attempt_id, w.installation, w.definition, w.provider, w.binding_id,
           w.view_id, w.view_revision, w.view_digest, w.payload_schema_version,
           w.engine_capability, w.queue_class, w.deadline_ms, w.source_lane, w.source_sequence,
           w.target_lane, w.target_sequence, w.replays_work_id, w.state, w.via,
           {STANDING} AS standing, w.run_after, w.attempt, w.claims_lost, w.lease_owner,
           w.lease_until, w.ownership_epoch, w.cancel_requested_at, w.rollback_fence_id,
           w.legacy_receipt_version, w.legacy_receipt_digest, w.outcome, w.failure_class,
           w.summary, w.made_at, w.changed_at, oncefence.work_version(w) AS version,
           e.status AS execution_status
      FROM oncefence.work_items AS w
      LEFT JOIN oncefence.executions AS e
        ON e.org_id = w.org_id AND e.execution_id = w.execution_id
     WHERE w.org_id = :org AND w.work_id = :work
    """  # noqa: S608  # only a constant is joined in
)
# From the first item of the line to the last; `step` is 0 at the item itself.
LINEAGE = text(
    """
    WITH RECURSIVE before AS (
        SELECT w.*, 0 AS step FROM oncefence.work_items AS w
         WHERE w.org_id = :org AND w.work_id = :work
        UNION ALL
        SELECT a.*, b.step - 1 FROM before AS b
          JOIN oncefence.work_items AS a
            ON a.org_id = b.org_id AND a.work_id = b.replays_work_id
    ), after AS (
        SELECT w.*, 0 AS step FROM oncefence.work_items AS w
         WHERE w.org_id = :org AND w.work_id = :work
        UNION ALL
        SELECT d.*, a.step + 1 FROM after AS a
          JOIN oncefence.work_items AS d
            ON d.org_id = a.org_id AND d.replays_work_id = a.work_id
    )
    SELECT step, work_id, replays_work_id, state, via, failure_class, attempt, made_at, changed_at
      FROM (SELECT * FROM before UNION ALL SELECT * FROM after WHERE step > 0) AS line
     ORDER BY step
    """
)
ACTS = text(
    "SELECT u.at, u.actor, u.act, u.subject_kind, u.subject_id, u.note, u.expected_version"
    "  FROM oncefence.audit AS u"
    " WHERE u.org_id = :org AND u.subject_kind = 'work_item'"
    "   AND u.subject_id = ANY (CAST(:works AS text[])) ORDER BY u.audit_id"
)

Fields = Mapping[str, Any]
"""The columns of a row by their names; Any, because each statement has its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkPage:
    """One item with its lineage both ways, and what operators did to any of that line."""

    item: Fields
    lineage: Sequence[Fields]
    acts: Sequence[Fields]


async def show_work(engine: AsyncEngine, org: OrgId, work: WorkId) -> WorkPage:
    """
    The page of one item, all of one moment.

    Raises:
        NoSuchTarget: The org has no such item.
    """

    async def transaction() -> WorkPage:
        async with engine.begin() as connection:
            await connection.execute(SNAPSHOT)
            return await read_page(connection, org, work)

    return await run_phase("show_work", transaction)


async def read_page(connection: AsyncConnection, org: OrgId, work: WorkId) -> WorkPage:
    """
    The same inside a transaction of the caller.

    Raises:
        NoSuchTarget: The org has no such item.
    """
    place = {"org": org, "work": work}
    found = await connection.execute(ITEM, place | {"engine_capability": ENGINE_CAPABILITY})
    item = found.mappings().one_or_none()
    if item is None:
        raise NoSuchTarget(
            kind="work item", name=str(work), remedy="list them with `oncefence work list`"
        )
    lineage = [dict(row) for row in (await connection.execute(LINEAGE, place)).mappings()]
    works = [str(each["work_id"]) for each in lineage]
    acts = (await connection.execute(ACTS, {"org": org, "works": works})).mappings()
    return WorkPage(item=dict(item), lineage=lineage, acts=[dict(row) for row in acts])
