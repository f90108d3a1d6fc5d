"""
The look before a create: one read, to learn whether the record is there already.

It is made where nothing of the provider's would make a second create harmless (C342). It sends
nothing, so it takes no claim, and a run that dies in it leaves nothing to mend.
"""

import logging
from dataclasses import replace
from datetime import datetime
from typing import Final
from uuid import uuid4

from oncefence.activities.contracts import RunResult, Step
from oncefence.activities.lookup import read_record, refused_version, told_by
from oncefence.activities.not_started import rest
from oncefence.activities.outgoing import wire_request
from oncefence.activities.process_context import AgeingTime, ProcessContext
from oncefence.activities.until_answered import until_answered
from oncefence.activities.wire_message import WireAnswer
from oncefence.catalog.lookup import LookupContract, LookupReading
from oncefence.domain.claim import ClaimVerdict
from oncefence.domain.errors import FenceLost, Refused
from oncefence.domain.ids import LeaseToken, OrgId, WorkId
from oncefence.domain.lookup import FirstLook
from oncefence.storage.claims import NotStarted
from oncefence.storage.phases.begin_first_look import (
    FirstLookBegun,
    begin_first_look,
    unseal_first_look,
)
from oncefence.storage.phases.settle_attempt import CREATED_ID
from oncefence.storage.phases.settle_first_look import FirstLookEnd, settle_first_look
from oncefence.storage.pinned_access import UnsealedLookup

log = logging.getLogger(__name__)

_PATIENCE_SECONDS: Final = 60.0
_SAYS: Final = {
    LookupReading.EQUAL: FirstLook.THERE,
    LookupReading.AMBIGUOUS: FirstLook.AMBIGUOUS,
    LookupReading.NO_MATCH: FirstLook.ABSENT,
}


async def look_before_create(
    context: ProcessContext, org: OrgId, work: WorkId, time: AgeingTime
) -> RunResult | None:
    """
    What the run of the create comes to by the look alone; None where the create may be made.

    Raises:
        StoreUnavailable: The store did not answer. Nothing was sent.
    """
    begun = await until_answered(
        lambda: begin_first_look(context.engine, org, work), patience_seconds=_PATIENCE_SECONDS
    )
    if isinstance(begun, NotStarted):
        return rest(begun)
    end = await _look(context, begun, time.now())
    token = LeaseToken(uuid4())
    try:
        settled = await until_answered(
            lambda: settle_first_look(
                context.engine, begun, end, token=token, as_of=time.now(), limits=context.limits
            ),
            patience_seconds=_PATIENCE_SECONDS,
        )
    except FenceLost:
        # Somebody else looked and claimed it, or ended it: what is next is in SQL.
        return RunResult(step=Step.WAIT, verdict="settled_meanwhile")
    if settled.next_due is not None:
        return RunResult(step=Step.WAIT, verdict=end.look, until=settled.next_due)
    if settled.failure_class is None:
        return None
    await context.window.wake_successors(org, work)
    return RunResult(
        step=Step.FINISHED,
        verdict=ClaimVerdict.CANNOT_PROCEED,
        execution_status="failed",
        failure_class=settled.failure_class,
    )


async def _look(context: ProcessContext, begun: FirstLookBegun, as_of: datetime) -> FirstLookEnd:
    try:
        view = await context.views.view(begun.org, begun.view, begun.view_digest)
        operation = view.operation(begun.operation)
        contract = operation.lookup
        unsealed = unseal_first_look(context.ring, begun)
        if contract is None or unsealed is None:
            return _unread(FirstLook.UNUSABLE, "generation_gone_or_content_erased")
        request = wire_request(
            view,
            contract.request(None, unsealed.request.written, command=begun.command),
            begun.base_url,
            unsealed.token,
            {},
        )
    except Refused:
        # A missing key, or a view that is not what was pinned: a person mends it, and until then
        # nothing is sent.
        log.exception("not looked for before its create", extra={"work_id": str(begun.work)})
        return _unread(FirstLook.UNREACHABLE, "not_sent")
    answer = await read_record(
        request,
        deadline_ms=begun.deadline_ms,
        is_local=begun.is_local,
        proxy=context.egress_proxy,
    )
    told = operation.quota_told_of_read(answer.status, answer.headers, answer.body, now=as_of)
    return replace(judge_first_look(contract, begun, unsealed, answer), told=told)


def judge_first_look(
    contract: LookupContract, begun: FirstLookBegun, unsealed: UnsealedLookup, answer: WireAnswer
) -> FirstLookEnd:
    """What the provider's answer says about a record that is still to be created."""
    status = answer.status
    look, reading = FirstLook.UNREACHABLE, "unreachable"
    receipt: dict[str, str] = {}
    if answer.complete and status is not None and status in contract.found:
        found = contract.judge_first(
            status,
            answer.body or b"",
            written=unsealed.request.written,
            command=begun.command,
        )
        look, reading = _SAYS.get(found.reading, FirstLook.UNCLEAR), found.reading.value
        receipt = {} if found.remote_id is None else {CREATED_ID: found.remote_id}
    return FirstLookEnd(
        look=look,
        reading=reading,
        response_status=status,
        receipt=receipt,
        phases=answer.journal.as_evidence(),
        sign=told_by(answer),
        refused_version=refused_version(answer, begun.token_version),
    )


def _unread(look: FirstLook, reading: str) -> FirstLookEnd:
    return FirstLookEnd(look=look, reading=reading, response_status=None, receipt={}, phases={})
