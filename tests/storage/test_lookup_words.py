"""What a lookup makes of the record that it read, and of what the starter has said meanwhile."""

import json
from dataclasses import replace
from datetime import timedelta

import pytest

from oncefence.activities.lookup import judge, strongest
from oncefence.activities.phase_journal import PhaseJournal
from oncefence.activities.wire_message import WireAnswer
from oncefence.domain.classification import WirePhase
from oncefence.domain.effect import Outcome
from oncefence.domain.evidence import EvidenceKind
from oncefence.domain.lookup import Verdict
from oncefence.storage.phases.start_lookup import LateWord, LookupStarted, unseal_lookup
from tests.support.world import OPERATION, World, example_view

pytestmark = pytest.mark.asyncio(loop_scope="module")


def read(started: LookupStarted, title: str, *, changed: timedelta) -> WireAnswer:
    """A whole answer that shows `title`, last changed so long after the mark."""
    document = {
        "id": started.remote_id,
        "properties": {"jobtitle": title},
        "updatedAt": (started.marked_at + changed).isoformat(),
    }
    return WireAnswer(
        phase=WirePhase.COMPLETE,
        journal=PhaseJournal(),
        status=200,
        headers={},
        body=json.dumps(document).encode(),
        complete=True,
        fault=None,
    )


BEFORE, AFTER = timedelta(minutes=-1), timedelta(minutes=1)


class TestAReading:
    @pytest.mark.parametrize(
        ("title", "changed", "is_past_horizon", "verdict"),
        [
            ("Director", AFTER, True, Verdict.APPLIED),
            ("Director", AFTER, False, Verdict.APPLIED),
            ("Cook", BEFORE, True, Verdict.NOT_FOUND),
            # Too fresh to tell: the provider itself may not show it yet.
            ("Cook", BEFORE, False, Verdict.INCONCLUSIVE),
            ("Cook", AFTER, True, Verdict.INCONCLUSIVE),
        ],
    )
    async def test_is_a_finding_only_as_far_as_it_shows_one(
        self,
        world: World,
        title: str,
        changed: timedelta,
        is_past_horizon: bool,
        verdict: Verdict,
    ) -> None:
        """What is not there before the horizon may still come (C264, C268)."""
        _, _, lookup_work = await world.an_unknown_command()
        started = await world.start_looking(lookup_work)
        contract = example_view().operation(OPERATION).lookup
        unsealed = unseal_lookup(world.ring, started)
        assert contract is not None
        assert unsealed is not None

        end = judge(
            contract,
            started,
            unsealed.request.written,
            read(started, title, changed=changed),
            is_past_horizon=is_past_horizon,
        )

        assert end.verdict is verdict

    async def test_of_a_record_that_is_gone_says_nothing_of_a_change_to_it(
        self, world: World
    ) -> None:
        """It may have been changed and then deleted; or it is only out of our sight (C268)."""
        _, _, lookup_work = await world.an_unknown_command()
        started = await world.start_looking(lookup_work)
        contract = example_view().operation(OPERATION).lookup
        assert contract is not None
        gone = replace(read(started, "", changed=BEFORE), status=contract.not_found[0])

        end = judge(contract, started, {"jobtitle": "Director"}, gone, is_past_horizon=True)

        assert (end.reading, end.verdict) == ("absent", Verdict.INCONCLUSIVE)


def word(kind: EvidenceKind, outcome: Outcome) -> LateWord:
    return LateWord(
        kind=kind, outcome=outcome, may_have_applied=False, response_status=None, receipt={}
    )


TAKEN = word(EvidenceKind.ANSWER, Outcome.ACCEPTED)
REFUSED = word(EvidenceKind.ANSWER, Outcome.REJECTED)
UNSENT = word(EvidenceKind.UNSENT, Outcome.RETRYABLE_PRE_DISPATCH)


class TestAWord:
    @pytest.mark.parametrize(
        ("words", "alone", "beside_another_doubt"),
        [
            ((TAKEN,), Verdict.APPLIED, Verdict.APPLIED),
            # A refusal is an answer of the provider's, and no proof that nothing was sent.
            ((REFUSED,), Verdict.REFUSED, None),
            ((UNSENT,), Verdict.UNSENT, None),
            ((TAKEN, REFUSED), None, None),
            ((), None, None),
        ],
    )
    async def test_settles_what_it_is_about_and_nothing_else(
        self,
        words: tuple[LateWord, ...],
        alone: Verdict | None,
        beside_another_doubt: Verdict | None,
    ) -> None:
        """It stands above the record, and one attempt's word is no other's (C83, C190, C274)."""
        for has_other_doubts, expected in ((False, alone), (True, beside_another_doubt)):
            end = strongest(words, has_other_doubts=has_other_doubts)

            assert (end.verdict if end is not None else None) is expected
