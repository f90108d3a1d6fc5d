"""`oncefence doctor`: every check told, and a failing one with what to do."""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from oncefence.app.cli.doctor import HOST, Reading, durability, read_against_host, skew
from oncefence.app.local_temporal import LocalTemporal
from oncefence.storage.engine import SCHEMA_REVISION
from oncefence.storage.phases.examine_store import StoreFacts
from oncefence.storage.sealing import KeyRing
from tests.support.command_line import Ended, run
from tests.support.servers import Database
from tests.support.world import World


async def examined(**settings: object) -> tuple[Ended, dict[str, dict[str, Any]]]:
    ended = await run("doctor", "--json", settings=settings)
    return ended, {check["name"]: check for check in ended.document["checks"]}


@pytest.fixture
async def settings(
    database: Database, temporal_server: LocalTemporal, tmp_path: Path
) -> dict[str, object]:
    """Everything that a worker would have, over a store with something sealed in it."""
    keys = tmp_path / "keys.json"
    KeyRing.make_file(keys)
    world = await World.make(database, ring=KeyRing.load(keys))
    await world.accept_command()
    return {
        "DATABASE_URL": database.app_url,
        "TEMPORAL_ADDRESS": temporal_server.address,
        "KEY_FILE": keys,
    }


async def test_sound_surroundings_pass_all_but_durability(settings: dict[str, object]) -> None:
    """The server of the tests runs with fsync=off, and just that is refused (C11)."""
    ended, checks = await examined(**settings)

    assert ended.code == 1
    assert {name for name, check in checks.items() if not check["is_sound"]} == {"durability"}
    assert checks["durability"]["found"].startswith("fsync=off")
    assert checks["keys"]["found"] == "opens 4 stored keys of all kinds"
    assert checks["schema"]["found"] == f"version {SCHEMA_REVISION}"
    assert checks["time scale"]["found"] == "1 on a development database"
    assert checks["clocks"]["found"].endswith("s apart")


async def test_another_key_file_is_found_out(settings: dict[str, object], tmp_path: Path) -> None:
    """The worker would fail at its first command; doctor says it before."""
    other = tmp_path / "other.json"
    KeyRing.make_file(other)

    _, checks = await examined(**settings | {"KEY_FILE": other})

    assert not checks["keys"]["is_sound"]
    assert "with which stored data is sealed" in checks["keys"]["found"]


async def test_a_key_file_that_others_can_read_is_refused(settings: dict[str, object]) -> None:
    """Everything that is sealed would be open to them."""
    path = settings["KEY_FILE"]
    await asyncio.to_thread(Path(str(path)).chmod, 0o644)

    _, checks = await examined(**settings)

    assert checks["keys"]["remedy"] == f"chmod 600 {path}"


async def test_what_does_not_answer_fails_alone(settings: dict[str, object]) -> None:
    """One run tells everything, so that it need not be run five times."""
    nowhere = "127.0.0.1:1"

    ended, checks = await examined(
        **settings | {"TEMPORAL_ADDRESS": nowhere, "DATABASE_URL": f"postgresql://a:b@{nowhere}/c"}
    )

    assert ended.code == 1
    assert checks["database"]["remedy"].startswith("Start the server, or correct the URL")
    assert checks["Temporal"]["found"].endswith(f"no Temporal answers at {nowhere}")
    assert checks["clocks"]["found"] == "no clock of PostgreSQL, Temporal"
    assert json.loads(ended.out)["failed"] == 4


async def test_a_namespace_that_is_not_there_is_told(settings: dict[str, object]) -> None:
    """The server answers, and nothing could be started on it."""
    _, checks = await examined(**settings | {"TEMPORAL_NAMESPACE": "nowhere"})

    assert "not for namespace nowhere" in checks["Temporal"]["found"]


class TestSkew:
    @pytest.mark.parametrize(
        ("postgres", "temporal", "is_sound"),
        [(0.0, 0.0, True), (4.9, 0.0, True), (5.1, 0.0, False), (3.0, -3.0, False)],
    )
    def test_of_any_two_clocks_is_at_most_five_seconds(
        self,
        postgres: float,
        temporal: float,
        is_sound: bool,  # a table
    ) -> None:
        """Due times of one clock are judged beside leases of another (C210)."""
        clocks = {
            "host": HOST,
            "PostgreSQL": Reading(ahead_seconds=postgres, error_seconds=0),
            "Temporal": Reading(ahead_seconds=temporal, error_seconds=0),
        }

        assert skew(clocks).is_sound is is_sound

    def test_is_not_blamed_on_a_slow_answer(self) -> None:
        """What the network took is no skew."""
        slow = Reading(ahead_seconds=6.0, error_seconds=2.0)

        check = skew({"host": HOST, "PostgreSQL": slow, "Temporal": HOST})

        assert (check.is_sound, check.found) == (True, "at most 4.0 s apart")

    async def test_is_read_in_the_middle_of_the_answer(self) -> None:
        """A clock that is a minute ahead reads as a minute ahead."""

        async def ahead() -> datetime:
            return datetime.now(UTC) + timedelta(minutes=1)

        reading = await read_against_host(ahead)

        assert reading.ahead_seconds == pytest.approx(60, abs=1)
        assert 0 <= reading.error_seconds < 1


@pytest.mark.parametrize(
    ("changes", "is_sound"),
    [
        ({}, True),
        ({"synchronous_commit": "remote_apply"}, True),
        ({"fsync": "off"}, False),
        ({"full_page_writes": "off"}, False),
        ({"synchronous_commit": "off"}, False),
    ],
)
def test_a_store_that_may_lose_a_commit_is_refused(
    changes: dict[str, str],
    is_sound: bool,  # a table
) -> None:
    """Everything rests on committed writes being kept (C11)."""
    sound = {"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on"}
    facts = StoreFacts(
        role="oncefence_app",
        server_version="18",
        schema_version=SCHEMA_REVISION,
        is_development=False,
        **sound | changes,
    )

    assert durability(facts).is_sound is is_sound
