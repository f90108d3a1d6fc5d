"""The command line says where it listens, refuses bad input in one line, and ends when told."""

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Protocol

import pytest

from oncefence.simulator.cli import main
from oncefence.simulator.faults import FAULTS
from oncefence.simulator.server import Settings, Simulator
from tests.providers.simulated import TOKEN, command_line, environment, simulator_at


class Refused(Protocol):
    """Starts with these arguments and gives what the refusal says."""

    def __call__(self, *arguments: str | Path) -> str: ...


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Refused:
    async def serve_until(*_: object) -> None:
        pytest.fail("it started")

    monkeypatch.setattr(Simulator, "serve_until", serve_until)

    def start(*arguments: str | Path) -> str:
        assert main([str(argument) for argument in arguments]) == 2
        told = capsys.readouterr()
        assert told.out == ""
        assert told.err.count("\n") == 1
        return told.err

    return start


def test_a_refused_start_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    """The process says what the function says: nothing else is printed, no traceback."""
    done = subprocess.run(
        command_line("--ledger", tmp_path / "no" / "ledger", "--token", "t"),
        capture_output=True,
        text=True,
        env=environment(),
        timeout=20,
        check=False,
    )

    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("oncefence.simulator: ledger ")


class TestArguments:
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["--token", "t"], "--ledger"),
            (["--ledger", "l"], "--token"),
            (["--ledger", "l", "--token", " "], "--token must be"),
            (["--ledger", "l", "--token", "t", "--port", "70000"], "a port is 0 to 65535"),
            (["--ledger", "l", "--token", "t", "--port", "x"], "invalid"),
            (["--ledger", "l", "--token", "t", "--seed", "1"], "go together"),
            (["--ledger", "l", "--token", "t", "--fault-rate", "1"], "go together"),
            (["--ledger", "l", "--token", "t", "--seed", "1", "--fault-rate", "2"], "between 0"),
            (["--ledger", "l", "--token", "t", "--seed", "1", "--fault-rate", "nan"], "between 0"),
            (["--ledger", "/no/such/l", "--token", "t"], "name a file in a folder that exists"),
            (["--ledger", "l", "--token", "t", "--script", "/no/such"], "cannot be read"),
            (["--ledger", "l", "--token", "t", "--what"], "--what"),
            (["--ledger", "l", "--token", "t", "--pack", "nope"], "hubspot, outreach, stripe"),
            (["--ledger", "l", "--token", "t", "--pack", "/no/such.toml"], "cannot be read"),
            (["--ledger", "l", "--token", "t", "--fault", "nope"], "there are refuse, "),
            (["--ledger", "l", "--token", "t", "--fault", "key_expiry"], "HubSpot has nothing"),
            (["--ledger", "l", "--token", "t", "--index-lag", "-1"], "0 to 3600"),
        ],
    )
    def test_that_are_wrong_get_one_line(
        self,
        arguments: list[str],
        message: str,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        refused: Refused,
    ) -> None:
        """Exit code 2 and a sentence, never a traceback."""
        monkeypatch.chdir(tmp_path)

        assert message in refused(*arguments)

    def test_of_unknown_seeded_faults_list_the_known(
        self, tmp_path: Path, refused: Refused
    ) -> None:
        """A seed deals by contact, so it cannot deal what strikes the port."""
        seed = ("--seed", "1", "--fault-rate", "1", "--seed-faults", "refuse")

        told = refused("--ledger", tmp_path / "l", "--token", "t", *seed)

        assert "cannot deal 'refuse'" in told
        assert "lost_answer" in told

    def test_of_a_port_that_is_taken(self, tmp_path: Path, refused: Refused) -> None:
        """The message names the address and the way out."""
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = str(taken.getsockname()[1])

            told = refused("--ledger", tmp_path / "l", "--token", "t", "--port", port)

        assert f"127.0.0.1:{port}" in told
        assert "choose others" in told

    def test_of_a_ledger_that_another_simulator_writes(
        self, tmp_path: Path, refused: Refused
    ) -> None:
        """Two writers would make one ledger that is true of neither."""
        with simulator_at(tmp_path / "ledger"):
            assert "held by another" in refused("--ledger", tmp_path / "ledger", "--token", "t")

    def test_of_a_file_that_is_no_ledger(self, tmp_path: Path, refused: Refused) -> None:
        """A file of something else is refused and left as it was."""
        path = tmp_path / "notes"
        path.write_text("dear diary\n")

        assert "line 1 of the ledger" in refused("--ledger", path, "--token", "t")
        assert path.read_text() == "dear diary\n"

    def test_of_a_ledger_of_another_provider(self, tmp_path: Path, refused: Refused) -> None:
        """Its records are none of this one's."""
        with simulator_at(tmp_path / "ledger", "--pack", "stripe"):
            pass

        told = refused("--ledger", tmp_path / "ledger", "--token", "t")

        assert "is of a simulated stripe; name another file" in told


class TestScripts:
    @pytest.mark.parametrize(
        ("script", "message"),
        [
            ("[{]", "JSON"),
            ('{"fault":"drip"}', "list"),
            ('[{"fault":"drip"},{"fault":"dripp"}]', "rule 2: fault: "),
            ('[{"fault":"drip","contactt":"1"}]', "rule 1: contactt: "),
            ('[{"fault":"drip","contact":1}]', "rule 1: contact: "),
            ('[{"fault":"drip","nth":0}]', "rule 1: nth: "),
            ('[{"fault":"drip","times":true}]', "rule 1: times: "),
            ('[{"fault":"drip","method":"PUT"}]', "rule 1: method: "),
            ('[{"fault":"drip","delay_s":NaN}]', "rule 1: delay_s: "),
            ('[{"contact":"1"}]', "name a fault, a hold, or both"),
            ('[{"fault":"drip","status":500}]', "status goes only with"),
            ('[{"fault":"lost_answer","delay_s":1}]', "delay_s goes only with"),
            ('[{"fault":"reject_400","status":500}]', "400 to 499"),
            ('[{"fault":"server_error_before_commit","status":404}]', "500 to 599"),
            ('[{"fault":"rate_limit_429","retry_after":"1\\r\\nX: y"}]', "rule 1: retry_after"),
            ('[{"fault":"refuse","contact":"1"}]', "refuse cannot be matched by contact"),
            ('[{"fault":"refuse","refuse_for_s":1,"times":2}]', "leave times out"),
            ('[{"fault":"overwritten","method":"GET"}]', "only with method PATCH"),
            ('[{"fault":"reset_before_read","hold":"h"}]', "cannot be held"),
            ('[{"fault":"no_effect_hang","hold":"h","hold_at":"commit"}]', "to hold after"),
            ('[{"fault":"dripp"}]', "there are refuse, "),
            ('[{"fault":"index_lag","contact":"1"}]', "strikes searches and lists"),
            ('[{"fault":"drip","operation":"delete"}]', "rule 1: operation: "),
            ('[{"fault":"drip","location":"x"}]', "location goes only with"),
            ('[{"fault":"redirect_301","location":"x\\r\\ny"}]', "rule 1: location"),
            ('[{"fault":"capped_search","cap":-1}]', "rule 1: cap"),
            ('[{"fault":"key_expiry","hold":"h"}]', "before a request can be held"),
        ],
    )
    def test_that_are_wrong_name_the_rule_and_the_key(
        self, script: str, message: str, tmp_path: Path, refused: Refused
    ) -> None:
        """A fault that would silently never fire is worse than none: it is refused at the start."""
        path = tmp_path / "script.json"
        path.write_text(script)

        told = refused("--ledger", tmp_path / "l", "--token", "t", "--script", path)

        assert f"script {path}: " in told
        assert message in told

    def test_arm_a_closed_port_from_the_start(self, tmp_path: Path) -> None:
        """A refusal that waits for nothing is there before the first connection."""
        path = tmp_path / "script.json"
        path.write_text('[{"fault":"refuse","times":1}]')

        with simulator_at(tmp_path / "ledger", "--script", path) as simulator:
            contact = simulator.contact()
            assert [simulator.patch(contact).end for _ in range(2)] == ["reset", "closed"]

    def test_of_a_fault_that_cannot_show_are_refused(
        self, tmp_path: Path, refused: Refused
    ) -> None:
        """Where a provider knows no keys, none can be forgotten."""
        path = tmp_path / "script.json"
        path.write_text('[{"fault":"key_expiry"}]')

        told = refused("--ledger", tmp_path / "l", "--token", "t", "--script", path)

        assert "key_expiry cannot strike here: HubSpot has nothing for it" in told


class TestFaultsByName:
    def test_strike_every_write_in_turn(self, tmp_path: Path) -> None:
        """Each record meets them in the order of the command line, again and again."""
        faults = ("--fault", "rate_limit_429", "--fault", "redirect_307", "--fault", "refuse")
        with simulator_at(tmp_path / "ledger", *faults) as simulator:
            one, two = simulator.contact(), simulator.contact()
            assert simulator.patch(one).end == "reset"

            statuses = [simulator.patch(contact).status for contact in (one, one, two, one)]

            assert statuses == [429, 307, 429, 429]
            assert simulator.get(one).status == 200

    def test_are_listed_with_what_they_do(self, capsys: pytest.CaptureFixture[str]) -> None:
        """One line each; nothing else is needed for that."""
        assert main(["--list-faults"]) == 0

        lines = capsys.readouterr().out.splitlines()
        assert [line.split()[0] for line in lines] == list(FAULTS)

    def test_and_a_seed_exclude_each_other(self, tmp_path: Path, refused: Refused) -> None:
        """Two ways to say who is struck would each make the other's figures wrong."""
        seed = ("--seed", "1", "--fault-rate", "1", "--fault", "drip")

        assert "exclude each other" in refused("--ledger", tmp_path / "l", "--token", "t", *seed)


class TestProcess:
    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    def test_ends_cleanly_when_told(self, number: signal.Signals, tmp_path: Path) -> None:
        """Exit code 0 although a request hangs, and the port is free."""
        with simulator_at(tmp_path / "ledger") as simulator:
            contact = simulator.contact()
            simulator.script(fault="no_effect_hang", contact=contact)
            assert simulator.patch(contact, patience_s=0.1).end == "silence"
            with socket.create_connection(("127.0.0.1", simulator.port)):
                simulator.process.send_signal(number)
                assert simulator.process.wait(timeout=10) == 0

        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", simulator.port))

    def test_says_where_it_listens(self, tmp_path: Path) -> None:
        """The ready file holds the line of stdout, whole from the moment it exists."""
        ready = tmp_path / "ready"
        with simulator_at(tmp_path / "ledger", "--ready-file", ready) as simulator:
            told = json.loads(ready.read_text())

        assert told == {
            "host": "127.0.0.1",
            "port": simulator.port,
            "admin_port": simulator.admin_port,
        }
        assert list(tmp_path.glob("ready.*")) == []


def test_it_shares_no_code_with_what_it_judges() -> None:
    """The whole simulator is imported and nothing of the project besides (C32)."""
    script = (
        "import sys, pkgutil, importlib, oncefence.simulator as s\n"
        "prefix = s.__name__ + '.'\n"
        "names = [m.name for m in pkgutil.walk_packages(s.__path__, prefix)]\n"
        "names = [name for name in names if not name.endswith('__main__')]\n"
        "assert prefix + 'dialects.from_pack' in names, names\n"
        "for name in names: importlib.import_module(name)\n"
        "print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env=environment(),
        check=True,
        timeout=20,
    )
    loaded = done.stdout.split()

    ours = {name for name in loaded if name.startswith("oncefence.")}
    assert {name for name in ours if not name.startswith("oncefence.simulator")} == set()
    assert not {"temporalio", "sqlalchemy", "httpx", "asyncpg"} & set(loaded)


def test_the_reader_of_the_ledger_stands_alone() -> None:
    """Whoever only reads a ledger loads no server, no parser of HTTP and no validation."""
    script = "import sys, oncefence.simulator.ledger; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env=environment(),
        check=True,
        timeout=20,
    )

    assert not {"h11", "pydantic", "asyncio"} & set(done.stdout.split())


def test_the_token_stays_out_of_every_repr(tmp_path: Path) -> None:
    """Settings may be logged by whoever holds them."""
    settings = Settings(host="h", port=0, admin_port=0, ledger=tmp_path / "l", token=TOKEN)

    assert TOKEN not in repr(settings)
