"""Renewals whose lease has ended without a word: they are lost, and their grants stand so."""

from typing import Any

from sqlalchemy import Row
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from oncefence.domain.grant import GrantRotation, GrantState, RefreshOutcome
from oncefence.domain.ids import BindingGenerationId, OrgId
from oncefence.storage import authorization_grants, binding_generations, token_refreshes
from oncefence.storage.engine import run_phase

_PAGE = 100


async def expire_refreshes(engine: AsyncEngine, *, page: int = _PAGE) -> int:
    """
    Settle a page of them as unknown; gives how many.

    A rotating one parks its grant until a person authorises it anew (C291), if none has by then.
    Of any other the next command that needs a token makes the call again (C288).
    """

    async def transaction() -> int:
        async with engine.begin() as connection:
            lost = 0
            for row in await token_refreshes.expired(connection, page=page):
                lost += await _expire(connection, row)
            return lost

    return await run_phase("expire_refreshes", transaction)


async def _expire(connection: AsyncConnection, row: Row[Any]) -> bool:
    org, generation = OrgId(row.org_id), BindingGenerationId(row.generation_id)
    # Its item is let alone: its claim ends with the same lease, and is reclaimed as any other.
    current = await binding_generations.lock_tokens(connection, org, generation)
    grant = await authorization_grants.lock(connection, org, generation)
    lost = await token_refreshes.lock(connection, org, row.refresh_id)
    assert grant is not None, "a renewal is of a grant"
    if lost.settled_at is not None:
        return False
    await token_refreshes.settle(
        connection, lost, RefreshOutcome.UNKNOWN, by=None, failure_class="lost"
    )
    if grant.open_refresh != lost.refresh_id:
        return True
    state = GrantState(grant.state)
    # Where a person was faster, what it may have spent is not used any more.
    is_spent = (
        GrantRotation(lost.rotation).is_spent_by_use and lost.from_version == current.token_version
    )
    if is_spent and state in (GrantState.HEALTHY, GrantState.MISCONFIGURED):
        state = GrantState.REFRESH_UNKNOWN
    await authorization_grants.stand(
        connection,
        grant,
        state,
        open_refresh=lost.refresh_id if state is GrantState.REFRESH_UNKNOWN else None,
        suspect_version=grant.suspect_version,
        failures=grant.failures,
        not_before=grant.not_before,
        failure_class="lost" if is_spent else grant.failure_class,
    )
    return True
