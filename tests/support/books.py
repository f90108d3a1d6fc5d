"""
A provider that makes records and keeps idempotency keys: real HTTP, with every request on record.

Only `tests/data/packs/books.toml` knows it. `BooksWorld` is an org with an account there.
"""

import asyncio
import json
import select
import socket
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from http.server import BaseHTTPRequestHandler
from itertools import count
from time import time
from urllib.parse import parse_qs, urlsplit

from oncefence.activities.attempt import AttemptActivity
from oncefence.activities.contracts import RunRequest, RunResult
from oncefence.activities.lookup import LookupActivity
from oncefence.activities.process_context import ProcessContext
from oncefence.catalog.loader import load_binding, load_pack
from oncefence.catalog.view import IntegrationBindingView, compile_view
from oncefence.domain.command import Handover
from oncefence.domain.handoff import EffectHandoffKey, payload_digest
from oncefence.domain.ids import OutboxId, WorkId
from oncefence.domain.limits import Limits
from oncefence.storage.phases.find_work import WorkRef
from oncefence.storage.phases.read_view import ViewShelf
from oncefence.storage.phases.stage_payload import stage_payload
from tests.support.dialect import DATA, Dialect, Provider
from tests.support.servers import Database
from tests.support.serving import serving
from tests.support.station import ProviderWorld
from tests.support.world import Accepted

TOKEN = "token-of-the-books"
CHANGE, SWAP = "customer.plan.push", "customer.plan.swap"
CREATE, OPEN = "customer.create", "customer.open"
_PATHS = {"/v1/accounts": 200, "/v2/accounts": 201}


class Trouble(StrEnum):
    """What goes wrong with the next request that writes."""

    LOST = "lost"
    """Done, and the connection ends without an answer."""

    HANG = "hang"
    """Nothing is done, and nothing is answered."""

    FAULT = "fault"
    """500, which is kept under the key like every other answer."""

    IN_FLIGHT = "in_flight"
    """409: the request before is still at work."""

    TOO_MANY = "too_many"
    """429, and nothing is done."""

    REFUSED = "refused"
    """400, and nothing is done."""

    BARE = "bare"
    """Done, and answered without the id."""

    DECLINED = "declined"
    """200, and the body says that nothing is done."""

    DAILY = "daily"
    """429 of the limit of a day, without a header that says when."""

    SAME_AGAIN = "same_again"
    """Answered with the record that was made first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One request exactly as it came."""

    method: str
    path: str
    headers: tuple[tuple[str, str], ...]
    body: bytes

    @property
    def key(self) -> str | None:
        return self.header("Idempotency-Key")

    def header(self, name: str) -> str | None:
        return {each.lower(): value for each, value in self.headers}.get(name.lower())

    def without(self, *names: str) -> "Seen":
        """The request but for these headers."""
        left = tuple(pair for pair in self.headers if pair[0].lower() not in names)
        return Seen(method=self.method, path=self.path, headers=left, body=self.body)


@dataclass(slots=True)
class Books:
    """Its accounts, the requests that came, and what it is told to do next."""

    accounts: dict[str, dict[str, object]] = field(default_factory=dict)
    seen: list[Seen] = field(default_factory=list)
    troubles: list[Trouble] = field(default_factory=list)
    kept: dict[str, tuple[int, dict[str, object]]] = field(default_factory=dict)
    is_deaf: bool = False
    """A search ignores what is asked for, and shows whatever it has."""

    search_answers: int = 200
    cuts_reads: bool = False
    """An answer to a read ends before its announced length."""

    port: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    numbers: Iterator[int] = field(default_factory=lambda: count(501))

    @property
    def writes(self) -> list[Seen]:
        return [each for each in self.seen if each.method != "GET"]

    @property
    def reads(self) -> list[Seen]:
        return [each for each in self.seen if each.method == "GET"]

    def meet(self, *troubles: Trouble) -> None:
        """The next requests that write meet these, one each."""
        self.troubles.extend(troubles)

    def forget_keys(self) -> None:
        """As a day later: a key that comes again is new."""
        with self.lock:
            self.kept.clear()

    def add(self, **values: object) -> str:
        """An account that is there already; its id."""
        with self.lock:
            return self._make(dict(values))

    def _make(self, values: dict[str, object]) -> str:
        identity = f"acc_{next(self.numbers)}"
        now = int(time() * 1000)
        self.accounts[identity] = {"id": identity, "made_ms": now, "changed_ms": now, **values}
        return identity

    def write(self, path: str, values: dict[str, object], trouble: Trouble | None) -> str | None:
        """Do what the request asks; the id of its account, None where there is none."""
        if path in _PATHS:
            if trouble is Trouble.SAME_AGAIN:
                return next(iter(self.accounts))
            return self._make(values)
        identity = path.rpartition("/")[2]
        if identity not in self.accounts:
            return None
        self.accounts[identity] |= values | {"changed_ms": int(time() * 1000)}
        return identity

    def as_provider(self) -> Provider:
        return Provider(
            base_url=f"http://127.0.0.1:{self.port}",
            dialect=Dialect(
                pack_name="books",
                pack_text=(DATA / "packs" / "books.toml").read_text("utf-8"),
                binding_text=(DATA / "books.binding.toml").read_text("utf-8"),
                token=TOKEN,
            ),
            make_record=lambda: self.add(email="", plan="before"),
        )


@contextmanager
def books_provider() -> Iterator[Books]:
    """The provider on a port of its own, until the end of the block."""
    books = Books()

    class Handler(_Handler):
        of = books

    with serving(Handler) as port:
        books.port = port
        yield books


class _Handler(BaseHTTPRequestHandler):
    of: Books
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:  # the name is the library's
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self._note(body)
        books, key = self.of, self.headers["Idempotency-Key"]
        with books.lock:
            trouble = books.troubles.pop(0) if books.troubles else None
            if trouble is Trouble.HANG:
                answer = None
            elif trouble is Trouble.IN_FLIGHT:
                answer = (409, {"error": {"code": "in_flight"}}, {"Retry-After": "1"})
            elif trouble is Trouble.TOO_MANY:
                answer = (429, {"error": {"code": "slow_down"}}, {"Retry-After": "1"})
            elif trouble is Trouble.DAILY:
                answer = (429, {"limit": "DAILY"}, {})
            elif trouble is Trouble.DECLINED:
                answer = (200, {"declined": True}, {})
            elif trouble is Trouble.REFUSED:
                answer = (400, {"error": {"code": "refused"}}, {})
            elif key in books.kept:
                status, kept = books.kept[key]
                answer = (status, kept, {"X-Replayed": "true"})
            else:
                answer = self._done(json.loads(body), trouble)
                if key is not None:
                    books.kept[key] = answer[:2]
        if answer is None:
            self._wait_until_gone()
        elif trouble is Trouble.LOST:
            self.close_connection = True
        else:
            self._say(*answer)

    def do_PUT(self) -> None:  # the name is the library's
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self._note(body)
        with self.of.lock:
            account = self.of.accounts[self.path.rpartition("/")[2]]
            is_known = self.headers["If-Match"] == account.get("tag")
            if is_known:
                account |= json.loads(body) | {"tag": "another"}
        if not is_known:
            self._say(412, {"error": {"code": "changed"}}, {})
            return
        self.send_response(204)
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True

    def _done(
        self, values: dict[str, object], trouble: Trouble | None
    ) -> tuple[int, dict[str, object], dict[str, str]]:
        identity = self.of.write(self.path, values, trouble)
        if identity is None:
            return 404, {"error": {"code": "no_such_account"}}, {}
        if trouble is Trouble.FAULT:
            return 500, {"error": {"code": "fault"}}, {}
        account = dict(self.of.accounts[identity])
        if trouble is Trouble.BARE:
            del account["id"]
        return _PATHS.get(self.path, 200), account, {}

    def do_GET(self) -> None:  # the name is the library's
        self._note(b"")
        parts = urlsplit(self.path)
        with self.of.lock:
            if parts.path != "/v1/accounts":
                found = self.of.accounts.get(parts.path.rpartition("/")[2])
                answer = (200, found) if found else (404, {"error": {"code": "gone"}})
            else:
                wanted = {name: values[0] for name, values in parse_qs(parts.query).items()}
                accounts = [
                    account
                    for account in self.of.accounts.values()
                    if self.of.is_deaf
                    or all(account.get(name) == value for name, value in wanted.items())
                ]
                answer = (self.of.search_answers, {"accounts": accounts[:3]})
        self._say(*answer, {"Content-Length": "10000"} if self.of.cuts_reads else {})

    def log_message(self, *_: object) -> None:
        """Leave standard error to the tests."""

    def _note(self, body: bytes) -> None:
        with self.of.lock:
            self.of.seen.append(
                Seen(
                    method=self.command,
                    path=self.path,
                    headers=tuple(self.headers.items()),
                    body=body,
                )
            )

    def _say(self, status: int, body: object, headers: dict[str, str]) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        for name, value in {"Content-Length": str(len(content)), **headers}.items():
            self.send_header(name, value)
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(content)
        self.close_connection = True

    def _wait_until_gone(self) -> None:
        self.close_connection = True
        readable, _, _ = select.select([self.connection], [], [], 30)
        if readable:
            try:
                self.connection.recv(1, socket.MSG_PEEK)
            except ConnectionError:
                return  # the client broke it off, as expected


# --- an org with an account there -------------------------------------------------------------


def books_view() -> IntegrationBindingView:
    """The view of the tests' binding over the tests' pack."""
    return compile_view(
        load_pack(DATA / "packs" / "books.toml"), load_binding(DATA / "books.binding.toml")
    )


class BooksWorld(ProviderWorld):
    """A world whose account is at such a provider; its attempts run in the test's own process."""

    @classmethod
    async def at(
        cls, database: Database, books: Books, *, limits: Limits | None = None
    ) -> "BooksWorld":
        """A world of its own at `books`, which need not listen."""
        return await cls.on(
            database, books.as_provider(), view=books_view(), limits=limits or Limits()
        )

    async def hand_over(self, operation: str, subject: str, **payload: str) -> Handover:
        """A handover whose payload is staged; nothing is linked for it."""
        content = json.dumps(payload).encode()
        digest = payload_digest(content)
        await stage_payload(self.engine, self.ring, self.caller, digest, content)
        entry = OutboxId(uuid.uuid4().hex)
        return Handover(
            key=EffectHandoffKey.for_outbox(self.caller.scope, entry),
            outbox=entry,
            digest=digest,
            operation=operation,
            subject=subject,
        )

    async def take(self, handover: Handover) -> Accepted:
        """The accepted command of `handover`."""
        receipt = await self.accept(handover)
        assert receipt.command is not None, "it was accepted"
        assert receipt.execution is not None, "it was accepted"
        assert receipt.work is not None, "it was accepted"
        return Accepted(
            handover=handover,
            receipt=receipt,
            command=receipt.command,
            execution=receipt.execution,
            work=receipt.work,
        )

    async def create(
        self, subject: str = "customer-1", *, operation: str = CREATE, **payload: str
    ) -> Accepted:
        """An accepted create of `subject`."""
        payload = {"email": f"{subject}@example.com", "plan": "basic", **payload}
        return await self.take(await self.hand_over(operation, subject, **payload))

    async def change(self, subject: str = "customer-1", *, plan: str = "gold") -> Accepted:
        """An accepted change of `subject`, under the provider's key."""
        if subject not in self.links:
            await self.link(subject)
        return await self.take(await self.hand_over(CHANGE, subject, plan=plan))

    def process(self) -> ProcessContext:
        """A process without Temporal: nobody is woken."""

        async def wake(_: WorkRef) -> None:
            await asyncio.sleep(0)

        return ProcessContext(
            engine=self.engine,
            ring=self.ring,
            limits=self.limits,
            owner=uuid.uuid4(),
            wake=wake,
            views=ViewShelf(self.engine),
        )

    async def run(self, accepted: Accepted, *, as_of: datetime | None = None) -> RunResult:
        """One run of the dispatch item, as of when it is due unless told."""
        return await AttemptActivity(self.process()).run_attempt(
            await self._request(accepted.work, as_of)
        )

    async def look_up(self, accepted: Accepted, *, as_of: datetime | None = None) -> RunResult:
        """One run of the command's lookup item, as of when it is due unless told."""
        work = await self.lookup_work(accepted)
        assert work is not None, "its outcome is unknown"
        return await LookupActivity(self.process()).run_lookup(await self._request(work, as_of))

    async def _request(self, work: WorkId, as_of: datetime | None) -> RunRequest:
        item = await self.item(work)
        due = max(await self.now(), item.run_after) + timedelta(milliseconds=1)
        return RunRequest(
            org_id=self.org,
            work_id=str(work),
            deadline_ms=item.deadline_ms,
            as_of=as_of or due,
        )

    async def slot(self, accepted: Accepted) -> tuple[str, int, str | None]:
        """State, version and remote id of the link that the command pins."""
        rows = await self.sql(
            "SELECT l.state, l.version, l.remote_id FROM oncefence.remote_links AS l"
            " JOIN oncefence.commands AS c ON c.org_id = l.org_id AND c.link_id = l.link_id"
            " WHERE c.org_id = :org AND c.command_id = :command",
            command=accepted.command,
        )
        return tuple(rows[0])
