"""The end of an authorisation: the binding is connected by it, or nothing of it changed."""

from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from sqlalchemy import Row
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from oncefence.domain.authorization import (
    Authority,
    RequestAct,
    RequestOutcome,
    Retirement,
)
from oncefence.domain.grant import GrantRotation
from oncefence.domain.ids import BindingGenerationId, OrgId, PrincipalBindingId
from oncefence.domain.operator import Act
from oncefence.storage import (
    audit,
    authorization_requests,
    binding_generations,
    principal_bindings,
)
from oncefence.storage.engine import run_phase, sqlstate
from oncefence.storage.generation_change import NewTokens, authority_of, follow, renew
from oncefence.storage.phases.begin_authorization import version_of
from oncefence.storage.sealing import KeyRing


@dataclass(frozen=True, slots=True, kw_only=True)
class Authorized:
    """Tokens came, and whose they are."""

    authority: Authority
    rotation: GrantRotation
    tokens: NewTokens = field(repr=False)
    response_status: int
    phases: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class NotAuthorized:
    """No tokens came, or none that may be kept."""

    outcome: RequestOutcome
    failure_class: str
    response_status: int | None = None
    phases: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledAuthorization:
    """What a request came to."""

    org: OrgId
    request: UUID
    binding: PrincipalBindingId
    name: str
    act: RequestAct
    outcome: RequestOutcome
    failure_class: str | None
    generation: BindingGenerationId | None


async def settle_authorization(
    engine: AsyncEngine,
    ring: KeyRing,
    org: OrgId,
    request: UUID,
    end: Authorized | NotAuthorized,
) -> SettledAuthorization:
    """
    Write what the used request came to, with all that follows from it, or nothing of it.

    Idempotent: after a lost answer the same end again finds what was written.
    """

    async def transaction() -> SettledAuthorization:
        async with engine.begin() as connection:
            row = await authorization_requests.lock(connection, org, request)
            assert row is not None, "whoever settles it has used it"
            if row.settled_at is not None:
                return _settled(row)
            if isinstance(end, NotAuthorized):
                return _settled(await _end(connection, row, end))
            return await _connect(connection, ring, row, end)

    try:
        return await run_phase("settle_authorization", transaction)
    except Exception as error:
        if sqlstate(error) != principal_bindings.ANOTHER_KIND or isinstance(end, NotAuthorized):
            raise
    # Since it was asked for, its name was given to a binding of another kind.
    moved = _unfit(end, RequestOutcome.MOVED, "name_taken")
    return await settle_authorization(engine, ring, org, request, moved)


async def _connect(
    connection: AsyncConnection, ring: KeyRing, row: Row[Any], end: Authorized
) -> SettledAuthorization:
    org, binding = OrgId(row.org_id), PrincipalBindingId(row.binding_id)
    newest = await binding_generations.lock_newest(connection, org, binding)
    if version_of(newest) != row.expected_version:
        # Somebody else connected or disconnected it meanwhile; theirs stands.
        return _settled(await _end(connection, row, _unfit(end, RequestOutcome.MOVED, "moved")))
    if row.act == RequestAct.REAUTHORIZE:
        assert newest is not None, "only what is there is reauthorised"
        generation, outcome = BindingGenerationId(newest.generation_id), RequestOutcome.REAUTHORIZED
        differs = end.authority.what_differs(authority_of(newest))
        if differs is not None or not end.authority.is_proven:
            # Perhaps another account: only another generation may speak for it (C282).
            failure = f"another_{differs}" if differs is not None else "account_not_proven"
            return _settled(await _end(connection, row, _unfit(end, RequestOutcome.UNFIT, failure)))
        await renew(connection, ring, org, generation, binding=binding, tokens=end.tokens)
    else:
        outcome = RequestOutcome.CONNECTED
        if await principal_bindings.find(connection, org, row.name, row.subject) is None:
            await principal_bindings.add(
                connection,
                {
                    "org_id": org,
                    "binding_id": binding,
                    "name": row.name,
                    "provider": row.provider,
                    "kind": row.kind,
                    "subject": row.subject,
                    "base_url": row.base_url,
                    "is_local": row.is_local,
                },
            )
        generation = await follow(
            connection,
            ring,
            org,
            binding,
            newest=newest,
            because=Retirement.RECONNECTED,
            authority=end.authority,
            rotation=end.rotation,
            tokens=end.tokens,
        )
    await audit.add(
        connection,
        org,
        actor=row.made_by,
        act=Act.CONNECT_BINDING if outcome is RequestOutcome.CONNECTED else Act.REAUTHORIZE_BINDING,
        subject_kind="principal_binding",
        subject_id=f"{binding}/{generation}",
        note=row.note,
        expected_version=row.expected_version,
    )
    return _settled(
        await authorization_requests.settle(
            connection,
            org,
            row.request_id,
            outcome=outcome,
            response_status=end.response_status,
            phases=end.phases,
            generation=generation,
        )
    )


def _unfit(end: Authorized, outcome: RequestOutcome, failure_class: str) -> NotAuthorized:
    return NotAuthorized(
        outcome=outcome,
        failure_class=failure_class,
        response_status=end.response_status,
        phases=end.phases,
    )


async def _end(connection: AsyncConnection, row: Row[Any], end: NotAuthorized) -> Row[Any]:
    return await authorization_requests.settle(
        connection,
        OrgId(row.org_id),
        row.request_id,
        outcome=end.outcome,
        failure_class=end.failure_class,
        response_status=end.response_status,
        phases=end.phases,
    )


def _settled(row: Row[Any]) -> SettledAuthorization:
    generation = row.generation_id
    return SettledAuthorization(
        org=OrgId(row.org_id),
        request=row.request_id,
        binding=PrincipalBindingId(row.binding_id),
        name=row.name,
        act=RequestAct(row.act),
        outcome=RequestOutcome(row.outcome),
        failure_class=row.failure_class,
        generation=None if generation is None else BindingGenerationId(generation),
    )
