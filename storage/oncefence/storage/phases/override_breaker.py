"""A person's word on a breaker: open it for a while, or close it now."""

from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from oncefence.domain.breaker import OPEN_SECONDS_MAX, BreakerKey, BreakerState
from oncefence.domain.errors import ActRefused, InvalidTransition, NoSuchTarget, VersionMoved
from oncefence.domain.operator import Act
from oncefence.storage import audit, breakers
from oncefence.storage.engine import run_phase
from oncefence.storage.phases.list_breakers import Breaker, breaker_of

OF_BINDING = text(
    "SELECT provider FROM oncefence.principal_bindings"
    " WHERE org_id = :org AND binding_id = :binding"
)
OF_CLASS = text(
    "SELECT CAST(:provider AS text) FROM oncefence.binding_views AS v"
    " WHERE jsonb_path_exists(CAST(v.content AS jsonb), '$.operations.* ?"
    "    (@.provider == $provider && @.endpoint_class == $class)',"
    "    jsonb_build_object('provider', CAST(:provider AS text), 'class', CAST(:class AS text)))"
    " LIMIT 1"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Overridden:
    """The breaker as it stands now, and whether this act brought it about."""

    breaker: Breaker
    is_new: bool


async def override_breaker(
    engine: AsyncEngine,
    key: BreakerKey,
    target: BreakerState,
    *,
    actor: str,
    note: str,
    expected_version: str,
    open_seconds: float = 0.0,
) -> Overridden:
    """
    Open the breaker for `open_seconds`, or close it, and keep who did and why.

    Nobody is woken here: whoever closes one brings forward what it held, after COMMIT. The same
    act of the same operator again, after a lost answer, finds what it did.

    Raises:
        NoSuchTarget: There is no such binding, and no published operation of such a class.
        VersionMoved: It moved since it was looked at.
        ActRefused: It stands so already, or is to be open for no time or too long a one.
        StoreUnavailable: Ask again: it may be done.
    """
    act = Act.OPEN_BREAKER if target is BreakerState.OPEN else Act.CLOSE_BREAKER
    if target is BreakerState.OPEN and not 0 < open_seconds <= OPEN_SECONDS_MAX:
        raise ActRefused(
            act=act,
            subject=f"breaker {key}",
            verdict="time_out_of_range",
            remedy=f"open it for up to {OPEN_SECONDS_MAX:.0f} seconds, or pause the work",
        )

    async def transaction() -> Overridden:
        async with engine.begin() as connection:
            provider = await _provider_of(connection, key)
            row = await breakers.lock(connection, key, provider=provider)
            before = breaker_of(row)
            if (before.state, before.changed_by, before.changed_note) == (target, actor, note):
                return Overridden(breaker=before, is_new=False)
            if before.version != expected_version:
                raise VersionMoved(
                    subject=f"breaker {key}", expected=expected_version, found=before.version
                )
            try:
                moved = await breakers.override(
                    connection,
                    row,
                    target,
                    actor=actor,
                    note=note,
                    length=timedelta(seconds=open_seconds),
                )
            except InvalidTransition:
                raise ActRefused(
                    act=act,
                    subject=f"breaker {key}",
                    verdict=f"is_{before.state}",
                    remedy=_remedy(before),
                ) from None
            await audit.add(
                connection,
                key.org,
                actor=actor,
                act=act,
                subject_kind="breaker",
                subject_id=str(key),
                note=note,
                expected_version=expected_version,
            )
            return Overridden(breaker=breaker_of(moved), is_new=True)

    return await run_phase("override_breaker", transaction)


def _remedy(breaker: Breaker) -> str:
    if breaker.state is BreakerState.CLOSED:
        return "it holds nothing back; see `oncefence work pauses` for what a person holds back"
    return f"it is open until {breaker.until}; close it first to open it for another time"


async def _provider_of(connection: AsyncConnection, key: BreakerKey) -> str:
    if key.binding is not None:
        found = await connection.execute(OF_BINDING, {"org": key.org, "binding": key.binding})
    else:
        found = await connection.execute(
            OF_CLASS, {"provider": key.provider, "class": key.endpoint_class}
        )
    provider: str | None = found.scalar_one_or_none()
    if provider is None:
        raise NoSuchTarget(
            kind="account or class of endpoints",
            name=str(key),
            remedy="see `oncefence binding list` and `oncefence catalog`; the breaker of nothing "
            "would only look like one",
        )
    return provider
