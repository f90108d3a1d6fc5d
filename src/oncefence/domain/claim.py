"""Claims: why an item cannot be taken now, and how a claim of any family ends."""

import math
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

ENGINE_CAPABILITY: Final = 4
"""What this version of the engine can run; an item that asks for more waits for a newer one."""

_SUMMARY: Final = re.compile(r"[ -~]{0,200}")
_FAILURE_CLASS: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.]{0,79}")
_UNCLASSIFIED: Final = "unclassified"


WAIT_MAX: Final = 366 * 86_400.0
"""Nothing is put off for longer than a year: whoever means to do that means something else."""


class ClaimVerdict(StrEnum):
    """Why nothing was claimed."""

    NO_SUCH_ITEM = "no_such_item"
    FINISHED = "finished"
    NOT_DUE = "not_due"
    IN_FLIGHT = "in_flight"
    """Somebody holds it; `until` is the end of the lease, in real time."""

    ATTEMPT_LOST = "attempt_lost"
    """An attempt is open and its lease has ended: it is to be settled as lost."""

    NOT_MARKED = "not_marked"
    """Asked only whether the caller's own mark stands, and it does not."""

    LANE_BLOCKED = "lane_blocked"
    PAUSED = "paused"
    SLOW_START = "slow_start"
    """A pause ended lately, and as many items as may run so soon after it do."""

    NEEDS_NEWER_ENGINE = "needs_newer_engine"
    BREAKER_OPEN = "breaker_open"
    """The provider or the account has failed of late, and is left alone until then (C304)."""

    TOKEN_STALE = "token_stale"  # noqa: S105  # a verdict
    """The pinned generation's token has to be renewed before anything is sent (C286)."""

    TOKEN_BUSY = "token_busy"  # noqa: S105  # a verdict
    """Somebody renews it; `until` is the end of that lease. Who renews it wakes what waits."""

    CREDENTIAL_HELD = "credential_held"
    """It cannot be renewed now: until a back-off ends, or, without `until`, a person acts."""

    QUOTA_HELD = "quota_held"
    """The provider's quota is used up until then, or the provider said to wait (C300)."""

    LOOK_FIRST = "look_first"
    """A create that may be made only after a read that found its record not there already."""

    CANNOT_PROCEED = "cannot_proceed"
    """What the command relies on is gone; both lifecycles were ended in this transaction."""

    POISONED = "poisoned"
    """Too many claims of it ended by expiry; it was given up in this transaction."""

    CANCELLED = "cancelled"
    """Its cancellation was asked for and its claimant is gone; acknowledged in its place."""


HELD_BACK: Final = frozenset(
    (ClaimVerdict.LANE_BLOCKED, ClaimVerdict.PAUSED, ClaimVerdict.NEEDS_NEWER_ENGINE)
)
"""Whoever lifts these wakes the item, and the sweep covers a lost wake: nobody polls for it."""


class ClaimEnd(StrEnum):
    """By which move of its lifecycle a claim ends."""

    FINISH = "finish"
    SKIP = "skip"
    """There was nothing to do."""

    DEFER = "defer"
    """Wait until RunAfter, and be claimed again; no failure."""

    RETRY = "retry"
    """The same move after a failure: it counts an attempt and keeps its distance."""

    GIVE_UP = "give_up"
    ACKNOWLEDGE_CANCEL = "acknowledge_cancel"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkEnd:
    """
    How a claimed item ends its claim (C31).

    `wait_seconds` is from now until it is due again, of DEFER and RETRY alone; a RETRY without
    one takes the kernel's own back-off. `summary` is shown to operators as it is: a short line
    of printable ASCII that holds nobody's data. `failure_class` is a classification, a name and
    never a sentence; GIVE_UP needs one.
    """

    end: ClaimEnd
    wait_seconds: float | None = None
    failure_class: str | None = None
    summary: str | None = None

    def __post_init__(self) -> None:
        waits = self.end in (ClaimEnd.DEFER, ClaimEnd.RETRY)
        wait = self.wait_seconds
        if wait is not None and not (waits and math.isfinite(wait) and 0 <= wait <= WAIT_MAX):
            raise ValueError(f"{self.end} has no wait of {wait} s")
        if self.end is ClaimEnd.DEFER and self.wait_seconds is None:
            raise ValueError("a deferred item says for how long")
        if self.end is ClaimEnd.GIVE_UP and not self.failure_class:
            raise ValueError("what is given up has a failure class")
        if self.failure_class and _FAILURE_CLASS.fullmatch(self.failure_class) is None:
            raise ValueError("a failure class is a name of at most 80 ASCII letters and digits")
        if self.summary is not None and _SUMMARY.fullmatch(self.summary) is None:
            raise ValueError("a summary is one line of at most 200 printable ASCII characters")


def failure_class_of(error: BaseException) -> str:
    """The classification of an error: the name of its class, as far as that is one."""
    name = type(error).__name__
    return name if _FAILURE_CLASS.fullmatch(name) else _UNCLASSIFIED
