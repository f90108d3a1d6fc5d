"""Replaying: an ended item made anew under its lineage, and its execution taken up again (C402)."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from oncefence.domain import ids
from oncefence.domain.errors import ActRefused, NoSuchTarget
from oncefence.domain.ids import CommandId, ExecutionId, OrgId, WorkId
from oncefence.domain.limits import Limits
from oncefence.domain.operator import Act
from oncefence.domain.replay import ReplayVerdict
from oncefence.domain.work_item import EFFECTS
from oncefence.storage import audit, effect_attempts, executions, work_items
from oncefence.storage.engine import run_phase
from oncefence.storage.phases.add_work import SERIALISE
from oncefence.storage.phases.find_work import WorkRef
from oncefence.storage.replay_facts import PlanLine, plan_lines
from oncefence.storage.work_version import refuse_moved

# What an item is never changes, so it can be read before any lock.
KIND = text(
    "SELECT family, command_id FROM oncefence.work_items WHERE org_id = :org AND work_id = :work"
)
# Nobody can be accepted into either lane until COMMIT: a place behind this one that is drawn
# meanwhile could otherwise be claimed ahead of it.
LOCK_LANES = text(
    """
    SELECT FROM oncefence.lanes AS l
      JOIN oncefence.work_items AS w ON w.org_id = l.org_id
       AND l.lane_key IN (w.source_lane, w.target_lane)
     WHERE w.org_id = :org AND w.work_id = :work
     ORDER BY l.lane_key
       FOR UPDATE OF l
    """
)
# Nor can anybody who waits there already be claimed. Whoever came first is seen as ahead.
LOCK_LATER = text(
    """
    SELECT FROM oncefence.work_items AS w
     WHERE w.org_id = :org AND w.state IN ('pending', 'retry')
       AND ((w.source_lane = :source_lane AND w.source_sequence > :source_sequence)
         OR (w.target_lane = :target_lane AND w.target_sequence > :target_sequence))
     ORDER BY w.work_id
       FOR UPDATE
    """
)
HOLD_LINK = text(
    "SELECT FROM oncefence.remote_links AS l"
    " JOIN oncefence.commands AS c ON c.org_id = l.org_id AND c.link_id = l.link_id"
    " WHERE c.org_id = :org AND c.command_id = :command FOR SHARE OF l"
)
HOLD_GENERATION = text(
    "SELECT FROM oncefence.binding_generations AS g"
    " JOIN oncefence.commands AS c ON c.org_id = g.org_id AND c.generation_id = g.generation_id"
    " WHERE c.org_id = :org AND c.command_id = :command FOR SHARE OF g"
)
DISPATCHES = text(
    f"""
    SELECT count(*) FROM oncefence.work_items
     WHERE org_id = :org AND command_id = :command AND family IN {work_items.EFFECT_FAMILIES}
    """  # noqa: S608  # only a constant is joined in
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """The new item, and the ended one that it replays."""

    replays: WorkId
    ref: WorkRef


async def replay_work(
    engine: AsyncEngine,
    org: OrgId,
    work: WorkId,
    *,
    expected_version: str,
    note: str,
    actor: str,
    limits: Limits,
) -> Replayed:
    """
    Make the ended item anew, in its own place of its lanes (C402, C403, C404).

    Of a dispatch this is the operator's retry of the same execution, in the same transaction
    (C70). An item is replayed once: whoever asks again is refused and finds the new item by
    its lineage.

    Raises:
        NoSuchTarget: The org has no such item.
        VersionMoved: It is no longer what the operator looked at.
        ActRefused: Its verdict is another one than safe to replay.
        StoreUnavailable: It may be replayed: look at the item again.
    """

    async def transaction() -> Replayed:
        async with engine.begin() as connection:
            item = await _lock(connection, org, work)
            await refuse_moved(connection, org, work, expected_version)
            execution = await _hold(connection, item)
            # A statement of its own after all locks: it reads what their last holders wrote.
            (line,) = await plan_lines(connection, org, [work], limits)
            _refuse_unsafe(line)
            new = await _new_id(connection, item)
            due = await work_items.add_replay(connection, org, work, as_work=new)
            if execution is not None:
                await executions.move(
                    connection, execution, target="retrying", trigger="operator_retry"
                )
            await audit.add(
                connection,
                org,
                actor=actor,
                act=Act.REPLAY,
                subject_kind="work_item",
                subject_id=str(work),
                note=note,
                expected_version=expected_version,
            )
            ref = WorkRef(
                org=org, work=new, family=item.family, deadline_ms=item.deadline_ms, run_after=due
            )
            return Replayed(replays=work, ref=ref)

    return await run_phase("replay_work", transaction)


async def _lock(connection: AsyncConnection, org: OrgId, work: WorkId) -> Row[Any]:
    """The item, locked behind its lanes and behind whoever adds items of its command."""
    kind = (await connection.execute(KIND, {"org": org, "work": work})).one_or_none()
    if kind is None:
        raise NoSuchTarget(
            kind="work item", name=str(work), remedy="list them with `oncefence dlq list`"
        )
    if kind.command_id is not None:
        await connection.execute(
            SERIALISE, {"org": org, "family": kind.family, "of": str(kind.command_id)}
        )
    await connection.execute(LOCK_LANES, {"org": org, "work": work})
    item = await work_items.lock(connection, org, work)
    assert item is not None, "items are kept"
    return item


async def _hold(connection: AsyncConnection, item: Row[Any]) -> Row[Any] | None:
    """Lock all that decides, in the order of all phases; gives the execution to be retried."""
    await connection.execute(
        LOCK_LATER,
        {
            "org": item.org_id,
            "source_lane": item.source_lane,
            "source_sequence": item.source_sequence,
            "target_lane": item.target_lane,
            "target_sequence": item.target_sequence,
        },
    )
    if item.command_id is None:
        return None
    command = {"org": item.org_id, "command": item.command_id}
    await effect_attempts.lock_doubts(connection, OrgId(item.org_id), CommandId(item.command_id))
    execution = None
    if item.family in EFFECTS:
        execution = await executions.lock(
            connection, OrgId(item.org_id), ExecutionId(item.execution_id)
        )
    await connection.execute(HOLD_LINK, command)
    await connection.execute(HOLD_GENERATION, command)
    return execution


def _refuse_unsafe(line: PlanLine) -> None:
    if line.verdict is ReplayVerdict.SAFE_TO_REPLAY:
        return
    remedy = line.remedy
    if line.verdict is ReplayVerdict.ALREADY_REPLAYED:
        remedy = f"it lives on as {line.replayed_as}; {remedy}"
    raise ActRefused(
        act="replay", subject=f"item {line.work}", verdict=line.verdict.value, remedy=remedy
    )


async def _new_id(connection: AsyncConnection, item: Row[Any]) -> WorkId:
    """Derived, so that it is the same however often this transaction is run."""
    if item.family not in EFFECTS:
        return WorkId(ids.derived_id(item.work_id, "replay"))
    before = await connection.execute(DISPATCHES, {"org": item.org_id, "command": item.command_id})
    return ids.dispatch_work_id(CommandId(item.command_id), before.scalar_one() + 1)
