"""
The way out through a proxy: one CONNECT before anything of the request leaves.

Whatever the proxy answers is the proxy's word and never the provider's: no byte of the request
has passed it by then, so each refusal is one before dispatch (C246).
"""

import asyncio
import socket
from dataclasses import dataclass
from typing import Final, Self

import h11

from oncefence.activities.target import Target, TargetPolicy, TargetRefusal, check_target
from oncefence.activities.wire_fault import WireFault
from oncefence.domain.classification import SendFault

_ANSWER_BYTES_MAX: Final = 65_536
_READ_BYTES: Final = 4_096

# The proxy is asked for the same tunnel next time, and says the same: a person must act (C249).
# Any redirect counts among them, since a proxy that redirects is a page to log in at.
_WAITING_DOES_NOT_CURE: Final = frozenset({401, 403, 405, 407, 451, 501, 511, *range(300, 400)})


@dataclass(frozen=True, slots=True, kw_only=True)
class EgressProxy:
    """A proxy that opens tunnels by CONNECT, spoken to in plain HTTP and without credentials."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """
        The proxy at `text`, which is host:port.

        Raises:
            ValueError: It is not.
        """
        target = check_target(f"http://{text}", "/", TargetPolicy(is_local=True))
        # Only what names its port: of a default nobody could say which was meant.
        if isinstance(target, TargetRefusal) or text.rpartition(":")[2] != str(target.port):
            raise ValueError(
                "give host:port, like proxy.internal:3128, without a scheme and without credentials"
            )
        return cls(host=target.host, port=target.port)


async def open_tunnel(connection: socket.socket, target: Target) -> None:
    """
    Have the proxy at the other end connect `connection` to the target.

    Raises:
        WireFault: It did not; nothing of the request was sent.
    """
    loop = asyncio.get_running_loop()
    parser = h11.Connection(h11.CLIENT, max_incomplete_event_size=_ANSWER_BYTES_MAX)
    asking = parser.send(
        h11.Request(
            method="CONNECT",
            target=target.authority,
            headers=[("Host", target.authority), ("User-Agent", "oncefence")],
        )
    )
    parser.send(h11.EndOfMessage())
    received = 0
    try:
        await loop.sock_sendall(connection, asking or b"")
        while not isinstance(event := parser.next_event(), h11.Response):
            if event is h11.NEED_DATA:
                data = await loop.sock_recv(connection, _READ_BYTES)
                received += len(data)
                parser.receive_data(data)
            if received > _ANSWER_BYTES_MAX:
                raise WireFault(SendFault.PROXY_CONNECT, "proxy_answered_without_end")
    except OSError as error:
        raise WireFault(SendFault.PROXY_CONNECT, "proxy_hung_up") from error
    except h11.RemoteProtocolError as error:
        note = "proxy_answered_something_else" if received else "proxy_hung_up"
        raise WireFault(SendFault.PROXY_CONNECT, note) from error
    if not 200 <= event.status_code <= 299:
        is_final = event.status_code in _WAITING_DOES_NOT_CURE
        raise WireFault(
            SendFault.PROXY_REFUSED if is_final else SendFault.PROXY_CONNECT,
            f"proxy_answered_{event.status_code}",
        )
    if parser.trailing_data[0]:
        # In a tunnel that is open the client speaks first: these bytes are nobody's answer.
        raise WireFault(SendFault.PROXY_CONNECT, "proxy_spoke_into_the_tunnel")
