"""
The three doors as a Runtime sees them: the same entry, and the same receipt, through each.

`HttpDoor` imports nothing of oncefence: it is what a Runtime in any language has to do.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol
from uuid import UUID

import httpx
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from temporalio.client import Client

from oncefence.app.client import DoorUnavailable, HandoffRefused, RuntimeClient
from oncefence.app.temporal_client import TemporalRuntimeClient

ACCEPTED, REJECTED = "COMMAND_ACCEPTED", "HANDOFF_REJECTED"
_UNANSWERED = (429, 502, 503, 504)


class NoAnswer(Exception):
    """Nothing is known: it may have been accepted. Keep the entry and ask again."""


class Refused(Exception):
    """The door said no, by a stable code; no admission was written by this call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An outbox entry as it is handed over; the same bytes each time."""

    outbox_id: str
    operation: str
    subject: str
    payload: bytes

    @property
    def digest(self) -> Any:  # a text, for which the clients have a type of their own
        return hashlib.sha256(self.payload).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What was decided about an entry, for good."""

    admission: str
    command_id: UUID | None
    execution_id: UUID | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """One settlement, and the local command that was agreed on when the entry was accepted."""

    completion_id: str
    settlement: int
    supersedes: str | None
    status: str
    command: str
    version: int
    data: dict[str, str | int | bool]


class Door(Protocol):
    """Where an entry is handed over or withdrawn. Each call may be repeated."""

    async def hand_over(self, entry: Entry) -> Receipt: ...

    async def reject(self, entry: Entry) -> Receipt:
        """The entry is no command and never will be, or the receipt that it is one."""


class Results(Protocol):
    """Where a result is asked for."""

    async def completion(self, execution_id: UUID) -> Completion | None:
        """The newest settlement; None where there is none yet, or only a person can bring it."""


class HttpDoor:
    """Plain HTTP under the bearer credential."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    async def key_of(self, entry: Entry) -> str:
        """The scope that the credential stands for, and the entry's own id."""
        scope = await self._ask("GET", "/v1/scope")
        parts = (scope["org"], scope["installation"], scope["capability"])
        return ".".join(("ehk1", *parts, scope["work_binding_digest"], entry.outbox_id))

    async def hand_over(self, entry: Entry) -> Receipt:
        await self._ask("PUT", f"/v1/payloads/{entry.digest}", content=entry.payload)
        body = await self._named(entry) | {"operation": entry.operation, "subject": entry.subject}
        return self._receipt(await self._ask("POST", "/v1/handoffs", json=body))

    async def reject(self, entry: Entry) -> Receipt:
        body = await self._named(entry)
        return self._receipt(await self._ask("POST", "/v1/handoffs/reject", json=body))

    async def completion(self, execution_id: UUID) -> Completion | None:
        told = (await self._ask("GET", f"/v1/executions/{execution_id}"))["completion"]
        if told is None:
            return None
        return Completion(
            completion_id=told["completion_id"],
            settlement=told["settlement"],
            supersedes=told["supersedes"],
            status=told["status"],
            command=told["contract"]["command"],
            version=told["contract"]["version"],
            data=told["contract"]["data"],
        )

    async def _named(self, entry: Entry) -> dict[str, str]:
        return {
            "handoff_key": await self.key_of(entry),
            "payload_digest": entry.digest,
            "outbox_id": entry.outbox_id,
        }

    @staticmethod
    def _receipt(told: dict[str, Any]) -> Receipt:
        if told["admission"] == REJECTED:
            return Receipt(admission=REJECTED, command_id=None, execution_id=None)
        return Receipt(
            admission=ACCEPTED,
            command_id=UUID(told["command_id"]),
            execution_id=UUID(told["execution_id"]),
        )

    async def _ask(self, method: str, path: str, **content: Any) -> dict[str, Any]:
        try:
            answer = await self._http.request(method, path, **content)
        except httpx.TransportError as error:
            raise NoAnswer(type(error).__name__) from None
        if answer.status_code in _UNANSWERED or answer.status_code >= 500:
            raise NoAnswer(f"status {answer.status_code}")
        told: dict[str, Any] = answer.json()
        if not answer.is_success:
            raise Refused(told["code"])
        return told


class PythonDoor:
    """The Python client of the same door."""

    def __init__(self, client: RuntimeClient) -> None:
        self._client = client

    async def hand_over(self, entry: Entry) -> Receipt:
        return await _answered(
            self._client.hand_over(entry.outbox_id, entry.operation, entry.subject, entry.payload)
        )

    async def reject(self, entry: Entry) -> Receipt:
        return await _answered(self._client.reject(entry.outbox_id, entry.digest))


class TemporalDoor:
    """The workflow of the key; only the payload goes over HTTP, before it."""

    def __init__(self, http: RuntimeClient, signed: TemporalRuntimeClient) -> None:
        self._http = http
        self._signed = signed

    async def hand_over(self, entry: Entry) -> Receipt:
        async def put_then_sign() -> Any:
            digest = await self._http.put_payload(entry.payload)
            return await self._signed.hand_over(
                entry.outbox_id, entry.operation, entry.subject, digest
            )

        return await _answered(put_then_sign())

    async def reject(self, entry: Entry) -> Receipt:
        return await _answered(self._signed.reject(entry.outbox_id, entry.digest))


async def _answered(asking: Awaitable[Any]) -> Receipt:
    try:
        told = await asking
    except DoorUnavailable as error:
        raise NoAnswer(error.reason) from None
    except HandoffRefused as error:
        raise Refused(error.code) from None
    return Receipt(
        admission=told.admission.value, command_id=told.command, execution_id=told.execution
    )


# --- opening one -----------------------------------------------------------------------------


class Way(StrEnum):
    """Which door."""

    HTTP = "http"
    PYTHON = "python"
    TEMPORAL = "temporal"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Address:
    """All that a Runtime was given by whoever runs oncefence, and its own private key."""

    url: str
    credential: str
    temporal_address: str
    task_queue: str
    private_key: str


@asynccontextmanager
async def open_http(address: Address) -> AsyncIterator[HttpDoor]:
    """The HTTP door, which is also where results are asked for."""
    headers = {"Authorization": f"Bearer {address.credential}"}
    async with httpx.AsyncClient(
        base_url=address.url, headers=headers, trust_env=False, timeout=30.0, verify=False
    ) as http:
        yield HttpDoor(http)


@asynccontextmanager
async def open_way(
    way: Way,
    address: Address,
    *,
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    timeout_seconds: float = 30.0,
) -> AsyncIterator[Door]:
    """The door of `way`; `pause` and timeout are how patient the two clients are."""
    async with AsyncExitStack() as stack:
        if way is Way.HTTP:
            yield await stack.enter_async_context(open_http(address))
            return
        client = await stack.enter_async_context(
            RuntimeClient(
                address.url, address.credential, timeout_seconds=timeout_seconds, pause=pause
            )
        )
        if way is Way.PYTHON:
            yield PythonDoor(client)
            return
        signed = TemporalRuntimeClient(
            await Client.connect(address.temporal_address),
            await client.scope(),
            Ed25519PrivateKey.from_private_bytes(bytes.fromhex(address.private_key)),
            address.task_queue,
            timeout_seconds=timeout_seconds,
            pause=pause,
        )
        yield TemporalDoor(client, signed)
