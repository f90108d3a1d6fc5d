"""Starting mitmdump on a free port, and ending it."""

import asyncio
import os
import re
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
MITMDUMP = ROOT / ".oncefence" / "mitmproxy" / "bin" / "mitmdump"
ADDON = Path(__file__).parent / "kill_flows.py"
LISTENING = re.compile(rb"listening at (?:http://)?127\.0\.0\.1:(\d+)")
PATIENCE_SECONDS = 30.0


@asynccontextmanager
async def mitmdump(mode: str, *, kills_in: str) -> AsyncIterator[int]:
    """The port of a mitmdump in `mode` that kills flows in the hook `kills_in`."""
    with tempfile.TemporaryDirectory() as folder:
        # It tells its port only where its output is not buffered.
        environment = {**os.environ, "KILLS_IN": kills_in, "PYTHONUNBUFFERED": "1"}
        process = await asyncio.create_subprocess_exec(
            str(MITMDUMP),
            *("--mode", mode, "--listen-host", "127.0.0.1", "--listen-port", "0"),
            *("--set", f"confdir={folder}", "--scripts", str(ADDON)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=environment,
        )
        assert process.stdout is not None
        reading = None
        try:
            port = await asyncio.wait_for(_port(process.stdout), PATIENCE_SECONDS)
            # A pipe that nobody reads would stop it.
            reading = asyncio.create_task(process.stdout.read())
            yield port
        finally:
            process.kill()
            await process.wait()
            if reading is not None:
                await reading


async def _port(output: asyncio.StreamReader) -> int:
    said = b""
    async for line in output:
        said += line
        if found := LISTENING.search(line):
            return int(found[1])
    raise AssertionError(f"mitmdump ended before it listened: {said.decode(errors='replace')}")
