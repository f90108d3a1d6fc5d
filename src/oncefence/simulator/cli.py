"""The command line: judges its arguments, says where it listens, and ends cleanly on SIGTERM."""

import argparse
import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import NoReturn

from oncefence.simulator.dealing import Dealer, SeededFaults, TurnedFaults
from oncefence.simulator.dialects.known import dialect_of
from oncefence.simulator.dialects.pack_file import PackUnusable
from oncefence.simulator.dialects.protocol import Dialect
from oncefence.simulator.fault_texts import FAULT_TEXTS
from oncefence.simulator.faults import (
    FAULTS,
    SEEDED_FAULTS,
    Fault,
    Rule,
    ScriptedFault,
    ScriptError,
    read_script,
)
from oncefence.simulator.journal import Journal, JournalFailed, JournalInUse
from oncefence.simulator.ledger import LedgerUnreadable
from oncefence.simulator.server import LedgerOfAnother, Settings, Simulator

_BAD_INPUT = 2


class BadArguments(Exception):
    """The command line cannot be used; the message says what to do."""


BAD_INPUT = (
    BadArguments,
    PackUnusable,
    ScriptError,
    JournalInUse,
    LedgerUnreadable,
    LedgerOfAnother,
)
"""What a start may be refused with; each message says what to do."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise BadArguments(message)


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 0 after SIGTERM or SIGINT, 1 when the ledger failed, 2 on bad input."""
    try:
        given = _parser().parse_args(arguments)
        if given.list_faults:
            sys.stdout.write(fault_list(fault_texts()))
            return 0
        settings = _settings(given)
        asyncio.run(serve(settings, lambda here: _announce(settings, here, given.ready_file)))
    except BAD_INPUT as reason:
        return _say(str(reason), _BAD_INPUT)
    except JournalFailed as reason:
        return _say(str(reason), 1)
    return 0


async def serve(settings: Settings, announce: Callable[[Simulator], None]) -> None:
    """
    Serve until SIGTERM or SIGINT; `announce` is called when both ports are open.

    Raises:
        BadArguments: The ledger cannot be opened, or a port cannot be had.
        JournalFailed: A row could not be made durable.
    """
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
    try:
        simulator = Simulator(settings, journal, ledger)
    except BaseException:
        journal.close()
        raise
    try:
        try:
            simulator.open()
        except OSError as reason:
            raise BadArguments(
                f"cannot listen on {settings.host}:{settings.port} with admin port "
                f"{settings.admin_port}: {reason.strerror}; choose others, or 0 for free ones"
            ) from reason
        announce(simulator)
        await simulator.serve_until(stopped)
    finally:
        await simulator.stop()


def fault_texts(dialect: Dialect | None = None) -> dict[str, str]:
    """Every fault and what it does; with a dialect, only those that can show in it."""
    hidden = dialect.cannot_show if dialect is not None else frozenset()
    return {fault.value: text for fault, text in FAULT_TEXTS.items() if fault not in hidden}


def fault_list(texts: Mapping[str, str]) -> str:
    """The same for people."""
    width = max(map(len, texts))
    return "".join(f"{name:<{width}}  {text}\n" for name, text in texts.items())


def faults_of(names: Sequence[str], dialect: Dialect) -> list[Fault | ScriptedFault]:
    """
    The faults of these names.

    Raises:
        BadArguments: There is no such fault, or it cannot show in this dialect.
    """
    for name in names:
        if name not in FAULTS:
            raise BadArguments(f"there is no fault {name!r}; there are {', '.join(FAULTS)}")
        if FAULTS[name] in dialect.cannot_show:
            raise BadArguments(f"{name} cannot strike here: {dialect.title} has nothing for it")
    return [FAULTS[name] for name in names]


def dealing(
    faults: Sequence[Fault | ScriptedFault], *, seed: int | None, rate: float
) -> tuple[dict[str, Rule], Dealer | None]:
    """
    The rules and the dealer by which these faults strike.

    With a seed a share of the requests is struck, by lot; without one every request, in turn. The
    port alone is struck by a rule, once, since nobody knows at accept what will be asked for.
    """
    rules = {"fault-refuse": Rule(fault=Fault.REFUSE)} if Fault.REFUSE in faults else {}
    others = [fault for fault in faults if fault is not Fault.REFUSE]
    if seed is not None:
        return rules, SeededFaults(seed=seed, rate=rate, faults=others or SEEDED_FAULTS)
    return rules, TurnedFaults(others) if others else None


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
    parser.add_argument("--pack", default="hubspot", help="a provider's name, or a pack's file")
    parser.add_argument("--host", default="127.0.0.1", help="address of the provider's port")
    parser.add_argument("--port", type=_port, default=0, help="0 for a free one")
    parser.add_argument(
        "--admin-port", type=_port, default=0, help="on 127.0.0.1; 0 for a free one"
    )
    parser.add_argument("--ledger", type=Path, help="file, made or continued")
    parser.add_argument("--token", help="the only bearer token that is accepted")
    parser.add_argument("--script", type=Path, help="JSON list of rules")
    parser.add_argument("--fault", action="append", default=[], help="strikes in turn; repeatable")
    parser.add_argument("--seed", type=int, help="deal faults by this seed; needs --fault-rate")
    parser.add_argument("--fault-rate", type=float, help="0 to 1, of requests that write")
    parser.add_argument("--seed-faults", help="comma list of the faults to deal; default: all")
    parser.add_argument("--index-lag", type=_seconds, help="how old a search's index is, in s")
    parser.add_argument("--ready-file", type=Path, help="gets the line that goes to stdout")
    parser.add_argument("--list-faults", action="store_true", help="tell them and end")
    return parser


def _settings(given: argparse.Namespace) -> Settings:
    for name in ("ledger", "token"):
        if getattr(given, name) is None:
            raise BadArguments(f"the following arguments are required: --{name}")
    dialect = dialect_of(given.pack)
    seeded = _seeded(given)
    if given.fault and seeded is not None:
        raise BadArguments("--fault and --seed exclude each other here; see --seed-faults")
    rules, turned = dealing(faults_of(given.fault, dialect), seed=None, rate=0)
    script = read_script(given.script) if given.script is not None else {}
    return Settings(
        host=given.host,
        port=given.port,
        admin_port=given.admin_port,
        ledger=given.ledger,
        token=checked_token(given.token),
        script={**script, **rules},
        seeded=seeded or turned,
        dialect=dialect,
        index_lag=None if given.index_lag is None else timedelta(seconds=given.index_lag),
    )


def checked_token(token: str) -> str:
    """
    The token.

    Raises:
        BadArguments: It cannot stand in a header. It is not repeated.
    """
    if not token.isascii() or not token.isprintable() or not token.strip():
        raise BadArguments("--token must be printable ASCII and not empty")
    return token


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


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 <= seconds <= 3600:
        raise argparse.ArgumentTypeError("seconds are 0 to 3600")
    return seconds


def _say(message: str, code: int) -> int:
    sys.stderr.write(f"oncefence.simulator: {message}\n")
    return code
