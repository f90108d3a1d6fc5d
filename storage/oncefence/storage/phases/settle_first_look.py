"""Settling the look before a create: the create may be made, waits, or ends unsent (C342)."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from oncefence.domain import ids
from oncefence.domain.breaker import Sign
from oncefence.domain.errors import FenceLost
from oncefence.domain.fence import Fence
from oncefence.domain.ids import CommandId, LeaseToken, LookupId, OrgId, WorkId
from oncefence.domain.limits import Limits
from oncefence.domain.lookup import FirstLook, Grade, conclude_first_look
from oncefence.domain.settlement import FailureClass
from oncefence.storage import (
    effect_attempts,
    executions,
    lookups,
    quota_counts,
    remote_links,
    work_items,
)
from oncefence.storage.engine import run_phase
from oncefence.storage.phases.begin_first_look import FirstLookBegun
from oncefence.storage.read_admission import note_read, note_refused

COMPLETE = text("SELECT oncefence.add_completion(:org, :execution)")
TOLD_BEFORE = text(
    "SELECT w.run_after, e.status, e.failure_class, l.verdict FROM oncefence.lookups AS l"
    " JOIN oncefence.work_items AS w ON w.org_id = l.org_id AND w.work_id = l.work_id"
    " JOIN oncefence.executions AS e ON e.org_id = l.org_id AND e.execution_id = l.execution_id"
    " WHERE l.org_id = :org AND l.lookup_id = :lookup"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstLookEnd:
    """What one look found; safe to store and to show."""

    look: FirstLook
    reading: str
    response_status: int | None
    receipt: Mapping[str, str]
    phases: Mapping[str, Any]
    sign: Sign | None = None
    """What the read says of the provider's health; None where it says nothing of it (C307)."""

    told: Mapping[str, Any] | None = None
    """What the answer says of the provider's quota (C302)."""

    refused_version: int | None = None
    """The version of the token that the provider answered 401 to (C293)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstLookSettled:
    """
    What follows: `failure_class` where the create ended, `next_due` where it is looked for again.

    With neither, the create may be made: the mark finds this look.
    """

    failure_class: str | None = None
    next_due: datetime | None = None


async def settle_first_look(
    engine: AsyncEngine,
    begun: FirstLookBegun,
    end: FirstLookEnd,
    *,
    token: LeaseToken,
    as_of: datetime,
    limits: Limits,
) -> FirstLookSettled:
    """
    Keep the look and do what it says; the same `token` again is the same.

    No claim is needed, as nothing is sent: the item is nobody's, and of the epoch that it had
    when the look began.

    Raises:
        FenceLost: Somebody claimed the item meanwhile, or ended it. Nothing was written.
    """
    look = ids.first_look_id(begun.work, token)

    async def transaction() -> FirstLookSettled:
        async with engine.begin() as connection:
            item = await work_items.lock(connection, begun.org, begun.work)
            before = await _told_before(connection, begun.org, look)
            if before is not None:
                return before
            if item is None or item.ownership_epoch != begun.epoch:
                raise FenceLost(verb="settle first look")
            if item.state not in ("pending", "retry") and not await _is_abandoned(connection, item):
                raise FenceLost(verb="settle first look")
            execution = await executions.lock(connection, begun.org, begun.execution)
            spent = await lookups.tries_spent(connection, begun.org, begun.work)
            does = conclude_first_look(end.look, tries_before=spent)
            await lookups.add(
                connection,
                {
                    "org_id": begun.org,
                    "lookup_id": look,
                    "execution_id": begun.execution,
                    "attempt_id": None,
                    "work_id": begun.work,
                    "ownership_epoch": begun.epoch,
                    "try_": spent + 1 if does.spends_try else None,
                    "reading": end.reading,
                    "verdict": end.look.value,
                    "grade": Grade.NONE.value,
                    "response_status": end.response_status,
                    "provider_receipt": dict(end.receipt),
                    "phases": dict(end.phases),
                },
            )
            due = None
            if does.wait_seconds is not None:
                due = as_of + timedelta(seconds=does.wait_seconds * limits.time_scale)
                await work_items.put_off(connection, item, due)
            elif does.failure_class is not None:
                await _end(connection, item, execution, does.failure_class)
            if end.refused_version is not None:
                await note_refused(
                    connection,
                    begun.org,
                    begun.work,
                    begun.command,
                    version=end.refused_version,
                )
            if end.told is not None:
                await quota_counts.tell(connection, begun.org, begun.command, end.told)
            if end.sign is not None:
                # Breakers are locked after links.
                await note_read(
                    connection, begun.org, begun.command, end.sign, began_at=begun.began_at
                )
            return FirstLookSettled(failure_class=does.failure_class, next_due=due)

    return await run_phase("settle_first_look", transaction)


async def _end(
    connection: AsyncConnection, item: Row[Any], execution: Row[Any], failure_class: FailureClass
) -> None:
    """The create ends, and nothing of it was sent; its slot is given back."""
    await _end_item(connection, item, failure_class)
    await executions.move(
        connection,
        execution,
        target="failed",
        trigger="cannot_proceed",
        failure_class=failure_class,
        settled_by="worker",
    )
    org = OrgId(item.org_id)
    slot = await remote_links.slot_of(connection, org, CommandId(item.command_id))
    assert slot is not None, "what is looked for first is a create"
    await remote_links.give_back_slot(connection, org, slot)
    await connection.execute(COMPLETE, {"org": org, "execution": item.execution_id})


async def _is_abandoned(connection: AsyncConnection, item: Row[Any]) -> bool:
    """
    Whether the locked item is held by a claim whose lease has ended, and that sent nothing.

    A claim that marked an attempt has looked for itself: what this look finds may be its record.
    """
    org, work = OrgId(item.org_id), WorkId(item.work_id)
    if item.state != "processing" or await work_items.is_lease_live(connection, org, work):
        return False
    return await effect_attempts.lock_open(connection, org, work) is None


async def _end_item(
    connection: AsyncConnection, item: Row[Any], failure_class: FailureClass
) -> None:
    if item.state != "processing":
        await work_items.cancel(connection, item, failure_class=failure_class)
        return
    lost = Fence(
        org=OrgId(item.org_id),
        work=WorkId(item.work_id),
        token=LeaseToken(item.lease_token),
        epoch=item.ownership_epoch,
    )
    await work_items.leave(
        connection,
        lost,
        target="dead",
        trigger="give_up",
        failure_class=failure_class,
        is_by_expiry=True,
    )


async def _told_before(
    connection: AsyncConnection, org: OrgId, look: LookupId
) -> FirstLookSettled | None:
    """What this very look came to, where the answer to an earlier COMMIT of it was lost."""
    row = (await connection.execute(TOLD_BEFORE, {"org": org, "lookup": look})).one_or_none()
    if row is None:
        return None
    if row.status == "failed":
        return FirstLookSettled(failure_class=row.failure_class)
    is_absent = row.verdict == FirstLook.ABSENT
    return FirstLookSettled(next_due=None if is_absent else row.run_after)
