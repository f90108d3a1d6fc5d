"""`oncefence up` and `oncefence demo` as processes that a test watches, interrupts and outlives."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[2]


def environment() -> dict[str, str]:
    """Ours without any setting of the program."""
    return {name: value for name, value in os.environ.items() if not name.startswith("ONCEFENCE_")}


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "oncefence.app.cli", *map(str, words)]


def processes_of(folder: Path) -> list[str]:
    """The command line of every process that works in `folder` or was told of it."""
    found = []
    for process in psutil.process_iter(["pid", "cmdline", "cwd"]):
        words = " ".join(process.info["cmdline"] or [])
        if process.pid != os.getpid() and str(folder) in f"{words} {process.info['cwd']}":
            found.append(words)
    return found


@dataclass(kw_only=True)
class Running:
    """A program that runs, and what it has said so far."""

    process: subprocess.Popen[bytes]
    out: Path

    @property
    def said(self) -> str:
        return self.out.read_text(encoding="utf-8")

    def wait_for(self, text: str, *, timeout_seconds: float = 120) -> None:
        """Return when it has said `text`."""
        wait_until(lambda: text in self.said or self.process.poll() is not None, timeout_seconds)
        assert text in self.said, self.said

    def interrupt(self, how: signal.Signals = signal.SIGINT) -> int:
        """Ask it to stop; its exit code."""
        self.process.send_signal(how)
        return self.process.wait(60)


@contextmanager
def running(folder: Path, *words: object) -> Iterator[Running]:
    """The program with `words`, its output in a file of `folder`; killed if it is still there."""
    out = folder / f"output-{len(list(folder.glob('output-*')))}"
    with out.open("wb") as file:
        process = subprocess.Popen(
            command(*words),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=environment() | {"PYTHONUNBUFFERED": "1"},
            cwd=folder,
            # Ctrl-C of whoever runs the tests is not meant for it.
            start_new_session=True,
        )
    try:
        yield Running(process=process, out=out)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def in_shell(environment_file: Path, *words: object) -> subprocess.CompletedProcess[str]:
    """A verb in a shell that has read `environment_file`, as the screen tells people to."""
    script = '. "$0" && exec "$@"'
    return subprocess.run(
        ["sh", "-c", script, str(environment_file), "oncefence", *map(str, words)],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def wait_until(is_true: Callable[[], bool], timeout_seconds: float = 30) -> None:
    """Return once `is_true()`; fail when it takes too long."""
    give_up_at = time.monotonic() + timeout_seconds
    while not is_true():
        assert time.monotonic() < give_up_at, f"not true after {timeout_seconds} s"
        time.sleep(0.05)


def lines_of(path: Path) -> Sequence[str]:
    return path.read_text(encoding="utf-8").splitlines()
