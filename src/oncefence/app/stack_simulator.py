"""The simulated provider as a process of a stack: its ports, its token, and its ledger's file."""

import json
import secrets
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from oncefence.app.processes import ChildProcess, listens
from oncefence.app.simulator_admin import SimulatorAdmin
from oncefence.app.stack_state import write_privately
from oncefence.domain.errors import ConfigurationRefused

_NAME: Final = "the simulated provider"


class StackSimulator:
    """One simulator in `folder`; it goes on where its ledger ends, on the port of last time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.child: ChildProcess | None = None
        self._ports_file = folder / "ports.json"
        self._ports: dict[str, int] = {}

    @property
    def ledger_file(self) -> Path:
        return self.folder / "ledger.jsonl"

    @property
    def token_file(self) -> Path:
        """The provider's token; made at the first start."""
        return self.folder / "token"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._ports['port']}"

    @property
    def admin_url(self) -> str:
        return f"http://127.0.0.1:{self._ports['admin_port']}"

    @property
    def admin(self) -> SimulatorAdmin:
        return SimulatorAdmin(port=self._ports["admin_port"])

    def start(self, environment: Mapping[str, str]) -> None:
        """
        Start it, and return when both its ports are open.

        Raises:
            ConfigurationRefused: It cannot run, or its port of last time is taken: stored
                bindings name that one.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        if not self.token_file.exists():
            write_privately(self.token_file, f"pat-simulated-{secrets.token_hex(16)}\n")
        before = self._ports_of_last_time()
        port = before.get("port", 0)
        if port and listens(port):
            raise ConfigurationRefused(
                setting=_NAME,
                reason=f"port {port}, which the stored binding names, is taken by another process",
                remedy="Stop that one, or start on another data folder",
            )
        admin_port = before.get("admin_port", 0)
        ready = self.folder / "ready.json"
        ready.unlink(missing_ok=True)
        self.child = ChildProcess.start(
            _NAME,
            [
                *(sys.executable, "-m", "oncefence.simulator"),
                *("--port", str(port)),
                *("--admin-port", str(0 if admin_port and listens(admin_port) else admin_port)),
                *("--ledger", self.ledger_file),
                *("--token", self.token_file.read_text().strip()),
                *("--ready-file", ready),
            ],
            log_path=self.folder / "simulator.log",
            environment=environment,
            folder=self.folder,
        )
        self.child.wait_until(ready.exists)
        self._ports = json.loads(ready.read_text())
        write_privately(self._ports_file, ready.read_text())

    def stop(self) -> None:
        """Stop it in good order; its ledger is whole after a kill as well."""
        if self.child is not None:
            self.child.stop()

    def _ports_of_last_time(self) -> dict[str, int]:
        try:
            ports: dict[str, int] = json.loads(self._ports_file.read_text())
        except (FileNotFoundError, ValueError):
            # Written whole or not at all; a damaged one only costs the ports of last time.
            return {}
        return ports
