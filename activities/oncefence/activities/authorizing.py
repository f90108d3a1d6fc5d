"""
Finishing an authorisation that a browser came back from, and ending one at its provider.

The mark is committed by whoever calls this. From there on everything that can happen has an end
that is written down, and only one of them connects the account.
"""

import json

from oncefence.activities.account_calls import AccountAnswer, exchange_code, revoke_token
from oncefence.activities.egress_proxy import EgressProxy
from oncefence.activities.until_answered import until_answered
from oncefence.catalog.expressions import find, identity_text
from oncefence.catalog.grants import Grant, OAuth2, TokenReply
from oncefence.domain.authorization import (
    Authority,
    Flow,
    RequestOutcome,
    RevocationOutcome,
)
from oncefence.domain.grant import GrantRotation
from oncefence.domain.redaction import Secret
from oncefence.storage.engine import Store
from oncefence.storage.generation_change import NewTokens
from oncefence.storage.phases.begin_revocation import BegunRevocation
from oncefence.storage.phases.settle_authorization import (
    Authorized,
    NotAuthorized,
    SettledAuthorization,
    settle_authorization,
)
from oncefence.storage.phases.settle_revocation import settle_revocation
from oncefence.storage.phases.take_authorization import TakenAuthorization
from oncefence.storage.sealing import KeyRing

_SUCCESS = (200, 201)
_PATIENCE_SECONDS = 20.0
"""For a silent database: the tokens are in this process alone, and a person waits."""


async def finish_authorization(
    engine: Store,
    ring: KeyRing,
    taken: TakenAuthorization,
    code: Secret,
    *,
    proxy: EgressProxy | None = None,
) -> SettledAuthorization:
    """
    Exchange the code once, and write what came of it.

    Raises:
        StoreUnavailable: What came is lost: the person starts again, and nothing stands half made.
    """
    grant = grant_of(taken)
    assert grant.oauth2 is not None, "only a person's consent brings a code"
    answer = await exchange_code(taken, grant.oauth2, code, proxy)
    return await settle(engine, ring, taken, end_of_exchange(taken, grant, grant.oauth2, answer))


def grant_of(taken: TakenAuthorization) -> Grant:
    """The pack's grant as it was when the request was made."""
    return Grant.model_validate_json(json.dumps(taken.grant_content))


async def settle(
    engine: Store, ring: KeyRing, taken: TakenAuthorization, end: Authorized | NotAuthorized
) -> SettledAuthorization:
    """
    Write the end of a request that was taken, asking a silent database again for a while.

    Raises:
        StoreUnavailable: It stayed silent.
    """
    return await until_answered(
        lambda: settle_authorization(engine, ring, taken.org, taken.request, end),
        patience_seconds=_PATIENCE_SECONDS,
    )


def end_of_exchange(
    taken: TakenAuthorization, grant: Grant, flow: OAuth2, answer: AccountAnswer
) -> Authorized | NotAuthorized:
    """What the answer of a token endpoint makes of the request."""

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
    if answer.status not in _SUCCESS:
        # After a 5xx nobody knows whether the code is spent; the person starts again either way.
        return failed(RequestOutcome.REFUSED, answer.failure_class)
    access = token_in(flow.reply.access_token, answer.document)
    if access is None:
        return failed(RequestOutcome.UNFIT, "no_access_token")
    authority = authority_in(
        grant,
        flow.reply,
        answer.document,
        like=Authority(
            flow=Flow.OAUTH2,
            pack_grant=taken.pack_grant,
            issuer=origin_of(flow.token_url),
            client_id=taken.client_id,
            scopes=granted(flow, answer.document),
        ),
        is_local=taken.is_local,
    )
    if isinstance(authority, str):
        return failed(RequestOutcome.UNFIT, authority)
    missing = frozenset(flow.scopes) - authority.scopes
    if missing:
        # Found now and not by a write that is refused months later.
        return failed(RequestOutcome.UNFIT, "scopes_missing")
    return Authorized(
        authority=authority,
        rotation=GrantRotation(flow.rotation.value),
        tokens=NewTokens(
            access=access,
            refresh=token_in(flow.reply.refresh_token, answer.document),
            lifetime_s=grant.lifetime_s(answer.document),
            refresh_lifetime_s=flow.refresh_ttl_s,
        ),
        response_status=answer.status,
        phases=answer.phases,
    )


def authority_in(
    grant: Grant, reply: TokenReply, document: object, *, like: Authority, is_local: bool
) -> Authority | str:
    """`like` with the account and the host that a reply names, or a word for why it is not used."""
    account = None
    if reply.account is not None:
        account = identity_text(find(reply.account, document))
        if not account:
            return "no_account"
    base_url = None
    if grant.base_url is not None:
        base_url = grant.base_url.read(document)
        if base_url is None:
            return "host_not_admitted"
    return Authority(
        flow=like.flow,
        pack_grant=like.pack_grant,
        issuer=like.issuer,
        client_id=like.client_id,
        account=account,
        installation=like.installation,
        scopes=like.scopes,
        # A local binding's provider is a stand-in, and lives where the binding says.
        base_url=None if is_local else base_url,
    )


def granted(flow: OAuth2, document: object) -> frozenset[str]:
    """The scopes that a reply grants; where it does not say, those that were asked for."""
    told = document.get("scope") if isinstance(document, dict) else None
    if isinstance(told, str):
        # Commas are not the standard's, and yet some have them.
        return frozenset(told.replace(",", " ").split())
    return frozenset(flow.scopes)


def token_in(path: str, document: object) -> Secret | None:
    """A token of a reply: text that can go into a header, and None of anything else."""
    found = find(path, document)
    if not isinstance(found, str) or not found:
        return None
    return Secret(found) if all("!" <= sign <= "~" for sign in found) else None


def origin_of(url: str) -> str:
    """Scheme and host of a pack's address."""
    return "/".join(url.split("/", 3)[:3])


async def finish_revocation(
    engine: Store, begun: BegunRevocation, grant: Grant, *, proxy: EgressProxy | None = None
) -> tuple[RevocationOutcome, str | None]:
    """
    Call the revocation endpoint once, and write what came of it.

    Raises:
        StoreUnavailable: What came is not written; it is safe to revoke again.
    """
    flow = grant.oauth2
    assert flow is not None, "only an authorisation has an end that a provider is told of"
    assert flow.revoke is not None, "asked for where the pack declares it"
    answer = await revoke_token(begun, flow, flow.revoke, proxy)
    if answer.status is None:
        outcome = RevocationOutcome.LOST if answer.has_left else RevocationOutcome.UNSENT
    elif 200 <= answer.status < 300:
        outcome = RevocationOutcome.REVOKED
    else:
        outcome = RevocationOutcome.REFUSED
    failure = None if outcome is RevocationOutcome.REVOKED else answer.failure_class
    await until_answered(
        lambda: settle_revocation(
            engine,
            begun.org,
            begun.revocation,
            outcome=outcome,
            failure_class=failure,
            response_status=answer.status,
            phases=answer.phases,
        ),
        patience_seconds=_PATIENCE_SECONDS,
    )
    return outcome, failure
