"""What lookups find: what was written, what was not, and what they must not take for either."""

from dataclasses import replace
from datetime import timedelta
from typing import Final

from oncefence.app.conform.bending import Bend, as_page
from oncefence.app.conform.check import Check
from oncefence.app.conform.product import Looked
from oncefence.app.conform.samples import kept_sample
from oncefence.app.conform.scene import Bench, Scene
from oncefence.app.conform.trial import NotApplicable
from oncefence.catalog.lookup import LookupContract, LookupReading
from oncefence.domain.lookup import Verdict
from oncefence.simulator.dialects.protocol import Found
from oncefence.simulator.faults import Fault
from oncefence.simulator.ledger import Kind
from oncefence.simulator.wire import Answer

_STRANGERS: Final = 3
CLOSED: Final = (Verdict.APPLIED, Verdict.NOT_FOUND)
"""Verdicts that end an investigation."""


async def _finds_applied(bench: Bench) -> None:
    lookup = bench.needs_lookup()
    if bench.subject.operation.is_create:
        _needs_proof(lookup)
        async with bench.scene() as scene:
            sent = await scene.applied()
            looked = await scene.look("looked for", sent)
            made = [change.contact for change in scene.stage.ledger.changes()]
            bench.trial.expect(
                looked.end.verdict is Verdict.APPLIED,
                f"the new record is there, and the lookup says {looked.end.reading}",
            )
            bench.trial.expect(
                [looked.end.created_id] == made or looked.end.verdict is not Verdict.APPLIED,
                "the lookup takes another record for the new one",
            )
        return
    async with bench.scene() as scene:
        for number, field in enumerate(bench.subject.operation.fields, start=1):
            scene.stage.script(Fault.RESET_AFTER_COMMIT)
            played = await scene.attempt(
                f"{field.remote} written, then reset",
                record=scene.new_record(),
                only=[field.remote],
                number=number,
            )
            looked = await scene.look(f"{field.remote} looked for", played.sent)
            bench.trial.expect(
                looked.end.verdict is Verdict.APPLIED,
                f"{field.remote} was written, and the lookup says {looked.end.reading}",
            )


async def _finds_nothing(bench: Bench) -> None:
    lookup = bench.needs_lookup()
    is_create = bench.subject.operation.is_create
    if is_create:
        _needs_proof(lookup)
    elif lookup.change_time is None:
        raise NotApplicable("no change_time is declared, so another value ends with a person")
    async with bench.scene() as scene:
        sent = await scene.not_applied()
        looked = await scene.look("looked for after the horizon", sent)
        bench.trial.expect(
            looked.end.verdict is Verdict.NOT_FOUND,
            f"nothing was written, and after the horizon the lookup says {looked.end.reading}",
        )


async def _waits_for_horizon(bench: Bench) -> None:
    lookup = bench.needs_lookup()
    if lookup.horizon_s > 0:
        async with bench.scene() as scene:
            sent = await scene.not_applied()
            looked = await scene.look("looked for at once", sent, is_past_horizon=False)
            bench.trial.expect(
                looked.end.verdict not in CLOSED,
                f"before the horizon the lookup says {looked.end.verdict}",
            )
    if not bench.subject.operation.is_create:
        return
    lag = bench.provider.dialect.index_lag
    async with bench.scene(index_lag=max(lag, timedelta(seconds=1))) as scene:
        sent = await scene.applied()
        # The last moment at which the provider's index may still be without the record.
        is_past_horizon = timedelta(seconds=lookup.horizon_s) < lag
        looked = await scene.look(
            f"looked for {lag.total_seconds():g} s later, the index not caught up",
            sent,
            is_past_horizon=is_past_horizon,
        )
        bench.trial.expect(
            looked.end.verdict is not Verdict.NOT_FOUND,
            f"horizon_s is {lookup.horizon_s}, and the provider's index is up to "
            f"{lag.total_seconds():g} s behind: a record that is there is taken for missing",
        )


async def _sees_another_hand(bench: Bench) -> None:
    bench.needs_lookup()
    if bench.subject.operation.is_create:
        raise NotApplicable("a create is found by its key, whatever was changed since")
    for case, prepare in (("written", Scene.applied), ("not written", Scene.not_applied)):
        async with bench.scene() as scene:
            sent = await prepare(scene)
            assert scene.record is not None, "an update has a record"
            scene.edit(scene.record, _by_hand(scene))
            looked = await scene.look(f"{case}, changed by a person, looked for", sent)
            bench.trial.expect(
                looked.end.verdict not in CLOSED,
                f"{case} and changed by a person since: the lookup says {looked.end.reading}",
            )


async def _misses_record(bench: Bench) -> None:
    lookup = bench.needs_lookup()
    if bench.subject.operation.is_create:
        raise NotApplicable("a search has no record that could be missing")
    async with bench.scene() as scene:
        played = await scene.attempt("a record that is not there", record=scene.free_id())
        looked = await scene.look("looked for", played.sent)
        bench.trial.expect(
            looked.end.reading == LookupReading.ABSENT,
            f"a record that is not there is {looked.end.reading} ({looked.end.response_status}); "
            f"lookup.not_found is {list(lookup.not_found)}",
        )
        bench.trial.expect(
            looked.end.verdict not in CLOSED, "that a record is gone was taken for an answer"
        )


async def _is_not_misled(bench: Bench) -> None:
    bench.needs_lookup()
    bends: list[tuple[str, Bend]] = [
        ("a page of HTML", Bend(answer=as_page)),
        ("an empty object", Bend(answer=_empty)),
    ]
    for prepare in (Scene.applied, Scene.not_applied):
        for case, bend in bends:
            async with bench.scene() as scene:
                sent = await prepare(scene)
                with scene.stage.bent(bend):
                    _expect_open(bench, case, await scene.look(f"looked for: {case}", sent))
        async with bench.scene() as scene:
            sent = await prepare(scene)
            scene.stage.script(Fault.SERVER_ERROR_BEFORE_COMMIT, method="GET")
            case = "a server error"
            _expect_open(bench, case, await scene.look(f"looked for: {case}", sent))


async def _only_reads(bench: Bench) -> None:
    bench.needs_lookup()
    for prepare in (Scene.applied, Scene.not_applied):
        async with bench.scene() as scene:
            sent = await prepare(scene)
            before = scene.stage.ledger
            looked = await scene.look("looked for", sent)
            after = scene.stage.ledger
            new = after.exchanges()[len(before.exchanges()) :]
            bench.trial.expect(len(new) == 1, f"one lookup sent {len(new)} requests")
            bench.trial.expect(
                not any(exchange.is_write for exchange in new) and not looked.request.body,
                "a lookup is sent as a request that writes",
            )
            kinds = {row.kind for row in after.rows[len(before.rows) :]}
            bench.trial.expect(
                not kinds & {Kind.CHANGE, Kind.KEPT}, "a lookup left something at the provider"
            )


def _expect_open(bench: Bench, case: str, looked: Looked) -> None:
    bench.trial.expect(
        looked.end.verdict not in CLOSED, f"{case}: the lookup says {looked.end.verdict}"
    )


def _by_hand(scene: Scene) -> dict[str, object]:
    return {field.remote: kept_sample(field, 9) for field in scene.subject.operation.fields}


def _empty(answer: Answer, _: Found) -> Answer:
    return replace(answer, body={})


def _needs_proof(lookup: LookupContract) -> None:
    if lookup.key_strength == "fuzzy":
        raise NotApplicable("key_strength is fuzzy: whatever is found proves nothing")


CHECKS = (
    Check(
        name="lookup.applied",
        claim="a lookup finds what was written: each field, or the new record",
        run=_finds_applied,
        after=("success.accepted",),
    ),
    Check(
        name="lookup.not_applied",
        claim="after the horizon a lookup finds that nothing was written",
        run=_finds_nothing,
        after=("lookup.applied",),
    ),
    Check(
        name="lookup.horizon",
        claim="before the provider can be expected to show a write, not found proves nothing",
        run=_waits_for_horizon,
        after=("lookup.applied",),
    ),
    Check(
        name="lookup.other_hand",
        claim="a record that a person changed since is neither written nor untouched",
        run=_sees_another_hand,
        after=("lookup.applied",),
    ),
    Check(
        name="lookup.missing_record",
        claim="a record that is not there is known as such, and proves nothing of a change",
        run=_misses_record,
        after=("lookup.applied",),
    ),
    Check(
        name="lookup.misled",
        claim="an answer that is none ends no investigation",
        run=_is_not_misled,
        after=("lookup.applied",),
    ),
    Check(
        name="lookup.reads_only",
        claim="a lookup is one request that changes nothing",
        run=_only_reads,
        after=("success.accepted",),
    ),
)
