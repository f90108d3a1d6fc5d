"""Searching for what a create made: what is cut, not asked for, or there more than once."""

from dataclasses import replace

from oncefence.app.conform.bending import Bend, BendAnswer
from oncefence.app.conform.check import Check
from oncefence.app.conform.lookups import CLOSED
from oncefence.app.conform.samples import kept_sample
from oncefence.app.conform.scene import Bench, Scene
from oncefence.app.conform.trial import NotApplicable
from oncefence.domain.lookup import FirstLook, Verdict
from oncefence.simulator.dialects.protocol import Found
from oncefence.simulator.faults import ScriptedFault
from oncefence.simulator.wire import Answer


async def _minds_cuts(bench: Bench) -> None:
    _needs_search(bench)
    plain: list[Answer] = []
    cut: list[Answer] = []

    def noted(answers: list[Answer]) -> BendAnswer:
        def note(answer: Answer, _: Found) -> Answer:
            answers.append(answer)
            return answer

        return note

    async with bench.scene() as scene:
        sent = await scene.not_applied()
        with scene.stage.bent(Bend(answer=noted(plain))):
            await scene.look("nothing found", sent)
        with scene.stage.bent(Bend(found=_cut_before_any, answer=noted(cut))):
            case = "nothing on the first page, and there is more"
            looked = await scene.look(case, sent)
        if [each.content for each in plain] == [each.content for each in cut]:
            raise NotApplicable("the provider has no word for a list that is cut")
        bench.trial.expect(
            looked.end.verdict not in CLOSED,
            f"{case}: the lookup says {looked.end.reading}, though the rest was not seen",
        )


async def _knows_its_own(bench: Bench) -> None:
    _needs_search(bench)
    for prepare in (Scene.applied, Scene.not_applied):
        async with bench.scene() as scene:
            # One alone: whoever picks the only hit, or the only one that is left, picks it.
            scene.new_record()
            sent = await prepare(scene)
            made = {change.contact for change in scene.stage.ledger.changes()}
            scene.stage.script(ScriptedFault.IGNORED_FILTER)
            case = "the provider ignores the filter"
            looked = await scene.look(f"looked for: {case}", sent)
            bench.trial.expect(
                looked.end.created_id is None or looked.end.created_id in made,
                f"{case}: somebody else's record is taken for the new one",
            )
            bench.trial.expect(
                looked.end.verdict is not Verdict.NOT_FOUND,
                f"{case}: an answer to another question is taken for one",
            )


async def _knows_older_ones(bench: Bench) -> None:
    _needs_search(bench)
    unique = _unique(bench)
    async with bench.scene() as scene:
        scene.new_record(unique)
        sent = await scene.not_applied()
        case = "nothing was made, and an older record has the same"
        looked = await scene.look(f"looked for: {case}", sent)
        bench.trial.expect(
            looked.end.verdict is not Verdict.APPLIED, f"{case}: it is taken for the new one"
        )


async def _minds_twins(bench: Bench) -> None:
    _needs_search(bench)
    async with bench.scene() as scene:
        scene.stage.script(ScriptedFault.DUPLICATE_APPLY)
        played = await scene.attempt("the provider makes the record twice")
        looked = await scene.look("looked for", played.sent)
        bench.trial.expect(
            looked.end.verdict not in CLOSED,
            f"one of two records is picked: the lookup says {looked.end.reading}",
        )


async def _looks_first(bench: Bench) -> None:
    if not bench.subject.operation.looks_first:
        raise NotApplicable("nothing is looked for before it is sent")
    unique = _unique(bench)
    for case, is_there, expected in (
        ("somebody made the record before", True, FirstLook.THERE),
        ("nobody made the record before", False, FirstLook.ABSENT),
    ):
        async with bench.scene() as scene:
            if is_there:
                scene.new_record(unique)
            look = await scene.look_first(case, scene.asks(number=1))
            bench.trial.expect(look is expected, f"{case}: the look before the create says {look}")


def _unique(bench: Bench) -> dict[str, object]:
    """What the lookup finds the record of the first sample by."""
    used = bench.needs_lookup().fields_used()
    if not used:
        raise NotApplicable("the record is found by the command's id, which no older one has")
    fields = bench.subject.operation.fields
    return {field.remote: kept_sample(field, 1) for field in fields if field.remote in used}


def _cut_before_any(found: Found) -> Found:
    return replace(found, contacts=(), has_more=True, total=max(found.total, 1), end=0)


def _needs_search(bench: Bench) -> None:
    if bench.needs_lookup().kind != "by_query":
        raise NotApplicable("the lookup reads one record by its id")


CHECKS = (
    Check(
        name="lookup.cut",
        claim="a list that is cut proves no absence",
        run=_minds_cuts,
        after=("lookup.applied",),
    ),
    Check(
        name="lookup.strangers",
        claim="records that were not asked for are nobody's",
        run=_knows_its_own,
        after=("lookup.applied",),
    ),
    Check(
        name="lookup.older",
        claim="a record that was there before is not taken for the new one",
        run=_knows_older_ones,
        after=("lookup.applied",),
    ),
    Check(
        name="lookup.twins",
        claim="of two records that match, none is picked",
        run=_minds_twins,
        after=("lookup.applied",),
    ),
    Check(
        name="lookup.first",
        claim="a record that is there already is found before it is made again",
        run=_looks_first,
        after=("lookup.applied",),
    ),
)
