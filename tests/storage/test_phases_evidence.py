"""Late evidence: kept in any state, and doing only what the state still permits."""

from dataclasses import replace
from uuid import uuid4

import pytest

from oncefence.domain.effect import Outcome
from oncefence.domain.errors import FenceLost
from oncefence.domain.evidence import Consequence
from oncefence.domain.ids import AttemptId, LeaseToken
from oncefence.domain.lookup import Verdict
from oncefence.storage.phases.record_evidence import record_evidence
from oncefence.storage.phases.start_attempt import Started
from tests.support.world import Accepted, World, an_end

pytestmark = pytest.mark.asyncio(loop_scope="module")

APPLIED = an_end(Outcome.ACCEPTED, response_status=200)
REFUSED = an_end(Outcome.REJECTED, response_status=409)
UNSENT = an_end(Outcome.RETRYABLE_PRE_DISPATCH)
NOTHING = an_end(Outcome.OUTCOME_UNKNOWN)


async def in_state(world: World, state: str) -> tuple[Accepted, Started]:
    """A command whose attempt was lost and whose execution has come to `state`."""
    accepted, started, lookup_work = await world.an_unknown_command()
    if state == "proven unsent":
        await world.tell(started, replace(UNSENT, receipt={"said": "first"}))
    for verdict in {
        "unknown": (),
        "needs_attention": (Verdict.UNUSABLE,),
        "succeeded": (Verdict.APPLIED,),
        "refused": (Verdict.REFUSED,),
        "not found": (Verdict.NOT_FOUND,) * 5,
        "proven unsent": (Verdict.UNSENT,),
    }[state]:
        await world.look(lookup_work, verdict)
    return accepted, started


NOW, KEPT, CONFIRMS, CONTRADICTION = (
    Consequence.LOOKUP_NOW,
    Consequence.KEPT,
    Consequence.CONFIRMS,
    Consequence.CONTRADICTION,
)


SAID = {"applied": APPLIED, "refused": REFUSED, "unsent": UNSENT, "nothing": NOTHING}
MATRIX = {
    "unknown": (NOW, NOW, NOW, KEPT),
    "needs_attention": (CONTRADICTION, CONTRADICTION, CONTRADICTION, KEPT),
    "succeeded": (KEPT, CONTRADICTION, CONTRADICTION, KEPT),
    "refused": (CONTRADICTION, KEPT, CONTRADICTION, KEPT),
    "not found": (CONTRADICTION, KEPT, CONFIRMS, KEPT),
    "proven unsent": (CONTRADICTION, KEPT, KEPT, KEPT),
}


class TestTheMatrix:
    @pytest.mark.parametrize(
        ("state", "what", "expected"),
        [
            (state, what, expected)
            for state, row in MATRIX.items()
            for what, expected in zip(SAID, row, strict=True)
        ],
    )
    async def test_is_what_happens(
        self, world: World, state: str, what: str, expected: Consequence
    ) -> None:
        """The row is kept, no state moves, and what does not fit is listed (C106, C107)."""
        end = SAID[what]
        accepted, started = await in_state(world, state)
        before = await world.execution(accepted)

        told = await world.tell(started, end)

        assert told.consequence is expected
        assert await world.execution(accepted) == before
        rows = await world.sql(
            "SELECT outcome, verdict, execution_status, start_token FROM oncefence.attempt_evidence"
            " WHERE org_id = :org ORDER BY recorded_at DESC LIMIT 1"
        )
        assert rows[0] == (end.outcome, expected, before.status, started.fence.token)
        listed = await world.of_command("contradictions", accepted)
        assert [row.execution_status for row in listed] == (
            [before.status] if expected is CONTRADICTION else []
        )


class TestWhileItIsUnknown:
    async def test_an_answer_makes_the_lookup_due_now(self, world: World) -> None:
        """The wait was for want of better knowledge, and here it is (C274)."""
        _, started, lookup_work = await world.an_unknown_command()
        await world.look(lookup_work, Verdict.INCONCLUSIVE)
        later = (await world.item(lookup_work)).run_after
        assert later > await world.now()

        told = await world.tell(started, APPLIED)

        assert told.wake is not None
        assert told.wake.work == lookup_work
        assert (await world.item(lookup_work)).run_after <= await world.now()
        heard = await world.start_looking(lookup_work)
        assert [(word.kind, word.outcome) for word in heard.late_words] == [("answer", "ACCEPTED")]

    async def test_the_same_word_again_is_one_row(self, world: World) -> None:
        """A starter repeats itself after a lost answer; the evidence does not."""
        _, started = await in_state(world, "unknown")

        first, again = await world.tell(started, APPLIED), await world.tell(started, APPLIED)

        assert (first.consequence, again.consequence) == (NOW, KEPT)
        assert await world.count("attempt_evidence") == 1

    async def test_two_words_are_two_rows(self, world: World) -> None:
        """Nothing that was said is overwritten (C105)."""
        _, started = await in_state(world, "unknown")

        await world.tell(started, APPLIED)
        await world.tell(started, REFUSED)

        assert await world.count("attempt_evidence") == 2


class TestAfterNothingWasFound:
    async def test_the_word_of_the_starter_is_the_proof(self, world: World) -> None:
        """The one upgrade of a disposition, together with its evidence (C103)."""
        accepted, started = await in_state(world, "not found")

        await world.tell(started, UNSENT)

        attempt = await world.attempt(started.attempt)
        evidence = await world.sql(
            "SELECT evidence_id FROM oncefence.attempt_evidence WHERE org_id = :org"
        )
        assert attempt.disposition == "no_effect_proof"
        assert attempt.disposition_evidence_id == evidence[0].evidence_id
        assert (await world.execution(accepted)).status == "failed"


class TestWhoMaySpeak:
    async def test_is_the_holder_of_the_start_token_alone(self, world: World) -> None:
        """Nobody else knows what was sent under it (C105)."""
        accepted, started = await in_state(world, "unknown")
        strangers = (
            (replace(started.fence, token=LeaseToken(uuid4())), started.attempt),
            (started.fence, AttemptId(uuid4())),
        )

        for fence, attempt in strangers:
            with pytest.raises(FenceLost):
                await record_evidence(
                    world.engine, fence, attempt, APPLIED, as_of=await world.now()
                )

        assert await world.count("attempt_evidence") == 0
        assert (await world.execution(accepted)).status == "unknown"
