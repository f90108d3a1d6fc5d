"""
A process that runs pytest in one copy after another, each time in a child of its own.

What takes long is done once: the libraries are imported before the child is forked, and one
PostgreSQL stays, whose databases are made anew for each run. No module of the project is shared.

One order a line comes in as JSON, one answer a line goes out.
"""

import asyncio
import importlib
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tests.mutants.mutant import CODE_FOLDERS, ROOT

# All libraries of the project, and of its tests.
_IMPORTED_ONCE = ("oncefence.app.bootstrap", "oncefence.app.api", "tests.support.station")
_OURS = ("oncefence", "tests")

# A database as the server was made: with the roles and the schema, and nothing in it.
_PRISTINE = "pristine"
_SETTINGS = {"fsync": "off", "full_page_writes": "off", "max_connections": "400"}

# Its tests make roles, and a role is the whole server's: the next run would find them.
_MAKES_ROLES = "tests/storage/test_roles.py"

_GOODBYE_SECONDS = 30.0


class SharedServer:
    """A plugin that gives the tests a server which is there already, as if it had just started."""

    def __init__(self, server: Any) -> None:
        self._server = server

    def pytest_configure(self) -> None:
        # Of the copy, whose migrations make the template.
        self._servers: Any = importlib.import_module("tests.support.servers")
        self._servers.postgres_with_template = self._with_template

    @contextmanager
    def _with_template(self) -> Iterator[Any]:
        template = self._servers.TEMPLATE
        self._server.psql(
            f"DROP DATABASE IF EXISTS {template} WITH (FORCE);"
            " DROP DATABASE IF EXISTS oncefence WITH (FORCE);"
            f" CREATE DATABASE oncefence TEMPLATE {_PRISTINE};",
            database="postgres",
        )
        with ThreadPoolExecutor(1) as thread:
            thread.submit(asyncio.run, self._servers.migrate_once(self._server)).result()
        self._server.psql(f"CREATE DATABASE {template} TEMPLATE oncefence;", database="postgres")
        yield self._server


def main() -> None:
    """Run each order that comes in, until no more can come."""
    for name in _IMPORTED_ONCE:
        importlib.import_module(name)
    local_postgres = importlib.import_module("oncefence.app.local_postgres")
    with (
        tempfile.TemporaryDirectory(prefix="oncefence-test-") as folder,
        local_postgres.LocalPostgres(Path(folder), settings=_SETTINGS) as server,
    ):
        server.psql(f"CREATE DATABASE {_PRISTINE} TEMPLATE oncefence;", database="postgres")
        _forget_our_own()
        for line in sys.stdin:
            order = json.loads(line)
            trouble = _run(order, SharedServer(server))
            sys.stdout.write(json.dumps({"trouble": trouble}) + "\n")
            sys.stdout.flush()


def _forget_our_own() -> None:
    for name in list(sys.modules):
        if name.partition(".")[0] in _OURS:
            del sys.modules[name]


def _run(order: Mapping[str, Any], shared: SharedServer) -> str | None:
    """Why the run came to nothing, or None when it came to an end."""
    tree, targets = Path(order["tree"]), order["targets"]
    plugins = [] if any(each.startswith(_MAKES_ROLES) for each in targets) else [shared]
    child = os.fork()
    if child == 0:
        _pytest(tree, [*order["options"], *targets], plugins)
    give_up_at = time.monotonic() + order["seconds_max"]
    try:
        while not _is_over(child):
            if time.monotonic() > give_up_at:
                return f"not over after {order['seconds_max']:.0f} s"
            time.sleep(0.02)
        child = 0
    finally:
        if child:
            _end(child)
    return None


def _pytest(tree: Path, arguments: Sequence[str], plugins: Sequence[object]) -> NoReturn:
    """Become the run: nothing that follows may come back into the loop of the parent."""
    code = 70
    try:
        os.setsid()
        os.chdir(tree)
        output = os.open(tree / "output.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for ours, theirs in ((nothing, 0), (output, 1), (output, 2)):
            os.dup2(ours, theirs)
        own = [*(str(tree / folder) for folder in CODE_FOLDERS), str(tree)]
        left_out = {str(ROOT), *(str(ROOT / folder) for folder in CODE_FOLDERS)}
        sys.path[:] = [*own, *(each for each in sys.path if each not in left_out)]
        importlib.invalidate_caches()
        os.environ["PYTHONPATH"] = os.pathsep.join(own)
        # Fixed examples: a verdict that chance has a hand in is none.
        os.environ["CI"] = "1"
        options = ["-q", "--tb=short", "-p", "no:cacheprovider", "-p", "tests.mutants.own_tree"]
        code = int(pytest.main([*options, *arguments], plugins=list(plugins)))
    finally:
        sys.stdout.flush()
        os._exit(code)


def _is_over(child: int) -> bool:
    return os.waitpid(child, os.WNOHANG)[0] != 0


def _end(child: int) -> None:
    """Let a run that goes on end what it started, and then whatever is left of it."""
    os.kill(child, signal.SIGINT)
    give_up_at = time.monotonic() + _GOODBYE_SECONDS
    while not _is_over(child):
        if time.monotonic() > give_up_at:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return
        time.sleep(0.05)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
