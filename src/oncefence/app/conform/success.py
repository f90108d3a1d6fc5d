"""The plain exchange, and success answers that are not what they seem."""

import json
from dataclasses import replace
from typing import Any

from oncefence.app.conform.bending import Bend, BendAnswer, as_page
from oncefence.app.conform.check import Check
from oncefence.app.conform.refusals import told_statuses
from oncefence.app.conform.scene import Bench, Played, Scene
from oncefence.app.conform.trial import NotApplicable
from oncefence.catalog.errors import PayloadRefused
from oncefence.catalog.field_values import shows_same
from oncefence.domain.classification import AttemptFailure
from oncefence.domain.effect import Outcome
from oncefence.simulator.dialects.protocol import Found
from oncefence.simulator.faults import Fault, ScriptedFault
from oncefence.simulator.wire import Answer

_PLAIN = "plain"
_NOWHERE = "../0"
_OTHER_STATUSES = (200, 202, 203, 206)


async def _ids_fit(bench: Bench) -> None:
    operation = bench.subject.operation
    async with bench.scene() as scene:
        record = scene.new_record()
        try:
            operation.check_remote_id(record)
        except PayloadRefused as why:
            bench.trial.expect(False, f"an id of the provider's does not fit: {why}")
        bench.trial.saw("an id that the provider gave", {"length": len(record)})


async def _is_taken(bench: Bench) -> None:
    async with bench.scene() as scene:
        played = await scene.attempt(_PLAIN)
        status = played.sent.end.response_status
        bench.trial.expect(played.requests == 1, f"{played.requests} requests came, not one")
        bench.trial.expect(
            len(played.changes) == 1,
            f"the provider answered {status} and changed {len(played.changes)} records, not one",
        )
        for change in played.changes[:1]:
            bench.trial.expect(
                change.is_creation == bench.subject.operation.is_create,
                "it made another record" if change.is_creation else "it made no record",
            )
            if not bench.subject.operation.is_create:
                bench.trial.expect(
                    change.contact == scene.record, "another record was changed than was meant"
                )
            _written(scene, played, change.contact)


def _written(scene: Scene, played: Played, record: str) -> None:
    shown = scene.properties_of(record)
    for remote, text in played.sent.request.written.items():
        kind = scene.subject.field(remote).type
        scene.trial.expect(
            shows_same(kind, text, shown.get(remote)), f"{remote} has another value than was sent"
        )


async def _has_declared_status(bench: Bench) -> None:
    played = await _plain(bench)
    status = played.sent.end.response_status
    bench.trial.expect(
        status in bench.subject.operation.response.success,
        f"the provider's success is {status}, which answer.success does not name",
    )


async def _has_declared_type(bench: Bench) -> None:
    played = await _plain(bench)
    bench.trial.expect(
        played.sent.end.failure_class != AttemptFailure.MEDIA_TYPE_MISMATCH,
        "the provider's answer is of another media type than answer.media_types names",
    )


async def _has_evidence(bench: Bench) -> None:
    played = await _plain(bench)
    reading = played.sent.reading
    bench.trial.expect(
        reading is not None and reading.parseable and reading.evidence_present,
        "answer.evidence names something that the provider's success does not hold",
    )


async def _has_identity(bench: Bench) -> None:
    played = await _plain(bench)
    reading = played.sent.reading
    # What is told beside the id, such as a refusal, is the next check's.
    named = None if reading is None else reading.remote_id
    is_meant = named is not None and played.sent.remote_id in (named, None)
    bench.trial.expect(
        reading is not None and (reading.identity_matches or is_meant),
        "answer.identity finds no id, or another than the record's, in the provider's success",
    )


async def _is_accepted(bench: Bench) -> None:
    played = await _plain(bench)
    bench.trial.expect(
        played.outcome is Outcome.ACCEPTED,
        f"the provider's success is {played.outcome} ({played.sent.end.failure_class})",
    )
    if bench.subject.operation.is_create:
        made = [change.contact for change in played.changes]
        bench.trial.expect(
            made == [played.sent.end.created_id], "the id that was read is not the new record's"
        )


async def _plain(bench: Bench) -> Played:
    async with bench.scene() as scene:
        return await scene.attempt(_PLAIN)


async def _nothing_in_it(bench: Bench) -> None:
    if not bench.subject.operation.response.evidence:
        raise NotApplicable("no evidence is declared: the status alone is the provider's word")
    for case, body in (("an empty object", {}), ("an empty list", [])):
        played = await _bent(bench, case, _with_body(body))
        _expect_doubt(bench, case, played)


async def _another_record(bench: Bench) -> None:
    operation = bench.subject.operation
    if operation.response.identity is None:
        raise NotApplicable("the provider's success names no record")
    if not operation.is_create:
        async with bench.scene() as scene:
            scene.stage.script(Fault.WRONG_ID)
            case = "names another record"
            _expect_doubt(bench, case, await scene.attempt(case))
    case = "names an id that would lead elsewhere"
    _expect_doubt(bench, case, await _bent(bench, case, _elsewhere))


async def _error_inside(bench: Bench) -> None:
    async with bench.scene() as scene:
        scene.stage.script(ScriptedFault.ERROR_INSIDE_200)
        case = "an error in a success"
        played = await scene.attempt(case)
        bench.trial.expect(
            played.outcome in (Outcome.REJECTED, Outcome.OUTCOME_UNKNOWN) or played.is_in_doubt,
            f"{case} is {played.outcome}",
        )


async def _not_json(bench: Bench) -> None:
    if not bench.subject.operation.response.evidence:
        raise NotApplicable("no evidence is declared: the status alone is the provider's word")
    case = "a page of HTML"
    _expect_doubt(bench, case, await _bent(bench, case, as_page))
    case = "broken JSON"
    async with bench.scene() as scene:
        scene.stage.script(Fault.GARBLED)
        _expect_doubt(bench, case, await scene.attempt(case))


async def _another_status(bench: Bench) -> None:
    response = bench.subject.operation.response
    told = told_statuses(response)
    for status in _OTHER_STATUSES:
        if status not in told:
            case = f"applied, answered {status}"
            _expect_doubt(bench, case, await _bent(bench, case, _with_status(status)))
    if 204 not in told:
        async with bench.scene() as scene:
            scene.stage.script(ScriptedFault.EMPTY_204)
            case = "applied, answered 204"
            _expect_doubt(bench, case, await scene.attempt(case))


async def _bent(bench: Bench, case: str, change: BendAnswer) -> Played:
    async with bench.scene() as scene:
        with scene.stage.bent(Bend(answer=change)):
            return await scene.attempt(case)


def _expect_doubt(bench: Bench, case: str, played: Played) -> None:
    bench.trial.expect(played.is_in_doubt, f"{case} is {played.outcome}, though it proves nothing")
    bench.trial.expect(
        len(played.changes) == 1, f"{case}: {len(played.changes)} records were changed"
    )


def _with_body(body: Any) -> BendAnswer:
    return lambda answer, _: replace(answer, body=body)


def _with_status(status: int) -> BendAnswer:
    return lambda answer, _: replace(answer, status=status)


def _elsewhere(answer: Answer, found: Found) -> Answer:
    """Wherever the answer has the record's id, it has one that could stand in no path."""
    ids = {contact.id for contact in found.contacts}
    return replace(answer, body=_without(json.loads(answer.content), ids))


def _without(value: Any, ids: set[str]) -> Any:
    if isinstance(value, dict):
        return {name: _without(member, ids) for name, member in value.items()}
    if isinstance(value, list):
        return [_without(member, ids) for member in value]
    is_id = isinstance(value, str | int) and str(value) in ids
    return _NOWHERE if is_id else value


CHECKS = (
    Check(
        name="record.id",
        claim="the ids that the provider gives fit the pack's remote_id",
        run=_ids_fit,
    ),
    Check(
        name="request.taken",
        claim="one request changes exactly one record once, to the values that were written",
        run=_is_taken,
        after=("record.id",),
    ),
    Check(
        name="success.status",
        claim="the provider's success has a status that the pack declares",
        run=_has_declared_status,
        after=("request.taken",),
    ),
    Check(
        name="success.media_type",
        claim="the provider's success is of a media type that the pack takes",
        run=_has_declared_type,
        after=("success.status",),
    ),
    Check(
        name="success.evidence",
        claim="the provider's success holds the declared evidence",
        run=_has_evidence,
        after=("success.media_type",),
    ),
    Check(
        name="success.identity",
        claim="the provider's success names the record that was meant",
        run=_has_identity,
        after=("success.evidence",),
    ),
    Check(
        name="success.accepted",
        claim="the provider's success is accepted, and the id of what it made is read",
        run=_is_accepted,
        after=("success.identity",),
    ),
    Check(
        name="success.empty",
        claim="a success without its evidence is unknown",
        run=_nothing_in_it,
        after=("success.accepted",),
    ),
    Check(
        name="success.other_record",
        claim="a success that names another record is unknown",
        run=_another_record,
        after=("success.accepted",),
    ),
    Check(
        name="success.error_inside",
        claim="an error under a success status is never accepted",
        run=_error_inside,
        after=("success.accepted",),
    ),
    Check(
        name="success.not_json",
        claim="a page of HTML or broken JSON under a success status is unknown",
        run=_not_json,
        after=("success.accepted",),
    ),
    Check(
        name="success.other_status",
        claim="a status of success that the pack does not declare is unknown",
        run=_another_status,
        after=("success.accepted",),
    ),
)
