"""
What workflows and activities say to each other: identifiers, times and classifications only.

No payload, token, header, address or provider text is in any of these, so whatever Temporal
shows of them is safe to show (C380). Standard library only: workflows import this module.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

RUN_ATTEMPT: Final = "run_attempt"
RUN_LOOKUP: Final = "run_lookup"
RUN_WORK: Final = "run_work"
RUN_SWEEP: Final = "run_sweep"

FUSED_DEADLINE_MS_MAX: Final = 8_000
"""Up to this send deadline the attempt runs as a local activity, above it as a regular one."""


class Step(StrEnum):
    """What the workflow of an item does next."""

    FINISHED = "finished"
    """The item is terminal; so is its workflow."""

    WAIT = "wait"
    """Run again at `until`, in due time."""

    IN_FLIGHT = "in_flight"
    """Somebody holds the item until `until`, in real time."""

    BLOCKED = "blocked"
    """Something else goes first. Whoever lifts it wakes the item; a lost wake is the sweep's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkInput:
    """Which item a workflow models. `start_to_close_seconds` is above the longest lease."""

    org_id: str
    work_id: str
    family: str
    deadline_ms: int
    start_to_close_seconds: float
    run_after: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """Run the item once. `as_of` is the workflow's time, by which what is due is judged."""

    org_id: str
    work_id: str
    deadline_ms: int
    as_of: datetime
    family: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """What came of one run."""

    step: Step
    verdict: str
    until: datetime | None = None
    item_state: str | None = None
    execution_status: str | None = None
    outcome: str | None = None
    failure_class: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkReport:
    """How the workflow of an item ended. The fact itself is in SQL."""

    verdict: str
    item_state: str | None
    execution_status: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepReport:
    """How many items one sweep nudged."""

    nudged: int


ACCEPT_HANDED_OVER: Final = "accept_handed_over"
REJECT_HANDED_OVER: Final = "reject_handed_over"


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedHandover:
    """A Runtime's handoff: identifiers, a digest, and its signature over them in hex (C137)."""

    handoff_key: str
    payload_digest: str
    outbox_id: str
    operation: str
    subject: str
    signature: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedRejection:
    """A Runtime's request that a handoff never become a command, signed likewise."""

    handoff_key: str
    payload_digest: str
    outbox_id: str
    signature: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoffReceipt:
    """
    The admission of a handoff key.

    The reason of a rejection is text that somebody wrote, so it is not told here.
    """

    admission: str
    handoff_key: str
    admitted_at: datetime
    is_new: bool
    command_id: str | None = None
    execution_id: str | None = None
    receipt_version: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoffReport:
    """What a handoff workflow gave before it ended. The facts themselves are in SQL."""

    receipts: int
    refusals: int
