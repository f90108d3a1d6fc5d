"""Worker processes in slots: each has a port of its own, and whoever dies is replaced there."""

import os
import random
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from oncefence.app.processes import free_ports, listens
from oncefence.app.stack import Stack, clean_environment
from tests.herd.nursery import Nursery

_STOP_SECONDS = 60.0
_POLL_SECONDS = 0.05
_TAIL_LINES = 3


@dataclass(kw_only=True, eq=False)
class Slot:
    """One worker at a time, at a door that stays where it is."""

    number: int
    port: int
    log: Path
    pid: int = 0
    thaw_at: float | None = None
    was_ready: bool = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def is_frozen(self) -> bool:
        return self.thaw_at is not None

    @property
    def is_ready(self) -> bool:
        """Whether it works, as far as can be told from outside."""
        if not self.is_frozen and not self.was_ready:
            self.was_ready = listens(self.port)
        return self.was_ready and not self.is_frozen

    def says_last(self) -> str:
        """The end of its log."""
        return " | ".join(self.log.read_text(errors="replace").splitlines()[-_TAIL_LINES:])


class Flock:
    """Several workers of one stack; kills, freezes and replaces them."""

    def __init__(self, stack: Stack, count: int) -> None:
        self._folder = stack.folder
        self._environment = clean_environment() | stack.worker_settings
        self._nursery = Nursery(stack.folder / "nursery.log")
        self.kills = 0
        self.freezes = 0
        self.ended_by_themselves: list[Mapping[str, object]] = []
        self.slots = [
            Slot(number=number, port=port, log=stack.folder / f"worker-{number}.log")
            for number, port in enumerate(free_ports(count), start=1)
        ]
        for slot in self.slots:
            self._start(slot)

    def _start(self, slot: Slot) -> None:
        slot.pid = self._nursery.start(
            log=slot.log,
            folder=self._folder,
            environment=self._environment | {"ONCEFENCE_LISTEN": f"127.0.0.1:{slot.port}"},
        )
        slot.thaw_at, slot.was_ready = None, False

    def are_ready(self) -> bool:
        """Whether every door is open."""
        return all(slot.is_ready for slot in self.slots)

    def tend(self) -> None:
        """Thaw whose time it is, and replace whoever has ended by itself."""
        for slot in self.slots:
            if slot.thaw_at is not None and time.monotonic() > slot.thaw_at:
                self._thaw(slot)
            code = self._nursery.poll(slot.pid)
            if code is not None:
                self.ended_by_themselves.append(
                    {
                        "invariant": "no_worker_ends_by_itself",
                        "worker": slot.number,
                        "exit_code": code,
                        "log": slot.says_last(),
                    }
                )
                self._start(slot)

    def kill_one(self, dice: random.Random) -> bool:
        """Kill a worker that works with SIGKILL and start another; False where none works."""
        slot = self._one_that_works(dice)
        if slot is None:
            return False
        os.kill(slot.pid, signal.SIGKILL)
        self._ended(slot, time.monotonic() + _STOP_SECONDS)
        self.kills += 1
        self._start(slot)
        return True

    def freeze_one(self, dice: random.Random, seconds: float) -> bool:
        """Stop a worker that works with SIGSTOP for as long; False where none works."""
        slot = self._one_that_works(dice)
        if slot is None:
            return False
        os.kill(slot.pid, signal.SIGSTOP)
        slot.thaw_at = time.monotonic() + seconds
        self.freezes += 1
        return True

    def thaw_all(self) -> None:
        """Let every frozen worker go on."""
        for slot in self.slots:
            if slot.is_frozen:
                self._thaw(slot)

    def stop(self) -> Sequence[Mapping[str, object]]:
        """Stop all of them in good order; a row for each whose end was none."""
        self.thaw_all()
        rows: list[Mapping[str, object]] = []
        for slot in self.slots:
            if self._nursery.poll(slot.pid) is None:
                os.kill(slot.pid, signal.SIGTERM)
        give_up_at = time.monotonic() + _STOP_SECONDS
        for slot in self.slots:
            code = self._ended(slot, give_up_at)
            if code != 0:
                rows.append(
                    {
                        "invariant": "a_drained_worker_ends_by_0",
                        "worker": slot.number,
                        "exit_code": code,
                        "log": slot.says_last(),
                    }
                )
        return rows

    def close(self) -> None:
        """End whatever still runs, whatever it does."""
        self._nursery.close()

    def _ended(self, slot: Slot, give_up_at: float) -> int | None:
        """Its exit code once it has ended; None where it takes too long."""
        while (code := self._nursery.poll(slot.pid)) is None and time.monotonic() < give_up_at:
            time.sleep(_POLL_SECONDS)
        return code

    def _one_that_works(self, dice: random.Random) -> Slot | None:
        working = [slot for slot in self.slots if slot.is_ready]
        return dice.choice(working) if working else None

    def _thaw(self, slot: Slot) -> None:
        os.kill(slot.pid, signal.SIGCONT)
        slot.thaw_at = None
