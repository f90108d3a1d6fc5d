"""Which problem stands for which error."""

import json

import pytest

from oncefence.app.problems import (
    KERNEL_REFUSALS,
    OPERATOR_REFUSALS,
    TITLES,
    problem,
    problem_of,
)
from oncefence.catalog.errors import PayloadRefused, UnknownOperation
from oncefence.domain.errors import (
    ActRefused,
    HandoffAlreadyRejected,
    HandoffConflict,
    HandoffKeyMalformed,
    NoSuchTarget,
    OncefenceError,
    ScopeRefused,
    StoreUnavailable,
    SubjectTaken,
    VersionMoved,
)

CASES: list[tuple[OncefenceError, int, str]] = [
    (ScopeRefused(), 403, "scope_refused"),
    (HandoffConflict(field="outbox id"), 409, "handoff_conflict"),
    (HandoffAlreadyRejected(handoff_key="ehk1.key"), 409, "handoff_already_rejected"),
    (HandoffKeyMalformed(part="text", reason="is wrong"), 422, "handoff_key_malformed"),
    (NoSuchTarget(kind="link", name="a", remedy="adopt it"), 422, "no_such_target"),
    (
        SubjectTaken(local_object="lead", subject="a", is_being_created=True),
        409,
        "subject_taken",
    ),
    (PayloadRefused("title", "is missing"), 422, "payload_refused"),
    (UnknownOperation("view", "a", ("b",)), 422, "unknown_operation"),
    (VersionMoved(subject="work item 1", expected="a", found="b"), 409, "version_moved"),
    (
        ActRefused(act="replay", subject="item 1", verdict="unknown", remedy="look"),
        409,
        "act_refused",
    ),
    (StoreUnavailable(verb="accept", reason="OSError"), 503, "store_unavailable"),
]


@pytest.mark.parametrize(("error", "status", "code"), CASES)
def test_an_error_has_its_status_and_code(error: OncefenceError, status: int, code: str) -> None:
    """Programs rely on the code, so it never changes with the words (C12)."""
    answer, named = problem_of(error)

    document = json.loads(bytes(answer.body))
    assert (answer.status_code, named) == (status, code)
    assert (document["status"], document["code"]) == (status, code)
    assert document["title"] == TITLES[code]
    assert "ehk1.key" not in document["detail"]


def test_every_refusal_that_a_caller_can_cause_has_a_case() -> None:
    """A mapping without a test may map to anything."""
    assert {*KERNEL_REFUSALS, *OPERATOR_REFUSALS} == {type(error) for error, _, _ in CASES[:-1]}


def test_a_code_without_a_title_cannot_be_answered() -> None:
    """Each code has one sentence, so a new code needs its own."""
    with pytest.raises(KeyError):
        problem(400, "no_such_code", "detail")
