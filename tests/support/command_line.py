"""
The program as a user starts it: a process of its own, with its own environment.

Each is forked from a process that has every verb loaded, since to start Python and to read the
same modules again is most of what a short verb takes. That each verb loads alone, too, is shown
in `tests/e2e/test_cli_messages.py`.
"""

import asyncio
import json
import multiprocessing
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

from oncefence.app.cli import main

_ROOT: Final = Path(__file__).parents[2]
_SECONDS_MAX: Final = 60.0
_WRITES: Final = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
_FORKS: Final = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload([__name__, "tests.support.every_verb"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A run that is over."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """Standard output as the one JSON document that it is."""
        return json.loads(self.out)

    @property
    def message(self) -> str:
        """The one line of standard error; a traceback or a second line fails the test."""
        lines = self.err.splitlines()
        assert len(lines) == 1, self.err
        assert lines[0].startswith("oncefence: "), self.err
        return lines[0].removeprefix("oncefence: ")


def environment_with(settings: Mapping[str, object]) -> dict[str, str]:
    """Our own environment with these settings of the program and no others."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ONCEFENCE_")}
    return kept | {f"ONCEFENCE_{name}": str(value) for name, value in settings.items()}


async def run(
    *words: object, settings: Mapping[str, object] | None = None, stdin: bytes = b""
) -> Ended:
    """One run of `oncefence` with nothing set but `settings` (`DATABASE_URL` and so on)."""
    environment = environment_with(settings or {})
    return await asyncio.to_thread(_run, [*map(str, words)], environment, stdin)


def _run(words: Sequence[str], environment: Mapping[str, str], stdin: bytes) -> Ended:
    with tempfile.TemporaryDirectory(prefix="oncefence-run-") as folder:
        streams = [Path(folder) / name for name in ("in", "out", "err")]
        streams[0].write_bytes(stdin)
        process = _FORKS.Process(
            target=_be_the_program, args=(words, environment, streams), daemon=True
        )
        process.start()
        process.join(_SECONDS_MAX)
        if process.exitcode is None:
            process.kill()
            process.join()
        _, out, err = (path.read_text("utf-8") for path in streams)
    assert process.exitcode is not None, "it has ended"
    return Ended(code=process.exitcode, out=out, err=err)


def _be_the_program(
    words: Sequence[str], environment: Mapping[str, str], streams: Sequence[Path]
) -> NoReturn:
    os.chdir(_ROOT)
    os.environ.clear()
    os.environ.update(environment)
    for number, (path, flags) in enumerate(
        zip(streams, (os.O_RDONLY, _WRITES, _WRITES), strict=True)
    ):
        opened = os.open(path, flags, 0o600)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    sys.exit(main(words))
