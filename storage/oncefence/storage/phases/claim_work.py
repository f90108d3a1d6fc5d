"""Claiming an item of any family that has no claim of its own."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Row
from sqlalchemy.ext.asyncio import AsyncEngine

from oncefence.domain.claim import ClaimVerdict
from oncefence.domain.fence import Fence
from oncefence.domain.ids import LeaseToken, OrgId, ViewId, WorkId
from oncefence.domain.limits import Limits
from oncefence.storage import work_items
from oncefence.storage.claims import Lost, NotStarted, claim
from oncefence.storage.engine import run_phase


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedWork:
    """What the handler of a family is told of the item that it now holds."""

    fence: Fence
    family: str
    subject_kind: str
    subject_id: str
    view: ViewId
    view_digest: str
    definition: str
    payload_schema_version: int
    attempts_made: int
    """Runs of it that ended by a failure; waits do not count."""

    deadline_ms: int


async def claim_work(
    engine: AsyncEngine,
    org: OrgId,
    work: WorkId,
    *,
    family: str,
    as_of: datetime,
    owner: UUID,
    token: LeaseToken,
    limits: Limits,
    may_claim: bool = True,
) -> ClaimedWork | NotStarted:
    """
    Claim the item of this family, or say why not (C49, C50, C59).

    An item of another family is no such item, whatever the caller was told: its claim, or its
    end, writes more than the item.

    What too many claims were lost of is given up here, and a cancellation that its claimant
    did not live to acknowledge is acknowledged in its place. The same `token` again, after a
    lost answer, finds its claim.

    Raises:
        StoreUnavailable: Ask again with the same token: the claim may stand.
    """

    async def transaction() -> ClaimedWork | NotStarted:
        async with engine.begin() as connection:
            item = await work_items.lock(connection, org, work)
            if item is None or item.family != family:
                return NotStarted(verdict=ClaimVerdict.NO_SUCH_ITEM, until=None)
            found = await claim(
                connection,
                org,
                work,
                as_of=as_of,
                owner=owner,
                token=token,
                limits=limits,
                may_claim=may_claim,
            )
            match found:
                case NotStarted():
                    return found
                case Lost(verdict=ClaimVerdict.CANCELLED):
                    await work_items.leave(
                        connection,
                        found.fence,
                        target="cancelled",
                        trigger="acknowledge_cancel",
                        is_by_expiry=True,
                    )
                    return NotStarted(verdict=found.verdict, until=None)
                case Lost():
                    await work_items.leave(
                        connection,
                        found.fence,
                        target="dead",
                        trigger="give_up",
                        failure_class="poison",
                        summary=f"{item.claims_lost + 1} claims of it ended by expiry",
                        is_by_expiry=True,
                    )
                    return NotStarted(verdict=found.verdict, until=None, failure_class="poison")
                case Fence():
                    return _claimed(found, item)

    return await run_phase("claim_work", transaction)


def _claimed(fence: Fence, item: Row[Any]) -> ClaimedWork:
    return ClaimedWork(
        fence=fence,
        family=item.family,
        subject_kind=item.subject_kind,
        subject_id=item.subject_id,
        view=ViewId(item.view_id),
        view_digest=item.view_digest,
        definition=item.definition,
        payload_schema_version=item.payload_schema_version,
        attempts_made=item.attempt,
        deadline_ms=item.deadline_ms,
    )
