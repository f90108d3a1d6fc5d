"""Where the secrets of a campaign could be left behind, and the reading of each place."""

import json
from collections.abc import AsyncIterator, Iterator
from io import BytesIO
from pathlib import Path

import asyncpg
from temporalio.api.history.v1 import History
from temporalio.client import Client

from oncefence.app.bootstrap import DATA_CONVERTER
from oncefence.app.local_temporal import NAMESPACE
from tests.canaries.nest import Nest
from tests.canaries.scan import decoded


async def of_temporal(nest: Nest) -> AsyncIterator[tuple[str, bytes]]:
    """Every run's history twice over, and all else that Temporal shows of it."""
    client = await Client.connect(
        nest.stack.temporal_address, namespace=NAMESPACE, data_converter=DATA_CONVERTER
    )
    async for run in client.list_workflows():
        handle = client.get_workflow_handle(run.id, run_id=run.run_id)
        history = await handle.fetch_history()
        described = await handle.describe()
        yield "Temporal histories", History(events=history.events).SerializeToString()
        yield "Temporal histories", described.raw_description.SerializeToString()
        yield "Temporal histories", b"\n".join(decoded(json.loads(history.to_json())))


async def of_tables(nest: Nest) -> AsyncIterator[tuple[str, bytes]]:
    """Every table as a dump has it, and as the bytes that its columns hold, sealed ones too."""
    connection = await asyncpg.connect(nest.stack.admin_url)
    try:
        tables = await connection.fetch(
            "SELECT relname FROM pg_class WHERE relkind = 'r'"
            " AND relnamespace = 'oncefence'::regnamespace ORDER BY 1"
        )
        for (table,) in tables:
            for form in ("text", "binary"):
                copy = BytesIO()
                await connection.copy_from_table(
                    table, schema_name="oncefence", output=copy, format=form
                )
                yield f"table {table}", copy.getvalue()
    finally:
        await connection.close()


def of_files(folder: Path) -> Iterator[tuple[str, bytes]]:
    """
    What the processes left on disk: logs, Temporal's database, and PostgreSQL's whole cluster.

    Not the provider's own, who knows its tokens and what it was sent, and not the files that hold
    a secret because that is what they are for.
    """
    yield "worker log", (folder / "worker.log").read_bytes()
    for path in sorted((folder / "temporal").rglob("*")):
        if path.is_file():
            yield f"Temporal's {path.name}", path.read_bytes()
    yield "PostgreSQL log", (folder / "postgres" / "postgres.log").read_bytes()
    for path in sorted((folder / "postgres" / "cluster").rglob("*")):
        if path.is_file():
            yield "PostgreSQL's cluster", path.read_bytes()
