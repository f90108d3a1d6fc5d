"""Replay: whether ended work may be made anew, and why not."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from oncefence.domain.work_item import EFFECTS, LOOKUP, WORK_ITEM


class ReplayVerdict(StrEnum):
    """What a plan says of one item (C405). Only the first one is ever applied."""

    SAFE_TO_REPLAY = "safe_to_replay"
    NEEDS_LOOKUP = "needs_lookup"
    """Its outcome is unknown, and is being looked up."""

    UNKNOWN = "unknown"
    """Some attempt may have applied, and no proof says that it did not."""

    NEEDS_ATTENTION = "needs_attention"
    BINDING_GONE = "binding_gone"
    """The account that it pinned was reconnected, or the current revision uses another one."""

    LINK_CHANGED = "link_changed"
    OPERATION_GONE = "operation_gone"
    """The current revision of its view no longer offers it."""

    SUPERSEDED = "superseded"
    """A later item of one of its lanes has gone ahead."""

    ATTEMPTS_EXHAUSTED = "attempts_exhausted"
    NOT_TERMINAL = "not_terminal"
    """It, or its execution, has not ended."""

    SETTLED = "settled"
    """It ended well or was cancelled for good, so nothing of it is left to do."""

    ALREADY_REPLAYED = "already_replayed"
    CONTENT_ERASED = "content_erased"


REMEDIES: Final[Mapping[ReplayVerdict, str]] = {
    ReplayVerdict.SAFE_TO_REPLAY: "it can be replayed",
    ReplayVerdict.NEEDS_LOOKUP: "wait for its lookups; they settle it or leave it to a person",
    ReplayVerdict.UNKNOWN: "an attempt may have applied: only a proof that it did not permits "
    "another one; look at the record at the provider, then hand over a new command if one is due",
    ReplayVerdict.NEEDS_ATTENTION: "a person decides first what became of it",
    ReplayVerdict.BINDING_GONE: "hand over a new command: this one belongs to an account that is "
    "no longer connected as it was",
    ReplayVerdict.LINK_CHANGED: "hand over a new command: the link that this one pinned has moved",
    ReplayVerdict.OPERATION_GONE: "publish a revision that offers the operation, or leave it",
    ReplayVerdict.SUPERSEDED: "hand over a new command: later work of its lane has gone ahead, "
    "and this would undo it",
    ReplayVerdict.ATTEMPTS_EXHAUSTED: "hand over a new command: this one has used all its attempts",
    ReplayVerdict.NOT_TERMINAL: "wait until it has ended",
    ReplayVerdict.SETTLED: "there is nothing left to do for it",
    ReplayVerdict.ALREADY_REPLAYED: "look at the newest item of its line; only that one can be "
    "replayed",
    ReplayVerdict.CONTENT_ERASED: "hand over a new command: the request of this one was erased",
}
"""What to do instead, for each verdict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayFacts:
    """What decides about one item, all of one moment."""

    family: str
    item_state: str
    is_replayed: bool
    execution_status: str | None
    """Of the execution that it belongs to, if it belongs to one."""

    is_in_doubt: bool
    """Some attempt of its command may have applied and has no proof of the contrary, or what
    was learnt of one contradicts what stands; judged over all attempts (C83)."""

    is_superseded: bool
    has_binding: bool
    has_link: bool
    is_offered: bool
    has_attempts_left: bool
    has_content: bool


def judge(facts: ReplayFacts) -> ReplayVerdict:
    """
    Whether the item may be replayed.

    What it did comes before what it relies on: an item whose effect is in doubt is never called
    by a lesser name.
    """
    if facts.item_state not in WORK_ITEM.final:
        return ReplayVerdict.NOT_TERMINAL
    if facts.is_replayed:
        return ReplayVerdict.ALREADY_REPLAYED
    if facts.family in EFFECTS | {LOOKUP}:
        ended = _of_execution(facts)
    else:
        ended = None if facts.item_state in ("dead", "cancelled") else ReplayVerdict.SETTLED
    if ended is not None:
        return ended
    missing = (
        (facts.is_superseded, ReplayVerdict.SUPERSEDED),
        (not facts.has_binding, ReplayVerdict.BINDING_GONE),
        (not facts.has_link, ReplayVerdict.LINK_CHANGED),
        (not facts.is_offered, ReplayVerdict.OPERATION_GONE),
        (not facts.has_attempts_left, ReplayVerdict.ATTEMPTS_EXHAUSTED),
        (not facts.has_content, ReplayVerdict.CONTENT_ERASED),
    )
    return next((verdict for is_so, verdict in missing if is_so), ReplayVerdict.SAFE_TO_REPLAY)


def _of_execution(facts: ReplayFacts) -> ReplayVerdict | None:
    """The verdict that the execution alone gives; None where it permits an operator's retry."""
    match facts.execution_status:
        case "unknown":
            return ReplayVerdict.NEEDS_LOOKUP
        case "needs_attention":
            return ReplayVerdict.NEEDS_ATTENTION
        case "accepted" | "running" | "retrying":
            return ReplayVerdict.NOT_TERMINAL
        case "failed" if facts.family in EFFECTS:
            return ReplayVerdict.UNKNOWN if facts.is_in_doubt else None
        case _:
            # Looking again is not for an operator to ask: an unknown outcome always is looked up.
            return ReplayVerdict.SETTLED
