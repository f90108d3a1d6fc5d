"""
The table of the five outcomes, written a second time: as rows for people, first match first.

    python -m tests.golden.classification

writes it into `docs/classification.md`. A test holds the page to the rows, and another holds
the rows to the function, over every combination of what can be seen.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Final, NamedTuple

from oncefence.domain.classification import (
    AttemptFailure,
    BodyVerdict,
    Classified,
    ReplyContract,
    SendFault,
    WirePhase,
)
from oncefence.domain.effect import Outcome

PAGE: Final = Path(__file__).parents[2] / "docs" / "classification.md"
BEGIN: Final = "<!-- the table: python -m tests.golden.classification -->\n"
END: Final = "<!-- the end of the table -->\n"


class Cell(NamedTuple):
    """One combination of everything that the function is given."""

    phase: WirePhase
    status: int | None
    body: BodyVerdict | None
    contract: ReplyContract
    cause: SendFault | None

    @property
    def is_whole(self) -> bool:
        """The answer ended as its framing says, and its body is all there."""
        return self.phase is WirePhase.COMPLETE and (self.body is None or self.body.complete)


@dataclass(frozen=True, kw_only=True)
class Row:
    """What was seen, in words and as a predicate, and what it comes to."""

    what: str
    holds: Callable[[Cell], bool]
    outcome: Outcome
    failure: AttemptFailure | None
    under_a_key: Outcome | None = None
    """Where a live idempotency key changes the outcome."""

    may_have_applied: bool = False
    is_configuration_fault: bool = False

    @cached_property
    def ends(self) -> tuple[Classified, Classified]:
        """What the row says of a cell that it holds for: without a live key, and with one."""
        return self._end(self.outcome), self._end(self.under_a_key or self.outcome)

    def _end(self, outcome: Outcome) -> Classified:
        return Classified(
            outcome=outcome,
            failure_class=self.failure,
            may_have_applied=self.may_have_applied,
            is_configuration_fault=self.is_configuration_fault,
        )


def _unsent(
    what: str, failure: AttemptFailure, *causes: SendFault, is_configuration_fault: bool = False
) -> Row:
    return Row(
        what=what,
        holds=lambda cell: not causes or cell.cause in causes,
        outcome=Outcome.RETRYABLE_PRE_DISPATCH,
        failure=failure,
        is_configuration_fault=is_configuration_fault,
    )


def _in_doubt(
    what: str,
    failure: AttemptFailure,
    holds: Callable[[Cell], bool],
    *,
    is_repeatable: bool = False,
) -> Row:
    return Row(
        what=what,
        holds=holds,
        outcome=Outcome.OUTCOME_UNKNOWN,
        failure=failure,
        under_a_key=Outcome.REPLAY_SAFE_RETRY if is_repeatable else None,
        may_have_applied=True,
    )


# Causes that break nothing off: the status stands, though the body proves nothing.
UNREAD: Final = frozenset(
    {SendFault.TOO_LARGE, SendFault.UNFRAMED, SendFault.ENCODED, SendFault.EARLY}
)

BEFORE: Final = (
    _unsent("the provider's name has no address", AttemptFailure.DNS, SendFault.DNS),
    _unsent("no connection", AttemptFailure.CONNECT, SendFault.CONNECT),
    _unsent("no TLS on the connection", AttemptFailure.TLS, SendFault.TLS),
    _unsent(
        "a certificate that cannot be verified",
        AttemptFailure.TLS,
        SendFault.CERTIFICATE,
        is_configuration_fault=True,
    ),
    _unsent("no socket left in this process or machine", AttemptFailure.POOL, SendFault.POOL),
    _unsent(
        "the proxy is away, hangs up, or answers CONNECT with a passing trouble (502, 503, 504)",
        AttemptFailure.PROXY_CONNECT,
        SendFault.PROXY_CONNECT,
    ),
    _unsent(
        "the proxy refuses the tunnel for good (403, 407, a redirect, no proxy at all)",
        AttemptFailure.PROXY_CONNECT,
        SendFault.PROXY_REFUSED,
        is_configuration_fault=True,
    ),
    _unsent(
        "the deadline passed before the first byte",
        AttemptFailure.DEADLINE_BEFORE_SEND,
        SendFault.DEADLINE,
    ),
    _unsent(
        "a guard refused target, header or address",
        AttemptFailure.GUARD_REFUSED,
        SendFault.GUARD_REFUSED,
        is_configuration_fault=True,
    ),
    _unsent(
        "no credential to send with",
        AttemptFailure.CREDENTIAL,
        SendFault.CREDENTIAL,
        is_configuration_fault=True,
    ),
    _unsent("anything else", AttemptFailure.NOT_SENT),
)

AFTER: Final = (
    _in_doubt(
        "no status, and what came is no answer, or more than was read",
        AttemptFailure.GARBLED_ANSWER,
        lambda cell: cell.status is None and cell.cause in {*UNREAD, SendFault.GARBLED},
        is_repeatable=True,
    ),
    _in_doubt(
        "no status: reset, closed, timed out, killed",
        AttemptFailure.LOST_ANSWER,
        lambda cell: cell.status is None,
        is_repeatable=True,
    ),
    _in_doubt(
        "a status, and the answer breaks the rules of HTTP",
        AttemptFailure.GARBLED_ANSWER,
        lambda cell: (
            not cell.is_whole
            and cell.cause not in UNREAD
            and cell.cause in {None, SendFault.GARBLED}
        ),
        is_repeatable=True,
    ),
    _in_doubt(
        "a status, and the answer breaks off",
        AttemptFailure.LOST_ANSWER,
        lambda cell: not cell.is_whole and cell.cause not in UNREAD,
        is_repeatable=True,
    ),
    _in_doubt(
        "a success status, and a body that was not read, not asked for, or begun before the "
        "request was out",
        AttemptFailure.GARBLED_ANSWER,
        lambda cell: _is_success(cell) and (not cell.is_whole or cell.cause is not None),
        is_repeatable=True,
    ),
    _in_doubt(
        "a success status on a body of another media type",
        AttemptFailure.MEDIA_TYPE_MISMATCH,
        lambda cell: (
            _is_success(cell) and cell.body is not None and not cell.body.media_type_matches
        ),
        is_repeatable=True,
    ),
    _in_doubt(
        "a success status without a body to judge",
        AttemptFailure.EVIDENCE_MISSING,
        lambda cell: _is_success(cell) and cell.body is None,
    ),
    _in_doubt(
        "a success status, and the body cannot be read",
        AttemptFailure.GARBLED_ANSWER,
        lambda cell: _is_success(cell) and not _body(cell).parseable,
    ),
    _in_doubt(
        "a success status, and the body says two things: evidence, a declared refusal, a "
        "declared sign that nothing was applied",
        AttemptFailure.CONTRADICTORY_ANSWER,
        lambda cell: _is_success(cell) and _says_two_things(_body(cell)),
    ),
    Row(
        what="a success status, and the body holds a declared refusal alone",
        holds=lambda cell: _is_success(cell) and _body(cell).declares_refusal,
        outcome=Outcome.REJECTED,
        failure=AttemptFailure.REJECTED,
    ),
    Row(
        what="a success status, and the body holds a declared sign that nothing was applied",
        holds=lambda cell: _is_success(cell) and _body(cell).declares_not_applied,
        outcome=Outcome.REPLAY_SAFE_RETRY,
        failure=AttemptFailure.NOT_APPLIED,
    ),
    _in_doubt(
        "a success status without the declared evidence",
        AttemptFailure.EVIDENCE_MISSING,
        lambda cell: _is_success(cell) and not _body(cell).evidence_present,
    ),
    _in_doubt(
        "a success status about another object",
        AttemptFailure.IDENTITY_MISMATCH,
        lambda cell: _is_success(cell) and not _body(cell).identity_matches,
    ),
    Row(
        what="a success status, all of the body, the declared evidence, the link's identity",
        holds=lambda cell: _is_success(cell) and cell.is_whole,
        outcome=Outcome.ACCEPTED,
        failure=None,
    ),
    Row(
        what="a status that says that the condition of a conditional write failed",
        holds=lambda cell: cell.status in cell.contract.condition_failed_statuses,
        outcome=Outcome.REJECTED,
        failure=AttemptFailure.PRECONDITION_FAILED,
    ),
    Row(
        what="any other status, all of the body, and in it a declared refusal",
        holds=lambda cell: (
            _body_alone_says(cell, "declares_refusal")
            and _body(cell).parseable
            and _body(cell).media_type_matches
        ),
        outcome=Outcome.REJECTED,
        failure=AttemptFailure.REJECTED,
    ),
    Row(
        what="a declared refusal by status, with whatever other body",
        holds=lambda cell: (
            cell.status in cell.contract.rejected_statuses
            and not _body_alone_says(cell, "declares_not_applied")
        ),
        outcome=Outcome.REJECTED,
        failure=AttemptFailure.REJECTED,
    ),
    Row(
        what="429, declared as not applied by its status or its body",
        holds=lambda cell: _is_not_applied(cell) and cell.status == 429,
        outcome=Outcome.REPLAY_SAFE_RETRY,
        failure=AttemptFailure.RATE_LIMITED,
    ),
    Row(
        what="401, likewise",
        holds=lambda cell: _is_not_applied(cell) and cell.status == 401,
        outcome=Outcome.REPLAY_SAFE_RETRY,
        failure=AttemptFailure.CREDENTIAL,
        is_configuration_fault=True,
    ),
    Row(
        what="any other status, such as 503, likewise",
        holds=lambda cell: _is_not_applied(cell) and cell.status not in {401, 429},
        outcome=Outcome.REPLAY_SAFE_RETRY,
        failure=AttemptFailure.NOT_APPLIED,
    ),
    Row(
        what="301, 307 or 308 undeclared; it is not followed",
        holds=lambda cell: cell.status in {301, 307, 308},
        outcome=Outcome.REJECTED,
        failure=AttemptFailure.UNEXPECTED_REDIRECT,
        is_configuration_fault=True,
    ),
    _in_doubt(
        "5xx undeclared",
        AttemptFailure.SERVER_ERROR,
        lambda cell: 500 <= (cell.status or 0) <= 599,
        is_repeatable=True,
    ),
    _in_doubt(
        "any other status that is not declared, 2xx, 302, 303 and 4xx among them",
        AttemptFailure.UNDECLARED_STATUS,
        lambda cell: cell.status is not None,
    ),
)


def _is_success(cell: Cell) -> bool:
    return cell.status in cell.contract.success_statuses


def _is_not_applied(cell: Cell) -> bool:
    is_declared = cell.status in cell.contract.not_applied_statuses
    return is_declared or _body_alone_says(cell, "declares_not_applied")


def _body_alone_says(cell: Cell, sign: str) -> bool:
    """Whether all of the body is there, and of the two signs of no success holds this one alone."""
    if not cell.is_whole or cell.cause is not None or cell.body is None:
        return False
    signs = (cell.body.declares_refusal, cell.body.declares_not_applied)
    return bool(getattr(cell.body, sign)) and sum(signs) == 1


def _says_two_things(body: BodyVerdict) -> bool:
    signs = (body.evidence_present, body.declares_refusal, body.declares_not_applied)
    return sum(signs) > 1


def _body(cell: Cell) -> BodyVerdict:
    assert cell.body is not None, "an earlier row took the cells without one"
    return cell.body


def row_of(cell: Cell) -> Row:
    """The first row that holds for the cell; there is always one."""
    rows = BEFORE if cell.phase < WirePhase.FIRST_BYTE_OUT else AFTER
    return next(row for row in rows if row.holds(cell))


# --- every combination -----------------------------------------------------------------------


def _statuses(*statuses: int) -> frozenset[int]:
    return frozenset(statuses)


PLAIN: Final = ReplyContract(
    success_statuses=_statuses(200, 207),
    rejected_statuses=_statuses(400, 404, 409, 422),
    not_applied_statuses=_statuses(401, 429, 503),
    has_live_idempotency_key=False,
)
KEYED: Final = ReplyContract(
    success_statuses=_statuses(200),
    rejected_statuses=_statuses(402, 404),
    not_applied_statuses=_statuses(429),
    has_live_idempotency_key=True,
)
SILENT: Final = ReplyContract(
    success_statuses=_statuses(),
    rejected_statuses=_statuses(),
    not_applied_statuses=_statuses(),
    has_live_idempotency_key=False,
)
REDIRECTS: Final = ReplyContract(
    success_statuses=_statuses(303, 307),
    rejected_statuses=_statuses(302, 308),
    not_applied_statuses=_statuses(301),
    has_live_idempotency_key=False,
)
CONDITIONAL: Final = ReplyContract(
    success_statuses=_statuses(204),
    rejected_statuses=_statuses(404, 412, 428),
    condition_failed_statuses=_statuses(412),
    not_applied_statuses=_statuses(500),
    has_live_idempotency_key=True,
)
CONTRACTS: Final = (PLAIN, KEYED, REDIRECTS, CONDITIONAL)
PHASES: Final = (
    (WirePhase.NOTHING, WirePhase.RESOLVED, WirePhase.CONNECTED, WirePhase.TLS),
    (WirePhase.FIRST_BYTE_OUT, WirePhase.ALL_OUT, WirePhase.FIRST_BYTE_IN),
    (WirePhase.COMPLETE,),
)
"""The phases, by what a row can tell apart: nothing left, not whole, whole."""

STATUSES: Final = (
    *(None, 0, 101, 200, 204, 207, 299, 301, 302, 303, 304, 307, 308),
    *(401, 402, 404, 412, 422, 429, 499, 500, 503, 599, 600, 999),
)
BODIES: Final = (
    None,
    *(
        BodyVerdict(
            complete=complete,
            parseable=parseable,
            evidence_present=evidence,
            identity_matches=identity,
            declares_refusal=refusal,
            media_type_matches=media_type,
            declares_not_applied=not_applied,
        )
        for complete, parseable, evidence, identity, refusal, media_type, not_applied in product(
            (True, False), repeat=7
        )
    ),
)
CAUSES: Final = (None, *SendFault)


def cells(phase: WirePhase, contracts: tuple[ReplyContract, ...] = CONTRACTS) -> Iterator[Cell]:
    """Every combination of status, body, contract and cause in one phase."""
    # Before the first byte a body is nobody's: a few stand for all that cannot be there.
    bodies = BODIES if phase >= WirePhase.FIRST_BYTE_OUT else BODIES[::16]
    for status, body, contract, cause in product(STATUSES, bodies, contracts, CAUSES):
        yield Cell(phase, status, body, contract, cause)


# --- the page --------------------------------------------------------------------------------


def table() -> str:
    """The rows as Markdown, in their order."""
    lines = []
    for title, rows in (
        ("Nothing of the request has left", BEFORE),
        ("A byte of the request may have left", AFTER),
    ):
        lines += [
            f"### {title}\n",
            "| what was seen | outcome | with a live key | failure class | may have applied |",
            "|---|---|---|---|---|",
            *map(_line, rows),
            "",
        ]
    return "\n".join(lines)


def _line(row: Row) -> str:
    failure = f"`{row.failure}`" if row.failure else ""
    parts = (
        row.what,
        f"{row.outcome}{' (configuration fault)' if row.is_configuration_fault else ''}",
        row.under_a_key or "",
        failure,
        "yes" if row.may_have_applied else "",
    )
    return f"| {' | '.join(parts)} |".replace("|  |", "| |").replace("|  |", "| |")


def page_with(text: str) -> str:
    """The page with the table of now."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page_with(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
