"""What can be shown at a provider's own sandbox: reads, and writes to one record if permitted."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final
from uuid import uuid4

from oncefence.app.conform.certificate import Certificate, CheckReport, Verdict
from oncefence.app.conform.product import (
    PRODUCT,
    Asked,
    Looked,
    Place,
    Sent,
    look,
    send,
)
from oncefence.app.conform.reach import not_answered
from oncefence.app.conform.subject import Subject, subjects
from oncefence.app.conform.trial import NotApplicable, Trial
from oncefence.catalog.answers import read_answer
from oncefence.catalog.definitions import ProviderPack
from oncefence.catalog.errors import PayloadRefused
from oncefence.catalog.expressions import find
from oncefence.catalog.field_values import ClearRule, FieldType
from oncefence.catalog.lookup import LookupReading
from oncefence.domain.classification import AttemptFailure
from oncefence.domain.effect import Outcome
from oncefence.domain.lookup import Verdict as LookupVerdict

_NUMBER: Final = 1
_LEFT_OUT: Final = (
    (
        "whatever needs a provider that breaks on command: lost, broken and misleading answers, "
        "refusals, limits, redirects, the end of an idempotency key's window"
    ),
    "creates: they would leave a record that nobody named",
)
_NO_WRITES: Final = "writes: they were not permitted (--allow-writes)"
_READABLE: Final = (
    LookupReading.EQUAL,
    LookupReading.DIFFERENT_UNCHANGED,
    LookupReading.DIFFERENT_CHANGED,
    LookupReading.DIFFERENT_NO_CHANGE_TIME,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox:
    """Where it is, in whose name it is asked, and what may be done there."""

    place: Place
    remote_id: str | None = None
    """The one record that is read, and written where that is permitted."""

    may_write: bool = False
    values: Mapping[str, str] = field(default_factory=dict)
    """Texts for remote fields that do not take any text."""


@dataclass(slots=True, kw_only=True)
class _Visit:
    """The checks of one operation, which build on each other."""

    subject: Subject
    sandbox: Sandbox
    is_first: bool
    """Nothing was asked there before."""

    trial: Trial = field(default_factory=Trial)
    before: Looked | None = None
    sent: Sent | None = None

    @property
    def restorable(self) -> dict[str, object]:
        """What the fields held that can be written back as they were."""
        lookup = self.subject.operation.lookup
        if self.before is None or lookup is None:
            return {}
        document, _ = read_answer(self.before.answer.body or b"")
        found = {name: find(where, document) for name, where in lookup.compare.items()}
        return {
            field.remote: found.get(field.remote)
            for field in self.subject.operation.fields
            if field.type is FieldType.STRING
            and _is_restorable(found.get(field.remote), field.clear)
        }


async def certify_at(
    pack: ProviderPack, sandbox: Sandbox, *, only: str | None = None
) -> Certificate:
    """
    What can be shown there, for every operation or for the one that is named.

    Raises:
        CatalogError: The pack has no operation of that name.
        ConfigurationRefused: Nothing answers there.
    """
    reports: list[CheckReport] = []
    for subject in subjects(pack, only=only):
        visit = _Visit(subject=subject, sandbox=sandbox, is_first=not reports)
        reports += [await _report(visit, *check) for check in _CHECKS]
    return Certificate(
        pack=pack.name,
        pack_format=pack.format,
        pack_digest=pack.digest,
        issued_at=datetime.now(UTC),
        product=PRODUCT,
        provider=f"sandbox {sandbox.place.base_url}",
        truth="the provider's own answers",
        checks=tuple(reports),
        left_out=_LEFT_OUT if sandbox.may_write else (*_LEFT_OUT, _NO_WRITES),
    )


async def _report(
    visit: _Visit, name: str, claim: str, run: Callable[[_Visit], Awaitable[None]]
) -> CheckReport:
    visit.trial = Trial()
    verdict, reason = Verdict.PASSED, None
    try:
        await run(visit)
    except NotApplicable as why:
        verdict, reason = Verdict.NOT_APPLICABLE, str(why)
    except PayloadRefused as why:
        visit.trial.expect(False, str(why))
    if visit.trial.misfits:
        verdict, reason = Verdict.FAILED, "; ".join(visit.trial.misfits)
    return CheckReport(
        check=name,
        operation=visit.subject.name,
        claim=claim,
        verdict=verdict,
        reason=reason,
        evidence=tuple(visit.trial.evidence),
    )


async def _reads(visit: _Visit) -> None:
    if visit.subject.operation.is_create:
        raise NotApplicable("a create has no record that could be read by its id")
    looked = await _look(visit, "the named record", _asked(visit))
    reading = looked.end.reading
    visit.trial.expect(
        reading in _READABLE,
        f"the record is not read: {_why_not(looked)}",
    )
    lookup = visit.subject.operation.lookup
    if lookup is not None and lookup.change_time is not None:
        visit.trial.expect(
            reading != LookupReading.DIFFERENT_NO_CHANGE_TIME,
            "lookup.change_time is not found, or not in the declared format",
        )
    if not visit.trial.misfits:
        visit.before = looked


async def _finds_none(visit: _Visit) -> None:
    lookup = visit.subject.operation.lookup
    if not visit.subject.operation.is_create or lookup is None:
        raise NotApplicable("no search is declared")
    if lookup.key_strength == "fuzzy":
        raise NotApplicable("key_strength is fuzzy: whatever is found proves nothing")
    looked = await _look(visit, "a command that there never was", _asked(visit))
    visit.trial.expect(
        looked.end.reading == LookupReading.NO_MATCH,
        f"a search for nothing is not answered so: {_why_not(looked)}",
    )


async def _minds_older(visit: _Visit) -> None:
    condition = visit.subject.operation.condition
    if condition is None:
        raise NotApplicable("the write is not conditional")
    _needs_permission(visit)
    held = visit.restorable
    if not held:
        raise NotApplicable("no field can be written as it is, so none is written")
    # What the fields hold already: where the provider minds no condition, nothing is lost by it.
    sent = await _send(visit, "an older record was known", _asked(visit, only=held, values=held))
    visit.trial.expect(
        sent.end.failure_class == AttemptFailure.PRECONDITION_FAILED,
        f"a write that knew another record is {sent.outcome} (status {sent.end.response_status}): "
        f"the provider does not mind {condition.header}, or refuses with another status than "
        f"condition.failed names ({', '.join(map(str, condition.failed))})",
    )


async def _accepts(visit: _Visit) -> None:
    _needs_writes(visit)
    fields = visit.restorable
    if not fields:
        raise NotApplicable("no field can be written back as it is, so none is written")
    visit.sent = await _send(visit, "written", _asked(visit, only=fields))
    visit.trial.expect(
        visit.sent.outcome is Outcome.ACCEPTED,
        f"the provider's answer is {visit.sent.outcome} ({visit.sent.end.failure_class}, "
        f"status {visit.sent.end.response_status})",
    )


async def _finds_written(visit: _Visit) -> None:
    sent = _written(visit)
    looked = await _look(visit, "looked for", sent)
    visit.trial.expect(
        looked.end.verdict is LookupVerdict.APPLIED,
        f"what was written is {looked.end.reading} (status {looked.end.response_status})",
    )


async def _honours_key(visit: _Visit) -> None:
    sent = _written(visit)
    if not visit.subject.has_key:
        raise NotApplicable("the operation has no idempotency key, so nothing is sent twice")
    again = await _send(visit, "sent again under the key", sent)
    visit.trial.expect(again.outcome is Outcome.ACCEPTED, f"the repeat is {again.outcome}")


async def _restores(visit: _Visit) -> None:
    _needs_writes(visit)
    if visit.sent is None:
        raise NotApplicable("nothing was written")
    asked = _asked(visit, only=visit.restorable, values=visit.restorable)
    restored = await _send(visit, "written back", asked)
    looked = await _look(visit, "looked for", restored)
    visit.trial.expect(
        looked.end.verdict is LookupVerdict.APPLIED,
        f"the record is not as it was: {restored.outcome}, then {looked.end.reading}",
    )


def _asked(
    visit: _Visit,
    *,
    only: Iterable[str] | None = None,
    values: Mapping[str, object] | None = None,
) -> Asked:
    operation = visit.subject.operation
    remote_id = None if operation.is_create else visit.sandbox.remote_id
    if not operation.is_create and remote_id is None:
        raise NotApplicable("no record was named (--remote-id)")
    command = uuid4()
    request = visit.subject.freeze(
        remote_id,
        command=command,
        number=_NUMBER,
        only=only,
        values=visit.sandbox.values if values is None else values,
    )
    return Asked(command=command, remote_id=remote_id, marked_at=datetime.now(UTC), request=request)


async def _send(visit: _Visit, case: str, asked: Asked) -> Sent:
    sent = await send(
        visit.subject,
        visit.sandbox.place,
        asked,
        seconds=visit.subject.operation.total_deadline_ms / 1000,
    )
    visit.trial.saw(case, sent.facts())
    return sent


async def _look(visit: _Visit, case: str, asked: Asked) -> Looked:
    looked = await look(visit.subject, visit.sandbox.place, asked, is_past_horizon=False)
    visit.trial.saw(case, looked.facts())
    # Only where nothing was written yet: a report that says what was must not be lost.
    if looked.answer.status is None and visit.is_first and visit.before is None:
        raise not_answered(visit.sandbox.place, looked.answer.fault)
    return looked


def _why_not(looked: Looked) -> str:
    status, reading = looked.end.response_status, looked.end.reading
    if status is None:
        return f"no answer came ({looked.answer.fault or 'no fault is known'})"
    if status in (401, 403):
        return f"the provider refuses the token, or its rights are too few (status {status})"
    if reading == LookupReading.ABSENT:
        return f"the provider has no such record (status {status}); see --remote-id"
    return f"{reading} (status {status})"


def _is_restorable(value: object, clear: ClearRule) -> bool:
    return isinstance(value, str) or (value is None and clear is not ClearRule.REFUSE)


def _needs_permission(visit: _Visit) -> None:
    if visit.subject.operation.is_create:
        raise NotApplicable("a create would leave a record that nobody named")
    if not visit.sandbox.may_write:
        raise NotApplicable("writes were not permitted (--allow-writes)")
    if visit.before is None:
        raise NotApplicable("the record could not be read, so it could not be restored")


def _needs_writes(visit: _Visit) -> None:
    _needs_permission(visit)
    if visit.subject.operation.condition is not None:
        raise NotApplicable("the write is conditional, and the record's state is not known here")


def _written(visit: _Visit) -> Sent:
    _needs_writes(visit)
    if visit.sent is None or visit.sent.outcome is not Outcome.ACCEPTED:
        raise NotApplicable("nothing was accepted")
    return visit.sent


_CHECKS: Final = (
    ("lookup.reads", "the lookup reads the named record, its id and its change time", _reads),
    ("lookup.none", "the lookup's search finds nothing where there is nothing", _finds_none),
    ("condition.stale", "a write that knew an older record is refused as such", _minds_older),
    ("success.accepted", "a write to the named record is accepted", _accepts),
    ("lookup.applied", "the lookup finds what was written", _finds_written),
    ("key.repeat", "a repeat under the key is accepted", _honours_key),
    ("record.restored", "the record is as it was before", _restores),
)
