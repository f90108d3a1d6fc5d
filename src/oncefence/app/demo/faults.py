"""
Which command meets which fault, and with which ones in flight the worker is killed.

For the shipped example it is written down here; for any other file it is dealt by seed and
position. Rules name commands, so nothing depends on which send comes first.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from oncefence.app.handoff_file import HandoffLine

Rule = Mapping[str, Any]

KILLS: Final = 2
NEEDS_ATTENTION_SCRIPTED: Final = 1
"""How many commands of the shipped example a person has to look at: the one that is overwritten."""

_REFUSE_SECONDS: Final = 1.5
_HELD_AFTER_CHANGE: Final = {"hold_at": "commit"}
_HELD_BEFORE_CHANGE: Final = {"hold_at": "read"}

# By the outbox id of a line in the shipped example. A person changes the record of number 11
# before anybody can look, so that nothing ever shows whether our change was there before.
_SCRIPT: Final[Mapping[str, Rule]] = {
    "lead-title-0003": {"fault": "lost_answer"},
    "lead-title-0004": {"fault": "rate_limit_429", "retry_after": 1},
    "lead-title-0005": {"fault": "rate_limit_429"},
    "lead-title-0006": {"fault": "lost_answer"},
    "lead-title-0007": {"fault": "reset_after_commit"},
    "lead-title-0008": {"fault": "reject_400"},
    "lead-title-0011": {"fault": "overwritten"},
    "lead-title-0012": {"fault": "lost_answer"},
    "lead-title-0013": {"fault": "server_error_after_commit"},
    "lead-title-0014": {"fault": "server_error_before_commit", "status": 503},
    "lead-title-0015": {"fault": "lost_answer"},
    "lead-title-0016": {"fault": "wrong_id"},
    "lead-title-0017": {"fault": "cut_body"},
    "lead-title-0018": {"fault": "drip"},
    "lead-title-0023": {"fault": "garbled"},
    "lead-title-0024": {"fault": "reset_mid_read"},
    "lead-title-0025": {"fault": "no_effect_hang"},
}
# Handed over last, and alone, while the provider's port is closed: what else came at that moment
# would be refused as well, or reset while it waits to be accepted.
_REFUSED: Final = "lead-title-0022"
_HELD: Final[tuple[Mapping[str, Rule], ...]] = (
    {"lead-title-0009": _HELD_AFTER_CHANGE, "lead-title-0010": _HELD_BEFORE_CHANGE},
    {"urn:outbox:lead/1019#title": _HELD_AFTER_CHANGE, "lead-title-0020": _HELD_BEFORE_CHANGE},
)

_FAULT_RATE: Final = 0.4
# Faults that hang take a send's whole deadline, so a long file gets no more of them than this.
_FAULTS_MAX: Final = 120
_SETTLED_SURELY: Final[tuple[Rule, ...]] = (
    {"fault": "lost_answer"},
    {"fault": "reset_after_commit"},
    {"fault": "late_answer"},
    {"fault": "rate_limit_429", "retry_after": 1},
    {"fault": "rate_limit_429"},
    {"fault": "server_error_after_commit"},
    {"fault": "cut_body"},
    {"fault": "wrong_id"},
    {"fault": "garbled"},
    {"fault": "drip"},
    {"fault": "reject_400"},
)
# What these leave behind a person may have to judge, and until then the lane stands still. So
# they are dealt only where no later line of the file waits behind. A refused token is dealt to
# nobody: with it the account of every line stands still, until somebody hands over another one.
_LAST_OF_ITS_SUBJECT: Final[tuple[Rule, ...]] = (
    *_SETTLED_SURELY,
    {"fault": "reset_before_read"},
    {"fault": "reset_mid_read"},
    {"fault": "reset_before_answer"},
    {"fault": "no_effect_hang"},
    {"fault": "server_error_before_commit"},
    {"fault": "overwritten"},
    {"fault": "overwritten", "apply": False},
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """
    Lines that are handed over together.

    With `held` ones among them the worker is killed while those are in flight. With
    `meets_closed_port` the provider's port is closed from just before until each was refused.
    """

    lines: Sequence[HandoffLine]
    hold: str = ""
    held: Sequence[HandoffLine] = ()
    meets_closed_port: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The rules of one run, and the batches in their order."""

    rules: Sequence[Rule]
    batches: Sequence[Batch]


def scripted(lines: Sequence[HandoffLine], command_of: Callable[[HandoffLine], UUID]) -> Plan:
    """The plan of the shipped example; a line that it does not know meets no fault."""
    rules: list[Rule] = []
    batches = []
    refused = [line for line in lines if line.outbox == _REFUSED]
    others = [line for line in lines if line.outbox != _REFUSED]
    for number, (batch, held) in enumerate(zip(_halves(others), _HELD, strict=True), start=1):
        hold = f"kill-{number}"
        rules += [
            {"command": str(command_of(line)), "hold": hold, **held[line.outbox]}
            for line in batch
            if line.outbox in held
        ]
        rules += [
            {"command": str(command_of(line)), **_SCRIPT[line.outbox]}
            for line in batch
            if line.outbox in _SCRIPT
        ]
        batches.append(
            Batch(lines=batch, hold=hold, held=[line for line in batch if line.outbox in held])
        )
    batches.append(Batch(lines=refused, meets_closed_port=True))
    return Plan(rules=rules, batches=batches)


def dealt(
    lines: Sequence[HandoffLine],
    contacts: Mapping[str, str],
    command_of: Callable[[HandoffLine], UUID],
    *,
    seed: int,
) -> Plan:
    """The plan of any other file: the same file and seed give the same one."""
    last = {line.subject: line.number for line in lines}
    first: dict[str, int] = {}
    for line in lines:
        first.setdefault(line.subject, line.number)
    rate = min(_FAULT_RATE, _FAULTS_MAX / max(1, len(lines)))
    rules: list[Rule] = []
    batches = []
    for number, batch in enumerate(_halves(lines), start=1):
        hold = f"kill-{number}"
        held = _chosen(batch, first, seed)
        # A file of two lines still shows both: one kill after a change, and one before.
        places = (_HELD_AFTER_CHANGE, _HELD_BEFORE_CHANGE)[number - 1 if len(held) == 1 else 0 :]
        for line, place in zip(held, places, strict=False):
            rules.append({"command": str(command_of(line)), "hold": hold, **place})
        for line in batch:
            fault = None if line in held else _dealt_to(line, last, seed=seed, rate=rate)
            if fault is not None:
                rules.append({"command": str(command_of(line)), **fault})
        batches.append(Batch(lines=batch, hold=hold, held=held))
    if len(lines) > 1:
        # Once this one is answered, whatever is sent next finds the port closed.
        before = min(lines, key=lambda line: _dice(seed, "refuse", line.number))
        rules.append(
            {
                "fault": "refuse",
                "after_contact": contacts[before.subject],
                "refuse_for_s": _REFUSE_SECONDS,
            }
        )
    return Plan(rules=rules, batches=batches)


def _halves(lines: Sequence[HandoffLine]) -> tuple[Sequence[HandoffLine], Sequence[HandoffLine]]:
    middle = (len(lines) + 1) // KILLS
    return lines[:middle], lines[middle:]


def _chosen(
    batch: Sequence[HandoffLine], first: Mapping[str, int], seed: int
) -> Sequence[HandoffLine]:
    """Two lines that surely get to be sent: nothing of the file stands before them."""
    free = [line for line in batch if first[line.subject] == line.number]
    return sorted(free, key=lambda line: _dice(seed, "kill", line.number))[:2]


def _dealt_to(line: HandoffLine, last: Mapping[str, int], *, seed: int, rate: float) -> Rule | None:
    if _dice(seed, "meets a fault", line.number) >= rate:
        return None
    faults = _LAST_OF_ITS_SUBJECT if last[line.subject] == line.number else _SETTLED_SURELY
    return faults[int(_dice(seed, "which", line.number) * len(faults))]


def _dice(seed: int, what: str, number: int) -> float:
    """A number in [0, 1) that depends on nothing else."""
    digest = hashlib.sha256(json.dumps([seed, what, number]).encode()).digest()
    return int.from_bytes(digest[:7]) / 2**56
