"""What the demo knows of itself while it runs: for the eyes, and never for the figures."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from oncefence.app.demo.kill import Kill
from oncefence.domain.errors import StoreUnavailable
from oncefence.domain.execution import EXECUTION, ExecutionStatus
from oncefence.domain.ids import OrgId
from oncefence.simulator.ledger import read_ledger
from oncefence.storage.engine import Store
from oncefence.storage.phases.read_progress import CommandProgress, Progress, read_progress

_POLL_SECONDS: Final = 0.4
NOTHING: Final = Progress(commands=(), open_attempts={})


def is_at_rest(command: CommandProgress) -> bool:
    """Whether nothing moves this command any more but a person."""
    return (
        command.status in EXECUTION.final
        or command.status == ExecutionStatus.NEEDS_ATTENTION
        or command.waits_for_a_person
    )


def is_over(progress: Progress) -> bool:
    """Whether every command is at rest."""
    return all(is_at_rest(command) for command in progress.commands)


class Board:
    """Replaced piece by piece by the run, and read by whoever shows it."""

    def __init__(self, *, heading: str, tell: Callable[[str], None]) -> None:
        self.heading = heading
        self.places: Mapping[str, str] = {}
        self.step = "beginning"
        self.progress = NOTHING
        self.changes: Mapping[str, int] = {}
        self.kills: list[Kill] = []
        self._tell = tell
        self._began_at = time.monotonic()

    @property
    def seconds(self) -> float:
        """How long the run has taken so far."""
        return time.monotonic() - self._began_at

    def say(self, step: str) -> None:
        """The run is at this step now."""
        self.step = step
        self._tell(f"{self.seconds:5.1f} s  {step}")

    def statuses(self) -> dict[str, int]:
        """How many commands stand where."""
        return dict(Counter(command.status for command in self.progress.commands))

    async def watch(self, store: Store, org: OrgId, ledger_file: Path) -> None:
        """Keep the board up to date until cancelled."""
        while True:
            with suppress(StoreUnavailable):  # the run asks the same store, and says so itself
                self.progress = await read_progress(store, org)
            changes = read_ledger(ledger_file).changes_by_command()
            self.changes = {command: len(found) for command, found in changes.items()}
            # A long ledger takes long to read; reading must not be all that is done.
            await asyncio.sleep(max(_POLL_SECONDS, len(self.progress.commands) / 500))
