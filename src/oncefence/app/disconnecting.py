"""How an account is disconnected through a door: here at once, then at its provider (C295)."""

from dataclasses import dataclass
from datetime import datetime

from oncefence.activities.authorizing import finish_revocation
from oncefence.app.connecting import grant_of
from oncefence.app.doors import Doors
from oncefence.catalog.grants import Grant
from oncefence.domain.authorization import RevocationOutcome
from oncefence.domain.errors import NoSuchTarget
from oncefence.domain.ids import OrgId
from oncefence.storage.phases.begin_revocation import RevocationHeld, begin_revocation
from oncefence.storage.phases.disconnect_binding import (
    Disconnected,
    disconnect_binding,
    no_such_binding,
)
from oncefence.storage.phases.list_bindings import find_binding


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """
    An account that is disconnected here, and what the provider said to it.

    `revocation` is an outcome of the call, or why there was none: `not_declared`, `not_wanted`,
    `held`, `pack_missing` or `done_before`.
    """

    disconnected: Disconnected
    revocation: str
    failure_class: str | None = None
    until: datetime | None = None
    has_key: bool = False


async def disconnect(
    doors: Doors,
    org: OrgId,
    name: str,
    subject: str | None,
    *,
    revokes: bool,
    expected_version: str,
    actor: str,
    note: str,
) -> Ended:
    """
    Disconnect an account here, then at its provider where its pack says how.

    Done again on one that is disconnected, it does what is left to do.

    Raises:
        NoSuchTarget, VersionMoved: Nothing was written.
        StoreUnavailable: It may be done, in part; asked again it does the rest.
    """
    found = await find_binding(doors.engine, org, name, subject)
    if found is None:
        raise no_such_binding(name)
    grant, why_not = _revocable(doors, found.provider, found.pack_grant)
    if not revokes:
        grant, why_not = None, "not_wanted"
    disconnected = await disconnect_binding(
        doors.engine,
        org,
        name,
        subject=subject,
        keeps_key=grant is not None or why_not == "pack_missing",
        expected_version=expected_version,
        actor=actor,
        note=note,
    )
    if grant is None:
        return Ended(disconnected=disconnected, revocation=why_not, has_key=disconnected.has_key)
    begun = await begin_revocation(
        doors.engine,
        doors.ring,
        org,
        disconnected.binding,
        disconnected.generation,
        actor=actor,
        note=note,
    )
    if begun is None:
        # Nothing of it can be opened: it was revoked before, or nobody wanted it to be.
        return Ended(disconnected=disconnected, revocation="done_before")
    if isinstance(begun, RevocationHeld):
        return Ended(disconnected=disconnected, revocation="held", until=begun.until, has_key=True)
    outcome, failure = await finish_revocation(
        doors.engine, begun, grant, proxy=doors.connecting.egress_proxy
    )
    return Ended(
        disconnected=disconnected,
        revocation=outcome.value,
        failure_class=failure,
        has_key=outcome is not RevocationOutcome.REVOKED,
    )


def _revocable(doors: Doors, provider: str, pack_grant: str | None) -> tuple[Grant | None, str]:
    """The grant that its pack can end, or None and why there is none."""
    if pack_grant is None:
        return None, "not_declared"
    try:
        _, grant = grant_of(doors, provider, pack_grant)
    except NoSuchTarget:
        return None, "pack_missing"
    is_declared = grant.oauth2 is not None and grant.oauth2.revoke is not None
    return (grant, "") if is_declared else (None, "not_declared")
