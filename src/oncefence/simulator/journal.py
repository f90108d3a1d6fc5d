"""
Sole writer of the ledger file.

Every row is in the file and fsynced when `append` returns, so whatever the simulator does next on
the wire finds its record already on disk (C586).
"""

import fcntl
import json
import os
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from oncefence.simulator.ledger import Kind, Ledger, Row, parse_ledger


class JournalFailed(Exception):
    """A row could not be made durable; the simulator must stop and answer nothing more."""


class JournalInUse(Exception):
    """Another simulator holds this ledger file."""


def stamp(moment: datetime) -> str:
    """UTC with milliseconds, as the provider writes times."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def utc_now() -> datetime:
    """The current time, cut to the millisecond that the provider's times can show."""
    moment = datetime.now(UTC)
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


class Journal:
    """An append-only ledger file, held under a lock."""

    def __init__(self, *, descriptor: int, path: Path, seq: int) -> None:
        self.path = path
        self._descriptor = descriptor
        self._seq = seq

    @classmethod
    def open(cls, path: Path) -> tuple[Self, Ledger]:
        """
        The journal, ready to append, and what the file said before.

        A line torn by a kill is cut off and kept as text in a RECOVERED row.

        Raises:
            JournalInUse: Another simulator writes this file.
            LedgerUnreadable: A finished line is not a row.
            OSError: The file cannot be opened.
        """
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            content = path.read_bytes()
            ledger = parse_ledger(content)
            _sync_folder(path.parent)
            journal = cls(descriptor=descriptor, path=path, seq=len(ledger.rows))
            if ledger.torn:
                os.ftruncate(descriptor, len(content) - len(ledger.torn))
                text = ledger.torn.decode("utf-8", "backslashreplace")
                journal.append(Row(kind=Kind.RECOVERED, note=f"torn last line cut off: {text}"))
        except BlockingIOError as reason:
            os.close(descriptor)
            raise JournalInUse(
                f"ledger {path} is held by another simulator; stop it or name another file"
            ) from reason
        except BaseException:
            os.close(descriptor)
            raise
        return journal, ledger

    def append(self, row: Row) -> Row:
        """
        The row with its `seq` and `at`, durable.

        Raises:
            JournalFailed: The disk did not take it.
        """
        written = replace(row, seq=self._seq + 1, at=stamp(utc_now()))
        line = json.dumps(written.as_json(), separators=(",", ":")).encode() + b"\n"
        try:
            while line:
                line = line[os.write(self._descriptor, line) :]
            os.fsync(self._descriptor)
        except OSError as reason:
            raise JournalFailed(f"ledger {self.path} cannot be written: {reason}") from reason
        self._seq = written.seq
        return written

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._descriptor)


def _sync_folder(folder: Path) -> None:
    # A new file survives a power cut only when its folder entry is on disk too.
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
