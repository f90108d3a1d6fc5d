"""How the tests send one request to a server of their own."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from oncefence.activities.http_once import (
    SendDeadline,
    TargetPolicy,
    WireAnswer,
    WireRequest,
    http_once,
)
from tests.providers.raw_server import RawServer

LOCAL = TargetPolicy(is_local=True)
BODY = b'{"properties":{"jobtitle":"Lead"}}'


def request_to(server: RawServer, **changes: Any) -> WireRequest:
    values: dict[str, Any] = {
        "base_url": server.base_url,
        "method": "PATCH",
        "target": "/objects/501",
        "headers": {"content-type": "application/json"},
        "body": BODY,
    }
    return WireRequest(**values | changes)


async def send(
    server: RawServer,
    *,
    deadline_ms: int = 5_000,
    response_limit_bytes: int = 1_048_576,
    **changes: Any,
) -> WireAnswer:
    return await http_once(
        request_to(server, **changes),
        deadline=SendDeadline.anchor(deadline_ms),
        policy=LOCAL,
        response_limit_bytes=response_limit_bytes,
    )


def connected_to(server: RawServer) -> socket.socket:
    """A socket that the server's queue has taken."""
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=5)
    connection.setblocking(False)
    return connection


class ManualClock:
    """A boot-time clock that the test moves."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@contextmanager
def swallowing_host(address: str, port: int) -> Iterator[int]:
    """Yield a port on which a connect is never answered: its queue is full and drops the SYN."""
    with socket.socket() as listener:
        listener.bind((address, port))
        listener.listen(0)
        bound: int = listener.getsockname()[1]
        fillers = [socket.socket() for _ in range(4)]
        try:
            for filler in fillers:
                filler.setblocking(False)
                filler.connect_ex((address, bound))
            yield bound
        finally:
            for filler in fillers:
                filler.close()
