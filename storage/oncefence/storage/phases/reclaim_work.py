"""Reclaiming by hand: whose holder is gone is settled as lost, or handed back (C45, C50)."""

from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from oncefence.domain.errors import ActRefused, NoSuchTarget
from oncefence.domain.ids import OrgId, WorkId
from oncefence.domain.operator import Act
from oncefence.storage import audit, effect_attempts, work_items
from oncefence.storage.engine import run_phase
from oncefence.storage.phases.find_work import WorkRef
from oncefence.storage.phases.settle_lost_attempt import settle_locked
from oncefence.storage.work_version import refuse_moved

# Whole milliseconds, cut off, as workflow time is.
NOW = text("SELECT date_trunc('milliseconds', clock_timestamp())")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reclaimed:
    """What became of the item; `wake` is to be woken after COMMIT."""

    is_lost: bool
    """Its attempt was open: it is unknown now, and `wake` is the lookup of it."""

    wake: WorkRef


async def reclaim_work(
    engine: AsyncEngine,
    org: OrgId,
    work: WorkId,
    *,
    expected_version: str,
    note: str,
    actor: str,
) -> Reclaimed:
    """
    Do now what the sweep would do of an item whose lease has ended.

    An open attempt is settled as lost, and so looked up and never sent again. With nothing in
    the open the item is only to be woken: whoever claims it next takes the next epoch.

    Raises:
        NoSuchTarget: The org has no such item.
        VersionMoved: It is no longer what the operator looked at.
        ActRefused: Nobody holds it, or its holder may still be alive.
        StoreUnavailable: It may be reclaimed: look at the item again.
    """

    async def transaction() -> Reclaimed:
        async with engine.begin() as connection:
            item = await work_items.lock(connection, org, work)
            if item is None:
                raise NoSuchTarget(
                    kind="work item", name=str(work), remedy="list them with `oncefence work list`"
                )
            await refuse_moved(connection, org, work, expected_version)
            if item.state != "processing":
                raise _refusal(work, "not_held", f"nobody holds it; it is {item.state}")
            if await work_items.is_lease_live(connection, org, work):
                raise _refusal(
                    work,
                    "in_flight",
                    f"its holder may be alive until {item.lease_until.isoformat()}; "
                    "ask again after that",
                )
            attempt = await effect_attempts.lock_open(connection, org, work)
            if attempt is None:
                wake = WorkRef(
                    org=org,
                    work=work,
                    family=item.family,
                    deadline_ms=item.deadline_ms,
                    run_after=item.run_after,
                )
            else:
                as_of = (await connection.execute(NOW)).scalar_one()
                wake = await settle_locked(connection, item, attempt, as_of)
            await audit.add(
                connection,
                org,
                actor=actor,
                act=Act.RECLAIM,
                subject_kind="work_item",
                subject_id=str(work),
                note=note,
                expected_version=expected_version,
            )
            return Reclaimed(is_lost=attempt is not None, wake=wake)

    return await run_phase("reclaim_work", transaction)


def _refusal(work: WorkId, verdict: str, remedy: str) -> ActRefused:
    return ActRefused(act="reclaim", subject=f"item {work}", verdict=verdict, remedy=remedy)
