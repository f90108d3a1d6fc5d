"""
One HTTP request on the wire, at most, and an account of how far it got.

With `app/client.py` the only module that uses httpx. There is no httpx client here, so none
of what a client adds can happen: redirects, cookies, environment proxies, authentication
flows, pooled connections, retries (C240). A request is an `httpx.Request`, it goes over a
connection of its own, and an answer is an `httpx.Response`.
"""

import ssl
from asyncio import timeout
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing
from functools import cache
from types import MappingProxyType
from typing import Final, cast

import h11
import httpcore
import httpx

from oncefence.activities.connecting import Resolver, system_resolver
from oncefence.activities.egress_proxy import EgressProxy
from oncefence.activities.phase_journal import PhaseJournal
from oncefence.activities.send_deadline import SendDeadline
from oncefence.activities.target import Target, TargetPolicy, TargetRefusal, check_target
from oncefence.activities.wire import GuardedStream, has_bytes_after_the_answer, open_stream
from oncefence.activities.wire_fault import DeadlinePassed, HookRaised, WireFault
from oncefence.activities.wire_message import (
    METHODS,
    WireAnswer,
    WireRequest,
    checked_headers,
    host_named_by,
)
from oncefence.domain.classification import SendFault, WirePhase

__all__ = [
    "EgressProxy",
    "PhaseJournal",
    "SendDeadline",
    "TargetPolicy",
    "WireAnswer",
    "WireRequest",
    "fault_of",
    "http_once",
    "load_trust",
]

RESPONSE_LIMIT_BYTES: Final = 1024 * 1024

# Chunks of a byte cost far more to read than they weigh.
_PARTS_MAX: Final = 65_536


# By class of error, and only a refinement: the phase decides (C247). A test compares these with
# what the libraries define, so that an upgrade cannot bring one that nobody read.
_ERRORS_OF: Final[Mapping[SendFault, tuple[type[Exception], ...]]] = {
    SendFault.POOL: (
        *(httpcore.ConnectionNotAvailable, httpcore.PoolTimeout),
        httpx.PoolTimeout,
    ),
    SendFault.PROXY_CONNECT: (httpcore.ProxyError, httpx.ProxyError),
    SendFault.CONNECT: (
        *(httpcore.ConnectError, httpcore.ConnectTimeout),
        *(httpx.ConnectError, httpx.ConnectTimeout),
    ),
    SendFault.TLS: (ssl.SSLError, ssl.SSLWantReadError, ssl.SSLWantWriteError),
    SendFault.CERTIFICATE: (ssl.SSLCertVerificationError,),
    # Our own request broke a rule of HTTP: what the guards let through is still refused.
    SendFault.GUARD_REFUSED: (
        *(httpcore.UnsupportedProtocol, httpcore.LocalProtocolError),
        *(httpx.UnsupportedProtocol, httpx.LocalProtocolError, httpx.InvalidURL),
        h11.LocalProtocolError,
    ),
    SendFault.DEADLINE: (
        *(httpcore.TimeoutException, httpcore.ReadTimeout, httpcore.WriteTimeout),
        *(httpx.TimeoutException, httpx.ReadTimeout, httpx.WriteTimeout),
    ),
    SendFault.LOST: (
        *(httpcore.NetworkError, httpcore.ReadError, httpcore.WriteError),
        *(httpx.NetworkError, httpx.ReadError, httpx.WriteError, httpx.CloseError),
        *(httpx.TransportError, OSError),
        *(ssl.SSLZeroReturnError, ssl.SSLSyscallError, ssl.SSLEOFError),
    ),
    SendFault.GARBLED: (
        *(httpcore.ProtocolError, httpcore.RemoteProtocolError),
        *(httpx.ProtocolError, httpx.RemoteProtocolError),
        *(h11.ProtocolError, h11.RemoteProtocolError),
    ),
    SendFault.ENCODED: (httpx.DecodingError,),
    # What only a client or a careless reader raises, and neither is here.
    SendFault.UNEXPECTED: (
        *(httpx.HTTPError, httpx.RequestError, httpx.HTTPStatusError, httpx.TooManyRedirects),
        *(httpx.CookieConflict, httpx.StreamError, httpx.StreamConsumed, httpx.StreamClosed),
        *(httpx.ResponseNotRead, httpx.RequestNotRead),
    ),
}
_FAULTS: Final = MappingProxyType(
    {error: fault for fault, errors in _ERRORS_OF.items() for error in errors}
)


def fault_of(error: Exception) -> SendFault:
    """Name the fault that an error of the transport stands for."""
    if isinstance(error, WireFault):
        return error.fault
    for ancestor in type(error).__mro__:
        if ancestor in _FAULTS:
            return _FAULTS[ancestor]
    return SendFault.UNEXPECTED


async def http_once(
    request: WireRequest,
    *,
    deadline: SendDeadline,
    policy: TargetPolicy,
    response_limit_bytes: int = RESPONSE_LIMIT_BYTES,
    before_first_byte: Callable[[], None] | None = None,
    journal: PhaseJournal | None = None,
    tls: ssl.SSLContext | None = None,
    resolver: Resolver = system_resolver,
    proxy: EgressProxy | None = None,
) -> WireAnswer:
    """
    Send the request at most once and return what came of it; faults of the wire do not raise.

    With a proxy, nothing goes out but through it.

    `before_first_byte` runs last, directly before the deadline is checked and the first byte
    leaves; what it raises is raised here, and nothing was sent. A caller that must know the
    phase even when it is cancelled passes its own journal.
    """
    if tls is not None:
        _verifying(tls)
    journal = PhaseJournal() if journal is None else journal
    exchange = _Exchange()
    fault: SendFault | None
    try:
        context = _default_tls() if tls is None else tls
        outgoing, target = _prepare(request, policy, journal)
        if deadline.has_passed():
            raise DeadlinePassed  # noqa: TRY301  # the same way out as from the last check
        async with timeout(deadline.remaining()):
            stream = await open_stream(
                target,
                policy,
                tls=context,
                resolver=resolver,
                deadline=deadline,
                journal=journal,
                before_first_byte=before_first_byte,
                response_limit_bytes=response_limit_bytes,
                proxy=proxy,
            )
            try:
                fault = await exchange.run(outgoing, stream, target, journal, response_limit_bytes)
            finally:
                stream.abort()
    except HookRaised as raised:
        raise raised.error from None
    except (DeadlinePassed, TimeoutError):
        fault = SendFault.DEADLINE
    except Exception as error:  # noqa: BLE001  # after the mark every error has a phase and a class
        fault = fault_of(error)
        journal.note = _note_of(error, fault) or journal.note
        if fault is SendFault.GARBLED and exchange.was_cut_short:
            fault = SendFault.LOST
    journal.fault = fault
    if exchange.status is not None and 300 <= exchange.status <= 399:
        journal.redirect_host = host_named_by(exchange.headers.get("location", ""))
    return WireAnswer(
        phase=journal.phase,
        journal=journal,
        status=exchange.status,
        headers=exchange.headers,
        body=None if exchange.status is None else bytes(exchange.body),
        complete=fault is None and journal.phase is WirePhase.COMPLETE,
        fault=fault,
    )


def _note_of(error: Exception, fault: SendFault) -> str | None:
    if isinstance(error, WireFault):
        return error.note
    # The name of the class is ours to keep; its text may hold an address or a header.
    return type(error).__name__ if fault is SendFault.UNEXPECTED else None


def _prepare(
    request: WireRequest, policy: TargetPolicy, journal: PhaseJournal
) -> tuple[httpx.Request, Target]:
    target = check_target(request.base_url, request.target, policy)
    if isinstance(target, TargetRefusal):
        raise WireFault(SendFault.GUARD_REFUSED, target.value)
    if request.method not in METHODS:
        raise WireFault(SendFault.GUARD_REFUSED, TargetRefusal.METHOD.value)
    headers = checked_headers(request)
    if isinstance(headers, TargetRefusal):
        raise WireFault(SendFault.GUARD_REFUSED, headers.value)
    outgoing = httpx.Request(
        request.method,
        target.url,
        headers=headers,
        content=request.body,
        extensions={"trace": journal.trace},
    )
    # A second parser must read the same origin and path out of it as the guard did (C242).
    url = outgoing.url
    final = (url.scheme, url.host, url.port or _port_of(url.scheme), url.raw_path)
    if final != (target.scheme, target.host, target.port, target.path_and_query.encode()):
        raise WireFault(SendFault.GUARD_REFUSED, TargetRefusal.FINAL_URL.value)
    return outgoing, target


def _port_of(scheme: str) -> int:
    return 443 if scheme == "https" else 80


@cache
def _default_tls() -> ssl.SSLContext:
    return _verifying(httpx.create_ssl_context(trust_env=False))


def load_trust() -> None:
    """Load the certificates, at a process's start and not within its first send's deadline."""
    _default_tls()


def _verifying(tls: ssl.SSLContext) -> ssl.SSLContext:
    if tls.verify_mode is not ssl.CERT_REQUIRED or not tls.check_hostname:
        raise ValueError("the TLS context must verify certificates and host names")
    # HTTP/2 is not offered: its GOAWAY makes transports send again on their own.
    tls.set_alpn_protocols(["http/1.1"])
    return tls


class _Exchange:
    """The one request and what arrived of its answer, kept while it arrives."""

    def __init__(self) -> None:
        self.status: int | None = None
        self.headers: dict[str, str] = {}
        self.body = bytearray()
        self._parts = 0
        self._stream: GuardedStream | None = None

    @property
    def was_cut_short(self) -> bool:
        """The peer ended the connection, which the parser reports as broken protocol."""
        return self._stream is not None and self._stream.has_ended

    async def run(
        self,
        request: httpx.Request,
        stream: GuardedStream,
        target: Target,
        journal: PhaseJournal,
        limit_bytes: int,
    ) -> SendFault | None:
        """Send, and read the answer to its end or to the limit; return what it lacks."""
        self._stream = stream
        response = await _OneRequestTransport(stream, target).handle_async_request(request)
        self.status = response.status_code
        self.headers = dict(response.headers.items())
        # Declared as an iterator, made as a generator: closed here and not by the collector.
        parts = cast(AsyncGenerator[bytes, None], response.aiter_raw())
        try:
            async with aclosing(parts):
                async for part in parts:
                    room = limit_bytes - len(self.body)
                    self.body += part[:room]
                    self._parts += 1
                    if len(part) > room or self._parts > _PARTS_MAX:
                        return SendFault.TOO_LARGE
        finally:
            await response.aclose()
        fault = _framing_fault(response, request.method)
        if fault is None:
            received = bytes(stream.received)
            is_longer = await has_bytes_after_the_answer(received, request.method)
            fault = SendFault.GARBLED if is_longer else None
        if fault is None:
            journal.reach(WirePhase.COMPLETE)
            if response.headers.get("content-encoding", "identity").lower() != "identity":
                fault = SendFault.ENCODED
            elif stream.was_answered_early:
                fault = SendFault.EARLY
        return fault


def _framing_fault(response: httpx.Response, method: str) -> SendFault | None:
    """Judge whether the end of the answer was declared, and declared in one way."""
    has_length = "content-length" in response.headers
    has_coding = "transfer-encoding" in response.headers
    is_old = response.extensions["http_version"] != b"HTTP/1.1"
    if has_coding and (has_length or is_old):
        return SendFault.GARBLED
    if response.status_code in {204, 304} or method == "HEAD":
        return None
    return None if has_length or has_coding else SendFault.UNFRAMED


class _OneRequestTransport(httpx.AsyncBaseTransport):
    """Speaks HTTP/1.1 over a stream that is already open: no pool, no name, no second try."""

    def __init__(self, stream: GuardedStream, target: Target) -> None:
        self._origin = httpcore.Origin(target.scheme.encode(), target.host.encode(), target.port)
        self._connection = httpcore.AsyncHTTP11Connection(origin=self._origin, stream=stream)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        answer = await self._connection.handle_async_request(
            httpcore.Request(
                method=request.method,
                url=httpcore.URL(
                    scheme=self._origin.scheme,
                    host=self._origin.host,
                    port=self._origin.port,
                    target=request.url.raw_path,
                ),
                headers=request.headers.raw,
                content=request.stream,
                extensions=request.extensions,
            )
        )
        return httpx.Response(
            status_code=answer.status,
            headers=answer.headers,
            stream=_Body(answer.aiter_stream()),
            extensions=answer.extensions,
        )


class _Body(httpx.AsyncByteStream):
    """The parts of an answer; httpcore's generator is handed on and closed as such."""

    def __init__(self, parts: AsyncIterator[bytes]) -> None:
        self._parts = parts

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._parts

    async def aclose(self) -> None:
        if isinstance(self._parts, AsyncGenerator):
            await self._parts.aclose()
