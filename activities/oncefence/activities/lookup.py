"""The lookup: one read of the provider's record, to learn what became of a send."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID, uuid4

from temporalio import activity

from oncefence.activities.boundary import at_boundary
from oncefence.activities.contracts import RUN_LOOKUP, RunRequest, RunResult, Step
from oncefence.activities.http_once import EgressProxy, http_once
from oncefence.activities.not_started import rest
from oncefence.activities.outgoing import wire_request
from oncefence.activities.process_context import NOT_BEGUN, AgeingTime, ProcessContext
from oncefence.activities.send_deadline import SendDeadline
from oncefence.activities.target import TargetPolicy
from oncefence.activities.tokens import refresh_token
from oncefence.activities.until_answered import until_answered
from oncefence.activities.wire_message import WireAnswer, WireRequest
from oncefence.catalog.lookup import LookupContract, LookupReading
from oncefence.domain.breaker import Sign, sign_of_read
from oncefence.domain.claim import ClaimVerdict
from oncefence.domain.errors import FenceLost, Refused
from oncefence.domain.evidence import EvidenceKind, says
from oncefence.domain.ids import LeaseToken, OrgId, WorkId
from oncefence.domain.lookup import Grade, Verdict
from oncefence.domain.work_item import LOOKUP
from oncefence.storage.claims import NotStarted
from oncefence.storage.phases.settle_attempt import CREATED_ID
from oncefence.storage.phases.settle_lookup import LookupEnd, settle_lookup
from oncefence.storage.phases.start_lookup import (
    LateWord,
    LookupStarted,
    start_lookup,
    unseal_lookup,
)

log = logging.getLogger(__name__)

_PATIENCE_SECONDS = 60.0
_UNAUTHORIZED = 401


class LookupActivity:
    """Runs lookup items of this process."""

    def __init__(self, context: ProcessContext) -> None:
        self._context = context

    @activity.defn(name=RUN_LOOKUP)
    async def run_lookup(self, request: RunRequest) -> RunResult:
        """Look once, or join the lookup of this item that is under way in this process."""
        org, work = OrgId(request.org_id), WorkId(UUID(request.work_id))
        time = AgeingTime(request.as_of)
        return await at_boundary(
            self._context.runs.join_or_start(
                org,
                work,
                lambda: self._context.measures.run(LOOKUP, self._run(org, work, request, time)),
            )
        )

    async def _run(
        self, org: OrgId, work: WorkId, request: RunRequest, time: AgeingTime
    ) -> RunResult:
        context = self._context
        if context.runs.is_draining:
            return NOT_BEGUN
        started = await self._start(org, work, time)
        if isinstance(started, NotStarted) and started.verdict is ClaimVerdict.TOKEN_STALE:
            held = await refresh_token(
                context, org, work, deadline_ms=request.deadline_ms, time=time
            )
            started = await self._start(org, work, time) if held is None else held
        context.measures.claim(LOOKUP, started)
        if isinstance(started, NotStarted):
            await context.window.give_back_place(org, work, started)
            return rest(started)
        end = await self._look(started, time.now())
        try:
            settled = await until_answered(
                lambda: settle_lookup(
                    context.engine,
                    started.fence,
                    end,
                    is_sensitive=started.is_sensitive,
                    as_of=time.now(),
                    limits=context.limits,
                ),
                patience_seconds=_PATIENCE_SECONDS,
            )
        except FenceLost:
            # A read that came too late: whoever holds the item now looks for itself.
            context.measures.fence_lost(LOOKUP)
            return RunResult(step=Step.FINISHED, verdict="fence_lost")
        if settled.next_due is not None:
            return RunResult(
                step=Step.WAIT,
                verdict=end.verdict,
                until=settled.next_due,
                item_state="retry",
                execution_status=settled.execution_status,
            )
        await context.window.wake_successors(org, work)
        return RunResult(
            step=Step.FINISHED,
            verdict=end.verdict,
            item_state="succeeded",
            execution_status=settled.execution_status,
        )

    async def _start(
        self, org: OrgId, work: WorkId, time: AgeingTime
    ) -> LookupStarted | NotStarted:
        context, token = self._context, LeaseToken(uuid4())
        return await until_answered(
            lambda: start_lookup(
                context.engine,
                org,
                work,
                as_of=time.now(),
                owner=context.owner,
                token=token,
                limits=context.limits,
                may_claim=not context.runs.is_draining,
            ),
            patience_seconds=_PATIENCE_SECONDS,
        )

    async def _look(self, started: LookupStarted, as_of: datetime) -> LookupEnd:
        word = strongest(started.late_words, has_other_doubts=started.has_other_doubts)
        if word is not None:
            return word
        try:
            view = await self._context.views.view(
                started.fence.org, started.view, started.view_digest
            )
            operation = view.operation(started.operation)
            contract = operation.lookup
            if contract is None:
                return _unread(Verdict.UNUSABLE, "no_lookup_declared")
            unsealed = unseal_lookup(self._context.ring, started)
            if unsealed is None:
                return _unread(Verdict.UNUSABLE, "generation_gone_or_content_erased")
            request = wire_request(
                view,
                contract.request(
                    started.remote_id, unsealed.request.written, command=started.command
                ),
                started.base_url,
                unsealed.token,
                {},
            )
        except Refused:
            # A missing key, or a view that is not what was pinned: a person mends it, and until
            # then the provider is as good as out of reach.
            log.exception("lookup not sent", extra={"work_id": str(started.fence.work)})
            return _unread(Verdict.UNREACHABLE, "not_sent")
        answer = await read_record(
            request,
            deadline_ms=started.deadline_ms,
            is_local=started.is_local,
            proxy=self._context.egress_proxy,
        )
        horizon = timedelta(seconds=contract.horizon_s * self._context.limits.time_scale)
        end = judge(
            contract,
            started,
            unsealed.request.written,
            answer,
            is_past_horizon=as_of - started.started_as_of >= horizon,
        )
        told = operation.quota_told_of_read(answer.status, answer.headers, answer.body, now=as_of)
        return replace(end, told=told)


async def read_record(
    request: WireRequest, *, deadline_ms: int, is_local: bool, proxy: EgressProxy | None = None
) -> WireAnswer:
    """One read of the provider, which changes nothing there."""
    return await http_once(
        request,
        deadline=SendDeadline.anchor(deadline_ms),
        policy=TargetPolicy(is_local=is_local),
        proxy=proxy,
    )


def _unread(verdict: Verdict, reading: str) -> LookupEnd:
    return LookupEnd(
        verdict=verdict,
        reading=reading,
        grade=Grade.NONE,
        response_status=None,
        receipt={},
        phases={},
    )


def strongest(words: tuple[LateWord, ...], *, has_other_doubts: bool = False) -> LookupEnd | None:
    """
    The settlement that the starter's own late word gives, where there is one.

    It stands above anything that the record shows: it is about this very request. Words that
    disagree with each other settle nothing, and neither does a word that this attempt did
    nothing where another attempt of the command is in doubt.
    """
    verdicts = {verdict: word for word in words if (verdict := _verdict_of(word)) is not None}
    if len(verdicts) != 1:
        return None
    verdict, word = next(iter(verdicts.items()))
    if has_other_doubts and verdict is not Verdict.APPLIED:
        return None
    return LookupEnd(
        verdict=verdict,
        reading=f"late_{word.kind}",
        grade=Grade.RECEIPT,
        response_status=word.response_status,
        receipt=word.receipt,
        phases={},
        created_id=word.receipt.get(CREATED_ID),
    )


def _verdict_of(word: LateWord) -> Verdict | None:
    match says(word.kind, word.outcome, may_have_applied=word.may_have_applied):
        case "applied":
            return Verdict.APPLIED
        case "no_effect":
            # Only the word that nothing left is a proof; an answer is the provider's refusal.
            return Verdict.UNSENT if word.kind is EvidenceKind.UNSENT else Verdict.REFUSED
        case _:
            return None


def judge(
    contract: LookupContract,
    started: LookupStarted,
    written: Mapping[str, str | None],
    answer: WireAnswer,
    *,
    is_past_horizon: bool,
) -> LookupEnd:
    """What the provider's answer says about the write, by the frozen lookup contract (C268)."""
    reading = "unreachable"
    verdict = Verdict.UNREACHABLE
    created_id = None
    status = answer.status
    is_declared = status is not None and status in (*contract.found, *contract.not_found)
    if answer.complete and status is not None and is_declared:
        found = contract.judge(
            status,
            answer.body or b"",
            written=written,
            mark_time=started.marked_at,
            remote_id=started.remote_id,
            command=started.command,
        )
        reading = found.reading.value
        if found.reading is LookupReading.EQUAL:
            verdict = Verdict.APPLIED
            created_id = found.remote_id if started.remote_id is None else None
        elif is_past_horizon and _shows_no_effect(found.reading, started):
            verdict = Verdict.NOT_FOUND
        else:
            # The record is gone, changed since, too fresh to tell, or shows nothing about it.
            verdict = Verdict.INCONCLUSIVE
    return LookupEnd(
        verdict=verdict,
        reading=reading,
        grade=Grade.STATE if verdict is Verdict.APPLIED else Grade.NONE,
        response_status=status,
        receipt={} if created_id is None else {CREATED_ID: created_id},
        phases=answer.journal.as_evidence(),
        created_id=created_id,
        sign=told_by(answer),
        refused_version=refused_version(answer, started.token_version),
    )


def refused_version(answer: WireAnswer, token_version: int) -> int | None:
    """The version of the token that was used, if that is what the provider refused."""
    return token_version if answer.status == _UNAUTHORIZED else None


def told_by(answer: WireAnswer) -> Sign | None:
    """What a read's answer, or the lack of one, says of the provider's health (C307)."""
    return sign_of_read(
        phase=answer.phase, status=answer.status, is_whole=answer.complete, cause=answer.fault
    )


def _shows_no_effect(reading: LookupReading, started: LookupStarted) -> bool:
    if reading is LookupReading.DIFFERENT_UNCHANGED:
        return True
    # That a record is gone says nothing of a change to it; of a create it says all.
    is_create = started.remote_id is None
    return is_create and reading in (LookupReading.NO_MATCH, LookupReading.ABSENT)
