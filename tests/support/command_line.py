"""The program as a user starts it: a process of its own, with its own environment."""

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


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


async def run(
    *words: object, settings: Mapping[str, object] | None = None, stdin: bytes = b""
) -> Ended:
    """One run of `oncefence` with nothing set but `settings` (`DATABASE_URL` and so on)."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ONCEFENCE_")}
    given = {f"ONCEFENCE_{name}": str(value) for name, value in (settings or {}).items()}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "oncefence.app.cli",
        *map(str, words),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=kept | given,
        cwd=Path(__file__).parents[2],
    )
    async with asyncio.timeout(60):
        out, err = await process.communicate(stdin)
    assert process.returncode is not None, "it has ended"
    return Ended(code=process.returncode, out=out.decode(), err=err.decode())
