"""
The mark of a renewal: claim of the item, ownership of the grant, and the ledger's row, in one.

From COMMIT on nobody but the holder of its token may call the token endpoint for this version, and
whoever finds the row later never does it again where that could spend the token twice (C286).
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from oncefence.domain.claim import ClaimVerdict
from oncefence.domain.fence import Fence
from oncefence.domain.grant import GrantRotation, GrantState, RefreshOutcome
from oncefence.domain.ids import (
    BindingGenerationId,
    LeaseToken,
    OrgId,
    PrincipalBindingId,
    ViewId,
    WorkId,
    derived_id,
)
from oncefence.domain.limits import Limits
from oncefence.domain.redaction import Secret
from oncefence.storage import (
    authorization_grants,
    binding_generations,
    effect_attempts,
    provider_apps,
    token_refreshes,
    work_items,
)
from oncefence.storage.claims import Lost, NotStarted, claim
from oncefence.storage.engine import run_phase
from oncefence.storage.sealed_tokens import GenerationKey, TokenField
from oncefence.storage.sealing import KeyRing

CONTEXT = text(
    """
    SELECT c.view_id, c.view_digest, c.generation_id, b.binding_id, b.provider, b.base_url,
           b.is_local, w.lease_until
      FROM oncefence.work_items AS w
      JOIN oncefence.commands AS c ON c.org_id = w.org_id AND c.command_id = w.command_id
      JOIN oncefence.principal_bindings AS b
        ON b.org_id = c.org_id AND b.binding_id = c.binding_id
     WHERE w.org_id = :org AND w.work_id = :work
    """
)
TOKEN = text(
    "SELECT t.* FROM oncefence.token_versions AS t WHERE t.org_id = :org"
    " AND t.generation_id = :generation AND t.version = :version"
)

TOKEN_STALE: Final = "token_stale"  # noqa: S105  # an obstacle


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshBegun:
    """
    A marked renewal: what its beginner, and it alone, may now ask for once.

    `fence` is that of the item under whose claim it is made. `app` is None where nobody has said
    yet what we are to this provider.
    """

    fence: Fence
    refresh: UUID
    binding: PrincipalBindingId
    generation: BindingGenerationId
    version: int
    rotation: GrantRotation
    provider: str
    pack_grant: str
    base_url: str
    generation_base_url: str | None
    is_local: bool
    account: str | None
    installation: str | None
    client_id: str | None
    view: ViewId
    view_digest: str
    failures: int
    started_at: datetime
    """The database's time of the mark."""

    lease_until: datetime
    sealed: Row[Any] = field(repr=False)
    token: Row[Any] = field(repr=False)
    app: Row[Any] | None = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsealedRefresh:
    """What the call is made with, in the clear; `app_secret` is a client's secret or an RSA key."""

    refresh: Secret | None
    app_secret: Secret


async def begin_refresh(
    engine: AsyncEngine,
    org: OrgId,
    work: WorkId,
    *,
    as_of: datetime,
    owner: UUID,
    token: LeaseToken,
    limits: Limits,
    may_begin: bool = True,
) -> RefreshBegun | NotStarted | None:
    """
    Mark the renewal of the token that the item needs, or say why not; None where it is fresh.

    The same `token` again, after a lost answer, finds the mark that it made; with `may_begin`
    false it does nothing else. A renewal whose lease has ended unsettled is settled here: as
    unknown where its token may be spent, which parks the grant (C291), else as superseded.

    Raises:
        StoreUnavailable: Ask again with the same token: the mark may stand.
    """

    async def transaction() -> RefreshBegun | NotStarted | None:
        async with engine.begin() as connection:
            item = await work_items.lock(connection, org, work)
            if item is None:
                return NotStarted(verdict=ClaimVerdict.NO_SUCH_ITEM, until=None)
            if item.lease_token == token:
                return await _resumed(connection, item, token)
            if await effect_attempts.lock_open(connection, org, work) is not None:
                # Somebody sends, or sent and is lost: the run of the item says which.
                return NotStarted(verdict=ClaimVerdict.IN_FLIGHT, until=item.lease_until)
            context = (await connection.execute(CONTEXT, {"org": org, "work": work})).one()
            generation = BindingGenerationId(context.generation_id)
            # A glance without locks, so that of many only few claim what others renew already.
            seen = await authorization_grants.obstacle(connection, org, generation)
            if seen.obstacle != TOKEN_STALE:
                return await _hold(connection, item, seen)
            fence = await claim(
                connection,
                org,
                work,
                as_of=as_of,
                owner=owner,
                token=token,
                limits=limits,
                may_claim=may_begin,
            )
            if isinstance(fence, Lost):
                # Whoever runs the item next ends it; nothing was claimed here.
                return NotStarted(verdict=ClaimVerdict.NOT_MARKED, until=None)
            if isinstance(fence, NotStarted):
                return fence
            # Lock first, then decide: who was in front of us may have renewed it, or retired it.
            current = await binding_generations.lock_tokens(connection, org, generation)
            grant = await authorization_grants.lock(connection, org, generation)
            assert grant is not None, "what has no grant has no obstacle"
            found = await authorization_grants.obstacle(connection, org, generation)
            if current.state != "current":
                return await _give_back(connection, fence, item, None)
            if found.obstacle != TOKEN_STALE:
                return await _give_back(connection, fence, item, found)
            if await _parks(connection, grant, current.token_version):
                parked = await authorization_grants.obstacle(connection, org, generation)
                return await _give_back(connection, fence, item, parked)
            return await _mark(connection, fence, grant, current.token_version, owner)

    return await run_phase("begin_refresh", transaction)


async def _parks(connection: AsyncConnection, grant: Row[Any], version: int) -> bool:
    """
    Settle the renewal that stands in the grant as lost, if one does; says if that ends it.

    One of an earlier version than the present `version` does not: a person was faster, and what it
    may have spent is not used any more.
    """
    if grant.open_refresh is None:
        return False
    org = OrgId(grant.org_id)
    lost = await token_refreshes.lock(connection, org, grant.open_refresh)
    if lost.settled_at is not None:
        return False
    is_spent = GrantRotation(lost.rotation).is_spent_by_use
    await token_refreshes.settle(
        connection,
        lost,
        RefreshOutcome.UNKNOWN if is_spent else RefreshOutcome.SUPERSEDED,
        by=None,
        failure_class="lost",
    )
    ends_grant = is_spent and lost.from_version == version
    if ends_grant:
        await authorization_grants.stand(
            connection,
            grant,
            GrantState.REFRESH_UNKNOWN,
            open_refresh=grant.open_refresh,
            suspect_version=grant.suspect_version,
            failures=grant.failures,
            failure_class="lost",
        )
    return ends_grant


async def _mark(
    connection: AsyncConnection, fence: Fence, grant: Row[Any], version: int, owner: UUID
) -> RefreshBegun:
    context = (await connection.execute(CONTEXT, {"org": fence.org, "work": fence.work})).one()
    refresh = derived_id(fence.work, "refresh", fence.epoch)
    row = {
        "org_id": fence.org,
        "refresh_id": refresh,
        "generation_id": grant.generation_id,
        "from_version": version,
        "rotation": grant.rotation,
        "because": "suspect" if grant.suspect_version == version else "expired",
        "work_id": fence.work,
        "lease_token": fence.token,
        "ownership_epoch": fence.epoch,
        "lease_owner": owner,
        "lease_until": context.lease_until,
    }
    marked = await token_refreshes.add(connection, row)
    await authorization_grants.open_refresh(
        connection, fence.org, BindingGenerationId(grant.generation_id), refresh
    )
    return await _begun(connection, fence, context, marked)


async def _resumed(
    connection: AsyncConnection, item: Row[Any], token: LeaseToken
) -> RefreshBegun | NotStarted:
    org, work = OrgId(item.org_id), WorkId(item.work_id)
    marked = await token_refreshes.of_claim(connection, org, work, token)
    if marked is None or marked.settled_at is not None:
        return NotStarted(verdict=ClaimVerdict.NOT_MARKED, until=None)
    context = (await connection.execute(CONTEXT, {"org": org, "work": work})).one()
    fence = Fence(org=org, work=work, token=token, epoch=item.ownership_epoch)
    return await _begun(connection, fence, context, marked)


async def _begun(
    connection: AsyncConnection, fence: Fence, context: Row[Any], marked: Row[Any]
) -> RefreshBegun:
    org, generation = fence.org, BindingGenerationId(context.generation_id)
    current = await binding_generations.lock_tokens(connection, org, generation)
    grant = await authorization_grants.lock(connection, org, generation)
    assert grant is not None, "a renewal is of a grant"
    token = await connection.execute(
        TOKEN, {"org": org, "generation": generation, "version": marked.from_version}
    )
    return RefreshBegun(
        fence=fence,
        refresh=marked.refresh_id,
        binding=PrincipalBindingId(context.binding_id),
        generation=generation,
        version=marked.from_version,
        rotation=GrantRotation(grant.rotation),
        provider=context.provider,
        pack_grant=current.pack_grant or "",
        base_url=context.base_url,
        generation_base_url=current.base_url,
        is_local=context.is_local,
        account=current.account,
        installation=current.installation,
        client_id=current.client_id,
        view=ViewId(context.view_id),
        view_digest=context.view_digest,
        failures=grant.failures,
        started_at=marked.started_at,
        lease_until=marked.lease_until,
        sealed=current,
        token=token.one(),
        app=await provider_apps.find(
            connection,
            org,
            provider=context.provider,
            pack_grant=current.pack_grant or "",
            client_id=current.client_id,
        ),
    )


async def _hold(connection: AsyncConnection, item: Row[Any], found: Row[Any]) -> NotStarted | None:
    """What is said of an item that nobody holds, and whose token needs no renewal by it."""
    if found.obstacle is None:
        return None
    due = None if found.until is None else due_after(found.until)
    if due is not None:
        await work_items.put_off(connection, item, due)
    return NotStarted(verdict=ClaimVerdict(found.obstacle), until=due)


async def _give_back(
    connection: AsyncConnection, fence: Fence, item: Row[Any], found: Row[Any] | None
) -> NotStarted | None:
    """The claim ends where it began, and what keeps the token from being used is told."""
    await work_items.leave(connection, fence, target="retry", trigger="defer", due=item.run_after)
    return None if found is None else await _hold(connection, item, found)


def due_after(until: datetime) -> datetime:
    """When an item is due that waits for this instant; workflow time has whole milliseconds."""
    whole = until.replace(microsecond=until.microsecond // 1000 * 1000)
    return whole + timedelta(milliseconds=1)


def unseal_refresh(ring: KeyRing, begun: RefreshBegun) -> UnsealedRefresh | None:
    """
    What a marked renewal is made with; None where nobody has said what we are to this provider.

    Raises:
        ConfigurationRefused: The key ring is not the one that it was sealed with.
    """
    if begun.app is None:
        return None
    key = GenerationKey.opened(
        ring,
        begun.sealed.wrapped_key,
        begun.sealed.key_id,
        begun.fence.org,
        begun.binding,
        begun.generation,
    )
    sealed = begun.token.refresh_ciphertext
    return UnsealedRefresh(
        refresh=None if sealed is None else key.open(TokenField.REFRESH, begun.version, sealed),
        app_secret=provider_apps.open_secret(ring, begun.app),
    )
