"""From the bytes on the wire to the outcome, by what an operation declares."""

import pytest

from oncefence.domain.classification import AttemptFailure
from oncefence.domain.effect import Outcome
from tests.cases.raw_provider import judged, operation
from tests.providers.raw_server import answer, raw_server, replies
from tests.providers.sending import send

GOOD = b'{"id": "501", "set": {"role": "Lead"}}'


@pytest.mark.parametrize(
    ("data", "outcome", "failure"),
    [
        pytest.param(answer(body=GOOD), Outcome.ACCEPTED, None, id="accepted"),
        pytest.param(
            answer(body=b'{"id": "777"}'),
            Outcome.OUTCOME_UNKNOWN,
            AttemptFailure.IDENTITY_MISMATCH,
            id="another object",
        ),
        pytest.param(
            answer(body=b'{"set": {"role": "Lead"}}'),
            Outcome.OUTCOME_UNKNOWN,
            AttemptFailure.EVIDENCE_MISSING,
            id="no evidence",
        ),
        pytest.param(
            answer(body=b'{"id": "501"'),
            Outcome.OUTCOME_UNKNOWN,
            AttemptFailure.GARBLED_ANSWER,
            id="half a document in a whole answer",
        ),
        pytest.param(
            answer("201 Created", GOOD),
            Outcome.OUTCOME_UNKNOWN,
            AttemptFailure.UNDECLARED_STATUS,
            id="a success that nobody declared",
        ),
        pytest.param(
            b"HTTP/1.1 200 OK\r\n\r\n" + GOOD,
            Outcome.OUTCOME_UNKNOWN,
            AttemptFailure.GARBLED_ANSWER,
            id="a success without a length",
        ),
        pytest.param(
            b"HTTP/1.1 301 Moved\r\nLocation: https://elsewhere.example/x\r\n\r\n",
            Outcome.REJECTED,
            AttemptFailure.UNEXPECTED_REDIRECT,
            id="a redirect without a length",
        ),
        pytest.param(
            b"HTTP/1.1 404 Not Found\r\n\r\n",
            Outcome.REJECTED,
            AttemptFailure.REJECTED,
            id="a refusal without a length",
        ),
        pytest.param(
            b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 2\r\n\r\n",
            Outcome.REPLAY_SAFE_RETRY,
            AttemptFailure.RATE_LIMITED,
            id="429 without a length",
        ),
        pytest.param(
            b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 9\r\n\r\n",
            Outcome.OUTCOME_UNKNOWN,
            AttemptFailure.LOST_ANSWER,
            id="429 that breaks off",
        ),
    ],
)
async def test_an_answer_is_judged_from_its_bytes(
    data: bytes, outcome: Outcome, failure: AttemptFailure | None
) -> None:
    """The bytes lead to the outcome over one request, by what the operation declares (C246)."""
    async with raw_server(replies(data)) as server:
        result = judged(operation(), await send(server))

    assert (result.outcome, result.failure_class) == (outcome, failure)
    assert server.requests_seen == 1
