"""Connecting an installation of our app: a token on the word of our own key, and whose it is."""

from oncefence.activities.account_calls import AccountAnswer, send
from oncefence.activities.authorizing import authority_in, grant_of, origin_of, settle, token_in
from oncefence.activities.egress_proxy import EgressProxy
from oncefence.activities.target import TargetPolicy
from oncefence.activities.token_request import mint_request
from oncefence.catalog.grants import Grant, Mint
from oncefence.domain.authorization import Authority, Flow, RequestOutcome
from oncefence.domain.errors import ConfigurationRefused
from oncefence.domain.grant import GrantRotation
from oncefence.storage.engine import Store
from oncefence.storage.generation_change import NewTokens
from oncefence.storage.phases.settle_authorization import (
    Authorized,
    NotAuthorized,
    SettledAuthorization,
)
from oncefence.storage.phases.take_authorization import TakenAuthorization
from oncefence.storage.sealing import KeyRing


async def finish_installation(
    engine: Store, ring: KeyRing, taken: TakenAuthorization, *, proxy: EgressProxy | None = None
) -> SettledAuthorization:
    """
    Mint the first token once, and write what came of it.

    The installation's id is part of what the generation stands for; the reply says which account
    and host it belongs to.

    Raises:
        StoreUnavailable: What came is lost: it is asked for anew, and nothing stands half made.
    """
    grant = grant_of(taken)
    assert grant.mint is not None, "asked for where the grant is minted"
    assert taken.installation is not None, "a mint is for an installation"
    try:
        request = mint_request(
            grant.mint,
            taken.client_secret,
            base_url=taken.base_url,
            is_local=taken.is_local,
            app=taken.client_id,
            installation=taken.installation,
            at=taken.used_at,
        )
    except ConfigurationRefused:
        return await settle(
            engine,
            ring,
            taken,
            NotAuthorized(outcome=RequestOutcome.UNSENT, failure_class="app_key"),
        )
    answer = await send(request, TargetPolicy(is_local=taken.is_local), proxy)
    return await settle(engine, ring, taken, end_of_mint(taken, grant, grant.mint, answer))


def end_of_mint(
    taken: TakenAuthorization, grant: Grant, flow: Mint, answer: AccountAnswer
) -> Authorized | NotAuthorized:
    """What the answer of a mint makes of the request."""

    def failed(outcome: RequestOutcome, failure_class: str) -> NotAuthorized:
        return NotAuthorized(
            outcome=outcome,
            failure_class=failure_class,
            response_status=answer.status,
            phases=answer.phases,
        )

    if answer.status is None:
        outcome = RequestOutcome.LOST if answer.has_left else RequestOutcome.UNSENT
        return failed(outcome, answer.failure_class)
    if answer.status not in (200, 201):
        return failed(RequestOutcome.REFUSED, answer.failure_class)
    access = token_in(flow.reply.access_token, answer.document)
    if access is None:
        return failed(RequestOutcome.UNFIT, "no_access_token")
    authority = authority_in(
        grant,
        flow.reply,
        answer.document,
        like=Authority(
            flow=Flow.MINT,
            pack_grant=taken.pack_grant,
            issuer=origin_of(flow.url),
            client_id=taken.client_id,
            installation=taken.installation,
        ),
        is_local=taken.is_local,
    )
    if isinstance(authority, str):
        return failed(RequestOutcome.UNFIT, authority)
    return Authorized(
        authority=authority,
        rotation=GrantRotation.MINT,
        tokens=NewTokens(access=access, lifetime_s=grant.lifetime_s(answer.document)),
        response_status=answer.status,
        phases=answer.phases,
    )
