"""The ledger reader says what the file says, and refuses a file that says nothing clear."""

from dataclasses import replace
from pathlib import Path

import pytest

from oncefence.simulator.journal import Journal
from oncefence.simulator.ledger import (
    Kind,
    Ledger,
    LedgerUnreadable,
    Row,
    parse_ledger,
    read_ledger,
)


def _ledger(tmp_path: Path, *rows: Row) -> Ledger:
    journal, _ = Journal.open(tmp_path / "ledger")
    for row in rows:
        journal.append(row)
    journal.close()
    return read_ledger(tmp_path / "ledger")


def _read(contact: str, command: str | None, method: str = "PATCH") -> Row:
    return Row(kind=Kind.READ, method=method, contact=contact, command=command, complete=True)


def _change(request: int, contact: str, command: str | None) -> Row:
    return Row(
        kind=Kind.CHANGE,
        contact=contact,
        command=command,
        properties={"jobtitle": "x"},
        request=request,
    )


class TestLedger:
    def test_gives_each_command_its_changes(self, tmp_path: Path) -> None:
        """A command that changed twice shows twice; one without a name stands apart."""
        ledger = _ledger(
            tmp_path,
            _read("1", "a"),
            _change(1, "1", "a"),
            _read("1", "a"),
            _change(3, "1", "a"),
            _read("2", None),
            _change(5, "2", None),
        )

        assert {key: len(rows) for key, rows in ledger.changes_by_command().items()} == {"a": 2}
        assert [change.contact for change in ledger.unattributed_changes()] == ["2"]
        assert [change.seq for change in ledger.changes()] == [2, 4, 6]

    def test_tells_who_was_read_and_not_answered(self, tmp_path: Path) -> None:
        """Applied or not, closed or not; lookups and answered requests are not among them."""
        ledger = _ledger(
            tmp_path,
            Row(kind=Kind.STARTED),
            _read("1", "answered"),
            Row(kind=Kind.ANSWERED, request=2),
            _read("2", "applied"),
            _change(4, "2", "applied"),
            _read("3", "closed"),
            Row(kind=Kind.CLOSED, request=6),
            _read("4", "lookup", method="GET"),
        )

        assert ledger.read_and_unanswered() == [("applied", "2", True), ("closed", "3", False)]
        assert ledger.read_and_unanswered(only_open=True) == [("applied", "2", True)]

    def test_knows_a_write_by_what_it_asked_for(self, tmp_path: Path) -> None:
        """Not every provider's writes are PATCH, and a search may be a POST."""
        ledger = _ledger(
            tmp_path,
            replace(_read("1", "changed", "POST"), operation="update"),
            replace(_read("2", "searched", "POST"), operation="search"),
            replace(_read("3", "replaced", "PUT"), operation="update"),
        )

        assert [each.command for each in ledger.read_and_unanswered()] == ["changed", "replaced"]

    def test_tells_which_record_a_create_made(self, tmp_path: Path) -> None:
        """The request named none; the change does."""
        read = replace(_read("1", "c", "POST"), operation="create", contact=None)
        made = replace(_change(1, "77", "c"), created_at="2026-01-01T00:00:00.000Z")
        ledger = _ledger(tmp_path, read, made, Row(kind=Kind.ANSWERED, request=1, status=201))

        [exchange] = ledger.exchanges()
        assert (exchange.contact, exchange.changes, exchange.status) == ("77", 1, 201)
        assert [change.is_creation for change in ledger.changes()] == [True]

    def test_counts_faults(self, tmp_path: Path) -> None:
        """One row is one fault."""
        faults = [Row(kind=Kind.FAULT, fault=name) for name in ("drip", "refuse", "drip")]

        assert _ledger(tmp_path, *faults).faults_fired() == {"drip": 2, "refuse": 1}

    def test_reads_back_what_was_written(self, tmp_path: Path) -> None:
        """No field is lost between writing and reading."""
        row = Row(
            kind=Kind.CHANGE,
            method="PATCH",
            path="/p?q",
            contact="1",
            properties={"a": "\u2028\x00é"},
            attempt="t",
            command="c",
            request=1,
            updated_at="2026-01-01T00:00:00.000Z",
        )

        [read] = _ledger(tmp_path, row).rows
        assert (read.seq, read.properties, read.updated_at) == (1, row.properties, row.updated_at)

    def test_leaves_out_a_line_that_is_being_written(self) -> None:
        """A reader may come in the middle of a line and must neither fail nor count it."""
        ledger = parse_ledger(b'{"seq":1,"at":"x","kind":"started"}\n{"seq":2,"at":"x","kind":"sta')

        assert len(ledger.rows) == 1
        assert ledger.torn

    @pytest.mark.parametrize(
        "content",
        [
            b"not json\n",
            b'{"seq":1}\n',
            b'{"seq":1,"kind":"nope"}\n',
            b'{"seq":1,"kind":"read","other":1}\n',
            b"[]\n",
            b'{"seq":2,"kind":"started"}\n',
            b'\n{"seq":1,"kind":"started"}\n',
        ],
    )
    def test_refuses_a_finished_line_that_is_no_row(self, content: bytes) -> None:
        """An oracle that guesses is none: the line is named."""
        with pytest.raises(LedgerUnreadable, match="line 1 of the ledger"):
            parse_ledger(content)
