"""
The Python client of a door: how a Runtime hands effects over and asks what became of them.

    async with RuntimeClient(url, credential) as door:
        receipt = await door.hand_over("outbox-17", "lead.title.push", "lead-1", payload)
        report = await door.wait(receipt.execution, timeout_seconds=60)

Every call may be repeated: a door answers a repeat with what it answered before. So the client
repeats by itself, a few times, where no answer came.
"""

import asyncio
import random
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from types import TracebackType
from typing import Final, Self

import httpx
from pydantic import BaseModel

from oncefence.app.door_answers import (
    DoorUnavailable,
    ExecutionStillOpen,
    HandoffRefused,
    none_of_ours,
    read_admission,
    read_answer,
    receipt_of,
)
from oncefence.app.door_messages import (
    REASON_UNSTATED,
    AcceptedReceipt,
    ExecutionReport,
    HandoffRequest,
    PayloadStaged,
    RejectionRequest,
    ScopeReport,
    Undecided,
)
from oncefence.domain.command import Receipt
from oncefence.domain.errors import ConfigurationRefused
from oncefence.domain.execution import ExecutionStatus
from oncefence.domain.handoff import (
    EffectHandoffKey,
    TrustedRuntimeWorkScope,
    payload_digest,
)
from oncefence.domain.ids import (
    CapabilityId,
    ExecutionId,
    InstallationId,
    OrgId,
    OutboxId,
    PayloadDigest,
    WorkBindingDigest,
)
from oncefence.domain.redaction import Secret

__all__ = [
    "DoorUnavailable",
    "ExecutionReport",
    "ExecutionStillOpen",
    "HandoffRefused",
    "RuntimeClient",
]

TRIES_MAX: Final = 5
PAUSE_SECONDS_MAX: Final = 5.0
_FIRST_PAUSE_SECONDS: Final = 0.1
_POLL_SECONDS_MIN, _POLL_SECONDS_MAX = 0.05, 1.0
# What a door or a proxy before it says when it could not get to an answer.
_UNANSWERED: Final = frozenset((429, 502, 503, 504))

Pause = Callable[[float], Awaitable[None]]

_BEARER: Final = re.compile(r"[!-~]{1,512}")


@dataclass(frozen=True, slots=True, kw_only=True)
class DoorAnswer:
    """What came back from a door, not read yet."""

    status: int
    content: bytes = field(repr=False)


class DoorLine:
    """The way to a door under one bearer secret; whoever uses it knows what may be repeated."""

    def __init__(
        self,
        base_url: str,
        bearer: Secret,
        *,
        timeout_seconds: float = 30.0,
        transport: httpx.AsyncBaseTransport | None = None,
        pause: Pause = asyncio.sleep,
    ) -> None:
        self._bearer = bearer
        self._pause = pause
        # The environment's proxies and .netrc are nothing that a credential should meet by chance.
        self._http = httpx.AsyncClient(
            base_url=base_url,
            timeout=httpx.Timeout(timeout_seconds, connect=min(5.0, timeout_seconds)),
            transport=transport,
            trust_env=False,
            follow_redirects=False,
            # To read whom the world trusts takes longer than a whole call on this machine, and
            # where there is no TLS nobody is asked.
            verify=base_url.lower().startswith("https:"),
        )

    async def close(self) -> None:
        """Close every connection."""
        await self._http.aclose()

    async def call(
        self,
        verb: str,
        method: str,
        path: str,
        content: bytes | None = None,
        media_type: str | None = None,
        *,
        query: Mapping[str, str | int] | None = None,
        may_repeat: bool = True,
    ) -> DoorAnswer:
        """
        What the door answers; without `may_repeat`, asked again only where it was not reached.

        Raises:
            DoorUnavailable: No answer; it may have happened.
        """
        headers = {"Authorization": f"Bearer {self._bearer.reveal()}"}
        if media_type is not None:
            headers["Content-Type"] = media_type
        tries = 0
        was_ever_reached = False
        while True:
            tries += 1
            asked = None
            was_reached = True
            try:
                response = await self._http.request(
                    method, path, content=content, headers=headers, params=query
                )
            except httpx.TransportError as error:
                was_reached = not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
                reason = type(error).__name__
            else:
                if response.status_code not in _UNANSWERED:
                    return DoorAnswer(status=response.status_code, content=response.content)
                reason = f"status {response.status_code}"
                asked = response.headers.get("Retry-After")
            was_ever_reached |= was_reached
            if tries == TRIES_MAX or (was_reached and not may_repeat):
                raise DoorUnavailable(
                    verb=verb,
                    reason=f"{reason} at {self._http.base_url}, {tries} times",
                    was_reached=was_ever_reached,
                )
            await self._pause(_pause_seconds(tries, asked))


class RuntimeClient:
    """One Runtime's way to a door, under one credential; open it with `async with`."""

    def __init__(
        self,
        base_url: str,
        credential: str | Secret,
        *,
        timeout_seconds: float = 30.0,
        transport: httpx.AsyncBaseTransport | None = None,
        pause: Pause = asyncio.sleep,
    ) -> None:
        """
        Make a client; nothing is sent yet.

        Raises:
            ConfigurationRefused: The URL is no http(s) URL, or the credential cannot be one.
        """
        self._base_url = checked_url(base_url, setting="ONCEFENCE_URL")
        self._pause = pause
        self._scope: TrustedRuntimeWorkScope | None = None
        self._line = DoorLine(
            self._base_url,
            checked_bearer(
                credential,
                setting="ONCEFENCE_CREDENTIAL",
                remedy="Give exactly what `oncefence runtime register` printed",
            ),
            timeout_seconds=timeout_seconds,
            transport=transport,
            pause=pause,
        )

    def __repr__(self) -> str:
        return f"RuntimeClient({self._base_url!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection; the client is of no use afterwards."""
        await self._line.close()

    async def scope(self) -> TrustedRuntimeWorkScope:
        """The work scope of the credential; asked once."""
        if self._scope is None:
            response = await self._line.call("scope", "GET", "/v1/scope")
            found = read_answer("scope", response.status, response.content, ScopeReport)
            self._scope = TrustedRuntimeWorkScope(
                org=OrgId(found.org),
                installation=InstallationId(found.installation),
                capability=CapabilityId(found.capability),
                work_binding_digest=WorkBindingDigest(found.work_binding_digest),
            )
        return self._scope

    async def key_for(self, outbox_id: str) -> EffectHandoffKey:
        """The one handoff key of an outbox entry (C139)."""
        return EffectHandoffKey.for_outbox(await self.scope(), OutboxId(outbox_id))

    async def put_payload(self, payload: bytes) -> PayloadDigest:
        """Have the door keep these bytes until a handoff names them, and give their digest."""
        digest = payload_digest(payload)
        response = await self._line.call(
            "put payload", "PUT", f"/v1/payloads/{digest}", payload, "application/octet-stream"
        )
        read_answer("put payload", response.status, response.content, PayloadStaged)
        return digest

    async def hand_over(
        self, outbox_id: str, operation: str, subject: str, payload: bytes
    ) -> Receipt:
        """
        The receipt of this outbox entry: newly accepted, or what it was given before.

        Until there is one, keep the entry and call again: the entry has one key, so however
        often it is handed over it becomes one command.

        Raises:
            HandoffRefused: The door said no.
            DoorUnavailable: No answer; it may be accepted.
        """
        key = await self.key_for(outbox_id)
        digest = await self.put_payload(payload)
        message = HandoffRequest.model_construct(
            handoff_key=str(key),
            payload_digest=digest,
            outbox_id=outbox_id,
            operation=operation,
            subject=subject,
        )
        response = await self._send("hand over", "/v1/handoffs", message)
        accepted = read_answer("hand over", response.status, response.content, AcceptedReceipt)
        is_new = response.status == HTTPStatus.CREATED
        return receipt_of("hand over", key, accepted, is_new=is_new)

    async def reject(
        self, outbox_id: str, digest: PayloadDigest, *, reason: str = REASON_UNSTATED
    ) -> Receipt:
        """
        Proof that this outbox entry never becomes a command, or the receipt that it has.

        Raises:
            HandoffRefused: The door said no.
            DoorUnavailable: No answer; it may be rejected.
        """
        key = await self.key_for(outbox_id)
        message = RejectionRequest.model_construct(
            handoff_key=str(key), payload_digest=digest, outbox_id=outbox_id, reason=reason
        )
        response = await self._send("reject", "/v1/handoffs/reject", message)
        found = read_admission("reject", response.status, response.content)
        if isinstance(found, Undecided):
            raise none_of_ours("reject", response.status)
        return receipt_of("reject", key, found)

    async def admission(self, key: EffectHandoffKey) -> Receipt | None:
        """What was decided about `key`; None is undecided, which proves nothing (C132)."""
        response = await self._line.call("admission", "GET", f"/v1/handoffs/{key}")
        found = read_admission("admission", response.status, response.content)
        return None if isinstance(found, Undecided) else receipt_of("admission", key, found)

    async def execution(self, execution: ExecutionId) -> ExecutionReport:
        """
        What may be known of an execution now.

        Raises:
            HandoffRefused: There is none of this id in the credential's scope.
        """
        response = await self._line.call("execution", "GET", f"/v1/executions/{execution}")
        return read_answer("execution", response.status, response.content, ExecutionReport)

    async def wait(self, execution: ExecutionId, *, timeout_seconds: float) -> ExecutionReport:
        """
        The report once the execution settled, or once only a person can move it on.

        Raises:
            ExecutionStillOpen: Neither came in time; nothing is lost by asking again.
        """
        clock = asyncio.get_running_loop().time
        until = clock() + timeout_seconds
        delay = _POLL_SECONDS_MIN
        while True:
            report = await self.execution(execution)
            if report.is_settled or report.status is ExecutionStatus.NEEDS_ATTENTION:
                return report
            left = until - clock()
            if left <= 0:
                raise ExecutionStillOpen(report=report)
            await self._pause(min(delay, left))
            delay = min(delay * 2, _POLL_SECONDS_MAX)

    async def _send(self, verb: str, path: str, message: BaseModel) -> DoorAnswer:
        try:
            content = message.model_dump_json().encode()
        except ValueError:
            raise HandoffRefused(
                code="json_refused",
                detail="outbox id, operation, subject and reason must be text that UTF-8 can "
                "write; nothing was sent",
                status=HTTPStatus.BAD_REQUEST,
            ) from None
        return await self._line.call(verb, "POST", path, content, "application/json")


def _pause_seconds(tries: int, asked: str | None) -> float:
    if asked is not None and asked.isascii() and asked.isdecimal():
        return min(float(asked), PAUSE_SECONDS_MAX)
    window = _FIRST_PAUSE_SECONDS * 2.0**tries
    # Many clients lose one door in the same moment and should not come back in the same one.
    return min(window * random.uniform(0.5, 1.0), PAUSE_SECONDS_MAX)  # noqa: S311  # no secret


def checked_url(text: str, *, setting: str) -> str:
    """
    The address of a door, without its last slash.

    Raises:
        ConfigurationRefused: It is none.
    """
    reason = None
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL:
        reason = "this is no URL"
    else:
        if url.scheme not in ("http", "https") or not url.host:
            reason = "this is no http or https URL"
        elif url.userinfo or url.query or url.fragment:
            reason = "a user, a query or a fragment has no place in it"
    if reason is not None:
        raise ConfigurationRefused(
            setting=setting,
            reason=reason,
            remedy="Give the address of the doors, like http://127.0.0.1:8080",
        )
    return text.rstrip("/")


def checked_bearer(text: str | Secret, *, setting: str, remedy: str) -> Secret:
    """
    A bearer secret that a header can carry.

    Raises:
        ConfigurationRefused: It cannot be one; the value is not repeated.
    """
    value = text.reveal() if isinstance(text, Secret) else text
    # Checked here, since the error of a header that cannot be sent would repeat it.
    if not _BEARER.fullmatch(value):
        raise ConfigurationRefused(
            setting=setting,
            reason="it is empty, or has blanks or signs that it cannot have",
            remedy=remedy,
        )
    return Secret(value)
