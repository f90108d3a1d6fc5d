"""
Sole writer of `work_items`, but for the SQL of the hot phases.

Every write names the lease token and the ownership epoch that authorise it, or finds under the
row lock that nobody holds the row.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import (
    Integer,
    Interval,
    Row,
    Uuid,
    bindparam,
    func,
    insert,
    literal_column,
    select,
    text,
    update,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from oncefence.domain.errors import FenceLost
from oncefence.domain.fence import Fence
from oncefence.domain.ids import OrgId, PrincipalBindingId, WorkId
from oncefence.domain.work_item import EFFECTS, WORK_ITEM
from oncefence.storage.tables import work_items

EFFECT_FAMILIES: Final = "(" + ", ".join(f"'{family}'" for family in sorted(EFFECTS)) + ")"
"""Of SQL: the families whose run is an attempt to change a record."""

_THIS = (
    work_items.c.org_id == bindparam("of_org"),
    work_items.c.work_id == bindparam("of_work"),
)
_FENCED = (
    *_THIS,
    work_items.c.state == "processing",
    work_items.c.lease_token == bindparam("of_token"),
    work_items.c.ownership_epoch == bindparam("of_epoch"),
)
_NO_LEASE = {"lease_owner": None, "lease_token": None, "lease_until": None}

ADD = insert(work_items)
LOCK = select(work_items).where(*_THIS).with_for_update()
# A second statement after the lock: in LOCK itself the clock is read before the wait for it.
LEASE_LIVE = select(work_items.c.lease_until > func.clock_timestamp()).where(*_THIS)
RENEW = (
    update(work_items)
    .where(*_FENCED)
    .values(
        lease_until=func.greatest(
            work_items.c.lease_until, func.clock_timestamp() + bindparam("lease", type_=Interval)
        )
    )
    .returning(work_items.c.lease_until, work_items.c.cancel_requested_at)
)
LEAVE = (
    update(work_items)
    .where(*_FENCED)
    .values(
        state=bindparam("target"),
        via=bindparam("trigger"),
        run_after=func.coalesce(bindparam("due"), work_items.c.run_after),
        attempt=func.coalesce(bindparam("attempts"), work_items.c.attempt),
        claims_lost=work_items.c.claims_lost + bindparam("lost", type_=Integer),
        failure_class=bindparam("why"),
        summary=bindparam("told"),
        changed_at=func.clock_timestamp(),
        **_NO_LEASE,
    )
)
BRING_FORWARD = (
    update(work_items)
    .where(
        *_THIS,
        work_items.c.state.in_(("pending", "retry")),
        work_items.c.run_after > bindparam("due"),
    )
    .values(run_after=bindparam("due"))
)
PUT_OFF = (
    update(work_items)
    .where(
        *_THIS,
        work_items.c.state.in_(("pending", "retry")),
        work_items.c.run_after < bindparam("due"),
    )
    .values(run_after=bindparam("due"))
)
# By the very instant that an item is put off to while a renewal is out, so that what waits for a
# time of its own, as a provider may have asked, is not moved. What somebody holds just then is not
# waited for: it was put off to that instant before the renewal ended, or sees the new token.
RELEASE = text(
    """
    UPDATE oncefence.work_items AS w
       SET run_after = coalesce(CAST(:due AS timestamptz),
                                date_trunc('milliseconds', clock_timestamp()))
      FROM (SELECT o.org_id, o.work_id FROM oncefence.work_items AS o
             WHERE o.org_id = :org AND o.queue_class >= '' AND o.binding_id = :binding
               AND o.state IN ('pending', 'retry') AND o.run_after = :waits_until
             ORDER BY o.work_id FOR UPDATE SKIP LOCKED) AS waiting
     WHERE w.org_id = waiting.org_id AND w.work_id = waiting.work_id
    RETURNING w.queue_class
    """
)
CANCEL = (
    update(work_items)
    .where(*_THIS, work_items.c.state.in_(("pending", "retry")))
    .values(
        state="cancelled",
        via="cancel",
        failure_class=bindparam("why"),
        changed_at=func.clock_timestamp(),
    )
)
ASK_TO_CANCEL = (
    update(work_items)
    .where(
        *_THIS,
        work_items.c.state == "processing",
        work_items.c.cancel_requested_at.is_(None),
    )
    .values(cancel_requested_at=func.clock_timestamp())
)
# What an item is, its place in its lanes included; how far it came stays with the ended one.
_TERMS = (
    "org_id",
    "family",
    "subject_kind",
    "subject_id",
    "command_id",
    "execution_id",
    "attempt_id",
    "installation",
    "view_id",
    "view_digest",
    "view_revision",
    "definition",
    "provider",
    "binding_id",
    "payload_schema_version",
    "engine_capability",
    "queue_class",
    "deadline_ms",
    "source_lane",
    "source_sequence",
    "target_lane",
    "target_sequence",
)
ADD_REPLAY = (
    insert(work_items)
    .from_select(
        [*_TERMS, "work_id", "replays_work_id", "state", "via", "run_after"],
        select(
            *(work_items.c[name] for name in _TERMS),
            bindparam("new_work", type_=Uuid),
            work_items.c.work_id,
            literal_column("'pending'"),
            literal_column("'create'"),
            # Workflow time comes in whole milliseconds, cut off.
            func.date_trunc("milliseconds", func.clock_timestamp()),
        ).where(*_THIS),
    )
    .returning(work_items.c.work_id, work_items.c.run_after)
)


async def add(connection: AsyncConnection, values: Mapping[str, Any]) -> None:
    """Add an item, which begins pending and with nothing done."""
    await connection.execute(ADD, {**values, "state": "pending", "via": "create"})


async def lock(connection: AsyncConnection, org: OrgId, work: WorkId) -> Row[Any] | None:
    """The row, locked until COMMIT; None where there is none."""
    return (await connection.execute(LOCK, {"of_org": org, "of_work": work})).one_or_none()


async def is_lease_live(connection: AsyncConnection, org: OrgId, work: WorkId) -> bool:
    """Whether the locked row's lease has not ended by the database's own clock."""
    live = (await connection.execute(LEASE_LIVE, {"of_org": org, "of_work": work})).scalar_one()
    return bool(live)


async def renew(connection: AsyncConnection, fence: Fence, *, lease: timedelta) -> Row[Any]:
    """
    Move the end of the claim's lease away; gives it and when a cancellation was asked for.

    Raises:
        FenceLost: The lease or the epoch is no longer the caller's. Nothing was written.
    """
    # Locked first: a lease that waited for the row begins after the wait (C204).
    await lock(connection, fence.org, fence.work)
    result = await connection.execute(
        RENEW,
        {
            "of_org": fence.org,
            "of_work": fence.work,
            "of_token": fence.token,
            "of_epoch": fence.epoch,
            "lease": lease,
        },
    )
    row = result.one_or_none()
    if row is None:
        raise FenceLost(verb="renew")
    return row


async def leave(
    connection: AsyncConnection,
    fence: Fence,
    *,
    target: str,
    trigger: str,
    due: datetime | None = None,
    failure_class: str | None = None,
    summary: str | None = None,
    attempt: int | None = None,
    is_by_expiry: bool = False,
) -> None:
    """
    Move a claimed item to `target` by `trigger`.

    `is_by_expiry`: the claim ended with its lease and somebody else says so; it counts (C51).

    Raises:
        InvalidTransition: The lifecycle has no such move.
        FenceLost: The lease or the epoch is no longer the caller's. Nothing was written.
    """
    WORK_ITEM.check("processing", target, trigger)
    # The WHERE names the claimant as well as the state: a reclaimed row is also `processing`,
    # and a stale claimant must not end somebody else's claim.
    result = await connection.execute(
        LEAVE,
        {
            "of_org": fence.org,
            "of_work": fence.work,
            "of_token": fence.token,
            "of_epoch": fence.epoch,
            "target": target,
            "trigger": trigger,
            "due": due,
            "why": failure_class,
            "told": summary,
            "attempts": attempt,
            "lost": int(is_by_expiry),
        },
    )
    if result.rowcount != 1:
        raise FenceLost(verb=trigger)


async def bring_forward(
    connection: AsyncConnection, org: OrgId, work: WorkId, due: datetime
) -> bool:
    """Make a waiting item due at `due` where it is due later; says whether it moved."""
    result = await connection.execute(BRING_FORWARD, {"of_org": org, "of_work": work, "due": due})
    return bool(result.rowcount)


async def put_off(connection: AsyncConnection, row: Row[Any], due: datetime) -> None:
    """Make the locked `row`, which nobody holds, due no earlier than `due`."""
    await connection.execute(PUT_OFF, {"of_org": row.org_id, "of_work": row.work_id, "due": due})


async def release(
    connection: AsyncConnection,
    org: OrgId,
    binding: PrincipalBindingId,
    *,
    waits_until: datetime,
    due: datetime | None,
) -> list[str]:
    """Items of the binding due at `waits_until` are due at `due`, or now; gives their classes."""
    found = await connection.execute(
        RELEASE, {"org": org, "binding": binding, "waits_until": waits_until, "due": due}
    )
    return sorted({row.queue_class for row in found.all()})


async def cancel(
    connection: AsyncConnection, row: Row[Any], *, failure_class: str | None = None
) -> None:
    """
    End the locked `row`, which nobody holds; with a class where it failed.

    Raises:
        InvalidTransition: Somebody holds it, or it has ended.
    """
    WORK_ITEM.check(row.state, "cancelled", "cancel")
    await connection.execute(
        CANCEL, {"of_org": row.org_id, "of_work": row.work_id, "why": failure_class}
    )


async def ask_to_cancel(connection: AsyncConnection, org: OrgId, work: WorkId) -> bool:
    """Ask whoever holds the item to cancel it, once; says whether that was new."""
    result = await connection.execute(ASK_TO_CANCEL, {"of_org": org, "of_work": work})
    return bool(result.rowcount)


async def add_replay(
    connection: AsyncConnection, org: OrgId, work: WorkId, *, as_work: WorkId
) -> datetime:
    """
    Make the ended item `work` anew as `as_work`, in its own place of its lanes; gives when due.

    The place is kept, so that what waits behind it goes on waiting: one at the end of its lanes
    would run after later work, and undo it.
    """
    added = await connection.execute(
        ADD_REPLAY, {"of_org": org, "of_work": work, "new_work": as_work}
    )
    due: datetime = added.one().run_after
    return due
