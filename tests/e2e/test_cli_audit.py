"""`oncefence audit`: exit 0 when the promise holds, 4 when it does not, and figures in a file."""

import json
from pathlib import Path

import asyncpg
import pytest

from oncefence.domain.effect import Outcome
from tests.support.command_line import Ended, run
from tests.support.servers import Database
from tests.support.world import Accepted, World


@pytest.fixture
async def world(database: Database) -> World:
    return await World.make(database, org="acme")


async def a_success(world: World, subject: str) -> Accepted:
    accepted, started = await world.a_running_command(subject)
    await world.settle(started, Outcome.ACCEPTED)
    return accepted


async def audited(world: World, *words: object) -> Ended:
    return await run("audit", *words, settings={"DATABASE_URL": world.database.app_url})


def ledger(path: Path, *commands: Accepted) -> Path:
    """A ledger in which each of `commands` changed something, in this order."""
    rows = [
        {"seq": n, "at": "2026-01-01T00:00:00Z", "kind": "change", "request": n}
        | dict.fromkeys(("method", "path", "contact", "attempt", "fault"))
        | {"properties": {}, "command": str(each.command)}
        for n, each in enumerate(commands, start=1)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


async def test_a_sound_store_passes(world: World, tmp_path: Path) -> None:
    """Every rule by its name, and the figures as integers (C464)."""
    await a_success(world, "lead-1")
    await world.a_command_for_a_person("lead-2")

    ended = await audited(world, "--json", tmp_path / "audit.json")

    assert (ended.code, ended.err) == (0, "")
    assert "one_open_attempt_per_command" in ended.out
    assert ended.out.endswith("no violations: the promise holds\n")
    figures = json.loads((tmp_path / "audit.json").read_text())
    assert (figures["violations"], figures["commands"], figures["accepted"]) == (0, 2, 2)
    assert figures["queues"]["needs_attention"] == 1
    assert [row["queue"] for row in figures["queue_rows"]] == ["needs_attention"]


async def test_a_broken_store_names_the_rows(world: World, tmp_path: Path) -> None:
    """Exit 4, the row that breaks the rule, and the file all the same."""
    accepted = await world.accept_command()
    connection = await asyncpg.connect(world.database.admin_url)
    try:
        await connection.execute("SET session_replication_role = replica")
        await connection.execute("UPDATE oncefence.work_items SET state = 'dead'")
    finally:
        await connection.close()

    ended = await audited(world, "--json", tmp_path / "audit.json")

    assert ended.code == 4
    assert (
        f"violation of never_silently_idle: org_id acme, command_id {accepted.command}" in ended.out
    )
    figures = json.loads((tmp_path / "audit.json").read_text())
    assert figures["violations"] == figures["invariants"]["never_silently_idle"] == 1
    (row,) = figures["violation_rows"]
    assert (row["invariant"], row["command_id"]) == ("never_silently_idle", str(accepted.command))


async def test_the_ledger_is_held_against_every_command(world: World, tmp_path: Path) -> None:
    """A duplicate is found in the provider's own file, whatever SQL believes (C585)."""
    first, second = await a_success(world, "lead-1"), await a_success(world, "lead-2")

    sound = await audited(world, "--ledger", ledger(tmp_path / "sound", first, second))
    twice = await audited(
        world,
        *("--ledger", ledger(tmp_path / "twice", first, second, first)),
        *("--json", tmp_path / "twice.json"),
    )
    missing = await audited(world, "--ledger", ledger(tmp_path / "missing", first))

    assert (sound.code, twice.code, missing.code) == (0, 4, 4)
    assert (
        f"violation of one_change_per_command: org_id acme, command_id {first.command}" in twice.out
    )
    assert f"violation of nothing_is_lost: org_id acme, command_id {second.command}" in missing.out
    figures = json.loads((tmp_path / "twice.json").read_text())
    assert {
        name: figures[name]
        for name in ("commands", "accepted", "provider_changes", "duplicates", "lost")
    } == {"commands": 2, "accepted": 2, "provider_changes": 3, "duplicates": 1, "lost": 0}
    assert figures["by_status"]["succeeded"] == 2
    assert figures["violations"] == 1


async def test_a_ledger_that_is_none_is_refused(world: World, tmp_path: Path) -> None:
    """A wrong file must not be taken for a provider at which nothing happened."""
    path = tmp_path / "text"
    path.write_text("no ledger\n")

    wrong = await audited(world, "--ledger", path)
    gone = await audited(world, "--ledger", tmp_path / "none")

    assert (wrong.code, gone.code) == (1, 1)
    assert "is not a ledger: line 1 of the ledger is not a row" in wrong.message
    assert "cannot be read (No such file or directory)" in gone.message


async def test_figures_that_cannot_be_written_are_told(world: World, tmp_path: Path) -> None:
    """Whoever reads the file must not read that of yesterday."""
    ended = await audited(world, "--json", tmp_path / "none" / "audit.json")

    assert ended.code == 1
    assert "cannot be written" in ended.message
