"""
Where a browser comes back to from a provider's page (RFC 6749, 9207).

Whoever stands here shows nothing but a state, which we made, cannot be guessed, and is used once.
What they are told is for people, in our own words: nothing that came is repeated.
"""

from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

import structlog
from fastapi import APIRouter
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from oncefence.activities.authorizing import finish_authorization, grant_of, settle
from oncefence.app.connecting import CALLBACK_PATH, wake_bound
from oncefence.app.doors import Doors, DoorsHere
from oncefence.domain.authorization import RequestAct, RequestOutcome
from oncefence.domain.redaction import Secret
from oncefence.storage.phases.settle_authorization import NotAuthorized, SettledAuthorization
from oncefence.storage.phases.take_authorization import (
    TakenAuthorization,
    take_authorization,
)

log = structlog.get_logger("oncefence.doors")

router = APIRouter()

PARAMETER_LENGTH_MAX: Final = 4_096
_ONCE: Final = ("state", "code", "error", "iss")

# What an authorisation endpoint may send back (RFC 6749 4.1.2.1, OpenID Connect); any other word
# is the provider's own.
_ERRORS: Final = {
    "access_denied": "the provider's page was left without consent",
    "invalid_scope": "the provider does not know one of the scopes that were asked for",
    "unauthorized_client": "the provider does not let our app ask in this way",
    "unsupported_response_type": "the provider does not let our app ask in this way",
    "invalid_request": "the provider found a fault in how it was asked",
    "server_error": "the provider failed; try again later",
    "temporarily_unavailable": "the provider is too busy; try again later",
    "login_required": "the provider wants a login first",
    "consent_required": "the provider wants consent first",
    "interaction_required": "the provider wants to ask something first",
}
_ANOTHER_ERROR: Final = "the provider refused, with a word that no standard has"
_AGAIN: Final = "Nothing was changed. Start again with a new link."

_NOT_VALID: Final = (
    "This link is not valid: it was never made here, was used already, or is too old.\n" + _AGAIN
)
_ENDS: Final = {
    RequestOutcome.CONNECTED: "The account is connected. You can close this page.",
    RequestOutcome.REAUTHORIZED: "The account is authorised again. You can close this page.",
    RequestOutcome.REFUSED: "The provider did not give a token.\n" + _AGAIN,
    RequestOutcome.UNSENT: "The provider could not be reached.\n" + _AGAIN,
    RequestOutcome.LOST: "The provider's answer did not arrive.\n" + _AGAIN,
    RequestOutcome.MOVED: "The binding was changed by somebody else meanwhile.\n" + _AGAIN,
}
_UNFIT: Final = {
    "scopes_missing": "not all of the permissions that were asked for were granted",
    "host_not_admitted": "the account is on a host that this provider's pack does not admit",
    "account_not_proven": "the provider does not say which account it is; connect it anew instead",
}
_ANOTHER_ACCOUNT: Final = "this is another account, or other permissions, than before"


@router.get(CALLBACK_PATH, include_in_schema=False)
async def callback(request: Request, doors: DoorsHere) -> Response:
    """Take what a browser brought from a provider's page, once."""
    given = _parameters(request)
    if given is None or "state" not in given or ("code" in given) == ("error" in given):
        return _page(HTTPStatus.BAD_REQUEST, _NOT_VALID)
    taken = await take_authorization(doors.engine, doors.ring, given["state"])
    if taken is None:
        return _page(HTTPStatus.BAD_REQUEST, _NOT_VALID)
    issuer = given.get("iss")
    if issuer is not None and not _is_issuer(issuer, taken):
        # Another server's answer: its code must not be shown to this one (RFC 9207).
        settled = await _refuse(doors, taken, RequestOutcome.REFUSED, "another_issuer")
    elif "error" in given:
        word = given["error"]
        known = word if word in _ERRORS else "another_error"
        settled = await _refuse(doors, taken, RequestOutcome.DENIED, known)
    else:
        settled = await finish_authorization(
            doors.engine,
            doors.ring,
            taken,
            Secret(given["code"]),
            proxy=doors.connecting.egress_proxy,
        )
    log.info("authorization_settled", outcome=settled.outcome.value, code=settled.failure_class)
    return _told(doors, settled)


async def _refuse(
    doors: Doors, taken: TakenAuthorization, outcome: RequestOutcome, failure_class: str
) -> SettledAuthorization:
    end = NotAuthorized(outcome=outcome, failure_class=failure_class)
    return await settle(doors.engine, doors.ring, taken, end)


def _parameters(request: Request) -> dict[str, str] | None:
    """What we know of what came, each once and of bounded length; None of anything else."""
    given = request.query_params
    found: dict[str, str] = {}
    for name in _ONCE:
        values = given.getlist(name)
        if len(values) > 1 or any(not 0 < len(each) <= PARAMETER_LENGTH_MAX for each in values):
            return None
        if values:
            found[name] = values[0]
    return found


def _is_issuer(issuer: str, taken: TakenAuthorization) -> bool:
    flow = grant_of(taken).oauth2
    assert flow is not None, "only a person's consent comes back by a browser"
    if taken.is_local:
        return issuer.rstrip("/") == taken.base_url
    try:
        parts = urlsplit(issuer)
    except ValueError:
        return False
    hosts = {urlsplit(url).netloc for url in (flow.authorize_url, flow.token_url)}
    return parts.scheme == "https" and parts.netloc.lower() in hosts


def _told(doors: Doors, settled: SettledAuthorization) -> Response:
    outcome, failure = settled.outcome, settled.failure_class or ""
    if outcome.is_success:
        waking = BackgroundTask(wake_bound, doors, settled.org, settled.binding)
        return _page(HTTPStatus.OK, _ENDS[outcome], waking)
    if outcome is RequestOutcome.DENIED:
        reason = _ERRORS.get(failure, _ANOTHER_ERROR)
    elif outcome is RequestOutcome.UNFIT:
        is_another = settled.act is RequestAct.REAUTHORIZE and failure.startswith("another_")
        reason = (
            _ANOTHER_ACCOUNT if is_another else _UNFIT.get(failure, "its answer was not usable")
        )
    else:
        return _page(HTTPStatus.BAD_REQUEST, _ENDS[outcome])
    return _page(HTTPStatus.BAD_REQUEST, f"The account was not connected: {reason}.\n{_AGAIN}")


def _page(status: int, text: str, background: BackgroundTask | None = None) -> Response:
    """Plain text that nobody keeps, frames or takes for something else."""
    return PlainTextResponse(
        text + "\n",
        status_code=status,
        headers={
            "Cache-Control": "no-store",
            # The address holds the code and the state.
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
            "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
        },
        background=background,
    )
