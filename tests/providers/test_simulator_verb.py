"""`oncefence simulator` says how to reach it, what comes, and what its ledger says afterwards."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from oncefence.app.cli.program import main
from oncefence.simulator.faults import FAULTS
from oncefence.simulator.ledger import read_ledger
from oncefence.simulator.view import ledger_view
from tests.providers.simulated import environment
from tests.providers.speaking import BOOKS


@contextmanager
def running(*arguments: str | Path) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(
        [sys.executable, "-m", "oncefence.app.cli", "simulator", *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
        env=environment() | {"PYTHONPATH": ""},
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=10) == 0


def line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().rstrip("\n")


def document(process: "subprocess.Popen[str]") -> dict[str, object]:
    """The JSON that ends with a brace in the first column."""
    lines = []
    while not lines or lines[-1] != "}":
        lines.append(line(process))
    told: dict[str, object] = json.loads("\n".join(lines))
    return told


class TestRunning:
    def test_says_where_it_is_and_then_what_comes(self, tmp_path: Path) -> None:
        """All that is needed for a first request, and a line for each that comes."""
        ledger = tmp_path / "ledger.jsonl"
        options = ("--pack", "hubspot", "--fault", "duplicate_apply", "--ledger", ledger)
        with running(*options) as process:
            told = [line(process) for _ in range(6)]
            url = told[0].rpartition(" ")[2]
            token, record = told[1].split()[1], told[2].split()[1].rstrip(",")
            target = f"/crm/v3/objects/contacts/{record}"
            answer = httpx.patch(
                f"{url}{target}",
                json={"properties": {"jobtitle": "CTO"}},
                headers={"Authorization": f"Bearer {token}"},
            )

            assert told[0].startswith("HubSpot, simulated, listens at http://127.0.0.1:")
            assert answer.status_code == 200
            assert line(process) == f"PATCH {target} -> 200, 2 changes  [duplicate_apply]"
        view = ledger_view(read_ledger(ledger))
        assert re.search(rf"^{record} +2 changes +0 +jobtitle='CTO'$", view, re.MULTILINE)
        assert re.search(r"^duplicate_apply +1$", view, re.MULTILINE)

    @pytest.mark.parametrize("pack", ["outreach", BOOKS])
    def test_says_it_for_machines_as_well(self, pack: str | Path, tmp_path: Path) -> None:
        """One document; the records are there and the admin surface answers."""
        options = ("--pack", pack, "--json", "--records", "2", "--ledger", tmp_path / "l")
        with running(*options) as process:
            told = document(process)
            state = httpx.get(f"{told['admin_url']}/state").json()

            assert told.keys() == {"pack", "url", "token", "admin_url", "ledger", "records"}
            assert [contact["id"] for contact in state["contacts"]] == told["records"]
            assert len(state["contacts"]) == 2

    def test_goes_on_where_its_ledger_ends(self, tmp_path: Path) -> None:
        """Records that are there are not made again."""
        seen = []
        for _ in range(2):
            options = ("--pack", "stripe", "--json", "--ledger", tmp_path / "l")
            with running(*options) as process:
                seen.append(document(process)["records"])

        assert seen[0] == seen[1]


class TestTelling:
    def test_lists_the_faults_that_a_pack_can_show(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Without a pack all of them; with one, those that can strike there."""
        assert main(["simulator", "--list-faults", "--json"]) == 0
        everything = json.loads(capsys.readouterr().out)
        assert main(["simulator", "--list-faults", "--pack", "hubspot"]) == 0
        some = [text.split()[0] for text in capsys.readouterr().out.splitlines()]

        assert list(everything) == list(FAULTS)
        assert set(FAULTS) - set(some) == {"key_expiry"}

    def test_shows_a_ledger(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """Whether it is running or not; text of a record cannot forge a line."""
        path = tmp_path / "l"
        row = {
            "seq": 1,
            "at": "2026-01-01T00:00:00.000Z",
            "kind": "change",
            "contact": "7\n8",
            "properties": {"title": "\x1b[2J"},
        }
        path.write_text(json.dumps(row) + "\n")

        assert main(["simulator", "--view", str(path)]) == 0

        told = capsys.readouterr().out
        assert "7\\n8" in told
        assert "\x1b" not in told

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ([], "--pack NAME, or --pack FILE.toml"),
            (["--pack", "nope"], "there are hubspot, outreach, stripe, or a file NAME.toml"),
            (["--pack", "/no/such.toml"], "/no/such.toml cannot be read"),
            (["--pack", "stripe", "--fault", "nope"], "no fault 'nope'; there are refuse, "),
            (["--pack", "stripe", "--fault", "quota_spent"], "Stripe has nothing for it"),
            (["--pack", "stripe", "--script", "/no/such"], "cannot be read"),
            (["--pack", "stripe", "--token", " "], "--token must be"),
            (["--pack", "stripe", "--ledger", "/no/such/l"], "name a file in a folder that exists"),
            (["--view", "/no/such"], "/no/such cannot be read"),
        ],
    )
    def test_says_what_is_wrong_in_one_line(
        self, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Exit code 2, the known names where a name is wrong, and no traceback (C12)."""
        assert main(["simulator", *arguments]) == 2

        told = capsys.readouterr()
        assert told.out == ""
        assert told.err.count("\n") == 1
        assert message in told.err
