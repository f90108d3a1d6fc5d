"""What the simulator said it did is in its file, whatever kills it."""

import asyncio
import os
import threading
from pathlib import Path

import pytest

from oncefence.simulator import journal as journal_module
from oncefence.simulator.journal import Journal
from oncefence.simulator.ledger import Kind, parse_ledger, read_ledger
from oncefence.simulator.server import Settings, Simulator
from oncefence.simulator.wire import Connection
from tests.providers.simulated import TOKEN, Simulated, patch_bytes, simulator_at, talk, until


class TestKill:
    def test_after_an_answer_finds_the_change_in_the_file(self, tmp_path: Path) -> None:
        """The first thing after the answer's last byte is a SIGKILL; the row is there."""
        path = tmp_path / "ledger"
        with simulator_at(path) as simulator:
            contact = simulator.contact()
            heard = simulator.patch(contact, command="c")
            simulator.kill()

        assert heard.status == 200
        assert len(read_ledger(path).changes_by_command()["c"]) == 1

    def test_in_the_middle_of_many_loses_no_answered_change(self, tmp_path: Path) -> None:
        """Four clients at work when it dies: each 200 has its row, and no title two."""
        path = tmp_path / "ledger"
        answered: list[str] = []
        enough = threading.Event()

        def work(simulator: Simulated, contact: str) -> None:
            for number in range(10_000):
                command = f"{contact}-{number}"
                if simulator.patch(contact, command, command=command).status != 200:
                    return
                answered.append(command)
                if len(answered) >= 60:
                    enough.set()

        with simulator_at(path) as simulator:
            contacts = [simulator.contact() for _ in range(4)]
            threads = [threading.Thread(target=work, args=(simulator, each)) for each in contacts]
            for thread in threads:
                thread.start()
            assert enough.wait(timeout=20)
            simulator.kill()
            for thread in threads:
                thread.join(timeout=10)

        by_command = read_ledger(path).changes_by_command()
        assert len(answered) >= 60
        assert [command for command in answered if len(by_command[command]) != 1] == []


class TestRestart:
    def test_goes_on_where_the_ledger_ends(self, tmp_path: Path) -> None:
        """Records, times, people's edits and properties are as they were before the kill."""
        path = tmp_path / "ledger"
        with simulator_at(path) as simulator:
            contact = simulator.contact(jobtitle="x", ours="1")
            simulator.patch(contact, "patched")
            simulator.admin("/human-edit", {"id": contact, "properties": {"city": "Bern"}})
            before = simulator.get(contact, "properties=jobtitle,city,ours").json
            simulator.kill()

        with simulator_at(path) as simulator:
            after = simulator.get(contact, "properties=jobtitle,city,ours").json
            assert simulator.patch(contact, "again").status == 200
            seqs = [row.seq for row in simulator.ledger.rows]

        assert after == before
        assert after["properties"]["city"] == "Bern"
        assert seqs == list(range(1, len(seqs) + 1))

    def test_cuts_off_a_torn_last_line_and_says_so(self, tmp_path: Path) -> None:
        """A line that a kill tore was never acknowledged: it is cut off, and kept as text."""
        path = tmp_path / "ledger"
        with simulator_at(path) as simulator:
            contact = simulator.contact()
            simulator.patch(contact, "whole")
            simulator.kill()
        whole = len(read_ledger(path).rows)
        with path.open("ab") as ledger:
            ledger.write(b'{"seq":99,"kind":"change","contact":"')

        with simulator_at(path) as simulator:
            title = simulator.title(contact)
        ledger_after = read_ledger(path)

        assert title == "whole"
        [recovered] = ledger_after.of(Kind.RECOVERED)
        assert recovered.seq == whole + 1
        assert recovered.note is not None
        assert '"seq":99' in recovered.note

    def test_does_not_deal_a_spent_rule_again(self, tmp_path: Path) -> None:
        """What fired is counted from the file; what is left, and every count, goes on."""
        path, script = tmp_path / "ledger", tmp_path / "script.json"
        script.write_text(
            '[{"fault":"rate_limit_429","contact":"1","times":2},'
            ' {"fault":"reset_before_read","contact":"2","nth":1},'
            ' {"fault":"rate_limit_429","contact":"2","nth":3}]'
        )
        with simulator_at(path, "--script", script) as simulator:
            for contact in ("1", "2", "3"):
                simulator.admin("/contacts", {"id": contact})
            simulator.script(fault="rate_limit_429", contact="3", times=2)
            simulator.admin("/hold", {"hold": "h", "contact": "3", "nth": 3})
            simulator.admin("/release", {"hold": "h"})
            first = [simulator.patch(contact).end for contact in ("1", "2", "3")]
            simulator.kill()

        with simulator_at(path, "--script", script) as simulator:
            second = [simulator.patch(c).status for c in ("1", "1", "2", "2", "2", "3", "3")]

        assert first == ["closed", "reset", "closed"]
        assert second == [429, 200, 200, 429, 200, 429, 200]

    def test_leaves_no_request_of_an_earlier_run_in_flight(self, tmp_path: Path) -> None:
        """What the killed run never answered stays unanswered, but nobody waits for it now."""
        path = tmp_path / "ledger"
        with simulator_at(path) as simulator:
            contact = simulator.contact()
            simulator.script(fault="no_effect_hang", contact=contact)
            hanging = threading.Thread(target=simulator.patch, args=(contact,))
            hanging.start()
            until(lambda: simulator.ledger.read_and_unanswered(only_open=True))
            simulator.kill()
            hanging.join(timeout=10)

        with simulator_at(path):
            ledger = read_ledger(path)

        assert ledger.read_and_unanswered() == [(None, contact, False)]
        assert ledger.read_and_unanswered(only_open=True) == []


class TestDurability:
    async def test_every_row_is_synced_before_a_byte_goes_out(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """At each send, the change and what came before it are on disk (C586)."""
        path = tmp_path / "ledger"
        synced = b""
        seen_at_send: list[list[str]] = []
        real_fsync, real_send = os.fsync, Connection.send

        def fsync(descriptor: int) -> None:
            nonlocal synced
            real_fsync(descriptor)
            synced = path.read_bytes()

        async def send(connection: Connection, data: bytes) -> None:
            seen_at_send.append([row.kind.value for row in parse_ledger(synced).rows])
            await real_send(connection, data)

        monkeypatch.setattr(journal_module.os, "fsync", fsync)
        simulator = _simulator(path)
        simulator.open()
        await asyncio.to_thread(_make_contact, simulator)
        monkeypatch.setattr(Connection, "send", send)

        heard = await asyncio.to_thread(talk, simulator.port, patch_bytes("1"))
        await simulator.stop()

        assert heard.status == 200
        assert seen_at_send == [["started", "contact", "read", "change"]]

    async def test_a_row_that_cannot_be_synced_ends_it_without_an_answer(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A full disk must not turn into a change that nobody recorded and somebody heard of."""
        simulator = _simulator(tmp_path / "ledger")
        simulator.open()
        await asyncio.to_thread(_make_contact, simulator)

        def full(_: int) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(journal_module.os, "fsync", full)
        heard = await asyncio.to_thread(talk, simulator.port, patch_bytes("1"))

        assert heard.received == b""
        with pytest.raises(journal_module.JournalFailed, match="No space left"):
            await simulator.serve_until(asyncio.Event())
        await simulator.stop()


def _simulator(path: Path) -> Simulator:
    settings = Settings(host="127.0.0.1", port=0, admin_port=0, ledger=path, token=TOKEN)
    return Simulator(settings, *Journal.open(path))


def _make_contact(simulator: Simulator) -> None:
    body = b'{"id":"1"}'
    head = f"POST /contacts HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n"
    assert talk(simulator.admin_port, head.encode() + body).status == 201
