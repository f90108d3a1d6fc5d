"""Proxies that a script plays: what they answer to CONNECT, and a tunnel where they open one."""

import asyncio

from oncefence.activities.http_once import EgressProxy
from tests.providers.raw_server import Call, RawServer, Script

OPENED = b"HTTP/1.1 200 Connection established\r\n\r\n"


def proxy_at(server: RawServer) -> EgressProxy:
    """The server as a setting names it."""
    return EgressProxy.parse(f"127.0.0.1:{server.port}")


def asked_for(server: RawServer) -> list[bytes]:
    """The first lines of what the proxy was asked, one for each connection."""
    return [bytes(part).partition(b"\r\n")[0] for part in server.received]


def answers_connect(data: bytes) -> Script:
    """Return a proxy that answers each CONNECT by these bytes and hangs up."""

    async def script(call: Call) -> None:
        await call.read_request()
        await call.send(data)

    return script


def tunnels_to(provider: RawServer, *, answer: bytes = OPENED) -> Script:
    """Return a proxy that joins each caller to the provider, whatever name was asked for."""

    async def script(call: Call) -> None:
        await call.read_request()
        reader, writer = await asyncio.open_connection("127.0.0.1", provider.port)
        await call.send(answer)
        back = asyncio.create_task(_pass_on(reader, call.writer))
        await _pass_on(call.reader, writer)
        await back
        writer.close()

    return script


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
    except ConnectionError:
        writer.close()
