"""A provider that only `tests/data/packs/other.toml` knows: real HTTP, with a list of its own."""

import json
import select
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from http.server import BaseHTTPRequestHandler
from itertools import count
from time import time
from urllib.parse import parse_qs, urlsplit

from tests.support.dialect import DATA, Dialect, Provider
from tests.support.serving import serving

TOKEN = "key-of-the-other"
_AN_HOUR_MS = 3_600_000


class Trouble(StrEnum):
    """What goes wrong with the first PUT for a person."""

    LOST_ANSWER = "lost_answer"
    """Applied, then silence."""

    NO_EFFECT_HANG = "no_effect_hang"
    """Silence, and nothing is applied."""

    REFUSED = "refused"
    """422 in the provider's own form of errors."""

    TOO_MANY = "too_many"
    """429 with a time to come back at."""

    STAYS_UNKNOWN = "stays_unknown"
    """Applied without an answer, and changed by a person before anybody can look."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Put:
    """One PUT that was read, and whether it changed the person."""

    key: str
    role: str | None
    command: str | None
    attempt: str | None
    is_applied: bool


@dataclass(slots=True)
class Person:
    """A record."""

    role: str | None
    changed_ms: int
    trouble: Trouble | None = None


@dataclass(slots=True)
class OtherProvider:
    """Its people, and every PUT that came; a PUT is in the list before anybody hears of it."""

    people: dict[str, Person] = field(default_factory=dict)
    puts: list[Put] = field(default_factory=list)
    port: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _keys: Iterator[int] = field(default_factory=lambda: count(70_001))

    def make_person(self) -> str:
        """The key of a new person, last changed an hour ago."""
        with self._lock:
            key = str(next(self._keys))
            self.people[key] = Person("before", int(time() * 1000) - _AN_HOUR_MS)
        return key

    def trouble(self, name: str, key: str) -> None:
        """The first PUT for the person meets this trouble; any other name means none."""
        with self._lock:
            self.people[key].trouble = Trouble(name) if name in set(Trouble) else None

    def as_provider(self) -> Provider:
        """Where it listens and how it is spoken to."""
        return Provider(
            base_url=f"http://127.0.0.1:{self.port}",
            dialect=Dialect(
                pack_name="other",
                pack_text=(DATA / "packs" / "other.toml").read_text("utf-8"),
                binding_text=(DATA / "other.binding.toml").read_text("utf-8"),
                token=TOKEN,
            ),
            make_record=self.make_person,
        )

    def put(
        self, key: str, role: str | None, command: str | None, attempt: str | None
    ) -> tuple[Trouble | None, int]:
        """Apply the change unless a trouble forbids it; the trouble and the change time."""
        with self._lock:
            person = self.people[key]
            trouble, person.trouble = person.trouble, None
            is_applied = trouble in (None, Trouble.LOST_ANSWER, Trouble.STAYS_UNKNOWN)
            self.puts.append(
                Put(key=key, role=role, command=command, attempt=attempt, is_applied=is_applied)
            )
            if is_applied:
                person.role, person.changed_ms = role, int(time() * 1000)
            if trouble is Trouble.STAYS_UNKNOWN:
                person.role = "by hand"
            return trouble, person.changed_ms


@contextmanager
def other_provider() -> Iterator[OtherProvider]:
    """The provider on a port of its own, until the end of the block."""
    provider = OtherProvider()

    class Handler(_Handler):
        of = provider

    with serving(Handler) as port:
        provider.port = port
        yield provider


class _Handler(BaseHTTPRequestHandler):
    of: OtherProvider
    protocol_version = "HTTP/1.1"

    def do_PUT(self) -> None:  # the name is the library's
        body = self.rfile.read(int(self.headers["Content-Length"]))
        refusal = self._refusal()
        if refusal is None and self.path != "/v7/people?mode=replace":
            refusal = "NO_SUCH_PLACE"
        if refusal is None and self.headers["Content-Type"] != "application/vnd.people+json":
            refusal = "WRONG_KIND"
        if refusal is not None:
            self._say(422, {"fault": {"name": refusal}})
            return
        (asked,) = json.loads(body)["people"]
        assert isinstance(asked["key"], int), "this provider takes keys as numbers"
        trouble, changed_ms = self.of.put(
            str(asked["key"]),
            asked["set"]["role"],
            self.headers["X-On-Behalf-Of"],
            self.headers["X-Part-Of"],
        )
        match trouble:
            case None:
                done = [{"key": asked["key"], "changed_ms": changed_ms}]
                self._say(202, {"done": done}, {"X-Change-Number": f"n-{changed_ms}"})
            case Trouble.REFUSED:
                self._say(422, {"fault": {"name": "ROLE_UNKNOWN", "field": "role"}})
            case Trouble.TOO_MANY:
                back = datetime.now(UTC) + timedelta(seconds=1)
                text = back.replace(tzinfo=None).isoformat(timespec="seconds")
                self._say(429, {"fault": {"name": "SLOW_DOWN"}}, {"X-Come-Back-At": text})
            case Trouble.LOST_ANSWER | Trouble.NO_EFFECT_HANG | Trouble.STAYS_UNKNOWN:
                self._wait_until_gone()

    def do_GET(self) -> None:  # the name is the library's
        parts = urlsplit(self.path)
        refusal = self._refusal()
        if refusal is not None or parts.path != "/v7/people/find":
            self._say(422, {"fault": {"name": refusal or "NO_SUCH_PLACE"}})
            return
        (key,) = parse_qs(parts.query)["key"]
        person = self.of.people.get(key)
        if person is None:
            self._say(410, {"matches": []})
            return
        match = {"key": int(key), "role": person.role, "changed_ms": person.changed_ms}
        self._say(200, {"matches": [match]})

    def log_message(self, *_: object) -> None:
        """Leave standard error to the tests."""

    def _refusal(self) -> str | None:
        if self.headers["X-Access-Key"] != f"Key {TOKEN}":
            return "WHO_ARE_YOU"
        return None if self.headers["X-Api-Version"] == "7" else "WRONG_VERSION"

    def _say(self, status: int, body: object, headers: dict[str, str] | None = None) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **(headers or {})}.items():
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
