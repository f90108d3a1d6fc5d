"""The servers that `demo`, `up` and the tests run on."""

import asyncio
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from textwrap import dedent

import asyncpg
import psutil
import pytest
from temporalio import workflow
from temporalio.client import Client
from temporalio.testing import TimeSkipper
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from oncefence.app import bundled_postgres, local_postgres, local_temporal, processes
from oncefence.app.local_postgres import LocalPostgres
from oncefence.app.local_temporal import LocalTemporal
from oncefence.app.processes import ChildProcess, stop_in_order
from oncefence.domain.errors import ConfigurationRefused
from oncefence.storage.engine import SCHEMA_REVISION
from tests.support import servers

NOTES = "CREATE TABLE note (line text); INSERT INTO note VALUES ('kept');"


@contextmanager
def awkward_folder() -> Iterator[Path]:
    # Spaces and length: a socket file could not live in here.
    with servers.own_folder() as folder:
        yield folder / "a folder with spaces" / ("long" * 30)


@pytest.fixture
def folder() -> Iterator[Path]:
    with awkward_folder() as folder:
        yield folder


@pytest.fixture(scope="module")
def own_postgres() -> Iterator[LocalPostgres]:
    with awkward_folder() as folder, LocalPostgres(folder) as server:
        yield server


class TestLocalPostgres:
    async def test_keeps_everything_through_a_kill(self, own_postgres: LocalPostgres) -> None:
        """A crash test is one only if what was committed is there again, on the same URL."""
        url = own_postgres.app_url
        own_postgres.psql(NOTES)
        own_postgres.kill()

        own_postgres.start()

        assert own_postgres.psql("SELECT line FROM note;").strip() == "kept"
        assert own_postgres.psql("SHOW fsync;").strip() == "on"
        assert own_postgres.app_url == url

    async def test_of_another_process_run_is_opened_again(self, folder: Path) -> None:
        """`up` keeps its data: passwords and databases are there the next day."""
        with LocalPostgres(folder) as first:
            first.psql(NOTES)
            url = first.app_url

        with LocalPostgres(folder) as second:
            connection = await asyncpg.connect(second.app_url)
            role = await connection.fetchval("SELECT current_user")
            await connection.close()

            assert role == "oncefence_app"
            assert second.psql("SELECT line FROM note;").strip() == "kept"
            assert second.app_url == url

    def test_in_a_folder_that_is_in_use_is_refused(
        self, own_postgres: LocalPostgres, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Two servers on one folder would destroy it, and the other one is not ours to stop."""
        monkeypatch.setattr(local_postgres, "_ORPHAN_SECONDS", 0)

        with pytest.raises(ConfigurationRefused, match=f"process {own_postgres.pid}"):
            LocalPostgres(own_postgres.data_folder).start()

        assert own_postgres.psql("SELECT 1;").strip() == "1"

    async def test_runs_beside_another(
        self, own_postgres: LocalPostgres, postgres: LocalPostgres
    ) -> None:
        """Each has a port and passwords of its own: one's password does not open the other."""
        assert own_postgres.port != postgres.port

        with pytest.raises(asyncpg.InvalidPasswordError):
            await asyncpg.connect(own_postgres.app_url, port=postgres.port)

    async def test_admits_nobody_without_a_password(self, postgres: LocalPostgres) -> None:
        """Loopback is shared by everyone on the machine."""
        with pytest.raises(asyncpg.InvalidPasswordError):
            await asyncpg.connect(postgres.app_url, password="")

    def test_hides_its_passwords(self, own_postgres: LocalPostgres) -> None:
        """They are in a file of the owner's and nowhere else: not in repr, not in the log."""
        state = own_postgres.data_folder / "server.json"
        password = own_postgres.app_url.split(":")[2].split("@")[0]

        assert stat.S_IMODE(state.stat().st_mode) == 0o600
        assert not (own_postgres.data_folder / "first-password").exists()
        assert password in state.read_text()
        assert password not in repr(own_postgres)
        assert password not in (own_postgres.data_folder / "postgres.log").read_text()

    def test_that_was_interrupted_at_birth_is_made_anew(self, folder: Path) -> None:
        """A kill between the first file and the last role must not spoil the folder."""
        with LocalPostgres(folder) as server:
            server.psql("DROP SCHEMA oncefence;")
        state = folder / "server.json"
        state.write_text(state.read_text().replace('"is_prepared": true', '"is_prepared": false'))

        with LocalPostgres(folder) as server:
            assert server.psql("SELECT to_regnamespace('oncefence') IS NOT NULL;").strip() == "t"

    def test_without_its_passwords_is_refused(self, folder: Path) -> None:
        """Nobody could log in, and nothing is deleted that might still be wanted."""
        (folder / "cluster").mkdir(parents=True)

        with pytest.raises(ConfigurationRefused, match=r"passwords in server\.json are gone"):
            LocalPostgres(folder).start()

        assert (folder / "cluster").exists()

    def test_without_the_package_names_the_extra(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """One sentence leads on: install the extra, or bring a server."""
        monkeypatch.setattr(bundled_postgres.importlib.util, "find_spec", lambda _name: None)

        with pytest.raises(ConfigurationRefused, match=r"oncefence\[stack\]"):
            LocalPostgres(folder).start()

    def test_with_a_wrong_setting_says_which(self, folder: Path) -> None:
        """The server's own complaint is in the message, not only in a log."""
        with pytest.raises(ConfigurationRefused, match="no_such_setting"):
            LocalPostgres(folder, settings={"no_such_setting": "on"}).start()


class TestDatabase:
    async def test_application_may_not_delete(self, database: servers.Database) -> None:
        """What was accepted stays, whatever a program does wrong."""
        connection = await asyncpg.connect(database.app_url)
        try:
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await connection.execute("DELETE FROM oncefence.handoffs")
        finally:
            await connection.close()

    async def test_each_test_has_its_own(
        self, postgres: LocalPostgres, database: servers.Database
    ) -> None:
        """A row of one test is never seen by another."""
        async with servers.fresh_database(postgres) as other:
            connection = await asyncpg.connect(database.admin_url)
            await connection.execute(NOTES)
            await connection.close()
            connection = await asyncpg.connect(other.admin_url)
            found = await connection.fetchval("SELECT to_regclass('note')")
            await connection.close()

        assert found is None

    async def test_migrating_again_changes_nothing(self, database: servers.Database) -> None:
        """`migrate` may be run at every start."""
        again = await servers.migrate(database.migrator_engine, is_development=False)

        connection = await asyncpg.connect(database.app_url)
        is_development = await connection.fetchval(
            "SELECT is_development FROM oncefence.deployment"
        )
        await connection.close()
        assert (again, is_development) == (SCHEMA_REVISION, True)


@workflow.defn
class SleepsForADay:
    @workflow.run
    async def run(self) -> float:
        begun = workflow.now()
        await workflow.sleep(timedelta(days=1))
        return (workflow.now() - begun).total_seconds()


def sleeper(client: Client, task_queue: str) -> Worker:
    # Without the sandbox: it would import this module, and all that it needs, once more.
    return Worker(
        client,
        task_queue=task_queue,
        workflows=[SleepsForADay],
        workflow_runner=UnsandboxedWorkflowRunner(),
    )


class TestLocalTemporal:
    async def test_keeps_everything_through_a_kill(self, folder: Path) -> None:
        """Timers and workflows survive the server, on the same address."""
        with LocalTemporal(folder) as server:
            client = await servers.connect(server)
            await client.start_workflow(SleepsForADay.run, id="kept", task_queue="nobody")
            server.kill()

            server.start()

            again = await servers.connect(server)
            description = await again.get_workflow_handle("kept").describe()
            assert description.task_queue == "nobody"

    async def test_has_a_page_to_look_at(self, temporal_server: LocalTemporal) -> None:
        """The address that `up` prints has to lead somewhere."""
        host, port = temporal_server.ui_url.removeprefix("http://").split(":")

        with socket.create_connection((host, int(port)), timeout=5):
            pass

    async def test_skips_time_where_asked_to(
        self, time_skipping: TimeSkipper, task_queue: str
    ) -> None:
        """A day of waiting takes no day, or no wait could be tested."""
        client = time_skipping.client

        async with sleeper(client, task_queue):
            slept = await client.execute_workflow(
                SleepsForADay.run, id=task_queue, task_queue=task_queue
            )

        assert slept >= timedelta(days=1).total_seconds()

    async def test_keeps_real_time_elsewhere(
        self, temporal_client: Client, task_queue: str
    ) -> None:
        """Leases are judged by the database's clock, so tests of them need the same time."""
        async with sleeper(temporal_client, task_queue):
            handle = await temporal_client.start_workflow(
                SleepsForADay.run,
                id=task_queue,
                task_queue=task_queue,
                execution_timeout=timedelta(days=2),
            )
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(handle.result(), 1)
            await handle.terminate()

    def test_without_the_program_names_the_extra(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        """One sentence leads on: install the extra, or bring a server."""
        monkeypatch.setattr(local_temporal.sys, "executable", str(tmp_path / "python"))
        monkeypatch.setenv("PATH", str(tmp_path))

        with pytest.raises(ConfigurationRefused, match=r"oncefence\[stack\]"):
            LocalTemporal(folder).start()


class TestChildProcess:
    @pytest.mark.skipif(sys.platform != "linux", reason="only Linux ties a child to its parent")
    def test_does_not_outlive_a_killed_parent(self, folder: Path) -> None:
        """A killed `up` must leave no server behind that would hold its data folder."""
        script = """
            import sys, time
            from pathlib import Path
            from oncefence.app.local_postgres import LocalPostgres
            from oncefence.app.processes import ChildProcess
            folder = Path(sys.argv[1])
            server = LocalPostgres(folder)
            server.start()
            child = ChildProcess.start("sleep", ["sleep", "600"], log_path=folder / "sleep.log")
            print(server.pid, child.pid, flush=True)
            time.sleep(600)
        """
        with subprocess.Popen(
            [sys.executable, "-c", dedent(script), folder], stdout=subprocess.PIPE, text=True
        ) as parent:
            assert parent.stdout is not None
            children = [psutil.Process(int(pid)) for pid in parent.stdout.readline().split()]
            parent.kill()

        _, alive = psutil.wait_procs(children, timeout=20)

        assert len(children) == 2
        assert alive == []

    def test_that_does_not_listen_is_killed(self, folder: Path) -> None:
        """A clean stop comes to an end whatever the child does."""
        script = (
            "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
            "print('ready', flush=True); time.sleep(600)"
        )
        child = ChildProcess.start(
            "deaf", [sys.executable, "-c", script], log_path=folder / "deaf.log"
        )
        child.wait_until(lambda: child.log_tail() == "ready")

        assert child.stop(timeout_seconds=0.1) == -signal.SIGKILL

    def test_that_ends_early_says_why(self, folder: Path) -> None:
        """The reason is in the message; nobody has to look for a log first."""
        child = ChildProcess.start(
            "broken",
            [sys.executable, "-c", "raise SystemExit('no such port')"],
            log_path=folder / "broken.log",
        )

        with pytest.raises(ConfigurationRefused, match=r"ended with code 1.*no such port"):
            child.wait_until(lambda: False)

    def test_that_is_never_ready_is_ended(self, folder: Path) -> None:
        """A start that hangs is an error after its time, and nothing stays running."""
        child = ChildProcess.start("slow", ["sleep", "600"], log_path=folder / "slow.log")

        with pytest.raises(ConfigurationRefused, match="not ready after"):
            child.wait_until(lambda: False, timeout_seconds=0.1)

        assert child.exit_code == -signal.SIGKILL

    def test_of_a_program_that_is_not_there_is_refused(self, folder: Path) -> None:
        """One sentence, not a traceback."""
        with pytest.raises(ConfigurationRefused, match="no-such-program could not be started"):
            ChildProcess.start("gone", ["no-such-program"], log_path=folder / "gone.log")

    def test_children_stop_in_the_order_given(self, folder: Path) -> None:
        """A worker stops before the database that it settles in."""
        script = (
            "import signal, sys, time\n"
            "def end(*_): open(sys.argv[2], 'a').write(sys.argv[1]); sys.exit()\n"
            "signal.signal(signal.SIGTERM, end); print('ready', flush=True); time.sleep(600)"
        )
        ends = folder / "ends"
        children = [
            ChildProcess.start(
                name, [sys.executable, "-c", script, name, ends], log_path=folder / f"{name}.log"
            )
            for name in ("first", "second")
        ]
        for child in children:
            child.wait_until(lambda child=child: child.log_tail() == "ready")

        stop_in_order(reversed(children))

        assert ends.read_text() == "secondfirst"


class TestPorts:
    def test_that_somebody_took_first_are_replaced(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Between the choice of a port and its use anybody may come first."""
        with socket.create_server(("127.0.0.1", 0)) as squatter:
            taken = int(squatter.getsockname()[1])
            free = processes.free_ports(2)
            offers = iter([[taken, free[0]], free])
            monkeypatch.setattr(local_temporal, "free_ports", lambda _count: next(offers))
            monkeypatch.setattr(local_postgres, "free_port", iter([taken, free[1]]).__next__)

            with LocalTemporal(folder) as temporal:
                assert temporal.address == f"127.0.0.1:{free[0]}"
            with LocalPostgres(folder) as postgres:
                assert postgres.port == free[1]
