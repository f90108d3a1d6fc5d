"""
Renewing the token of a command's pinned generation: mark, one call, activation (C286).

It runs inside the run of the item that needs the token, under a claim of its own, and gives that
back: neither an attempt nor a lost claim is counted for it. Whoever finds a renewal that it did not
begin itself never calls the endpoint.
"""

import logging
import random
from datetime import datetime
from uuid import uuid4

from oncefence.activities.http_once import http_once
from oncefence.activities.process_context import AgeingTime, ProcessContext
from oncefence.activities.send_deadline import SendDeadline
from oncefence.activities.target import TargetPolicy
from oncefence.activities.token_request import (
    TokenReading,
    asked_wait,
    classify_reply,
    mint_request,
    read_reply,
    refresh_request,
)
from oncefence.activities.until_answered import until_answered
from oncefence.activities.wire_message import WireAnswer, WireRequest
from oncefence.catalog.grants import Grant
from oncefence.domain.backoff import retry_delay_seconds
from oncefence.domain.errors import ConfigurationRefused, Refused, StoreUnavailable
from oncefence.domain.grant import (
    GrantState,
    RefreshOutcome,
    RefreshVerdict,
    Refusal,
    expiry,
    spacing_seconds,
    verdict_of,
)
from oncefence.domain.ids import LeaseToken, OrgId, WorkId
from oncefence.domain.redaction import Secret
from oncefence.storage.claims import NotStarted
from oncefence.storage.phases.begin_refresh import RefreshBegun, begin_refresh, unseal_refresh
from oncefence.storage.phases.release_waiters import release_waiters
from oncefence.storage.phases.settle_refresh import (
    RefreshEnd,
    RefreshSettled,
    RenewedTokens,
    settle_refresh,
)

log = logging.getLogger(__name__)

# What the endpoint gave is in this process alone: it is worth as long a wait as an effect's answer.
_KEEP_ANSWER_SECONDS = 3600.0
_REPLY_BYTES_MAX = 256 * 1024


async def refresh_token(
    context: ProcessContext, org: OrgId, work: WorkId, *, deadline_ms: int, time: AgeingTime
) -> NotStarted | None:
    """
    Renew the token that the item needs, if that is still due; None where it may be started now.

    Raises:
        StoreUnavailable: The store did not answer. What was begun is settled when its lease ends.
    """
    # Read before the mark's statement leaves, so that however long the mark takes to be durable,
    # the call is late and not early (C165).
    deadline = SendDeadline.anchor(deadline_ms)
    token = LeaseToken(uuid4())
    begun = await until_answered(
        lambda: begin_refresh(
            context.engine,
            org,
            work,
            as_of=time.now(),
            owner=context.owner,
            token=token,
            limits=context.limits,
            may_begin=not (deadline.has_passed() or context.runs.is_draining),
        ),
        patience_seconds=_KEEP_ANSWER_SECONDS,
    )
    if not isinstance(begun, RefreshBegun):
        return begun
    end = await _call(context, begun, deadline)
    settled = await until_answered(
        lambda: settle_refresh(context.engine, context.ring, begun, end),
        patience_seconds=_KEEP_ANSWER_SECONDS,
    )
    _tell(context, begun, settled)
    if settled.held is None or settled.held.until is not None:
        await _release(context, begun, settled)
    return settled.held


async def _call(context: ProcessContext, begun: RefreshBegun, deadline: SendDeadline) -> RefreshEnd:
    try:
        view = await context.views.view(begun.fence.org, begun.view, begun.view_digest)
        grant = view.grants.get(begun.pack_grant)
        unsealed = unseal_refresh(context.ring, begun)
        if grant is None or (grant.oauth2 is None and grant.mint is None):
            return _unsent(begun, "grant_unknown")
        if unsealed is None:
            return _unsent(begun, "app_missing")
        request = _request(grant, begun, unsealed.refresh, unsealed.app_secret)
        if request is None:
            return _unsent(begun, "refresh_token_missing", refusal=Refusal.REAUTHORIZE)
    except Exception as error:
        # Marked, and nothing sent: whoever began it knows that and says so, or a rotating token
        # would be taken for spent.
        log.exception("token not asked for", extra={"work_id": str(begun.fence.work)})
        fault = isinstance(error, Refused)
        return _unsent(
            begun,
            "configuration" if fault else "not_sent",
            refusal=Refusal.RECONFIGURE if fault else Refusal.WAIT,
        )
    answer = await http_once(
        request,
        deadline=deadline,
        policy=TargetPolicy(is_local=begun.is_local),
        response_limit_bytes=_REPLY_BYTES_MAX,
        proxy=context.egress_proxy,
    )
    return refresh_end(grant, begun, answer, old_refresh=unsealed.refresh)


def _request(
    grant: Grant, begun: RefreshBegun, refresh: Secret | None, app_secret: Secret
) -> WireRequest | None:
    app = "" if begun.app is None else begun.app.client_id
    if grant.mint is not None:
        if begun.installation is None:
            raise ConfigurationRefused(
                setting=f"binding of {begun.provider}",
                reason="it names no installation for which a token could be made",
                remedy="Connect it with `oncefence binding connect --installation`",
            )
        return mint_request(
            grant.mint,
            app_secret,
            base_url=begun.base_url,
            is_local=begun.is_local,
            app=app,
            installation=begun.installation,
            at=begun.started_at,
        )
    assert grant.oauth2 is not None, "checked by the caller"
    if refresh is None:
        return None
    return refresh_request(
        grant.oauth2,
        refresh,
        base_url=begun.base_url,
        is_local=begun.is_local,
        client_id=app,
        client_secret=app_secret,
    )


def refresh_end(
    grant: Grant, begun: RefreshBegun, answer: WireAnswer, *, old_refresh: Secret | None
) -> RefreshEnd:
    """What the answer, or the lack of one, means by the pack's grant."""
    flow = grant.oauth2 or grant.mint
    assert flow is not None, "only these have a token endpoint"
    reading = read_reply(grant, answer)
    classified = classify_reply(flow, answer, reading)
    verdict = verdict_of(
        classified, status=answer.status, error=reading.error, is_mint=grant.mint is not None
    )
    if verdict.outcome is RefreshOutcome.ACTIVATED:
        verdict = _misfit(begun, reading) or verdict
    spacing = spacing_seconds(flow.min_gap_s)
    tokens = None
    if verdict.outcome is RefreshOutcome.ACTIVATED:
        tokens = _tokens(grant, begun, reading, old_refresh)
    return RefreshEnd(
        verdict=verdict,
        wait_seconds=spacing
        if tokens is not None
        else max(spacing, _back_off(begun, verdict, answer)),
        response_status=answer.status,
        phases=answer.journal.as_evidence(),
        tokens=tokens,
    )


def _misfit(begun: RefreshBegun, reading: TokenReading) -> RefreshVerdict | None:
    """
    Why a good reply is not used: it is of another account, or of a host that may not be used.

    What it was made with may be spent by it all the same, so it counts as one that is lost.
    """

    def unfit(refusal: Refusal, failure_class: str) -> RefreshVerdict:
        return RefreshVerdict(
            outcome=RefreshOutcome.UNKNOWN, refusal=refusal, failure_class=failure_class
        )

    if begun.account is not None and reading.account not in (None, begun.account):
        return unfit(Refusal.REAUTHORIZE, "another_account")
    if begun.is_local:
        # A stand-in of the provider names the provider's hosts, and is where the binding says.
        return None
    if reading.is_host_refused:
        return unfit(Refusal.RECONFIGURE, "host_not_admitted")
    if reading.base_url not in (None, begun.generation_base_url or begun.base_url):
        return unfit(Refusal.REAUTHORIZE, "another_host")
    return None


def _tokens(
    grant: Grant, begun: RefreshBegun, reading: TokenReading, old_refresh: Secret | None
) -> RenewedTokens:
    assert reading.access is not None, "a success holds a token"
    ttl = None if grant.oauth2 is None else grant.oauth2.refresh_ttl_s
    ends: datetime | None = begun.token.refresh_expires_at
    if reading.refresh is not None:
        ends = None if ttl is None else expiry(ttl, asked_at=begun.started_at)
    return RenewedTokens(
        access=reading.access,
        refresh=reading.refresh or old_refresh,
        expires_at=expiry(reading.lifetime_s, asked_at=begun.started_at),
        refresh_expires_at=ends,
    )


def _back_off(begun: RefreshBegun, verdict: RefreshVerdict, answer: WireAnswer) -> float:
    asked = None
    if verdict.outcome is RefreshOutcome.ANSWERED and verdict.refusal is Refusal.WAIT:
        asked = asked_wait(answer.headers, now=begun.started_at)
    return _delay(begun, verdict.refusal, asked)


def _delay(begun: RefreshBegun, refusal: Refusal | None, asked: float | None) -> float:
    return retry_delay_seconds(
        attempts_made=begun.failures + 1,
        jitter=random.random(),  # noqa: S311  # spreads load, hides nothing
        retry_after_seconds=asked,
        is_configuration_fault=refusal is Refusal.RECONFIGURE,
    )


def _unsent(
    begun: RefreshBegun, failure_class: str, *, refusal: Refusal = Refusal.RECONFIGURE
) -> RefreshEnd:
    """The end of a renewal whose request could not even be made."""
    return RefreshEnd(
        verdict=RefreshVerdict(
            outcome=RefreshOutcome.UNSENT, refusal=refusal, failure_class=failure_class
        ),
        wait_seconds=max(spacing_seconds(0), _delay(begun, refusal, None)),
        response_status=None,
        phases={},
    )


def _tell(context: ProcessContext, begun: RefreshBegun, settled: RefreshSettled) -> None:
    context.measures.refresh(begun.provider, settled.outcome)
    if settled.state is GrantState.HEALTHY:
        return
    log.error(
        "tokens cannot be renewed",
        extra={
            "org_id": begun.fence.org,
            "provider": begun.provider,
            "status": settled.state.value,
            "failure_class": settled.failure_class,
        },
    )


async def _release(context: ProcessContext, begun: RefreshBegun, settled: RefreshSettled) -> None:
    """Have those run that waited for this renewal; what is missed here, its lease's end does."""
    until = None if settled.held is None else settled.held.until
    try:
        for queue_class in await release_waiters(context.engine, begun, until=until):
            await context.window.open(begun.fence.org, queue_class)
    except StoreUnavailable:
        log.warning("waiters not released", extra={"work_id": str(begun.fence.work)})
