"""
A PostgreSQL of one's own in a folder: for `demo`, `up` and the tests, never for production.

It listens on loopback alone, every role has a random password, and writes are durable unless a
test says otherwise. Killed at any moment it starts again on the same folder.
"""

import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from oncefence.app.bundled_postgres import (
    SERVER,
    clean_environment,
    find_programs,
    let_pass,
    let_read,
    processes_in,
    system_user,
)
from oncefence.app.processes import ChildProcess, SystemUser, free_port, listens
from oncefence.domain.errors import ConfigurationRefused
from oncefence.storage.sql_files import sql_file

DATABASE: Final = "oncefence"
_START_TRIES: Final = 5
_ORPHAN_SECONDS: Final = 15.0
_PORT_TAKEN: Final = "could not create any TCP/IP sockets"
_SETTINGS: Final = {
    "listen_addresses": "127.0.0.1",
    # No socket file: its path may be at most 107 bytes long, and folders are not.
    "unix_socket_directories": "",
    "max_connections": "200",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_destination": "stderr",
    "logging_collector": "off",
}


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class _Passwords:
    """What `server.json` holds; `is_prepared` once roles and schema are made."""

    is_prepared: bool
    port: int
    admin: str
    migrator: str
    app: str


class LocalPostgres:
    """
    One server in `data_folder`, owned by this process.

    `settings` are the server's own (`{"fsync": "off"}` where no crash is tested).
    """

    def __init__(self, data_folder: Path, *, settings: Mapping[str, str] | None = None) -> None:
        self.data_folder = data_folder.absolute()
        self._cluster = self.data_folder / "cluster"
        self._state_path = self.data_folder / "server.json"
        self._log_path = self.data_folder / "postgres.log"
        self._settings = _SETTINGS | dict(settings or {})
        self._state: _Passwords | None = None
        self._child: ChildProcess | None = None

    def __repr__(self) -> str:
        return f"LocalPostgres({str(self.data_folder)!r})"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        return self._running().pid

    @property
    def port(self) -> int:
        return self._ready().port

    @property
    def admin_url(self) -> str:
        return self.url("postgres", self._ready().admin)

    @property
    def migrator_url(self) -> str:
        return self.url("oncefence_migrator", self._ready().migrator)

    @property
    def app_url(self) -> str:
        return self.url("oncefence_app", self._ready().app)

    def url(self, role: str, password: str, database: str = DATABASE) -> str:
        return f"postgresql://{role}:{password}@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        """
        Start the server, on the port of last time if it is free; make everything at first.

        Raises:
            ConfigurationRefused: It cannot run here; says why.
        """
        if self._child is not None and self._child.exit_code is None:
            return
        programs = find_programs()
        user = system_user() if os.geteuid() == 0 else None
        self._make_folder(programs, user)
        state = self._load_state()
        if state is None or not state.is_prepared:
            state = self._make_cluster(programs, user)
        self._wait_for_orphans()
        self._state = self._launch(programs, user, state)
        if not state.is_prepared:
            self._make_roles(programs)
            self._state = replace(self._state, is_prepared=True)
        self._save_state(self._state)

    def stop(self) -> None:
        """Stop it in good order: sessions are ended, everything is on disk."""
        if self._child is not None:
            self._child.stop(signal.SIGINT, timeout_seconds=60)
            self._child = None

    def kill(self) -> None:
        """End it as a crash would."""
        self._running().kill()
        self._child = None

    def psql(self, script: str, *, database: str = DATABASE) -> str:
        """
        What `script` prints when the superuser runs it, in one transaction where it can.

        Raises:
            ConfigurationRefused: A statement failed; with the first line of the complaint.
        """
        return self._psql(find_programs(), script, database)

    def _running(self) -> ChildProcess:
        if self._child is None:
            raise AssertionError("the server was not started")
        return self._child

    def _ready(self) -> _Passwords:
        if self._state is None:
            raise AssertionError("the server was never started")
        return self._state

    def _make_folder(self, programs: Path, user: SystemUser | None) -> None:
        try:
            self.data_folder.mkdir(parents=True, exist_ok=True)
            if user is not None:
                let_pass(self.data_folder / "cluster")
                let_read(programs)
        except OSError as error:
            raise ConfigurationRefused(
                setting=SERVER,
                reason=f"the data folder {self.data_folder} cannot be used ({error.strerror})",
                remedy="Name another one, or run as an ordinary user",
            ) from None

    def _load_state(self) -> _Passwords | None:
        try:
            return _Passwords(**json.loads(self._state_path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            if self._cluster.exists():
                raise self._unusable("its passwords in server.json are gone") from None
            return None
        except (OSError, ValueError, TypeError):
            raise self._unusable("server.json is not readable") from None

    def _save_state(self, state: _Passwords) -> None:
        handle, draft = tempfile.mkstemp(dir=self.data_folder)  # 0600, like the final file
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(asdict(state), file)
            file.flush()
            os.fsync(handle)
        Path(draft).replace(self._state_path)

    def _unusable(self, reason: str) -> ConfigurationRefused:
        return ConfigurationRefused(
            setting=SERVER,
            reason=f"the data folder {self.data_folder} cannot be used: {reason}",
            remedy="Name another folder, or remove this one with what it holds",
        )

    def _make_cluster(self, programs: Path, user: SystemUser | None) -> _Passwords:
        # Passwords first: a cluster beside a state that is not prepared was interrupted before
        # anybody could use it, and is made anew.
        state = _Passwords(
            is_prepared=False,
            port=0,
            admin=secrets.token_urlsafe(24),
            migrator=secrets.token_urlsafe(24),
            app=secrets.token_urlsafe(24),
        )
        self._wait_for_orphans()
        self._save_state(state)
        if self._cluster.exists():
            shutil.rmtree(self._cluster)
        self._cluster.mkdir(mode=0o700)
        password_path = self.data_folder / "first-password"
        password_path.unlink(missing_ok=True)
        handle = os.open(password_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w") as file:
            file.write(state.admin)
        if user is not None:
            os.chown(self._cluster, user.uid, user.gid)
            os.chown(password_path, user.uid, user.gid)
        child = ChildProcess.start(
            f"{SERVER} (initdb)",
            [
                programs / "initdb",
                *("--pgdata", self._cluster),
                *("--username", "postgres", "--pwfile", password_path),
                *("--auth-host", "scram-sha-256", "--auth-local", "scram-sha-256"),
                *("--encoding", "UTF8", "--no-locale"),
                *("--locale-provider", "builtin", "--builtin-locale", "C.UTF-8"),
            ],
            log_path=self._log_path,
            environment=clean_environment(),
            folder=self.data_folder,
            run_as=user,
        )
        try:
            child.wait_until(lambda: child.exit_code == 0, timeout_seconds=120)
        finally:
            password_path.unlink()
        return state

    def _launch(self, programs: Path, user: SystemUser | None, state: _Passwords) -> _Passwords:
        for tries_left in reversed(range(_START_TRIES)):
            port = state.port if state.port and not listens(state.port) else free_port()
            child = ChildProcess.start(
                SERVER,
                [
                    programs / "postgres",
                    *("-D", self._cluster, "-p", str(port)),
                    *(word for item in self._settings.items() for word in ("-c", "=".join(item))),
                ],
                log_path=self._log_path,
                environment=clean_environment(),
                folder=self.data_folder,
                run_as=user,
                # Like stop(): a parent that is killed leaves an orderly database.
                death_signal=signal.SIGINT,
            )
            try:
                child.wait_until(partial(self._accepts, child.pid), timeout_seconds=120)
            except ConfigurationRefused as refusal:
                # Between the choice of a port and its use somebody else may have taken it.
                if _PORT_TAKEN not in refusal.reason or not tries_left:
                    raise
                state = replace(state, port=0)
                continue
            self._child = child
            return replace(state, port=port)
        raise AssertionError("the last try either returns or raises")

    def _accepts(self, pid: int) -> bool:
        """Whether the server itself has written that it is ready (line 8 of its pid file)."""
        with contextlib.suppress(FileNotFoundError):
            lines = (self._cluster / "postmaster.pid").read_text().split("\n")
            return lines[0] == str(pid) and len(lines) > 7 and lines[7].strip() == "ready"
        return False

    def _wait_for_orphans(self) -> None:
        """
        Wait for what a killed server leaves: its sessions end by themselves.

        Raises:
            ConfigurationRefused: Another server runs on this folder; it is not ours to stop.
        """
        give_up_at = time.monotonic() + _ORPHAN_SECONDS
        while pids := processes_in(self._cluster):
            if time.monotonic() > give_up_at:
                raise self._unusable(
                    f"another PostgreSQL runs there (process {min(pids)}); stop that one first"
                )
            time.sleep(0.05)

    def _make_roles(self, programs: Path) -> None:
        state = self._ready()
        self._psql(programs, f"CREATE DATABASE {DATABASE};", "postgres")
        self._psql(
            programs,
            f"\\set migrator_password {state.migrator}\n\\set app_password {state.app}\n"
            f"BEGIN;\n{sql_file('roles')}\nCOMMIT;\n",
            DATABASE,
        )

    def _psql(self, programs: Path, script: str, database: str) -> str:
        done = subprocess.run(  # noqa: S603  # our own program
            [
                programs / "psql",
                *("--no-psqlrc", "--quiet", "--no-align", "--tuples-only"),
                *("--set", "ON_ERROR_STOP=1", "--no-password"),
            ],
            input=script,
            text=True,
            capture_output=True,
            check=False,
            env=clean_environment()
            | {
                "PGHOST": "127.0.0.1",
                "PGPORT": str(self.port),
                "PGUSER": "postgres",
                "PGPASSWORD": self._ready().admin,
                "PGDATABASE": database,
                # A failing CREATE ROLE must not leave its password in the log.
                "PGOPTIONS": "-c log_min_error_statement=panic",
            },
        )
        if done.returncode != 0:
            raise ConfigurationRefused(
                setting=SERVER,
                reason=f"psql refused: {(done.stderr.strip() or 'no reason').splitlines()[0]}",
                remedy=f"The whole log is {self._log_path}",
            )
        return done.stdout
