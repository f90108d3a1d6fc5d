"""
A process that has imported the worker and forks one whenever it is asked to.

Importing takes seconds of a core, and a herd that loses a worker every three would do little else.
What is forked runs the program's own `worker`, as if it had been started by its name.

One JSON object a line each way: `{"log": .., "folder": .., "environment": ..}` is answered by the
pid, and `{"poll": pid}` by its exit code (negative: by that signal) or null while it runs.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import oncefence.app.worker  # noqa: F401  # what takes the time
from oncefence.app.cli import main as program


class Nursery:
    """The near side: starts the process, and asks it."""

    def __init__(self, log: Path) -> None:
        with log.open("ab") as file:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "tests.herd.nursery"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                cwd=Path(__file__).parents[2],
                env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                text=True,
                start_new_session=True,
            )

    def start(self, *, log: Path, folder: Path, environment: Mapping[str, str]) -> int:
        """The pid of a new worker."""
        asked = {"log": str(log), "folder": str(folder), "environment": dict(environment)}
        return int(self._ask(asked))

    def poll(self, pid: int) -> int | None:
        """How the worker ended, or None while it runs."""
        code = self._ask({"poll": pid})
        return None if code is None else int(code)

    def close(self) -> None:
        """End the process, and every worker that still runs."""
        self._process.communicate()

    def _ask(self, asked: Mapping[str, object]) -> Any:
        """One answer; Any, because JSON says what it is."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "the nursery has ended; its log says why"
        return json.loads(answer)


def main() -> None:
    """Serve until standard input ends, and leave nobody behind."""
    codes: dict[int, int | None] = {}
    for line in sys.stdin:
        asked = json.loads(line)
        if "poll" in asked:
            answer = _code_of(codes, asked["poll"])
        else:
            answer = _forked(asked)
            codes[answer] = None
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    for pid in codes:
        if _code_of(codes, pid) is None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _code_of(codes: dict[int, int | None], pid: int) -> int | None:
    if codes[pid] is None:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            codes[pid] = os.waitstatus_to_exitcode(status)
    return codes[pid]


def _forked(asked: Mapping[str, Any]) -> int:
    pid = os.fork()
    return pid or _become_worker(asked)


def _become_worker(asked: Mapping[str, Any]) -> NoReturn:
    os.setsid()
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    log = os.open(asked["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    code = 70
    try:
        code = program(["worker"])
    finally:
        sys.stderr.flush()
        # Nothing of the parent's is to be tidied by its child.
        os._exit(code)


if __name__ == "__main__":
    main()
