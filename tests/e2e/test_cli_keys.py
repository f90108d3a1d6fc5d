"""`oncefence keys`: the ring exchanged under what is sealed, by hand, and killed half way."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import pytest

from oncefence.storage.key_file import read_keys
from oncefence.storage.phases.check_keys import check_keys
from oncefence.storage.sealing import KeyRing
from tests.support.command_line import run
from tests.support.sealed import contents, stocked
from tests.support.servers import Database
from tests.support.world import World

MANY_ORGS = 6_000


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    KeyRing.make_file(tmp_path / "keys.json")
    return tmp_path / "keys.json"


@pytest.fixture
def settings(database: Database, keys: Path) -> dict[str, object]:
    return {"DATABASE_URL": database.app_url, "KEY_FILE": keys}


@pytest.fixture
async def world(database: Database, keys: Path) -> World:
    return await stocked(database, KeyRing.load(keys))


def only_current(keys: Path, folder: Path) -> Path:
    """A key file with the current key of `keys` alone."""
    ring = read_keys(keys)
    current = next(iter(ring))
    path = folder / "current.json"
    path.write_text(json.dumps({"keys": {current: ring[current].hex()}}), encoding="utf-8")
    return path


class TestRotate:
    async def test_puts_everything_under_a_new_key(
        self, world: World, settings: dict[str, object], keys: Path, tmp_path: Path
    ) -> None:
        """One command; afterwards the new key alone opens all there is (C297)."""
        (old,) = read_keys(keys)
        expected = await contents(world.engine, KeyRing.load(keys))

        ended = await run("keys", "rotate", "--new-key", "--json", settings=settings)

        assert ended.code == 0, ended.err
        new = ended.document["after"]["current"]
        assert list(read_keys(keys)) == [new, old]
        assert ended.document["before"]["keys"][1] == {
            "key_id": old,
            "is_current": False,
            "is_in_ring": True,
            "data_keys": 8,
            "by_table": ended.document["rewrapped"],
        }
        assert ended.document["after"]["under_other_keys"] == 0
        assert await contents(world.engine, KeyRing.load(only_current(keys, tmp_path))) == expected
        assert f"key {new} was made; keep a copy of {keys} safe" in ended.err
        assert "8 are under another key" not in ended.err

    async def test_goes_on_where_it_was_killed(
        self, world: World, settings: dict[str, object], keys: Path, tmp_path: Path
    ) -> None:
        """SIGKILL in the middle leaves two keys in use, and everything opens (C297)."""
        ring = KeyRing.load(keys)
        rows = [(f"many-{n}", *ring.new_key("org", f"many-{n}")[1:]) for n in range(MANY_ORGS)]
        for number in range(0, MANY_ORGS, 500):
            await world.sql(
                "INSERT INTO oncefence.org_keys (org_id, wrapped_key, key_id)"
                " SELECT * FROM unnest(CAST(:orgs AS text[]), CAST(:wrapped AS bytea[]),"
                " CAST(:ids AS text[]))",
                **{
                    name: [row[at] for row in rows[number : number + 500]]
                    for at, name in enumerate(("orgs", "wrapped", "ids"))
                },
            )
        expected = await contents(world.engine, ring)

        await killed_after(1, settings)

        half = await run("keys", "status", "--json", settings=settings)
        counts = [each["data_keys"] for each in half.document["keys"]]
        assert len(counts) == 2
        assert min(counts) >= 500
        assert sum(counts) == MANY_ORGS + 8
        assert await contents(world.engine, KeyRing.load(keys)) == expected
        await check_keys(world.engine, KeyRing.load(keys))

        rest = await run("keys", "rotate", "--json", settings=settings)

        assert rest.code == 0, rest.err
        assert len(read_keys(keys)) == 2
        assert sum(rest.document["rewrapped"].values()) == counts[1]
        assert await contents(world.engine, KeyRing.load(only_current(keys, tmp_path))) == expected

    async def test_to_a_key_that_every_host_has_already(
        self, world: World, settings: dict[str, object], keys: Path
    ) -> None:
        """With several hosts the new key is given to all before anything is under it."""
        added = await run("keys", "add", settings=settings)
        key_id = added.out.strip()
        elsewhere = KeyRing(read_keys(keys))

        before = await run("keys", "status", "--json", settings=settings)
        ended = await run("keys", "rotate", "--to", key_id, "--json", settings=settings)

        assert before.document["under_other_keys"] == 0
        assert (ended.code, ended.document["after"]["current"]) == (0, key_id)
        await check_keys(world.engine, elsewhere)

    async def test_says_what_is_left_and_why(
        self, world: World, settings: dict[str, object]
    ) -> None:
        """What waits is no failure that a repeat mends at once; the exit code says not done."""
        await world.sql(
            "UPDATE oncefence.authorization_grants SET state = 'refresh_unknown'"
            " WHERE org_id = :org"
        )

        ended = await run("keys", "rotate", "--new-key", settings=settings)
        again = await run("keys", "rotate", "--json", settings=settings)

        assert (ended.code, again.code) == (1, 1)
        assert "1 are under another key; run `oncefence keys rotate`" in ended.out
        assert "1 of them wait: a renewal of a token is open or lost its answer" in ended.err
        assert again.document["rewrapped"] == {}
        assert again.document["after"]["waiting"] == 1

    async def test_with_a_ring_that_lacks_a_key_changes_nothing(
        self, world: World, settings: dict[str, object], tmp_path: Path
    ) -> None:
        """Not the database, and not the file either."""
        other = tmp_path / "other.json"
        KeyRing.make_file(other)
        before = other.read_bytes()

        refused = await run("keys", "rotate", "--new-key", settings=settings | {"KEY_FILE": other})

        assert refused.code == 1
        assert "with which stored data is sealed" in refused.message
        assert other.read_bytes() == before

    async def test_takes_one_way_to_a_key(self, settings: dict[str, object]) -> None:
        """Two wishes at once are none."""
        refused = await run("keys", "rotate", "--new-key", "--to", "x", settings=settings)

        assert refused.code == 2
        assert "give either --new-key or --to" in refused.message


class TestStatus:
    async def test_shows_which_key_is_used_where(
        self, world: World, settings: dict[str, object], keys: Path
    ) -> None:
        """By table and key, and whether the file has it."""
        (only,) = read_keys(keys)

        shown = await run("keys", "status", settings=settings)

        assert shown.code == 0
        assert "everything is under the current key" in shown.out
        (line,) = [line for line in shown.out.splitlines() if only in line]
        assert line.replace("│", " ").split() == [only, "current", "1", "2", "1", "1", "3"]

    async def test_shows_a_key_that_is_missing(
        self, world: World, settings: dict[str, object], tmp_path: Path
    ) -> None:
        """With the wrong file it is the verb that tells, so it does not refuse."""
        other = tmp_path / "other.json"
        KeyRing.make_file(other)

        shown = await run("keys", "status", settings=settings | {"KEY_FILE": other})

        assert shown.code == 0
        assert "MISSING in the key file" in shown.out
        assert "8 are under another key" in shown.out


class TestAProcess:
    @pytest.mark.parametrize("verb", ["worker", "serve", "runtime", "doctor"])
    async def test_does_not_start_without_a_key_that_is_in_use(
        self, world: World, settings: dict[str, object], tmp_path: Path, verb: str
    ) -> None:
        """One message names the key and says what to do (C297)."""
        other = tmp_path / "other.json"
        KeyRing.make_file(other)
        scope = ("--org", "x", "--installation", "crm", "--capability", "leads")
        words = {"runtime": ("runtime", "register", *scope), "doctor": ("doctor", "--json")}

        refused = await run(
            *words.get(verb, (verb,)),
            settings=settings | {"KEY_FILE": other, "TEMPORAL_ADDRESS": "127.0.0.1:1"},
        )

        assert refused.code == 1
        said = refused.out if verb == "doctor" else refused.message
        assert "with which stored data is sealed" in said
        assert next(iter(world.ring.key_ids)) in said


async def killed_after(steps: int, settings: dict[str, object]) -> None:
    """A rotation to a new key that is killed when it has told of so many steps."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ONCEFENCE_")}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "oncefence.app.cli", "keys", "rotate", "--new-key"),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env=kept | {f"ONCEFENCE_{name}": str(value) for name, value in settings.items()},
        cwd=Path(__file__).parents[2],
    )
    assert process.stderr is not None, "it is a pipe"
    told = 0
    async with asyncio.timeout(60):
        while told < steps:
            line = await process.stderr.readline()
            assert line, "it ended before it was killed"
            told += b"wrapped anew" in line
        process.send_signal(signal.SIGKILL)
        assert await process.wait() == -signal.SIGKILL
