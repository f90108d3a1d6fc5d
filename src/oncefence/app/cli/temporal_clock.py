"""What time it is for Temporal, which answers no such question."""

from datetime import datetime, timedelta
from typing import Final
from uuid import uuid4

from temporalio.client import Client
from temporalio.service import RPCError

from oncefence.domain.errors import ConfigurationRefused

_NOBODYS_QUEUE: Final = "oncefence-doctor"
_GONE_AFTER: Final = timedelta(seconds=10)


async def read_temporal_clock(client: Client) -> datetime:
    """
    The server's own time, read from the start of a workflow that nobody ever runs.

    Raises:
        ConfigurationRefused: The namespace is not there, or may not be used.
    """
    try:
        handle = await client.start_workflow(
            "ReadClock",
            id=f"doctor/{uuid4()}",
            task_queue=_NOBODYS_QUEUE,
            # Should the end below not be reached, it is gone by itself.
            execution_timeout=_GONE_AFTER,
            static_summary="Asks for the server's time; nothing runs.",
        )
        started = (await handle.describe()).start_time
        await handle.terminate(reason="the time is read")
    except RPCError as error:
        raise ConfigurationRefused(
            setting="ONCEFENCE_TEMPORAL_NAMESPACE",
            reason=f"Temporal answers, but not for namespace {client.namespace} "
            f"({error.status.name})",
            remedy="Make the namespace, or name the right one",
        ) from None
    return started
