"""Asking for an account to be connected: a request that can be used once, for a short time."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import Row
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from oncefence.domain.authorization import (
    NOBODY,
    REQUEST_SECONDS,
    Flow,
    RequestAct,
    binding_version,
    challenge_of,
    state_hash,
)
from oncefence.domain.errors import ActRefused, NoSuchTarget, VersionMoved
from oncefence.domain.ids import OrgId, PrincipalBindingId
from oncefence.domain.operator import Act
from oncefence.domain.redaction import Secret
from oncefence.storage import (
    audit,
    authorization_requests,
    binding_generations,
    principal_bindings,
    provider_apps,
)
from oncefence.storage.engine import run_phase
from oncefence.storage.generation_change import NOW
from oncefence.storage.sealing import KeyRing

_ACTS = {
    RequestAct.CONNECT: Act.CONNECT_BINDING,
    RequestAct.REAUTHORIZE: Act.REAUTHORIZE_BINDING,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedConnection:
    """What somebody wants to be connected, read from a pack and a command line."""

    act: RequestAct
    flow: Flow
    org: OrgId
    name: str
    subject: str | None
    """The user of a per-user binding; None of a shared one."""

    provider: str
    base_url: str
    is_local: bool
    pack_grant: str
    grant_content: Mapping[str, Any]
    """The pack's grant as it is now: JSON of its model."""

    installation: str | None
    redirect_uri: str | None
    """Where a browser comes back to; None where there is none."""

    @property
    def binding(self) -> PrincipalBindingId:
        """The identity that its name computes to, whether it is there or not."""
        return principal_bindings.binding_id(self.org, self.name, self.subject)


@dataclass(frozen=True, slots=True, kw_only=True)
class BegunAuthorization:
    """A request, and what the browser is sent away with; neither is stored in clear."""

    request: UUID
    client_id: str
    expires_at: datetime
    state: Secret = field(repr=False)
    challenge: str = field(repr=False)


async def begin_authorization(
    engine: AsyncEngine,
    ring: KeyRing,
    wanted: WantedConnection,
    *,
    expected_version: str,
    actor: str,
    note: str,
) -> BegunAuthorization:
    """
    Write the request down; nothing of the binding changes by it.

    Raises:
        NoSuchTarget: There is no app that we are to this provider, or no such binding to repair.
        VersionMoved: The binding is not as the operator saw it.
        ActRefused: The binding is of another provider or origin.
    """
    state, verifier = Secret(secrets.token_urlsafe(32)), Secret(secrets.token_urlsafe(48))
    request = uuid4()
    key, wrapped, key_id = ring.new_key("authorization", wanted.org, request)
    is_browsed = wanted.flow is Flow.OAUTH2
    sealed = {
        "state_hash": state_hash(state.reveal()),
        "verifier_ciphertext": key.seal(
            verifier.reveal().encode(), "verifier", wanted.org, request
        ),
        "wrapped_key": wrapped,
        "key_id": key_id,
    }

    async def transaction() -> BegunAuthorization:
        async with engine.begin() as connection:
            await _refuse_unfit(connection, wanted, expected_version)
            app = await provider_apps.find(
                connection,
                wanted.org,
                provider=wanted.provider,
                pack_grant=wanted.pack_grant,
            )
            if app is None:
                raise NoSuchTarget(
                    kind=f"app for grant {wanted.pack_grant} of",
                    name=wanted.provider,
                    remedy="say what we are to that provider with `oncefence app add`",
                )
            now = (await connection.execute(NOW)).scalar_one()
            row = await authorization_requests.add(
                connection,
                {
                    "org_id": wanted.org,
                    "request_id": request,
                    "act": wanted.act.value,
                    "flow": wanted.flow.value,
                    "binding_id": wanted.binding,
                    "name": wanted.name,
                    "provider": wanted.provider,
                    "kind": "shared" if wanted.subject is None else "per_user",
                    "subject": wanted.subject,
                    "base_url": wanted.base_url,
                    "is_local": wanted.is_local,
                    "pack_grant": wanted.pack_grant,
                    "grant_content": dict(wanted.grant_content),
                    "client_id": app.client_id,
                    "installation": wanted.installation,
                    "redirect_uri": wanted.redirect_uri,
                    **(sealed if is_browsed else {}),
                    "expected_version": expected_version,
                    "made_by": actor,
                    "note": note,
                    "expires_at": now + timedelta(seconds=REQUEST_SECONDS),
                },
            )
            await audit.add(
                connection,
                wanted.org,
                actor=actor,
                act=_ACTS[wanted.act],
                subject_kind="authorization_request",
                subject_id=f"{wanted.binding}/{request}",
                note=note,
                expected_version=expected_version,
            )
            return BegunAuthorization(
                request=request,
                client_id=app.client_id,
                expires_at=row.expires_at,
                state=state,
                challenge=challenge_of(verifier.reveal()),
            )

    return await run_phase("begin_authorization", transaction)


async def _refuse_unfit(
    connection: AsyncConnection, wanted: WantedConnection, expected_version: str
) -> None:
    bound = await principal_bindings.find(connection, wanted.org, wanted.name, wanted.subject)
    newest = await binding_generations.lock_newest(connection, wanted.org, wanted.binding)
    refuse_moved(wanted.name, newest, expected_version)
    kind = "shared" if wanted.subject is None else "per_user"
    called_so = await principal_bindings.kind_of_name(connection, wanted.org, wanted.name)
    if called_so is not None and called_so != (kind, wanted.provider):
        raise ActRefused(
            act=_ACTS[wanted.act],
            subject=f"binding {wanted.name}",
            verdict=f"its name is that of {called_so[0]} bindings for {called_so[1]}",
            remedy="one name is of one kind and one provider; choose another name",
        )
    if bound is None and wanted.act is RequestAct.REAUTHORIZE:
        raise NoSuchTarget(
            kind="principal binding",
            name=wanted.name,
            remedy="see `oncefence binding list`; a new one is connected with"
            " `oncefence binding connect`",
        )
    if bound is not None and (
        bound.base_url != wanted.base_url or bound.is_local != wanted.is_local
    ):
        raise ActRefused(
            act=_ACTS[wanted.act],
            subject=f"binding {wanted.name}",
            verdict=f"it is at {bound.base_url}",
            remedy="a binding keeps its origin; connect another name",
        )
    if wanted.act is RequestAct.REAUTHORIZE and (newest is None or newest.state != "current"):
        raise ActRefused(
            act=_ACTS[wanted.act],
            subject=f"binding {wanted.name}",
            verdict="it is disconnected",
            remedy="connect it: another generation begins with that",
        )


def refuse_moved(name: str, newest: Row[Any] | None, expected: str) -> None:
    """
    Return where the locked binding is as whoever acts saw it.

    Raises:
        VersionMoved: It is not.
    """
    found = version_of(newest)
    if found != expected:
        raise VersionMoved(subject=f"binding {name}", expected=expected, found=found)


def version_of(newest: Row[Any] | None) -> str:
    """The version of a binding whose newest generation this is."""
    return NOBODY if newest is None else binding_version(newest.ordinal, newest.state)
