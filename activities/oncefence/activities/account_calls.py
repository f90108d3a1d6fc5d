"""
The calls by which an account begins and ends: a code for tokens, and a token for nothing.

Each is made once. What its answer means is decided by how far the request got and by whether the
answer came whole; an error's text is the provider's and is not kept.
"""

import base64
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, urlencode

from oncefence.activities.egress_proxy import EgressProxy
from oncefence.activities.grant_endpoints import Endpoint, endpoint_of
from oncefence.activities.http_once import http_once
from oncefence.activities.send_deadline import SendDeadline
from oncefence.activities.target import TargetPolicy
from oncefence.activities.wire_message import WireAnswer, WireRequest
from oncefence.catalog import strict_json
from oncefence.catalog.form_body import FORM_MEDIA_TYPE
from oncefence.catalog.grants import OAuth2, Revocation
from oncefence.domain.classification import WirePhase
from oncefence.domain.grant import ERROR_CODES
from oncefence.domain.redaction import Secret
from oncefence.storage.phases.begin_revocation import BegunRevocation
from oncefence.storage.phases.take_authorization import TakenAuthorization

DEADLINE_MS: Final = 15_000
"""A person waits for it at a browser; token endpoints answer within a second or two."""

REPLY_BYTES_MAX: Final = 65_536
_DEPTH_MAX: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountAnswer:
    """
    What one of these calls came to.

    Where `has_left` is false nothing of the request left; where `status` is None it left, and no
    whole answer came. `document` is a JSON body, `error` one of the standard's words.
    """

    has_left: bool
    status: int | None
    document: Any
    """Any: whatever JSON a provider answers; None where it answered no JSON."""

    error: str | None
    phases: dict[str, Any]

    @property
    def failure_class(self) -> str:
        """One word for what went wrong, of a closed list."""
        if self.status is None:
            return str(self.phases.get("fault", "lost"))
        return self.error or f"status_{self.status}"


async def exchange_code(
    taken: TakenAuthorization, flow: OAuth2, code: Secret, proxy: EgressProxy | None
) -> AccountAnswer:
    """The answer to the one exchange of the code that a browser brought."""
    assert taken.redirect_uri is not None, "a browser came back to it"
    form = {
        "grant_type": "authorization_code",
        "code": code.reveal(),
        "redirect_uri": taken.redirect_uri,
    }
    if taken.verifier is not None and flow.pkce:
        form["code_verifier"] = taken.verifier.reveal()
    return await _post(
        endpoint_of(flow.token_url, base_url=taken.base_url, is_local=taken.is_local),
        form,
        client=flow.client,
        client_id=taken.client_id,
        client_secret=taken.client_secret,
        policy=TargetPolicy(is_local=taken.is_local),
        proxy=proxy,
    )


async def revoke_token(
    begun: BegunRevocation, flow: OAuth2, revocation: Revocation, proxy: EgressProxy | None
) -> AccountAnswer:
    """The answer to the one call that ends the authorisation at its provider (RFC 7009)."""
    token = begun.access
    if revocation.token == "refresh_token" and begun.refresh is not None:  # noqa: S105  # which one
        token = begun.refresh
    return await _post(
        endpoint_of(revocation.url, base_url=begun.base_url, is_local=begun.is_local),
        {"token": token.reveal(), "token_type_hint": revocation.token},
        client=flow.client,
        client_id=begun.client_id,
        client_secret=begun.client_secret,
        policy=TargetPolicy(is_local=begun.is_local),
        proxy=proxy,
    )


async def _post(
    endpoint: Endpoint,
    form: dict[str, str],
    *,
    client: str,
    client_id: str | None,
    client_secret: Secret | None,
    policy: TargetPolicy,
    proxy: EgressProxy | None,
) -> AccountAnswer:
    authorization = None
    if client_id is not None and client_secret is not None:
        if client == "basic":
            authorization = basic(client_id, client_secret)
        else:
            form |= {"client_id": client_id, "client_secret": client_secret.reveal()}
    return await send(
        WireRequest(
            base_url=endpoint.base_url,
            method="POST",
            target=endpoint.target,
            headers={"content-type": FORM_MEDIA_TYPE, "accept": "application/json"},
            body=urlencode(form).encode("ascii"),
            authorization=authorization,
        ),
        policy,
        proxy,
    )


async def send(
    request: WireRequest, policy: TargetPolicy, proxy: EgressProxy | None
) -> AccountAnswer:
    """What came of this one request, which was sent at most once."""
    return _read(
        await http_once(
            request,
            deadline=SendDeadline.anchor(DEADLINE_MS),
            policy=policy,
            response_limit_bytes=REPLY_BYTES_MAX,
            proxy=proxy,
        )
    )


def basic(client_id: str, client_secret: Secret) -> Secret:
    """The header of HTTP Basic, with both parts form-escaped as RFC 6749 has it (2.3.1)."""
    pair = f"{quote(client_id, safe='')}:{quote(client_secret.reveal(), safe='')}"
    return Secret(f"Basic {base64.b64encode(pair.encode('ascii')).decode('ascii')}")


def _read(answer: WireAnswer) -> AccountAnswer:
    document: Any = None  # whatever the provider answers
    if answer.complete and answer.body:
        try:
            document = strict_json.parse(answer.body, depth_max=_DEPTH_MAX, exact=False)
        except strict_json.JsonRefused:
            # A page, or JSON in which one name means two things: no reply at all.
            document = None
    error = document.get("error") if isinstance(document, dict) else None
    return AccountAnswer(
        has_left=answer.phase >= WirePhase.FIRST_BYTE_OUT,
        status=answer.status if answer.complete else None,
        document=document,
        error=error if isinstance(error, str) and error in ERROR_CODES else None,
        phases=answer.journal.as_evidence(),
    )
