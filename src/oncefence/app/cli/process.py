"""`oncefence worker` and `oncefence serve`: the two processes that run until they are stopped."""

import asyncio

from oncefence.app.cli.store import read_settings
from oncefence.app.logs import configure_logs


def worker() -> None:
    """Run a worker and its doors until SIGTERM or Ctrl-C."""
    # Imported here: the other verbs need no Temporal and start in half the time without it.
    from oncefence.app.worker import run_worker  # noqa: PLC0415

    configure_logs()
    asyncio.run(run_worker(read_settings()))


def serve() -> None:
    """Run the doors alone until SIGTERM or Ctrl-C."""
    from oncefence.app.worker import run_doors  # noqa: PLC0415  # as above

    configure_logs()
    asyncio.run(run_doors(read_settings()))
