"""What the program says when it cannot do what it was asked: one line, no traceback, no secret."""

import asyncio
import socket
import sys
from pathlib import Path

import pytest

from oncefence.app.cli.program import program
from oncefence.storage.sealing import KeyRing
from tests.support.command_line import run
from tests.support.servers import Database

PASSWORD = "correct-horse-battery"


def verbs() -> list[str]:
    """The name of every verb."""
    whole = program(())
    return [str(each.name) for each in (*whole.registered_commands, *whole.registered_groups)]


def closed_port() -> int:
    """A port on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["bogus"], "No such command 'bogus'. See `oncefence --help`"),
        (["submit", "f", "--bogus"], "No such option: --bogus. See `oncefence submit --help`"),
        (
            ["runtime", "register", "--installation", "crm", "--capability", "outbox"],
            "Missing option '--org'. See `oncefence runtime register --help`",
        ),
        (
            ["catalog", "publish", "f", "--org", "Acme", "--installation", "crm"],
            (
                "Invalid value for '--org': use 1 to 63 of a-z, 0-9, _ and -, beginning with a"
                " letter or a digit. See `oncefence catalog publish --help`"
            ),
        ),
    ],
)
async def test_a_wrong_command_line_is_told_in_one_line(words: list[str], message: str) -> None:
    """Usage errors have their own exit code, and lead to the help (C12)."""
    ended = await run(*words)

    assert (ended.code, ended.message, ended.out) == (2, message, "")


async def test_without_a_verb_the_verbs_are_listed() -> None:
    """The first thing that anybody types is the bare name."""
    ended = await run()

    assert ended.code == 2
    for verb in ("migrate", "worker", "serve", "submit", "show", "audit", "doctor", "catalog"):
        assert f"  {verb} " in ended.err


@pytest.mark.parametrize("verb", verbs())
async def test_a_verb_loads_alone(verb: str) -> None:
    """It is loaded when it is asked for, and must not live on what another one has read."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "oncefence.app.cli", verb, "--help"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(60):
        out, err = await process.communicate()

    assert (process.returncode, err) == (0, b"")
    assert f"oncefence {verb}" in out.decode()


@pytest.mark.parametrize(
    ("words", "setting"),
    [
        (["migrate"], "ONCEFENCE_MIGRATOR_URL"),
        (["audit"], "ONCEFENCE_DATABASE_URL"),
        (["submit", "f"], "ONCEFENCE_URL"),
        (["worker"], "ONCEFENCE_KEY_FILE"),
    ],
)
async def test_a_missing_setting_is_named(words: list[str], setting: str) -> None:
    """One line that says which setting is missing and what to set it to (C584)."""
    ended = await run(*words)

    assert ended.code == 1
    assert ended.message.startswith(f"{setting}: this is not set. ")


async def test_a_misspelt_setting_is_told() -> None:
    """A setting that nobody reads would be believed to hold."""
    ended = await run("audit", settings={"DATABASE_ULR": "x"})

    assert ended.code == 1
    assert "Did you mean ONCEFENCE_DATABASE_URL?" in ended.message


@pytest.mark.parametrize(
    ("words", "setting"), [(["audit"], "DATABASE_URL"), (["migrate"], "MIGRATOR_URL")]
)
async def test_no_database_is_one_message(words: list[str], setting: str) -> None:
    """The commonest fault of all, told without the password that stands in the URL (C584)."""
    url = f"postgresql://oncefence_app:{PASSWORD}@127.0.0.1:{closed_port()}/oncefence"

    ended = await run(*words, settings={setting: url})

    assert ended.code == 1
    assert ended.message.startswith(f"ONCEFENCE_{setting}: no PostgreSQL answers there")
    assert PASSWORD not in ended.err


@pytest.mark.parametrize("setting", ["DATABASE_URL", "MIGRATOR_URL"])
async def test_a_wrong_password_is_one_message(database: Database, setting: str) -> None:
    """The server's own words would name the user; ours say what to check (C584)."""
    url = database.app_url.replace(":" + database.app_url.split(":")[2].split("@")[0], ":wrong")

    ended = await run("audit" if setting == "DATABASE_URL" else "migrate", settings={setting: url})

    assert ended.code == 1
    assert ended.message.startswith(f"ONCEFENCE_{setting}: PostgreSQL refuses this user, password")


async def test_no_migration_is_one_message(database: Database) -> None:
    """Tables of another version are refused before anything is read (C584)."""
    async with database.migrator_engine.begin() as connection:
        await connection.exec_driver_sql("SET LOCAL ROLE oncefence_owner")
        await connection.exec_driver_sql("UPDATE oncefence.alembic_version SET version_num = '0'")

    ended = await run("show", "x", settings={"DATABASE_URL": database.app_url})

    assert ended.code == 1
    assert ended.message.endswith("Run `oncefence migrate` with ONCEFENCE_MIGRATOR_URL set")


async def test_the_owner_may_not_run_verbs(database: Database) -> None:
    """A process that could switch the guards off proves nothing (C186)."""
    ended = await run("audit", settings={"DATABASE_URL": database.migrator_url})

    assert ended.code == 1
    assert "Use the role oncefence_app" in ended.message


async def test_no_temporal_is_one_message(database: Database, tmp_path: Path) -> None:
    """A worker without Temporal does not start, and says so (C584)."""
    keys = tmp_path / "keys.json"
    KeyRing.make_file(keys)

    ended = await run(
        "worker",
        settings={
            "DATABASE_URL": database.app_url,
            "KEY_FILE": keys,
            "TEMPORAL_ADDRESS": f"127.0.0.1:{closed_port()}",
        },
    )

    assert ended.code == 1
    assert ended.message.startswith("ONCEFENCE_TEMPORAL_ADDRESS: no Temporal answers at 127.0.0.1")


async def test_no_door_is_one_message(tmp_path: Path) -> None:
    """The address is wrong for every line, so it is told once and not once a line."""
    path = tmp_path / "handoffs.jsonl"
    path.write_text("bad\n" * 5)

    ended = await run(
        "submit",
        path,
        settings={"URL": f"http://127.0.0.1:{closed_port()}", "CREDENTIAL": PASSWORD},
    )

    assert ended.code == 1
    assert "no door was reached (ConnectError at http://127.0.0.1" in ended.message
    assert PASSWORD not in ended.err


async def test_a_scaled_clock_is_always_said(database: Database) -> None:
    """Figures of a shortened run must not be taken for those of a real one (C208)."""
    ended = await run("audit", settings={"DATABASE_URL": database.app_url, "TIME_SCALE": 0.01})

    assert ended.code == 0
    assert ended.message == "time runs at scale 0.01 (ONCEFENCE_TIME_SCALE)"


async def test_output_that_nobody_reads_is_no_fault(database: Database) -> None:
    """`oncefence audit | head -1` must not end in a traceback."""
    process = await asyncio.create_subprocess_exec(
        *("/bin/sh", "-c", '"$0" -m oncefence.app.cli audit | true', sys.executable),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={"ONCEFENCE_DATABASE_URL": database.app_url, "PATH": "/usr/bin:/bin"},
    )
    async with asyncio.timeout(60):
        _, err = await process.communicate()

    assert err == b""
