"""
How an account is connected through a door, from what an operator asks for to what came of it.

The pack says how; it is read when the request is made and frozen with it.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Final
from urllib.parse import urlencode
from uuid import UUID

import structlog

from oncefence.activities.grant_endpoints import endpoint_of
from oncefence.activities.installation import finish_installation
from oncefence.app.doors import Doors
from oncefence.app.origin import check_origin
from oncefence.catalog.definitions import ProviderPack
from oncefence.catalog.errors import CatalogError
from oncefence.catalog.grants import Grant, OAuth2
from oncefence.catalog.loader import load_pack
from oncefence.domain.authorization import Flow, RequestAct
from oncefence.domain.errors import ActRefused, ConfigurationRefused, NoSuchTarget
from oncefence.domain.ids import OrgId, PrincipalBindingId
from oncefence.domain.operator import Act
from oncefence.storage.phases.begin_authorization import (
    BegunAuthorization,
    WantedConnection,
    begin_authorization,
)
from oncefence.storage.phases.disconnect_binding import no_such_binding
from oncefence.storage.phases.list_bindings import find_binding, find_bound_classes
from oncefence.storage.phases.settle_authorization import SettledAuthorization
from oncefence.storage.phases.take_authorization import take_own_authorization

CALLBACK_PATH: Final = "/v1/oauth/callback"

log = structlog.get_logger("oncefence.doors")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What an operator asks to be connected, by the names that people use."""

    org: OrgId
    name: str
    subject: str | None
    provider: str
    pack_grant: str
    installation: str | None
    base_url: str | None
    is_local: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """A request that is open: where its person is to go, or what it came to without one."""

    request: UUID
    expires_at: datetime
    url: str | None
    settled: SettledAuthorization | None


async def connect(
    doors: Doors, wish: Wish, *, expected_version: str, actor: str, note: str
) -> Begun:
    """
    Begin to connect an account; what needs no person is done at once.

    Raises:
        NoSuchTarget, VersionMoved, ActRefused, ConfigurationRefused: Nothing was written.
    """
    pack, grant = grant_of(doors, wish.provider, wish.pack_grant)
    kind = "shared" if wish.subject is None else "user"
    if kind not in grant.principal:
        raise ActRefused(
            act=Act.CONNECT_BINDING,
            subject=f"binding {wish.name}",
            verdict=f"grant {wish.pack_grant} is not for a {kind} principal",
            remedy="name a user with --user, or none; the pack says which: "
            + ", ".join(grant.principal),
        )
    if (grant.mint is None) != (wish.installation is None):
        raise ActRefused(
            act=Act.CONNECT_BINDING,
            subject=f"binding {wish.name}",
            verdict="an installation goes with a grant whose tokens are minted, and only with that",
            remedy="name it with --installation, or leave that out",
        )
    return await _begin(
        doors,
        RequestAct.CONNECT,
        wish,
        grant,
        origin=_origin(wish, pack),
        expected_version=expected_version,
        actor=actor,
        note=note,
    )


async def reauthorize(
    doors: Doors,
    org: OrgId,
    name: str,
    subject: str | None,
    *,
    expected_version: str,
    actor: str,
    note: str,
) -> Begun:
    """
    Begin to repair the grant of the current generation; it goes on only as the same account.

    Raises:
        NoSuchTarget, VersionMoved, ActRefused, ConfigurationRefused: Nothing was written.
    """
    row = await find_binding(doors.engine, org, name, subject)
    if row is None:
        raise no_such_binding(name)
    if row.pack_grant is None or row.flow == Flow.BEARER:
        raise ActRefused(
            act=Act.REAUTHORIZE_BINDING,
            subject=f"binding {name}",
            verdict="its token was handed over, and nothing proves whose another one is",
            remedy="hand over another with `oncefence binding rebind`",
        )
    _, grant = grant_of(doors, row.provider, row.pack_grant)
    wish = Wish(
        org=org,
        name=name,
        subject=subject,
        provider=row.provider,
        pack_grant=row.pack_grant,
        installation=row.installation,
        base_url=row.origin,
        is_local=row.is_local,
    )
    return await _begin(
        doors,
        RequestAct.REAUTHORIZE,
        wish,
        grant,
        origin=row.origin,
        expected_version=expected_version,
        actor=actor,
        note=note,
    )


async def _begin(
    doors: Doors,
    act: RequestAct,
    wish: Wish,
    grant: Grant,
    *,
    origin: str,
    expected_version: str,
    actor: str,
    note: str,
) -> Begun:
    flow = _flow_of(grant, wish)
    redirect_uri = _redirect_uri(doors, wish) if flow is Flow.OAUTH2 else None
    begun = await begin_authorization(
        doors.engine,
        doors.ring,
        WantedConnection(
            act=act,
            flow=flow,
            org=wish.org,
            name=wish.name,
            subject=wish.subject,
            provider=wish.provider,
            base_url=origin,
            is_local=wish.is_local,
            pack_grant=wish.pack_grant,
            grant_content=grant.model_dump(mode="json"),
            installation=wish.installation,
            redirect_uri=redirect_uri,
        ),
        expected_version=expected_version,
        actor=actor,
        note=note,
    )
    url = settled = None
    if redirect_uri is not None:
        assert grant.oauth2 is not None, "a browser is sent away for a person's consent"
        url = _authorize_url(grant.oauth2, begun, wish, origin, redirect_uri)
    else:
        taken = await take_own_authorization(doors.engine, doors.ring, wish.org, begun.request)
        assert taken is not None, "it was begun just now, and by us"
        settled = await finish_installation(
            doors.engine, doors.ring, taken, proxy=doors.connecting.egress_proxy
        )
    return Begun(request=begun.request, expires_at=begun.expires_at, url=url, settled=settled)


def _authorize_url(
    flow: OAuth2, begun: BegunAuthorization, wish: Wish, origin: str, redirect_uri: str
) -> str:
    asked = {
        "response_type": "code",
        "client_id": begun.client_id,
        "redirect_uri": redirect_uri,
        "state": begun.state.reveal(),
    }
    if flow.scopes:
        asked["scope"] = " ".join(flow.scopes)
    if flow.pkce:
        asked |= {"code_challenge": begun.challenge, "code_challenge_method": "S256"}
    endpoint = endpoint_of(flow.authorize_url, base_url=origin, is_local=wish.is_local)
    return f"{endpoint.url}?{urlencode(asked)}"


async def wake_bound(doors: Doors, org: OrgId, binding: PrincipalBindingId) -> None:
    """
    Open what waits with a binding that has changed; after the COMMIT of the change.

    What can go on goes on, and what is pinned to a generation that ended ends.
    """
    try:
        for queue_class in await find_bound_classes(doors.engine, org, binding):
            await doors.window.open(org, queue_class)
    except Exception as error:  # noqa: BLE001  # logged; the sweep repairs a missed hint
        log.warning("announce_failed", error=type(error).__name__)


def grant_of(doors: Doors, provider: str, name: str) -> tuple[ProviderPack, Grant]:
    """
    A pack and one of its grants, as the doors have them now.

    Raises:
        NoSuchTarget: There is no such pack in their folders, or it has no such grant.
    """
    try:
        pack = load_pack(provider, doors.connecting.pack_folders)
    except CatalogError:
        raise NoSuchTarget(
            kind="pack",
            name=provider,
            remedy="put it into a folder of ONCEFENCE_PACK_FOLDERS of the doors",
        ) from None
    grant = pack.grants.get(name)
    if grant is None:
        known = ", ".join(sorted(pack.grants)) or "none"
        raise NoSuchTarget(
            kind=f"grant of {provider}", name=name, remedy=f"the pack declares: {known}"
        )
    return pack, grant


def _flow_of(grant: Grant, wish: Wish) -> Flow:
    if grant.oauth2 is not None:
        return Flow.OAUTH2
    if grant.mint is not None:
        return Flow.MINT
    raise ActRefused(
        act=Act.CONNECT_BINDING,
        subject=f"binding {wish.name}",
        verdict=f"the token of grant {wish.pack_grant} is made by a person and handed over",
        remedy="use `oncefence binding add`, or `oncefence binding rebind` for one that is there",
    )


def _origin(wish: Wish, pack: ProviderPack) -> str:
    try:
        return check_origin(wish.base_url or pack.base_url, is_local=wish.is_local)
    except ConfigurationRefused as refusal:
        raise ActRefused(
            act=Act.CONNECT_BINDING,
            subject=f"binding {wish.name}",
            verdict=f"its base URL: {refusal.reason}",
            remedy=refusal.remedy,
        ) from None


def _redirect_uri(doors: Doors, wish: Wish) -> str:
    if doors.connecting.public_url is None:
        raise ActRefused(
            act=Act.CONNECT_BINDING,
            subject=f"binding {wish.name}",
            verdict="a browser could not come back to these doors",
            remedy="set ONCEFENCE_PUBLIC_URL for them, to where browsers reach them, like"
            " https://oncefence.example.com",
        )
    return doors.connecting.public_url + CALLBACK_PATH
