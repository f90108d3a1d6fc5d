"""The command line: judges its arguments, says where it listens, and ends cleanly on SIGTERM."""

import argparse
import asyncio
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from oncefence.simulator.faults import (
    SEEDED_FAULTS,
    Fault,
    ScriptError,
    SeededFaults,
    read_script,
)
from oncefence.simulator.journal import Journal, JournalFailed, JournalInUse
from oncefence.simulator.ledger import LedgerUnreadable
from oncefence.simulator.server import Settings, Simulator

_BAD_INPUT = 2


class BadArguments(Exception):
    """The command line cannot be used; the message says what to do."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise BadArguments(message)


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 0 after SIGTERM or SIGINT, 1 when the ledger failed, 2 on bad input."""
    try:
        given = _parser().parse_args(arguments)
        asyncio.run(_run(_settings(given), given.ready_file))
    except (BadArguments, ScriptError, JournalInUse, LedgerUnreadable) as reason:
        return _say(str(reason), _BAD_INPUT)
    except JournalFailed as reason:
        return _say(str(reason), 1)
    return 0


async def _run(settings: Settings, ready_file: Path | None) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    try:
        journal, ledger = Journal.open(settings.ledger)
    except OSError as reason:
        raise BadArguments(
            f"ledger {settings.ledger} cannot be opened: {reason.strerror}; name a file in a "
            "folder that exists and can be written"
        ) from reason
    simulator = Simulator(settings, journal, ledger)
    try:
        try:
            simulator.open()
        except OSError as reason:
            raise BadArguments(
                f"cannot listen on {settings.host}:{settings.port} with admin port "
                f"{settings.admin_port}: {reason.strerror}; choose others, or 0 for free ones"
            ) from reason
        _announce(settings, simulator, ready_file)
        await simulator.serve_until(stopped)
    finally:
        await simulator.stop()


def _announce(settings: Settings, simulator: Simulator, ready_file: Path | None) -> None:
    line = json.dumps(
        {
            "host": settings.host,
            "port": simulator.port,
            "admin_port": simulator.admin_port,
        }
    )
    if ready_file is not None:
        # Whoever waits for the file must never find half of it.
        draft = ready_file.with_name(f"{ready_file.name}.{os.getpid()}")
        try:
            draft.write_text(line + "\n")
            draft.replace(ready_file)
        except OSError as reason:
            raise BadArguments(
                f"ready file {ready_file} cannot be written: {reason.strerror}"
            ) from reason
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="python -m oncefence.simulator", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1", help="address of the provider's port")
    parser.add_argument("--port", type=_port, default=0, help="0 for a free one")
    parser.add_argument(
        "--admin-port", type=_port, default=0, help="on 127.0.0.1; 0 for a free one"
    )
    parser.add_argument("--ledger", type=Path, required=True, help="file, made or continued")
    parser.add_argument("--token", required=True, help="the only bearer token that is accepted")
    parser.add_argument("--script", type=Path, help="JSON list of rules")
    parser.add_argument("--seed", type=int, help="deal faults by this seed; needs --fault-rate")
    parser.add_argument("--fault-rate", type=float, help="0 to 1, of PATCH requests")
    parser.add_argument("--seed-faults", help="comma list of the faults to deal; default: all")
    parser.add_argument("--ready-file", type=Path, help="gets the line that goes to stdout")
    return parser


def _settings(given: argparse.Namespace) -> Settings:
    if not given.token.isascii() or not given.token.isprintable() or not given.token.strip():
        raise BadArguments("--token must be printable ASCII and not empty")
    return Settings(
        host=given.host,
        port=given.port,
        admin_port=given.admin_port,
        ledger=given.ledger,
        token=given.token,
        script=read_script(given.script) if given.script is not None else {},
        seeded=_seeded(given),
    )


def _seeded(given: argparse.Namespace) -> SeededFaults | None:
    if given.seed is None and given.fault_rate is None and given.seed_faults is None:
        return None
    if given.seed is None or given.fault_rate is None:
        raise BadArguments("--seed and --fault-rate go together; give both or neither")
    if not 0 <= given.fault_rate <= 1:
        raise BadArguments("--fault-rate must be between 0 and 1")
    if given.seed_faults is None:
        return SeededFaults(seed=given.seed, rate=given.fault_rate)
    names = given.seed_faults.split(",")
    for name in names:
        if name not in SEEDED_FAULTS:
            raise BadArguments(
                f"--seed-faults cannot deal {name!r}; it deals {', '.join(SEEDED_FAULTS)}"
            )
    return SeededFaults(
        seed=given.seed, rate=given.fault_rate, faults=[Fault(name) for name in names]
    )


def _port(text: str) -> int:
    port = int(text)
    if not 0 <= port <= 65_535:
        raise argparse.ArgumentTypeError("a port is 0 to 65535")
    return port


def _say(message: str, code: int) -> int:
    sys.stderr.write(f"oncefence.simulator: {message}\n")
    return code
