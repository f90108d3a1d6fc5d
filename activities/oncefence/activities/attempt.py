"""
The fused attempt: mark, one request, settle.

Safe to run again at any point. The committed mark is the only guard against a second send,
whoever runs this: a run that finds a mark it did not make itself never sends.
"""

import logging
import random
from datetime import datetime
from http import HTTPStatus
from uuid import UUID, uuid4

from temporalio import activity

from oncefence.activities.boundary import at_boundary
from oncefence.activities.contracts import RUN_ATTEMPT, RunRequest, RunResult, Step
from oncefence.activities.first_look import look_before_create
from oncefence.activities.http_once import http_once
from oncefence.activities.not_started import rest
from oncefence.activities.outgoing import trace, wire_request
from oncefence.activities.process_context import AgeingTime, ProcessContext
from oncefence.activities.send_deadline import SendDeadline, boot_clock
from oncefence.activities.target import TargetPolicy
from oncefence.activities.tokens import refresh_token
from oncefence.activities.until_answered import until_answered
from oncefence.activities.wire_message import WireAnswer
from oncefence.catalog.answers import BodyReading
from oncefence.catalog.bound_quota import Refusal
from oncefence.catalog.operations import BoundOperation
from oncefence.domain.backoff import retry_delay_seconds
from oncefence.domain.breaker import sign_of
from oncefence.domain.claim import ClaimVerdict
from oncefence.domain.classification import AttemptFailure, Classified, WirePhase, classify
from oncefence.domain.effect import Outcome
from oncefence.domain.errors import FenceLost, Refused
from oncefence.domain.ids import LeaseToken, OrgId, WorkId
from oncefence.domain.work_item import DISPATCH
from oncefence.storage.claims import NotStarted
from oncefence.storage.phases.record_evidence import record_evidence
from oncefence.storage.phases.settle_attempt import (
    CREATED_ID,
    AttemptEnd,
    Settled,
    settle_attempt,
)
from oncefence.storage.phases.settle_lost_attempt import settle_lost_attempt
from oncefence.storage.phases.start_attempt import Started, start_attempt, unseal
from oncefence.storage.sealing import DataKey

log = logging.getLogger(__name__)

UNAUTHORIZED = 401
"""The token was refused: its version is not used again (C293)."""

# The store may come back long after the lease ended; the answer in hand is worth that wait.
_KEEP_ANSWER_SECONDS = 3600.0


class AttemptActivity:
    """Runs dispatch items of this process."""

    def __init__(self, context: ProcessContext) -> None:
        self._context = context

    @activity.defn(name=RUN_ATTEMPT)
    async def run_attempt(self, request: RunRequest) -> RunResult:
        """Run the item once, or join the run of it that is under way in this process."""
        org, work = OrgId(request.org_id), WorkId(UUID(request.work_id))
        time = AgeingTime(request.as_of)
        return await at_boundary(
            self._context.runs.join_or_start(
                org,
                work,
                lambda: self._context.measures.run(DISPATCH, self._run(org, work, request, time)),
            )
        )

    async def _run(
        self, org: OrgId, work: WorkId, request: RunRequest, time: AgeingTime
    ) -> RunResult:
        anchored_at, started = await self._mark(org, work, request, time)
        if isinstance(started, NotStarted) and started.verdict is ClaimVerdict.TOKEN_STALE:
            held = await refresh_token(
                self._context, org, work, deadline_ms=request.deadline_ms, time=time
            )
            if held is not None:
                self._context.measures.claim(DISPATCH, held)
                return await self._not_started(org, work, held, time)
            anchored_at, started = await self._mark(org, work, request, time)
        if isinstance(started, NotStarted) and started.verdict is ClaimVerdict.LOOK_FIRST:
            looked = await look_before_create(self._context, org, work, time)
            if looked is not None:
                return looked
            anchored_at, started = await self._mark(org, work, request, time)
        self._context.measures.claim(DISPATCH, started)
        if isinstance(started, NotStarted):
            return await self._not_started(org, work, started, time)
        deadline = SendDeadline(
            total_ms=started.deadline_ms,
            expires_at=anchored_at + started.deadline_ms / 1000,
            clock=boot_clock,
        )
        end = await self._send(started, deadline, time)
        return await self._finish(started, end, time)

    async def _mark(
        self, org: OrgId, work: WorkId, request: RunRequest, time: AgeingTime
    ) -> tuple[float, Started | NotStarted]:
        # Read before the mark's statement leaves, so that however long the mark takes to be
        # durable, the send is late and not early (C165).
        anchored_at = boot_clock()
        asking = SendDeadline.anchor(request.deadline_ms)
        return anchored_at, await self._start(org, work, asking, time)

    async def _send(self, started: Started, deadline: SendDeadline, time: AgeingTime) -> AttemptEnd:
        try:
            view = await self._context.views.view(
                started.fence.org, started.view, started.view_digest
            )
            operation = view.operation(started.operation)
            unsealed = unseal(self._context.ring, started)
            request = wire_request(
                view,
                unsealed.request,
                started.base_url,
                unsealed.token,
                trace(
                    view,
                    command=started.command,
                    attempt=started.attempt,
                    idempotency_key=started.idempotency_key,
                ),
            )
        except Exception as error:
            # Marked, and nothing sent: the starter knows it and says so, or the attempt would
            # be taken for lost and the execution for unknown.
            log.exception("attempt not sent", extra={"attempt_id": str(started.attempt)})
            return unsent(started, is_configuration_fault=isinstance(error, Refused))
        answer = await http_once(
            request,
            deadline=deadline,
            policy=TargetPolicy(is_local=started.is_local),
            proxy=self._context.egress_proxy,
        )
        return attempt_end(operation, started, unsealed.answer_key, answer, now=time.now())

    async def _start(
        self, org: OrgId, work: WorkId, deadline: SendDeadline, time: AgeingTime
    ) -> Started | NotStarted:
        # One token for all tries of this run: a mark whose COMMIT got no answer is found by it,
        # however late. Past the deadline it is looked for only to be told as unsent.
        token = LeaseToken(uuid4())
        return await until_answered(
            lambda: start_attempt(
                self._context.engine,
                org,
                work,
                as_of=time.now(),
                owner=self._context.owner,
                token=token,
                limits=self._context.limits,
                may_start=not (deadline.has_passed() or self._context.runs.is_draining),
            ),
            patience_seconds=_KEEP_ANSWER_SECONDS,
        )

    async def _not_started(
        self, org: OrgId, work: WorkId, found: NotStarted, time: AgeingTime
    ) -> RunResult:
        match found.verdict:
            case ClaimVerdict.ATTEMPT_LOST:
                lookup = await settle_lost_attempt(
                    self._context.engine, org, work, as_of=time.now()
                )
                if lookup is None:
                    # Its starter came first after all; what is next is in SQL.
                    return RunResult(step=Step.WAIT, verdict="settled_meanwhile")
                await self._context.wake_all([lookup])
                await self._context.window.wake_successors(org, work)
                return RunResult(
                    step=Step.FINISHED,
                    verdict=found.verdict,
                    item_state="dead",
                    execution_status="unknown",
                    outcome=Outcome.OUTCOME_UNKNOWN,
                )
            case ClaimVerdict.CANNOT_PROCEED:
                if found.lookup is not None:
                    await self._context.wake_all([found.lookup])
                await self._context.window.wake_successors(org, work)
                return RunResult(
                    step=Step.FINISHED,
                    verdict=found.verdict,
                    execution_status=found.execution_status,
                    failure_class=found.failure_class,
                )
            case _:
                await self._context.window.give_back_place(org, work, found)
                return rest(found)

    async def _finish(self, started: Started, end: AttemptEnd, time: AgeingTime) -> RunResult:
        fence, attempt = started.fence, started.attempt
        try:
            settled: Settled = await until_answered(
                lambda: settle_attempt(
                    self._context.engine,
                    fence,
                    attempt,
                    end,
                    as_of=time.now(),
                    limits=self._context.limits,
                ),
                patience_seconds=_KEEP_ANSWER_SECONDS,
            )
        except FenceLost:
            # Somebody took us for dead and settled it as lost. What we know is kept.
            self._context.measures.fence_lost(DISPATCH)
            recorded = await until_answered(
                lambda: record_evidence(
                    self._context.engine, fence, attempt, end, as_of=time.now()
                ),
                patience_seconds=_KEEP_ANSWER_SECONDS,
            )
            if recorded.wake is not None:
                await self._context.wake_all([recorded.wake])
            return RunResult(step=Step.FINISHED, verdict=recorded.consequence, outcome=end.outcome)
        self._context.measures.attempt(started.provider, settled.outcome)
        if settled.lookup is not None:
            await self._context.wake_all([settled.lookup])
        is_again = settled.item_state == "retry"
        if not is_again:
            await self._context.window.wake_successors(fence.org, fence.work)
        return RunResult(
            step=Step.WAIT if is_again else Step.FINISHED,
            verdict="settled",
            until=settled.next_due if is_again else None,
            item_state=settled.item_state,
            execution_status=settled.execution_status,
            outcome=settled.outcome,
            failure_class=settled.failure_class,
        )


def unsent(started: Started, *, is_configuration_fault: bool) -> AttemptEnd:
    """The end of an attempt whose request could not even be made."""
    return AttemptEnd(
        outcome=Outcome.RETRYABLE_PRE_DISPATCH,
        may_have_applied=False,
        failure_class=AttemptFailure.NOT_SENT,
        response_status=None,
        receipt={},
        phases={},
        sealed_answer=None,
        retry_after_seconds=retry_delay_seconds(
            attempts_made=started.ordinal,
            jitter=random.random(),  # noqa: S311  # spreads load, hides nothing
            is_configuration_fault=is_configuration_fault,
        ),
    )


def attempt_end(
    operation: BoundOperation,
    started: Started,
    answer_key: DataKey,
    answer: WireAnswer,
    *,
    now: datetime,
) -> AttemptEnd:
    """What the answer, or the lack of one, means by the command's own frozen contract."""
    reading = None
    if answer.status is not None and answer.body is not None:
        reading = operation.read_answer(
            answer.status, answer.headers, answer.body, remote_id=started.remote_id
        )
    classified = classify(
        phase=answer.phase,
        status=answer.status,
        body=None if reading is None else reading.verdict(complete=answer.complete),
        contract=operation.reply_contract(
            answer.headers, key_is_live=started.idempotency_key is not None
        ),
        cause=answer.fault,
    )
    created_id = None
    if reading is not None and operation.is_create and classified.outcome is Outcome.ACCEPTED:
        created_id = reading.remote_id
    is_final_answer = classified.outcome in (Outcome.ACCEPTED, Outcome.REJECTED)
    return AttemptEnd(
        outcome=classified.outcome,
        may_have_applied=classified.may_have_applied,
        failure_class=classified.failure_class,
        response_status=answer.status,
        receipt=_receipt(reading, created_id),
        phases=answer.journal.as_evidence(),
        sealed_answer=(
            answer_key.seal(
                answer.body, "answer", started.fence.org, started.execution, started.ordinal
            )
            if is_final_answer and answer.body is not None
            else None
        ),
        retry_after_seconds=_retry_after(operation, classified, reading, started, answer, now=now),
        created_id=created_id,
        sign=sign_of(classified, status=answer.status),
        is_credential_refused=answer.status == UNAUTHORIZED,
        told=_told(operation, classified, reading, answer, now=now),
    )


def _told(
    operation: BoundOperation,
    classified: Classified,
    reading: BodyReading | None,
    answer: WireAnswer,
    *,
    now: datetime,
) -> dict[str, object] | None:
    """What is known of quota now; before anything was sent no answer is the provider's."""
    if classified.outcome is Outcome.RETRYABLE_PRE_DISPATCH:
        return None
    refusal = None
    if answer.status is not None and (
        answer.status == HTTPStatus.TOO_MANY_REQUESTS
        or classified.failure_class is AttemptFailure.NOT_APPLIED
    ):
        limit = None if reading is None else reading.limit
        refusal = Refusal(status=answer.status, limit=limit)
    since_sent_s = answer.journal.seconds_since(WirePhase.FIRST_BYTE_OUT)
    return operation.quota_told(answer.headers, refusal, now=now, since_sent_s=since_sent_s)


def _receipt(reading: BodyReading | None, created_id: str | None) -> dict[str, str]:
    if reading is None:
        return {}
    receipt = dict(reading.receipt)
    if reading.error_code is not None:
        receipt["error_code"] = reading.error_code
    if created_id is not None:
        receipt[CREATED_ID] = created_id
    return receipt


def _retry_after(
    operation: BoundOperation,
    classified: Classified,
    reading: BodyReading | None,
    started: Started,
    answer: WireAnswer,
    *,
    now: datetime,
) -> float:
    asked = None
    # A refused credential is not waited for: its token is renewed first, or the command has failed.
    is_refused = answer.status == UNAUTHORIZED
    if (
        answer.status is not None
        and not is_refused
        and classified.outcome is Outcome.REPLAY_SAFE_RETRY
    ):
        limit = None if reading is None else reading.limit
        # By the time that due times are judged by (C201): by another clock a date that the
        # provider names could come early.
        asked = operation.response.wait_seconds(answer.status, answer.headers, limit, now=now)
    return retry_delay_seconds(
        attempts_made=started.ordinal,
        jitter=random.random(),  # noqa: S311  # spreads load, hides nothing
        retry_after_seconds=asked,
        is_configuration_fault=classified.is_configuration_fault and not is_refused,
    )
