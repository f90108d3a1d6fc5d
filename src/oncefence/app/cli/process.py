"""`oncefence worker` and `oncefence serve`: the two processes that run until they are stopped."""

import asyncio

import typer

from oncefence.app.cli.exits import ExitCode
from oncefence.app.cli.store import read_settings
from oncefence.app.logs import configure_logs


def worker() -> None:
    """Run a worker and its doors until SIGTERM or Ctrl-C."""
    # Imported here: the other verbs need no Temporal and start in half the time without it.
    from oncefence.app.worker import run_worker  # noqa: PLC0415

    configure_logs()
    drained = asyncio.run(run_worker(read_settings()))
    if drained.left:
        # Its last log line says of how many sends nobody here knows the end.
        raise typer.Exit(ExitCode.REFUSED)


def serve() -> None:
    """Run the doors alone until SIGTERM or Ctrl-C."""
    from oncefence.app.worker import run_doors  # noqa: PLC0415  # as above

    configure_logs()
    asyncio.run(run_doors(read_settings()))
