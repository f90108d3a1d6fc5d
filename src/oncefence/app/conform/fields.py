"""Emptying a field, and whether a lookup sees it empty."""

from oncefence.app.conform.check import Check
from oncefence.app.conform.samples import kept_sample
from oncefence.app.conform.scene import Bench, Scene
from oncefence.app.conform.trial import NotApplicable
from oncefence.catalog.errors import PayloadRefused
from oncefence.catalog.field_values import ClearRule
from oncefence.catalog.freeze import BoundField
from oncefence.domain.effect import Outcome
from oncefence.domain.lookup import Verdict


async def _clears(bench: Bench) -> None:
    _needs_record(bench)
    async with bench.scene() as scene:
        for field in bench.subject.operation.fields:
            case = f"{field.remote} emptied"
            if field.clear is ClearRule.REFUSE:
                bench.trial.expect(_is_refused(scene, field), f"{case}: it is taken all the same")
                continue
            record = _full_record(scene, field)
            played = await scene.attempt(
                case, record=record, only=[field.remote], values={field.remote: None}
            )
            left = scene.properties_of(record).get(field.remote)
            bench.trial.expect(
                played.outcome is Outcome.ACCEPTED,
                f"{case}: the provider's answer is "
                f"{played.outcome} ({played.sent.end.response_status})",
            )
            bench.trial.expect(left in (None, ""), f"{case}: the provider still has a value")


async def _is_seen_empty(bench: Bench) -> None:
    _needs_record(bench)
    fields = [each for each in bench.subject.operation.fields if each.clear is not ClearRule.REFUSE]
    if not fields:
        raise NotApplicable("no field can be emptied")
    async with bench.scene() as scene:
        for field in fields:
            case = f"{field.remote} emptied"
            played = await scene.attempt(
                case,
                record=_full_record(scene, field),
                only=[field.remote],
                values={field.remote: None},
            )
            looked = await scene.look(f"{case}, looked for", played.sent)
            bench.trial.expect(
                looked.end.verdict is Verdict.APPLIED,
                f"{case}: the lookup says {looked.end.reading}",
            )


def _full_record(scene: Scene, field: BoundField) -> str:
    return scene.new_record({field.remote: kept_sample(field, 7)})


def _is_refused(scene: Scene, field: BoundField) -> bool:
    command = scene.next_command()
    try:
        scene.subject.freeze(
            scene.record,
            command=command,
            number=1,
            only=[field.remote],
            values={field.remote: None},
        )
    except PayloadRefused:
        return True
    return False


def _needs_record(bench: Bench) -> None:
    if bench.subject.operation.is_create:
        raise NotApplicable("a new record has nothing to be emptied")


CHECKS = (
    Check(
        name="field.clear",
        claim="emptying a field empties it at the provider, or is refused before it is sent",
        run=_clears,
        after=("success.accepted",),
    ),
    Check(
        name="lookup.cleared",
        claim="a lookup sees that a field was emptied",
        run=_is_seen_empty,
        after=("field.clear", "lookup.applied"),
    ),
)
