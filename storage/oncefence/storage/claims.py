"""The one claim of every family but the dispatch, inside a transaction of its phase."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from oncefence.domain.claim import ENGINE_CAPABILITY, ClaimVerdict
from oncefence.domain.fence import Fence
from oncefence.domain.ids import LeaseToken, OrgId, WorkId
from oncefence.domain.limits import Limits
from oncefence.storage.phases.find_work import WorkRef

CLAIM = text(
    "SELECT * FROM oncefence.claim_work(:org, :work, :as_of, :owner, :token, :lease_margin,"
    " :claims_lost_max, :engine_capability, :ramp_claims_max, :may_claim)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NotStarted:
    """Nothing was claimed or marked, and nothing may be sent."""

    verdict: ClaimVerdict
    until: datetime | None
    failure_class: str | None = None
    execution_status: str | None = None
    lookup: WorkRef | None = None
    """The lookup item that was made in this transaction, if one was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """An ended claim that the caller, under the row's lock, must end in this transaction."""

    verdict: ClaimVerdict
    fence: Fence


async def claim(
    connection: AsyncConnection,
    org: OrgId,
    work: WorkId,
    *,
    as_of: datetime,
    owner: UUID,
    token: LeaseToken,
    limits: Limits,
    claims_lost_max: int | None = None,
    may_claim: bool = True,
) -> Fence | NotStarted | Lost:
    """
    Take the item under the next epoch, or say why not; its row is locked until COMMIT.

    The same `token` again, after a lost answer, finds its claim; with `may_claim` false it does
    nothing else (C58).
    """
    ceiling = limits.claims_lost_max if claims_lost_max is None else claims_lost_max
    row = (
        await connection.execute(
            CLAIM,
            {
                "org": org,
                "work": work,
                "as_of": as_of,
                "owner": owner,
                "token": token,
                "lease_margin": timedelta(seconds=limits.lease_margin_scaled_seconds),
                "claims_lost_max": ceiling,
                "engine_capability": ENGINE_CAPABILITY,
                "ramp_claims_max": limits.admission_window,
                "may_claim": may_claim,
            },
        )
    ).one()
    if row.verdict == "claimed":
        return Fence(org=org, work=work, token=token, epoch=row.epoch)
    verdict = ClaimVerdict(row.verdict)
    if verdict in (ClaimVerdict.POISONED, ClaimVerdict.CANCELLED):
        lost = Fence(org=org, work=work, token=LeaseToken(row.lost_token), epoch=row.epoch)
        return Lost(verdict=verdict, fence=lost)
    return NotStarted(verdict=verdict, until=row.until)
