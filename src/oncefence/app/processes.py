"""
Child processes: started with their output in a file, awaited, and stopped by their own pid.

On Linux a child dies with the thread that started it, so that a killed parent leaves nothing
behind; that is why only the main thread may start one. Elsewhere a killed parent leaves its
children running.
"""

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from oncefence.domain.errors import ConfigurationRefused

_PR_SET_PDEATHSIG: Final = 1
_POLL_SECONDS: Final = 0.02
_TAIL_LINES: Final = 3


def free_ports(count: int) -> list[int]:
    """Different loopback ports that are free just now; somebody else may still come first."""
    with contextlib.ExitStack() as held:
        probes = [held.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]


def free_port() -> int:
    """One of them."""
    return free_ports(1)[0]


def listens(port: int) -> bool:
    """Whether somebody on loopback accepts connections on `port`."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemUser:
    """Whom a child runs as where its parent is root."""

    uid: int
    gid: int


class ChildProcess:
    """One running child; only ever signals the process that it started itself."""

    def __init__(
        self, name: str, process: subprocess.Popen[bytes], log_path: Path, log_start: int
    ) -> None:
        self.name = name
        self.log_path = log_path
        self._process = process
        self._log_start = log_start

    @classmethod
    def start(
        cls,
        name: str,
        command: Sequence[str | Path],
        *,
        log_path: Path,
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
        run_as: SystemUser | None = None,
        death_signal: signal.Signals = signal.SIGKILL,
    ) -> Self:
        """
        Start `command` in a session of its own, so that Ctrl-C reaches the parent alone.

        `environment` replaces the parent's; `death_signal` is what the child gets when the
        parent is gone.

        Raises:
            ConfigurationRefused: The program cannot be started at all.
        """
        if threading.current_thread() is not threading.main_thread():
            raise AssertionError(
                f"{name}: a child dies with its thread, so start it in the main one"
            )
        log_path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with log_path.open("ab") as log:
                log_start = log.tell()
                process = subprocess.Popen(  # noqa: S603  # the command is the caller's own
                    [str(word) for word in command],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=environment,
                    cwd=folder,
                    start_new_session=True,
                    user=None if run_as is None else run_as.uid,
                    group=None if run_as is None else run_as.gid,
                    extra_groups=None if run_as is None else [],
                    preexec_fn=_dies_with(os.getpid(), death_signal),  # noqa: PLW1509
                )
        except OSError as error:
            raise ConfigurationRefused(
                setting=name,
                reason=f"{command[0]} could not be started ({error.strerror})",
                remedy="Install the extra `stack` again, or use a server of your own",
            ) from None
        return cls(name, process, log_path, log_start)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """How it ended (negative: by that signal), or None while it runs."""
        return self._process.poll()

    def wait_until(self, is_ready: Callable[[], bool], *, timeout_seconds: float = 30) -> None:
        """
        Return once `is_ready()`; a child that ends or takes too long is killed first.

        Raises:
            ConfigurationRefused: It ended, or is not ready in time; with the end of its log.
        """
        give_up_at = time.monotonic() + timeout_seconds
        while True:
            # Read before asking, so that what it did last is seen.
            exit_code = self.exit_code
            if is_ready():
                return
            if exit_code is not None:
                reason = f"it ended with code {exit_code} while starting"
            elif time.monotonic() > give_up_at:
                self.kill()
                reason = f"it was not ready after {timeout_seconds:.0f} s"
            else:
                time.sleep(_POLL_SECONDS)
                continue
            raise ConfigurationRefused(
                setting=self.name,
                reason=f"{reason}: {self.log_tail()}",
                remedy=f"The whole log is {self.log_path}",
            )

    def listens_on(self, port: int) -> bool:
        """Whether it is this very process that accepts connections on `port`."""
        import psutil  # noqa: PLC0415  # of the extra `stack`, without which this module is used too

        try:
            connections = psutil.Process(self.pid).net_connections(kind="tcp")
        except psutil.Error:
            return False
        return any(
            each.status == psutil.CONN_LISTEN and each.laddr.port == port for each in connections
        )

    def log_tail(self) -> str:
        """The last lines of what it said since it was started."""
        with self.log_path.open("rb") as log:
            log.seek(self._log_start)
            lines = log.read().decode(errors="replace").split("\n")
        return " | ".join([line for line in lines if line.strip()][-_TAIL_LINES:]) or "no output"

    def stop(self, how: signal.Signals = signal.SIGTERM, *, timeout_seconds: float = 15) -> int:
        """Ask it to end and wait; kill it when it does not listen. Its exit code."""
        if self.exit_code is None:
            self._process.send_signal(how)
            try:
                return self._process.wait(timeout_seconds)
            except subprocess.TimeoutExpired:
                self._process.kill()
        return self._process.wait()

    def kill(self) -> int:
        """End it at once with SIGKILL, as a crash would. Its exit code."""
        self._process.kill()
        return self._process.wait()


def stop_in_order(children: Iterable[ChildProcess]) -> None:
    """Stop each in turn, and the rest as well when one cannot be stopped."""
    failures: list[BaseException] = []
    for child in children:
        try:
            child.stop()
        except (OSError, KeyboardInterrupt) as error:
            failures.append(error)
    if failures:
        raise failures[0]


def _dies_with(parent: int, death_signal: signal.Signals) -> Callable[[], None] | None:
    """What the child does between fork and exec, made before the fork: it must not import."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def tie() -> None:
        prctl(_PR_SET_PDEATHSIG, int(death_signal), 0, 0, 0)
        if os.getppid() != parent:
            # The parent died before the tie was made, so nobody will ever send the signal.
            os._exit(1)

    return tie
