"""
From a checked target to a connection on which nothing of the request has been sent.

Names are resolved once, every address is judged, and the address that was judged is the one
connected to; or a proxy is asked to connect, and the name is the proxy's to resolve.
"""

import asyncio
import errno
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable
from ipaddress import ip_address
from typing import Final, SupportsIndex

from oncefence.activities.egress_proxy import EgressProxy, open_tunnel
from oncefence.activities.phase_journal import PhaseJournal
from oncefence.activities.send_deadline import SendDeadline
from oncefence.activities.target import (
    Target,
    TargetPolicy,
    refused_address,
    refused_unresolved,
)
from oncefence.activities.wire_fault import WireFault
from oncefence.domain.classification import SendFault, WirePhase

Resolver = Callable[[str, int], Awaitable[list[str]]]

# What this process or machine has no more of, so that no connection can even be tried.
_NO_MORE_SOCKETS: Final = frozenset(
    {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL}
)


class ArrivalReader(asyncio.StreamReader):
    """A reader that knows whether anything has arrived, also before it is read."""

    has_arrived = False

    def feed_data(self, data: Iterable[SupportsIndex]) -> None:
        self.has_arrived = True
        super().feed_data(data)


async def connect(
    target: Target,
    policy: TargetPolicy,
    *,
    tls: ssl.SSLContext,
    resolver: Resolver,
    deadline: SendDeadline,
    journal: PhaseJournal,
    proxy: EgressProxy | None,
) -> tuple[ArrivalReader, asyncio.StreamWriter]:
    """
    Connect to an address of the target that passed the check, and finish TLS on it.

    Raises:
        WireFault: Not connected; nothing of the request was sent.
    """
    if proxy is None:
        addresses = await _resolve(target, policy, resolver)
        journal.reach(WirePhase.RESOLVED)
        connection = await _connect_to_one_of(addresses, target.port, deadline)
    else:
        connection = await _connect_through(
            proxy, target, policy, resolver=resolver, deadline=deadline, journal=journal
        )
    journal.reach(WirePhase.CONNECTED)
    if target.scheme == "https":
        reader, writer = await _with_tls(connection, tls, target.host)
        journal.reach(WirePhase.TLS)
    else:
        reader, writer = await open_streams(connection)
    return reader, writer


async def system_resolver(host: str, port: int) -> list[str]:
    """Return the addresses of a host in the order in which to try them."""
    if _is_address(host):
        # Nothing to look up, and so no thread to wait for.
        return [host]
    entries = await asyncio.get_running_loop().getaddrinfo(
        host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP
    )
    return list(dict.fromkeys(str(entry[4][0]) for entry in entries))


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    # A zone names an interface of this machine: that is for the system to read.
    return "%" not in host


async def _connect_through(
    proxy: EgressProxy,
    target: Target,
    policy: TargetPolicy,
    *,
    resolver: Resolver,
    deadline: SendDeadline,
    journal: PhaseJournal,
) -> socket.socket:
    """Return a connection that the proxy has joined to the target."""
    refusal = refused_unresolved(target.host, policy)
    if refusal is not None:
        raise WireFault(SendFault.GUARD_REFUSED, refusal.value)
    try:
        # Where the proxy is was set by whoever runs the process: inside, as a rule.
        addresses = await _addresses_of(proxy.host, proxy.port, resolver)
        journal.reach(WirePhase.RESOLVED)
        connection = await _connect_to_one_of(addresses, proxy.port, deadline)
    except WireFault as fault:
        if fault.fault is SendFault.POOL:
            raise
        raise WireFault(SendFault.PROXY_CONNECT, "proxy_was_not_reached") from fault
    # For whoever finds that the deadline passed here; each other end has its own word.
    journal.note = "proxy_has_not_answered"
    try:
        await open_tunnel(connection, target)
    except BaseException:
        connection.close()
        raise
    journal.note = None
    return connection


async def _resolve(target: Target, policy: TargetPolicy, resolver: Resolver) -> list[str]:
    addresses = await _addresses_of(target.host, target.port, resolver)
    refusal = refused_address(addresses, policy)
    if refusal is not None:
        raise WireFault(SendFault.GUARD_REFUSED, refusal.value)
    return addresses


async def _addresses_of(host: str, port: int, resolver: Resolver) -> list[str]:
    try:
        addresses = await resolver(host, port)
    except (OSError, UnicodeError) as error:
        raise WireFault(SendFault.DNS) from error
    if not addresses:
        raise WireFault(SendFault.DNS)
    return addresses


async def _connect_to_one_of(
    addresses: list[str], port: int, deadline: SendDeadline
) -> socket.socket:
    # Another address after a failed connect is no second send: nothing has been written. Each
    # gets an equal share of what is left, so that a silent first one does not use up all.
    failure: OSError | None = None
    for position, address in enumerate(addresses):
        share = max(deadline.remaining(), 0.0) / (len(addresses) - position)
        try:
            async with asyncio.timeout(share):
                return await _connect(address, port)
        except OSError as error:
            # ETIMEDOUT and the end of the share arrive as the same class; both mean: next.
            failure = error
            if error.errno in _NO_MORE_SOCKETS:
                raise WireFault(SendFault.POOL, "no_more_sockets") from error
    raise WireFault(SendFault.CONNECT) from failure


async def _connect(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    connection = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        connection.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connection, (address, port))
    except BaseException:
        connection.close()
        raise
    return connection


async def _with_tls(
    connection: socket.socket, tls: ssl.SSLContext, host: str
) -> tuple[ArrivalReader, asyncio.StreamWriter]:
    try:
        return await open_streams(connection, ssl=tls, server_hostname=host)
    except ssl.SSLCertVerificationError as error:
        raise WireFault(SendFault.CERTIFICATE, "certificate_not_verified") from error
    except OSError as error:
        raise WireFault(SendFault.TLS) from error


async def open_streams(
    connection: socket.socket,
    *,
    ssl: ssl.SSLContext | None = None,
    server_hostname: str | None = None,
) -> tuple[ArrivalReader, asyncio.StreamWriter]:
    """Return the streams over a connected socket, after the handshake where TLS is asked for."""
    loop = asyncio.get_running_loop()
    reader = ArrivalReader(loop=loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    transport, _ = await loop.create_connection(
        lambda: protocol, sock=connection, ssl=ssl, server_hostname=server_hostname
    )
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)
