"""`oncefence up`: everything on loopback, its data kept, and a clean stop."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.program import Running, in_shell, processes_of, running, wait_until
from tests.support.servers import own_folder

READY = "Ctrl-C stops everything."
LINE = {
    "outbox_id": "up-1",
    "operation": "lead.title.push",
    "subject": "lead:1001",
    "payload": {"title": "Leiterin Einkauf"},
}


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    with own_folder() as folder:
        (folder / "one.jsonl").write_text(json.dumps(LINE) + "\n", encoding="utf-8")
        yield folder


@pytest.fixture(scope="module")
def up(place: Path) -> Iterator[Running]:
    """Started once, and stopped by the test of that."""
    with running(place, "up", "--data", place / "data") as program:
        program.wait_for(READY)
        yield program


def ledger(place: Path) -> list[dict[str, object]]:
    lines = (place / "data" / "simulator" / "ledger.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in lines.splitlines()]


def changes(place: Path) -> list[object]:
    return [row["properties"] for row in ledger(place) if row["kind"] == "change"]


class TestUp:
    def test_takes_a_command_to_the_provider_exactly_once(self, up: Running, place: Path) -> None:
        """A newcomer sees one command become one change, by the lines that the screen says."""
        settings = place / "data" / "env.sh"

        first = in_shell(settings, "submit", place / "one.jsonl", "--json")
        again = in_shell(settings, "submit", place / "one.jsonl", "--json")
        wait_until(lambda: bool(changes(place)))
        command = json.loads(first.stdout)["receipts"][0]["command_id"]
        wait_until(lambda: '"succeeded"' in in_shell(settings, "show", command, "--json").stdout)

        assert (first.returncode, again.returncode) == (0, 0), first.stderr + again.stderr
        assert json.loads(again.stdout)["accepted_before"] == 1
        assert changes(place) == [{"jobtitle": "Leiterin Einkauf"}]

    def test_has_an_operator_who_may_do_everything(self, up: Running, place: Path) -> None:
        """Every verb of an operator works in the shell that the screen shows (C407)."""
        settings = place / "data" / "env.sh"

        listed = in_shell(settings, "operator", "list", "--json")
        acts = in_shell(settings, "audit", "list", "--org", "*", "--json")

        (only,) = json.loads(listed.stdout)["operators"]
        assert only["orgs"] == ["*"]
        assert only["roles"] == ["administrator", "operator", "repairer", "viewer"]
        assert json.loads(acts.stdout)["rows"][-1]["subject_id"].startswith(only["name"])
        token = json.loads((place / "data" / "operator.json").read_text())["token"]
        assert token not in up.said
        assert oct((place / "data" / "operator.json").stat().st_mode)[-3:] == "600"

    def test_says_where_everything_is_without_a_password(self, up: Running, place: Path) -> None:
        """One screen is enough to look at every part, and may be shown to anybody."""
        said = up.said

        passwords = json.loads((place / "data" / "postgres" / "server.json").read_text())
        for what in ("temporal page", "doors", "provider", "provider admin", "postgresql", "data"):
            assert what in said
        assert "oncefence_app@127.0.0.1" in said
        assert not any(str(passwords[role]) in said for role in ("admin", "migrator", "app"))

    def test_on_a_folder_in_use_is_refused_at_once(self, up: Running, place: Path) -> None:
        """Two stacks on one folder would end each other's servers."""
        with running(place, "up", "--data", place / "data") as second:
            code = second.process.wait(30)

        assert code == 1
        assert "is in use by another" in second.said
        assert up.process.poll() is None

    def test_stops_cleanly_and_goes_on_with_its_data(self, up: Running, place: Path) -> None:
        """Ctrl-C ends every process, and the next start knows what the last one did."""
        code = up.interrupt()
        left = processes_of(place)
        with running(place, "up", "--data", place / "data") as second:
            second.wait_for(READY)
            repeated = in_shell(place / "data" / "env.sh", "submit", place / "one.jsonl", "--json")
            stopped = second.interrupt(signal.SIGTERM)

        assert (code, left) == (0, [])
        assert json.loads(repeated.stdout)["accepted_before"] == 1
        assert len(changes(place)) == 1
        assert stopped == 0
        assert processes_of(place) == []

    def test_tells_when_a_process_has_ended_by_itself(self, place: Path) -> None:
        """A stack with a part missing must not look as if it ran."""
        with running(place, "up", "--data", place / "data") as third:
            third.wait_for(READY)
            worker = next(
                child
                for child in psutil.Process(third.process.pid).children()
                if child.cmdline()[-1] == "worker"
            )

            worker.kill()

            assert third.process.wait(60) == 1
        assert "the worker ended with code -9" in third.said
        assert processes_of(place) == []
