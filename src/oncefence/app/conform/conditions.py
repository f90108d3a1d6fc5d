"""Conditional writes: whether the provider minds what a write says that it knew."""

from oncefence.app.conform.check import Check
from oncefence.app.conform.samples import kept_sample
from oncefence.app.conform.scene import Bench, Played
from oncefence.app.conform.trial import NotApplicable
from oncefence.catalog.conditions import ConditionRule
from oncefence.domain.classification import AttemptFailure
from oncefence.domain.effect import Outcome


async def _minds_older(bench: Bench) -> None:
    rule = bench.subject.operation.condition
    if rule is None:
        raise NotApplicable("the write is not conditional")
    by_hand = {field.remote: kept_sample(field, 9) for field in bench.subject.operation.fields}
    async with bench.scene() as scene:
        assert scene.record is not None, "a conditional write has a record"
        known = scene.known_of(scene.record)
        scene.edit(scene.record, by_hand)
        case = "a person changed the record since"
        _expect_refused(bench, rule, case, await scene.attempt(case, known=known))
    async with bench.scene() as scene:
        known = scene.known_of(scene.record)
        await scene.attempt("the record is as it was known", known=known)
        case = "a write of ours changed the record since"
        _expect_refused(bench, rule, case, await scene.attempt(case, known=known, number=2))


def _expect_refused(bench: Bench, rule: ConditionRule, case: str, played: Played) -> None:
    end = played.sent.end
    if played.changes:
        bench.trial.expect(
            False,
            f"{case}, and the write is done all the same ({end.response_status}): the provider "
            f"does not mind {rule.header}",
        )
        return
    bench.trial.expect(
        end.outcome is Outcome.REJECTED and end.failure_class == AttemptFailure.PRECONDITION_FAILED,
        f"{case}: {end.outcome} ({end.response_status}), not refused as a condition that failed; "
        f"condition.failed is {list(rule.failed)}",
    )
    # The value is the payload's. Whoever read the record first would know it as it is now.
    bench.trial.expect(
        played.requests == 1, f"{case}: {played.requests} requests came, not the write alone"
    )


CHECKS = (
    Check(
        name="condition.stale",
        claim="a conditional write that knew an older record is refused as such, changing nothing",
        run=_minds_older,
        after=("success.accepted",),
    ),
)
