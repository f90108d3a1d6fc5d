"""
A whole deployment on loopback, of one data folder: for `up`, `demo` and the tests that need all.

PostgreSQL, Temporal, the simulated provider and a worker with its doors, each a process of its
own that logs into the folder. Stopped, or killed at any moment, it starts again on the same one.
"""

import contextlib
import fcntl
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from oncefence.app.config import PREFIX, Settings
from oncefence.app.local_postgres import LocalPostgres
from oncefence.app.local_temporal import LocalTemporal
from oncefence.app.processes import ChildProcess, free_port
from oncefence.app.stack_simulator import StackSimulator
from oncefence.app.stack_state import StackState, write_privately
from oncefence.domain.errors import ConfigurationRefused, Refused
from oncefence.domain.redaction import Secret
from oncefence.storage.sealing import KeyRing

_START_TRIES: Final = 5
_PORT_TAKEN: Final = "cannot listen"
_PROGRAM: Final = (sys.executable, "-m", "oncefence.app.cli")
_OWN_SERVERS: Final = ("ONCEFENCE_DATABASE_URL", "ONCEFENCE_MIGRATOR_URL")


@dataclass(eq=False)
class VerbFailed(Refused):
    """A verb of the program, run on the stack, did not do what it was asked for."""

    verb: str
    reason: str

    def __str__(self) -> str:
        return f"`oncefence {self.verb}` failed: {self.reason}"


class Stack:
    """The processes of one data folder; `say` is told of each step."""

    def __init__(
        self,
        folder: Path,
        *,
        time_scale: float | None = None,
        settings: Settings | None = None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.folder = folder.absolute()
        self._given = settings or Settings.from_environment()
        self._wanted_scale = time_scale
        self._say = say
        self._parts = ExitStack()
        self._state: StackState | None = None
        self._postgres: LocalPostgres | None = None
        self._temporal: LocalTemporal | None = None
        self._simulator: StackSimulator | None = None
        self._worker: ChildProcess | None = None
        self._doors_port = 0

    # --- where things are --------------------------------------------------------------------

    @property
    def state(self) -> StackState:
        assert self._state is not None, "the stack was not started"
        return self._state

    @property
    def simulator(self) -> StackSimulator:
        assert self._simulator is not None, "the stack was not started"
        return self._simulator

    @property
    def worker(self) -> ChildProcess:
        assert self._worker is not None, "the worker was not started"
        return self._worker

    @property
    def doors_url(self) -> str:
        return f"http://127.0.0.1:{self._doors_port}"

    @property
    def temporal_ui(self) -> str | None:
        """The web page of our own Temporal; None where another one is used."""
        return None if self._temporal is None else self._temporal.ui_url

    @property
    def temporal_address(self) -> str:
        if self._temporal is None:
            return self._given.temporal_address
        return self._temporal.address

    @property
    def database_url(self) -> str:
        return self._given.database_url if self._postgres is None else self._postgres.app_url

    @property
    def postgres_place(self) -> str:
        """Where PostgreSQL is, without a password."""
        scheme, _, rest = self.database_url.partition("://")
        user, at, host = rest.rpartition("@")
        return f"{scheme}://{user.partition(':')[0]}{at}{host}"

    @property
    def key_file(self) -> Path:
        # A key file belongs to its database: one that is set is another database's, unless that
        # is used as well.
        given = None if self._given.set_database_url is None else self._given.set_key_file
        return given or self.folder / "keys.json"

    @property
    def environment_file(self) -> Path:
        """What a shell reads so that every verb of `oncefence` speaks to this stack."""
        return self.folder / "env.sh"

    @property
    def worker_settings(self) -> dict[str, str]:
        """All that the worker is told: it does not know what it runs for."""
        return {
            "ONCEFENCE_DATABASE_URL": self.database_url,
            "ONCEFENCE_TEMPORAL_ADDRESS": self.temporal_address,
            "ONCEFENCE_TEMPORAL_NAMESPACE": self._given.temporal_namespace,
            "ONCEFENCE_TASK_QUEUE": self.state.task_queue,
            "ONCEFENCE_KEY_FILE": str(self.key_file),
            "ONCEFENCE_TIME_SCALE": f"{self.state.time_scale:g}",
            "ONCEFENCE_LISTEN": f"127.0.0.1:{self._doors_port}",
        }

    # --- starting and stopping ---------------------------------------------------------------

    def __enter__(self) -> Self:
        with self._parts:
            self._start_servers()
            self._parts = self._parts.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # The last one first, and every one of them, whatever happens to another.
        self._parts.close()

    def _start_servers(self) -> None:
        self._take_folder()
        self._state = StackState.opened(self.folder, time_scale=self._wanted_scale)
        self._start_postgres()
        if self._given.set_temporal_address is None:
            self._say("starting Temporal")
            self._temporal = LocalTemporal(self.folder / "temporal")
            self._parts.callback(self._temporal.stop)
            self._temporal.start()
        self._say("starting the simulated provider")
        self._simulator = StackSimulator(self.folder / "simulator")
        self._parts.callback(self._simulator.stop)
        self._simulator.start(clean_environment())
        self._parts.callback(self.stop_worker)

    def _start_postgres(self) -> None:
        urls = (self._given.set_database_url, self._given.set_migrator_url)
        if all(url is None for url in urls):
            self._say("starting PostgreSQL")
            self._postgres = LocalPostgres(self.folder / "postgres")
            self._parts.callback(self._postgres.stop)
            self._postgres.start()
        elif None in urls:
            raise ConfigurationRefused(
                setting=_OWN_SERVERS[urls.index(None)],
                reason="this is not set, and the other of the two database URLs is",
                remedy="Set both for a server of your own, or none for one that is started here",
            )
        self._say("migrating the database")
        if self.key_file.parent == self.folder and not self.key_file.exists():
            KeyRing.make_file(self.key_file)
        migrator = self._given if self._postgres is None else self._postgres
        words = ["migrate"]
        if self._postgres is not None or self.state.time_scale != 1:
            words.append("--development")
        self.run_verb(*words, more={"ONCEFENCE_MIGRATOR_URL": migrator.migrator_url})

    def await_worker(self) -> None:
        """Return when the doors of the worker that was launched are open."""
        for tries_left in reversed(range(_START_TRIES)):
            try:
                self.worker.wait_until(self.is_worker_ready, timeout_seconds=60)
                return
            except ConfigurationRefused as refusal:
                # Between the choice of a port and its use somebody else may have taken it.
                if _PORT_TAKEN not in refusal.reason or not tries_left:
                    raise
                self._doors_port = 0
                self.launch_worker()

    def launch_worker(self) -> None:
        """Start a worker and return at once; on the port of the last one."""
        self._doors_port = self._doors_port or free_port()
        self._worker = ChildProcess.start(
            "the worker",
            [*_PROGRAM, "worker"],
            log_path=self.folder / "worker.log",
            environment=clean_environment() | self.worker_settings,
            folder=self.folder,
        )

    def is_worker_ready(self) -> bool:
        """Whether it is this worker that answers at its doors."""
        return self.worker.listens_on(self._doors_port)

    def stop_worker(self) -> None:
        """Stop the worker in good order: what it sends just now is settled first."""
        if self._worker is not None:
            self._worker.stop(timeout_seconds=40)

    def ended(self) -> str | None:
        """Which process has ended by itself, if one has."""
        for child in (self._worker, self.simulator.child):
            if child is not None and child.exit_code is not None:
                return f"{child.name} ended with code {child.exit_code}: {child.log_tail()}"
        return None

    # --- using it ----------------------------------------------------------------------------

    def run_verb(self, *words: str, more: Mapping[str, str] | None = None) -> str:
        """
        What `oncefence WORDS` prints, run on this stack as anybody would run it.

        Raises:
            VerbFailed: It exits otherwise than with 0.
        """
        environment = clean_environment() | self._verb_settings() | dict(more or {})
        done = subprocess.run(  # noqa: S603  # our own program
            [*_PROGRAM, *words], env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            said = [line for line in done.stderr.splitlines() if line.strip()]
            raise VerbFailed(
                verb=" ".join(words[:2]),
                reason=said[-1] if said else f"it ended with code {done.returncode}",
            )
        return done.stdout

    def write_environment_file(self, credential: str, operator: Secret | None) -> None:
        """Write what a shell needs so that every verb works on this stack; its owner's alone."""
        values = self._verb_settings() | {
            "ONCEFENCE_URL": self.doors_url,
            "ONCEFENCE_CREDENTIAL": credential,
            "ONCEFENCE_DOORS": self.doors_url,
        }
        if operator is not None:
            values["ONCEFENCE_OPERATOR_TOKEN"] = operator.reveal()
        lines = [f"export {name}={shlex.quote(value)}" for name, value in values.items()]
        programs = shlex.quote(str(Path(sys.executable).parent))
        lines.append(f'export PATH={programs}:"$PATH"')
        write_privately(self.environment_file, "\n".join(lines) + "\n")

    def _verb_settings(self) -> dict[str, str]:
        values = {
            "ONCEFENCE_DATABASE_URL": self.database_url,
            "ONCEFENCE_KEY_FILE": str(self.key_file),
            "ONCEFENCE_TIME_SCALE": f"{self.state.time_scale:g}",
            "ONCEFENCE_TASK_QUEUE": self.state.task_queue,
        }
        if self._temporal is not None or self._given.set_temporal_address is not None:
            values["ONCEFENCE_TEMPORAL_ADDRESS"] = self.temporal_address
            values["ONCEFENCE_TEMPORAL_NAMESPACE"] = self._given.temporal_namespace
        return values

    def _take_folder(self) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            held = (self.folder / "lock").open("ab")
            self._parts.callback(held.close)
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigurationRefused(
                setting="--data",
                reason=f"{self.folder} is in use by another `oncefence up` or `oncefence demo`",
                remedy="Stop that one, or name another folder",
            ) from None
        except OSError as error:
            raise ConfigurationRefused(
                setting="--data",
                reason=f"the folder {self.folder} cannot be used ({error.strerror})",
                remedy="Name another one",
            ) from None


def clean_environment() -> dict[str, str]:
    """Ours without any setting of oncefence: each process is told its own."""
    return {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}


@contextlib.contextmanager
def stopping_in_good_order() -> Iterator[None]:
    """Inside, a request to end the process or a lost terminal act as Ctrl-C does."""

    def interrupt(_: int, __: object) -> None:
        signal.raise_signal(signal.SIGINT)

    # A shell starts what it runs in the background with Ctrl-C ignored, and `kill -INT` is how
    # a script stops that.
    handlers = {
        signal.SIGINT: signal.default_int_handler,
        signal.SIGTERM: interrupt,
        signal.SIGHUP: interrupt,
    }
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)
