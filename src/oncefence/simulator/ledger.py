"""
What the provider's ledger file says happened.

Pure reading: nothing here is told by a running simulator. A line counts when its newline is in the
file; what stands behind the last newline was never acknowledged to anybody and is left out.
"""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple


class Kind(StrEnum):
    """What one row of the ledger records."""

    STARTED = "started"  # the simulator began to serve; exchanges of earlier runs are over
    RECOVERED = "recovered"  # a line torn by a kill was cut off; its text is in the note
    CONTACT = "contact"  # a record was made through the admin surface
    READ = "read"  # a request was read, wholly (`complete`) or in part
    CHANGE = "change"  # a request's change was applied to the record
    HUMAN = "human"  # a person changed the record
    FAULT = "fault"  # a scripted or seeded fault fired
    REFUSED = "refused"  # a request is about to be answered with a 4xx
    HELD = "held"  # a request waits for a release
    ANSWERED = "answered"  # an answer was written to its last byte
    CLOSED = "closed"  # an exchange ended without a whole answer
    RULE = "rule"  # a rule was added through the admin surface
    RELEASE = "release"  # a hold was released; its rules are spent
    KEPT = "kept"  # an answer without a change was kept under an idempotency key
    FORGOTTEN = "forgotten"  # an idempotency key was forgotten before its time
    CLOCK = "clock"  # the provider's clock was moved; by how many seconds is in the note


class LedgerUnreadable(Exception):
    """A finished line of the ledger is not a row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """
    One line of the ledger. `request` is the `seq` of the READ row that a row belongs to.

    `contact` is the id of a record, whatever the provider calls it; `object` is its kind where a
    provider has several, `account` is there when it is not the account that the token was for.
    """

    kind: Kind
    seq: int = 0
    at: str = ""
    method: str | None = None
    path: str | None = None
    contact: str | None = None
    properties: Mapping[str, Any] | None = None
    attempt: str | None = None
    command: str | None = None
    fault: str | None = None
    request: int | None = None
    status: int | None = None
    complete: bool | None = None
    rule: str | None = None
    note: str | None = None
    created_at: str | None = None
    updated_at: str | None = None
    archived: bool | None = None
    operation: str | None = None
    object: str | None = None
    account: str | None = None
    key: str | None = None
    kept: Mapping[str, Any] | None = None

    def as_json(self) -> dict[str, Any]:
        """The row as it stands in the file: the first ten keys always, the others where set."""
        values = {name: getattr(self, name) for name in _FIELDS}
        return {
            name: value for name, value in values.items() if name in _ALWAYS or value is not None
        }


_FIELDS = ("seq", "at", *(f.name for f in fields(Row) if f.name not in {"seq", "at"}))
_WRITES = frozenset({"update", "create", "batch"})
_ALWAYS = frozenset(
    {"seq", "at", "kind", "method", "path", "contact"}
    | {"properties", "attempt", "command", "fault"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change that the provider applied for a request."""

    seq: int
    at: str
    request: int
    contact: str
    properties: Mapping[str, Any]
    command: str | None
    attempt: str | None
    object: str | None = None
    account: str | None = None
    key: str | None = None
    is_creation: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HumanEdit:
    """One change that a person made at the provider."""

    seq: int
    at: str
    contact: str
    properties: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One request that was read, and what became of it."""

    request: int
    at: str
    method: str | None
    contact: str | None
    command: str | None
    attempt: str | None
    is_complete: bool
    is_applied: bool
    is_answered: bool
    is_open: bool
    """Neither answered nor closed, and read by the run that wrote last."""
    fault: str | None
    path: str | None = None
    operation: str | None = None
    status: int | None = None
    changes: int = 0

    @property
    def is_write(self) -> bool:
        """It asked for a change."""
        if self.operation is None:
            return self.method == "PATCH"
        return self.operation in _WRITES


class Unanswered(NamedTuple):
    """A write that was read and has no whole answer."""

    command: str | None
    contact: str | None
    applied: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """Every finished row of a ledger file, in order."""

    rows: tuple[Row, ...]
    torn: bytes = b""

    def changes(self) -> list[Change]:
        """Every applied change, in order."""
        return [
            Change(
                seq=row.seq,
                at=row.at,
                request=row.request or 0,
                contact=row.contact or "",
                properties=row.properties or {},
                command=row.command,
                attempt=row.attempt,
                object=row.object,
                account=row.account,
                key=row.key,
                is_creation=row.created_at is not None,
            )
            for row in self.of(Kind.CHANGE)
        ]

    def changes_by_command(self) -> dict[str, list[Change]]:
        """The changes of each command that named itself; see also `unattributed_changes`."""
        found: dict[str, list[Change]] = {}
        for change in self.changes():
            if change.command is not None:
                found.setdefault(change.command, []).append(change)
        return found

    def unattributed_changes(self) -> list[Change]:
        """The changes whose request named no command."""
        return [change for change in self.changes() if change.command is None]

    def human_edits(self) -> list[HumanEdit]:
        """Every edit by a person, in order."""
        return [
            HumanEdit(
                seq=row.seq,
                at=row.at,
                contact=row.contact or "",
                properties=row.properties or {},
            )
            for row in self.of(Kind.HUMAN)
        ]

    def faults_fired(self) -> dict[str, int]:
        """How often each fault fired."""
        return dict(Counter(row.fault or "" for row in self.of(Kind.FAULT)))

    def exchanges(self) -> list[Exchange]:
        """Every request that was read, in order, with what the later rows say about it."""
        applied = Counter(row.request for row in self.of(Kind.CHANGE))
        made = {
            row.request: row.contact for row in self.of(Kind.CHANGE) if row.created_at is not None
        }
        answered = {row.request: row.status for row in self.of(Kind.ANSWERED)}
        closed = {row.request for row in self.of(Kind.CLOSED)}
        faults = {row.request: row.fault for row in self.of(Kind.FAULT)}
        run_began = max((row.seq for row in self.of(Kind.STARTED)), default=0)
        return [
            Exchange(
                request=row.seq,
                at=row.at,
                method=row.method,
                contact=row.contact or made.get(row.seq),
                command=row.command,
                attempt=row.attempt,
                is_complete=bool(row.complete),
                is_applied=row.seq in applied,
                is_answered=row.seq in answered,
                is_open=row.seq not in answered.keys() | closed and row.seq > run_began,
                fault=faults.get(row.seq),
                path=row.path,
                operation=row.operation,
                status=answered.get(row.seq),
                changes=applied[row.seq],
            )
            for row in self.of(Kind.READ)
        ]

    def read_and_unanswered(self, *, only_open: bool = False) -> list[Unanswered]:
        """
        Every write that was read and never answered to the last byte.

        `only_open` leaves out those whose connection has ended: what remains is in flight now.
        """
        return [
            Unanswered(exchange.command, exchange.contact, exchange.is_applied)
            for exchange in self.exchanges()
            if exchange.is_write
            and not exchange.is_answered
            and (exchange.is_open or not only_open)
        ]

    def of(self, kind: Kind) -> list[Row]:
        """The rows of one kind, in order."""
        return [row for row in self.rows if row.kind is kind]


def read_ledger(path: str | Path) -> Ledger:
    """
    Every row that is finished now; safe while the simulator is writing.

    Raises:
        LedgerUnreadable: A finished line is not a row.
    """
    return parse_ledger(Path(path).read_bytes())


def parse_ledger(content: bytes) -> Ledger:
    """The ledger in `content`; what follows the last newline is `torn`."""
    *lines, torn = content.split(b"\n")
    rows = tuple(_row(number, line) for number, line in enumerate(lines, start=1))
    for number, row in enumerate(rows, start=1):
        if row.seq != number:
            raise LedgerUnreadable(f"line {number} of the ledger has seq {row.seq}: a row is gone")
    return Ledger(rows=rows, torn=torn)


def _row(number: int, line: bytes) -> Row:
    try:
        values = json.loads(line)
        return Row(**values | {"kind": Kind(values["kind"])})
    except (ValueError, TypeError, KeyError) as reason:
        raise LedgerUnreadable(
            f"line {number} of the ledger is not a row ({reason}); "
            "move the file away or name another one"
        ) from reason
