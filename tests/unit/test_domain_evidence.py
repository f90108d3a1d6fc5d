"""Late evidence: kept whatever it says, and what it may still do by where the execution stands."""

from itertools import product

import pytest

from oncefence.domain.effect import Disposition, Outcome
from oncefence.domain.evidence import Consequence, EvidenceKind, consequence
from oncefence.domain.execution import EXECUTION

KEPT, NOW, CONFIRMS, CONTRADICTION = (
    Consequence.KEPT,
    Consequence.LOOKUP_NOW,
    Consequence.CONFIRMS,
    Consequence.CONTRADICTION,
)
# What is told, the class of the answer, and whether the attempt may have applied by it.
APPLIED = (EvidenceKind.ANSWER, Outcome.ACCEPTED, True)
REFUSED = (EvidenceKind.ANSWER, Outcome.REJECTED, False)
NOT_APPLIED = (EvidenceKind.ANSWER, Outcome.REPLAY_SAFE_RETRY, False)
UNSENT = (EvidenceKind.UNSENT, Outcome.RETRYABLE_PRE_DISPATCH, False)
CUT = (EvidenceKind.ANSWER, Outcome.OUTCOME_UNKNOWN, True)
BROKEN_UNDER_A_KEY = (EvidenceKind.ANSWER, Outcome.REPLAY_SAFE_RETRY, True)
Evidence = tuple[EvidenceKind, Outcome, bool]


def told(evidence: Evidence, status: str, disposition: str | None) -> Consequence:
    kind, outcome, may_have_applied = evidence
    return consequence(
        kind,
        outcome,
        may_have_applied=may_have_applied,
        execution_status=status,
        disposition=disposition,
    )


MATRIX = [
    # status, the attempt's disposition, and what each piece of evidence does then:
    #                                 applied        refused        unsent
    ("unknown", None, NOW, NOW, NOW),
    ("needs_attention", None, CONTRADICTION, CONTRADICTION, CONTRADICTION),
    ("succeeded", "applied", KEPT, CONTRADICTION, CONTRADICTION),
    ("succeeded", "person", KEPT, CONTRADICTION, CONTRADICTION),
    ("succeeded", "no_effect_proof", KEPT, KEPT, KEPT),
    ("failed", "not_found", CONTRADICTION, KEPT, CONFIRMS),
    ("failed", "no_effect_proof", CONTRADICTION, KEPT, KEPT),
    ("failed", "refused", CONTRADICTION, KEPT, CONTRADICTION),
    ("failed", "person", CONTRADICTION, KEPT, CONTRADICTION),
    ("cancelled", None, CONTRADICTION, KEPT, KEPT),
    ("retrying", "no_effect_proof", CONTRADICTION, KEPT, KEPT),
    ("running", "no_effect_proof", CONTRADICTION, KEPT, KEPT),
]


@pytest.mark.parametrize(("status", "disposition", "applied", "refused", "unsent"), MATRIX)
def test_what_evidence_does_depends_on_where_the_execution_stands(
    status: str,
    disposition: str | None,
    applied: Consequence,
    refused: Consequence,
    unsent: Consequence,
) -> None:
    """The whole matrix: it settles nothing by itself, and no contradiction is swallowed (C106)."""
    expected = {APPLIED: applied, REFUSED: refused, NOT_APPLIED: refused, UNSENT: unsent}

    found = {evidence: told(evidence, status, disposition) for evidence in expected}

    assert found == expected


@pytest.mark.parametrize("status", EXECUTION.states)
@pytest.mark.parametrize("disposition", [None, *Disposition])
@pytest.mark.parametrize("evidence", [CUT, BROKEN_UNDER_A_KEY], ids=["cut", "5xx under a key"])
def test_an_answer_that_says_nothing_is_only_kept(
    status: str, disposition: str | None, evidence: Evidence
) -> None:
    """What may have applied is as unknown late as it is in time (C84)."""
    assert told(evidence, status, disposition) is Consequence.KEPT


def test_only_the_starters_own_word_confirms_that_nothing_was_found() -> None:
    """An upgrade to a proof permits another attempt, so nothing weaker may cause it (C190)."""
    causes = {
        (evidence[0], status, disposition)
        for evidence, status, disposition in product(
            (APPLIED, REFUSED, NOT_APPLIED, UNSENT, CUT, BROKEN_UNDER_A_KEY),
            EXECUTION.states,
            (None, *Disposition),
        )
        if told(evidence, status, disposition) is Consequence.CONFIRMS
    }

    assert causes == {(EvidenceKind.UNSENT, "failed", Disposition.NOT_FOUND)}
