"""
The end of a renewal by its beginner: the ledger, the grant, the new version, and the claim.

Whatever came of the call, one transaction says it, so that no reader ever finds a token without
the row that it came of.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from oncefence.domain.claim import ClaimVerdict
from oncefence.domain.grant import (
    GrantRotation,
    GrantState,
    MadeBecause,
    RefreshOutcome,
    RefreshVerdict,
    Refusal,
)
from oncefence.domain.ids import OrgId
from oncefence.domain.redaction import Secret
from oncefence.storage import (
    authorization_grants,
    binding_generations,
    token_refreshes,
    token_versions,
    work_items,
)
from oncefence.storage.claims import NotStarted
from oncefence.storage.engine import run_phase
from oncefence.storage.phases.begin_refresh import RefreshBegun, due_after
from oncefence.storage.sealing import KeyRing

NOW = text("SELECT clock_timestamp()")

_RENEWABLE = (GrantState.HEALTHY, GrantState.MISCONFIGURED, GrantState.REFRESH_UNKNOWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class RenewedTokens:
    """What the endpoint gave; `refresh` is the token to renew by from now on, new or not."""

    access: Secret
    refresh: Secret | None
    expires_at: datetime
    refresh_expires_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshEnd:
    """
    How one call for a token ended; safe to store and to show but for `tokens`.

    `wait_seconds` is the least time until the next call for this grant.
    """

    verdict: RefreshVerdict
    wait_seconds: float
    response_status: int | None
    phases: Mapping[str, Any]
    tokens: RenewedTokens | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshSettled:
    """
    What stands now. `held` says what keeps the token from being used, None where nothing does.

    `outcome` is the ledger's, which is another than the call's where somebody was faster.
    `failure_class` and `state` are for whoever is told of it.
    """

    outcome: RefreshOutcome
    state: GrantState
    failure_class: str | None
    held: NotStarted | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    """What the call is about, locked until COMMIT."""

    generation: Row[Any]
    grant: Row[Any]
    ledger: Row[Any]


async def settle_refresh(
    engine: AsyncEngine, ring: KeyRing, begun: RefreshBegun, end: RefreshEnd
) -> RefreshSettled:
    """
    Write what the call came to, and give the item's claim back; again is the same.

    A new token is activated by this alone. An answer that comes after the lease counts as long as
    the grant still waits for it: it is the truth, and nobody else has it. One that came after
    others renewed it or a person authorised it anew changes nothing (C292).

    Raises:
        ConfigurationRefused: The key ring is not the one that the tokens were sealed with.
    """

    async def transaction() -> RefreshSettled:
        async with engine.begin() as connection:
            org = begun.fence.org
            item = await work_items.lock(connection, org, begun.fence.work)
            generation = await binding_generations.lock_tokens(connection, org, begun.generation)
            grant = await authorization_grants.lock(connection, org, begun.generation)
            assert grant is not None, "a renewal is of a grant"
            ledger = await token_refreshes.lock(connection, org, begun.refresh)
            if ledger.settled_token != begun.fence.token:
                rows = _Rows(generation=generation, grant=grant, ledger=ledger)
                await _write(connection, ring, begun, end, rows)
            return await _leave(connection, begun, item)

    return await run_phase("settle_refresh", transaction)


async def _write(
    connection: AsyncConnection,
    ring: KeyRing,
    begun: RefreshBegun,
    end: RefreshEnd,
    rows: _Rows,
) -> None:
    generation, grant, ledger = rows.generation, rows.grant, rows.ledger
    outcome = end.verdict.outcome
    if ledger.outcome == RefreshOutcome.SUPERSEDED or (
        ledger.settled_at is not None and outcome is RefreshOutcome.UNKNOWN
    ):
        return
    is_awaited = (
        grant.open_refresh == begun.refresh
        and generation.token_version == begun.version
        and generation.wrapped_key is not None
    )
    version = None
    if outcome is RefreshOutcome.ACTIVATED:
        if is_awaited:
            version = await _activate(connection, ring, begun, end, ledger)
        elif ledger.settled_at is not None:
            # Told as lost by others, who have had a token since or ended it.
            return
        else:
            outcome = RefreshOutcome.SUPERSEDED
    await token_refreshes.settle(
        connection,
        ledger,
        outcome,
        by=begun.fence.token,
        to_version=version,
        failure_class=end.verdict.failure_class,
        response_status=end.response_status,
        phases=end.phases,
    )
    if grant.open_refresh == begun.refresh:
        await _stand(connection, grant, end, outcome, is_awaited=is_awaited)


async def _activate(
    connection: AsyncConnection,
    ring: KeyRing,
    begun: RefreshBegun,
    end: RefreshEnd,
    ledger: Row[Any],
) -> int:
    tokens = end.tokens
    assert tokens is not None, "what is activated is there"
    return await token_versions.activate_version(
        connection,
        ring,
        begun.fence.org,
        begun.binding,
        begun.generation,
        access=tokens.access,
        refresh=tokens.refresh,
        expires_at=tokens.expires_at,
        refresh_expires_at=tokens.refresh_expires_at,
        because=MadeBecause(ledger.because),
    )


async def _stand(
    connection: AsyncConnection,
    grant: Row[Any],
    end: RefreshEnd,
    outcome: RefreshOutcome,
    *,
    is_awaited: bool,
) -> None:
    """How the grant stands, in which this renewal was the one that is out."""
    before = GrantState(grant.state)
    if before not in _RENEWABLE or not is_awaited:
        # Its generation ended, or a person decided, while it was out.
        await authorization_grants.stand(
            connection,
            grant,
            before,
            suspect_version=grant.suspect_version,
            failures=grant.failures,
            not_before=grant.not_before,
            failure_class=grant.failure_class,
        )
        return
    now = (await connection.execute(NOW)).scalar_one()
    not_before = now + timedelta(seconds=end.wait_seconds)
    if outcome is RefreshOutcome.ACTIVATED:
        await authorization_grants.stand(
            connection, grant, GrantState.HEALTHY, not_before=not_before
        )
        return
    is_lost = outcome is RefreshOutcome.UNKNOWN and GrantRotation(grant.rotation).is_spent_by_use
    state = GrantState.HEALTHY
    if end.verdict.refusal is Refusal.REAUTHORIZE:
        state = GrantState.NEEDS_REAUTHORIZATION
    elif is_lost:
        state = GrantState.REFRESH_UNKNOWN
    elif end.verdict.refusal is Refusal.RECONFIGURE:
        state = GrantState.MISCONFIGURED
    await authorization_grants.stand(
        connection,
        grant,
        state,
        # A lost answer may still come, and is then known by it.
        open_refresh=grant.open_refresh if state is GrantState.REFRESH_UNKNOWN else None,
        suspect_version=grant.suspect_version,
        failures=grant.failures + 1,
        not_before=not_before,
        failure_class=end.verdict.failure_class,
    )


async def _leave(
    connection: AsyncConnection, begun: RefreshBegun, item: Row[Any] | None
) -> RefreshSettled:
    org = OrgId(begun.fence.org)
    found = await authorization_grants.obstacle(connection, org, begun.generation)
    grant = await authorization_grants.lock(connection, org, begun.generation)
    ledger = await token_refreshes.lock(connection, org, begun.refresh)
    assert grant is not None, "a renewal is of a grant"
    held = None
    if found.obstacle is not None:
        due = None if found.until is None else due_after(found.until)
        held = NotStarted(verdict=ClaimVerdict(found.obstacle), until=due)
    fence = begun.fence
    if item is not None and item.lease_token == fence.token and item.ownership_epoch == fence.epoch:
        later = item.run_after if held is None or held.until is None else held.until
        await work_items.leave(
            connection,
            fence,
            target="retry",
            trigger="defer",
            due=max(item.run_after, later),
            summary=held.verdict.value if held is not None else None,
        )
    return RefreshSettled(
        outcome=RefreshOutcome(ledger.outcome),
        state=GrantState(grant.state),
        failure_class=ledger.failure_class,
        held=held,
    )
