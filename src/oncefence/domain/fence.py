"""The fence: what a claim hands its claimant, and what every later write must name."""

from dataclasses import dataclass

from oncefence.domain.ids import LeaseToken, OrgId, WorkId


@dataclass(frozen=True, slots=True, kw_only=True)
class Fence:
    """The lease token and ownership epoch of one claim of one WorkItem."""

    org: OrgId
    work: WorkId
    token: LeaseToken
    epoch: int
