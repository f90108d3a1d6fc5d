"""
One call for a token: what is sent, and what the reply says (C286, C289).

A request is built from the pack's grant and what this account brings; nothing of a reply is kept
but tokens, their life, and words of the standard.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final
from urllib.parse import quote, urlencode

from oncefence.activities.account_calls import basic
from oncefence.activities.app_assertion import signed_assertion
from oncefence.activities.authorizing import token_in
from oncefence.activities.grant_endpoints import endpoint_of
from oncefence.activities.wire_message import WireAnswer, WireRequest
from oncefence.catalog import strict_json
from oncefence.catalog.expressions import find, identity_text
from oncefence.catalog.form_body import FORM_MEDIA_TYPE
from oncefence.catalog.grants import INSTALLATION, Grant, Mint, OAuth2
from oncefence.catalog.limits import RetryAfterRule
from oncefence.catalog.templates import expand
from oncefence.domain.classification import BodyVerdict, Classified, ReplyContract, classify
from oncefence.domain.redaction import Secret

_DEPTH_MAX: Final = 16
_SUCCESS: Final = frozenset({200, 201})
_RATE_LIMITED: Final = 429
_JSON: Final = {"accept": "application/json"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenReading:
    """
    What a reply holds; nothing of it is held to be true yet.

    `refresh` is None where the reply left it out, so that the old one stays. `base_url` is None
    where none is named, and `is_host_refused` says that one is named which may not be used.
    """

    access: Secret | None = None
    refresh: Secret | None = field(default=None, repr=False)
    lifetime_s: int = 0
    account: str | None = None
    base_url: str | None = None
    is_host_refused: bool = False
    error: str | None = None
    """The standard's word for a refusal, or whatever stands there: not to be kept unseen."""


def refresh_request(
    flow: OAuth2,
    refresh: Secret,
    *,
    base_url: str,
    is_local: bool,
    client_id: str,
    client_secret: Secret,
) -> WireRequest:
    """The request by which a refresh token is exchanged (RFC 6749, 6)."""
    form = {"grant_type": "refresh_token", "refresh_token": refresh.reveal()}
    authorization = None
    if flow.client == "basic":
        authorization = basic(client_id, client_secret)
    else:
        form |= {"client_id": client_id, "client_secret": client_secret.reveal()}
    endpoint = endpoint_of(flow.token_url, base_url=base_url, is_local=is_local)
    return WireRequest(
        base_url=endpoint.base_url,
        method="POST",
        target=endpoint.target,
        headers={"content-type": FORM_MEDIA_TYPE, **_JSON},
        body=urlencode(form).encode("ascii"),
        authorization=authorization,
    )


def mint_request(
    flow: Mint,
    key: Secret,
    *,
    base_url: str,
    is_local: bool,
    app: str,
    installation: str,
    at: datetime,
) -> WireRequest:
    """
    The request for a token of one installation, on the word of the app's own key.

    Raises:
        ConfigurationRefused: `key` is no RSA key in PEM.
    """
    url = expand(flow.url, {INSTALLATION: installation}, lambda value: quote(value, safe=""))
    endpoint = endpoint_of(url, base_url=base_url, is_local=is_local)
    word = signed_assertion(flow.assertion, key, app=app, installation=installation, at=at)
    return WireRequest(
        base_url=endpoint.base_url,
        method="POST",
        target=endpoint.target,
        headers=_JSON,
        authorization=Secret(f"Bearer {word.reveal()}"),
        authorization_header=flow.assertion.header.lower(),
    )


def read_reply(grant: Grant, answer: WireAnswer) -> TokenReading:
    """What the body of an answer holds; never raises for any bytes."""
    flow = grant.oauth2 or grant.mint
    assert flow is not None, "only these have a token endpoint"
    document: object = None
    if answer.complete and answer.body:
        try:
            document = strict_json.parse(answer.body, depth_max=_DEPTH_MAX, exact=False)
        except strict_json.JsonRefused:
            # A page, or JSON in which one name means two things: no reply at all.
            document = None
    error = document.get("error") if isinstance(document, dict) else None
    rule = grant.base_url
    base_url = None if rule is None else rule.read(document)
    names_host = rule is not None and find(rule.value, document) is not None
    return TokenReading(
        access=token_in(flow.reply.access_token, document),
        refresh=None
        if grant.oauth2 is None
        else token_in(grant.oauth2.reply.refresh_token, document),
        lifetime_s=grant.lifetime_s(document),
        account=(
            None
            if flow.reply.account is None
            else identity_text(find(flow.reply.account, document)) or None
        ),
        base_url=base_url,
        is_host_refused=names_host and base_url is None,
        error=error if isinstance(error, str) else None,
    )


def classify_reply(flow: OAuth2 | Mint, answer: WireAnswer, reading: TokenReading) -> Classified:
    """
    The class of a call for a token: a complete 4xx is an answer, a 5xx only where it is declared.

    By the same function as any other request's: how far it got decides, and a success is only what
    came whole and holds a token.
    """
    not_applied = frozenset(flow.not_applied) | {_RATE_LIMITED}
    return classify(
        phase=answer.phase,
        status=answer.status,
        body=None
        if answer.body is None
        else BodyVerdict(
            complete=answer.complete,
            parseable=True,
            evidence_present=reading.access is not None,
            identity_matches=True,
        ),
        contract=ReplyContract(
            success_statuses=_SUCCESS,
            rejected_statuses=frozenset(range(400, 500)) - not_applied,
            not_applied_statuses=not_applied,
            has_live_idempotency_key=False,
        ),
        cause=answer.fault,
    )


def asked_wait(headers: Mapping[str, str], *, now: datetime) -> float | None:
    """For how long a refusal asks to be left alone, where it says so readably."""
    return RetryAfterRule().wait_seconds(headers, now=now)
