"""Ctrl-C on a verb that runs for a while: one line that says how things stand, and an end."""

import json
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from oncefence.app.local_temporal import LocalTemporal
from oncefence.app.processes import free_port
from oncefence.storage.sealing import KeyRing
from tests.support.doors import PAYLOAD, SUBJECT, OpenDoor
from tests.support.program import command, environment, wait_until
from tests.support.servers import Database
from tests.support.station import new_queue, until
from tests.support.world import OPERATION, World


@contextmanager
def started(
    folder: Path, *words: object, settings: dict[str, str]
) -> Iterator[tuple["subprocess.Popen[bytes]", Callable[[], list[str]]]]:
    """The program with an open standard input, and what it has said on standard error."""
    said = folder / "said"
    with said.open("wb") as file:
        process = subprocess.Popen(
            command(*words),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=file,
            env=environment() | settings,
            start_new_session=True,
        )
    try:
        yield process, lambda: said.read_text().splitlines()
    finally:
        process.kill()
        process.wait(10)


class TestSubmit:
    async def test_says_what_was_accepted_and_ends_while_it_waits_for_a_line(
        self, door: OpenDoor, world: World, tmp_path: Path
    ) -> None:
        """Nothing is lost by an interrupt, and whoever pressed it learns that (C582)."""
        # Of one subject, so the second is handed over when the first has its receipt.
        lines = [
            {"outbox_id": outbox, "operation": OPERATION, "subject": SUBJECT}
            | {"payload": json.loads(PAYLOAD)}
            for outbox in ("one", "two")
        ]
        settings = {"ONCEFENCE_URL": door.url, "ONCEFENCE_CREDENTIAL": world.credential}

        async def are_accepted() -> bool:
            return len(await world.sql("SELECT 1 FROM oncefence.commands WHERE org_id = :org")) == 2

        async def has_ended() -> bool:
            return process.poll() is not None

        with started(tmp_path, "submit", "-", settings=settings) as (process, said):
            assert process.stdin is not None
            process.stdin.write("".join(f"{json.dumps(line)}\n" for line in lines).encode())
            process.stdin.flush()
            await until(are_accepted, within_s=60)

            process.send_signal(signal.SIGINT)
            await until(has_ended, within_s=60)

            assert process.returncode == 130
            (message,) = said()
            assert re.fullmatch(
                "oncefence: interrupted after [12] accepted lines. Run the same command again: "
                "what was accepted stays accepted",
                message,
            )


class TestProcesses:
    @pytest.mark.parametrize("verb", ["worker", "serve"])
    def test_end_by_one_line_of_their_log(
        self, verb: str, database: Database, temporal_server: LocalTemporal, tmp_path: Path
    ) -> None:
        """An operator sees that it ended, and that it ended well (C58)."""
        keys = tmp_path / "keys.json"
        KeyRing.make_file(keys)
        settings = {
            "ONCEFENCE_DATABASE_URL": database.app_url,
            "ONCEFENCE_TEMPORAL_ADDRESS": temporal_server.address,
            "ONCEFENCE_KEY_FILE": str(keys),
            "ONCEFENCE_TASK_QUEUE": new_queue(),
            "ONCEFENCE_LISTEN": f"127.0.0.1:{free_port()}",
        }
        with started(tmp_path, verb, settings=settings) as (process, said):
            wait_until(lambda: any("doors are open" in line for line in said()))
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0

            assert json.loads(said()[-1])["event"] == "stopped"
