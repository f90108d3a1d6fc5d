"""What stands behind a door: its store, who comes through it, and whom it tells of new work."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, cast

import structlog
from fastapi import Depends
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.requests import Request

from oncefence.activities.egress_proxy import EgressProxy
from oncefence.activities.waking import AdmissionWindow
from oncefence.app.problems import RequestRefused
from oncefence.domain.command import Receipt
from oncefence.domain.limits import Limits
from oncefence.storage.engine import Store
from oncefence.storage.phases.authenticate import Caller, authenticate
from oncefence.storage.phases.find_dispatch import find_live_dispatch
from oncefence.storage.phases.find_work import WorkRef
from oncefence.storage.sealing import KeyRing

if TYPE_CHECKING:
    # Not for every verb that speaks to a door: it takes a while to load.
    from oncefence.app.metrics import ProcessMetrics

ANNOUNCE_SECONDS_MAX: Final = 10.0

log = structlog.get_logger("oncefence.doors")

# It only reads the header, and puts the scheme into the description of the door.
_bearer = HTTPBearer(
    auto_error=False,
    scheme_name="RuntimeCredential",
    description="What `oncefence runtime register` printed.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Connecting:
    """
    What connecting an account needs of its process.

    Where `public_url` is None a browser cannot come back, and nothing is connected that way.
    """

    public_url: str | None = None
    pack_folders: tuple[Path, ...] = ()
    egress_proxy: EgressProxy | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Doors:
    """
    What every door of a process shares.

    `announce` is told of an accepted handoff that still has something to do. It is a hint: what
    it misses, the sweep finds.
    """

    engine: Store
    ring: KeyRing
    limits: Limits
    announce: Callable[[WorkRef], Awaitable[None]]
    is_stopping: Callable[[], bool] = lambda: False
    """Whether whoever balances load should go elsewhere; every door is served all the same."""

    metrics: "ProcessMetrics | None" = None
    """What this process measures, where it is a process that tells."""

    connecting: Connecting = field(default_factory=Connecting)
    """How accounts are connected through these doors."""

    @property
    def window(self) -> AdmissionWindow:
        """Through it whatever a door makes or lets go on is told to Temporal."""
        return AdmissionWindow(engine=self.engine, limits=self.limits, wake=self.announce)

    async def caller(self, credential: str | None) -> Caller:
        """
        Whose credential this is; the database is asked each time, so a withdrawn one ends at once.

        Raises:
            RequestRefused: There is none, or it is nobody's; in the same words.
        """
        if credential is not None:
            caller = await authenticate(self.engine, self.ring, credential)
            if caller is not None:
                return caller
        raise RequestRefused(
            status=HTTPStatus.UNAUTHORIZED,
            code="credential_unknown",
            detail="give a credential of this deployment: Authorization: Bearer <credential>, "
            "as `oncefence runtime register` printed it",
            headers={"WWW-Authenticate": 'Bearer realm="oncefence"'},
        )

    async def tell(self, receipt: Receipt) -> None:
        """
        Announce what `receipt` accepted, if something is still to be done for it.

        Called after the answer left, so neither a failure here nor a slow listener can hold up
        or spoil a receipt whose facts are committed.
        """
        if receipt.work is None:
            return
        try:
            async with asyncio.timeout(ANNOUNCE_SECONDS_MAX):
                ref = await self._work_of(receipt)
                if ref is not None and receipt.has_room:
                    await self.announce(ref)
                elif ref is not None:
                    await self.window.announce(ref, self.announce)
        except Exception as error:  # noqa: BLE001  # logged; the sweep repairs a missed hint
            log.warning("announce_failed", work_id=str(receipt.work), error=type(error).__name__)

    async def _work_of(self, receipt: Receipt) -> WorkRef | None:
        assert receipt.work is not None, "only an acceptance is announced"
        org = receipt.key.scope.org
        if receipt.due is None or receipt.deadline_ms is None or receipt.family is None:
            return await find_live_dispatch(self.engine, org, receipt.work)
        return WorkRef(
            org=org,
            work=receipt.work,
            family=receipt.family,
            deadline_ms=receipt.deadline_ms,
            run_after=receipt.due,
        )


async def _doors(request: Request) -> Doors:
    return cast(Doors, request.app.state.doors)


DoorsHere = Annotated[Doors, Depends(_doors)]


async def _caller(
    doors: DoorsHere, shown: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]
) -> Caller:
    return await doors.caller(None if shown is None else shown.credentials)


CallerHere = Annotated[Caller, Depends(_caller)]
