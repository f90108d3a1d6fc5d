"""Cancelling: an item that nobody holds ends; whoever holds one is asked to end it (C55, C69)."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from oncefence.domain.errors import ActRefused, NoSuchTarget
from oncefence.domain.ids import CommandId, ExecutionId, OrgId, WorkId
from oncefence.domain.operator import Act
from oncefence.domain.work_item import EFFECTS, LOOKUP, NON_EXECUTABLE, WORK_ITEM
from oncefence.storage import audit, effect_attempts, executions, remote_links, work_items
from oncefence.storage.engine import run_phase
from oncefence.storage.work_version import refuse_moved

COMPLETE = text("SELECT oncefence.add_completion(:org, :execution)")


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelEnd:
    """What the cancellation came to."""

    work: WorkId
    item_state: str
    """`cancelled`, or `processing` where it was only asked for."""

    execution_status: str | None
    """Of the execution that ended with the item."""

    lease_until: datetime | None
    """Until when its claimant may take to acknowledge."""


async def cancel_work(
    engine: AsyncEngine,
    org: OrgId,
    work: WorkId,
    *,
    expected_version: str,
    note: str,
    actor: str,
) -> CancelEnd:
    """
    End the item if nobody holds it, with its execution if that was never tried; else ask.

    Nothing that may have been sent is cancelled: a request that is on its way comes to its
    outcome, and that is recorded.

    Raises:
        NoSuchTarget: The org has no such item.
        VersionMoved: It is no longer what the operator looked at.
        ActRefused: It cannot be cancelled as it stands.
        StoreUnavailable: It may be cancelled: look at the item again.
    """

    async def transaction() -> CancelEnd:
        async with engine.begin() as connection:
            item = await work_items.lock(connection, org, work)
            if item is None:
                raise NoSuchTarget(
                    kind="work item", name=str(work), remedy="list them with `oncefence work list`"
                )
            await refuse_moved(connection, org, work, expected_version)
            _refuse_unstoppable(item)
            if item.state == "processing":
                end = await _ask(connection, item)
            else:
                end = await _cancel(connection, item)
            await audit.add(
                connection,
                org,
                actor=actor,
                act=Act.CANCEL,
                subject_kind="work_item",
                subject_id=str(work),
                note=note,
                expected_version=expected_version,
            )
            return end

    return await run_phase("cancel_work", transaction)


def _refuse_unstoppable(item: Row[Any]) -> None:
    if item.state in WORK_ITEM.final:
        raise _refusal(item, "finished", f"it has ended as {item.state}")
    if item.state in NON_EXECUTABLE:
        raise _refusal(item, item.state, "its old owner may run it: bring the receipt of that")
    if item.family == LOOKUP:
        raise _refusal(
            item, "lookup", "an unknown outcome is looked up until it is known or a person decides"
        )


async def _cancel(connection: AsyncConnection, item: Row[Any]) -> CancelEnd:
    status = None
    if item.family in EFFECTS:
        org = OrgId(item.org_id)
        execution = await executions.lock(connection, org, ExecutionId(item.execution_id))
        if execution.status != "accepted":
            # It was tried: what became of the attempts must not vanish behind a cancel (C55).
            raise _refusal(
                item,
                execution.status,
                "it was tried already and is tried again; pause its operation to hold it back",
            )
        await work_items.cancel(connection, item)
        await executions.move(
            connection,
            execution,
            target="cancelled",
            trigger="cancel_before_first_attempt",
            settled_by="operator",
        )
        slot = await remote_links.slot_of(connection, org, CommandId(item.command_id))
        if slot is not None:
            await remote_links.give_back_slot(connection, org, slot)
        await connection.execute(COMPLETE, {"org": org, "execution": item.execution_id})
        status = "cancelled"
    else:
        await work_items.cancel(connection, item)
    return _end(item, "cancelled", status)


async def _ask(connection: AsyncConnection, item: Row[Any]) -> CancelEnd:
    org, work = OrgId(item.org_id), WorkId(item.work_id)
    if await effect_attempts.lock_open(connection, org, work) is not None:
        raise _refusal(
            item, "open_attempt", "its request is on its way; its outcome will be recorded"
        )
    if item.family in EFFECTS:
        raise _refusal(
            item,
            "claimed",
            "a process is about to send it; look again in a moment, and reclaim "
            "it where the lease has ended",
        )
    if not await work_items.ask_to_cancel(connection, org, work):
        raise _refusal(
            item,
            "cancel_requested",
            f"that was asked for at {item.cancel_requested_at.isoformat()}; whoever holds it "
            "acknowledges, or whoever reclaims it does",
        )
    return _end(item, "processing", None)


def _end(item: Row[Any], state: str, execution_status: str | None) -> CancelEnd:
    return CancelEnd(
        work=WorkId(item.work_id),
        item_state=state,
        execution_status=execution_status,
        lease_until=item.lease_until,
    )


def _refusal(item: Row[Any], verdict: str, remedy: str) -> ActRefused:
    return ActRefused(act="cancel", subject=f"item {item.work_id}", verdict=verdict, remedy=remedy)
