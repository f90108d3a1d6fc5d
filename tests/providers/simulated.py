"""A simulator in a process of its own, and a client on a bare socket that tells how it was left."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import httpx

from oncefence.simulator.ledger import Kind, Ledger, Row, read_ledger
from tests.support.plain_http import NO_TLS

TOKEN = "pat-simulated"
_ROOT = Path(__file__).parents[2]
_numbers = count(1000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """What a client heard, and how it ended: `closed`, `reset`, `refused` or `silence`."""

    received: bytes
    end: str

    @property
    def status(self) -> int | None:
        return int(self.received.split(b" ", 2)[1]) if self.received else None

    @property
    def headers(self) -> dict[str, str]:
        lines = self.received.partition(b"\r\n\r\n")[0].decode().split("\r\n")[1:]
        pairs = (line.partition(": ") for line in lines)
        return {name.lower(): value for name, _, value in pairs}

    @property
    def body(self) -> bytes:
        return self.received.partition(b"\r\n\r\n")[2]

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(slots=True, kw_only=True)
class Simulated:
    """A running simulator."""

    process: subprocess.Popen[str]
    ledger_path: Path
    port: int
    admin_port: int

    @property
    def ledger(self) -> Ledger:
        return read_ledger(self.ledger_path)

    def admin(self, path: str, body: object = None, *, expect: int | None = None) -> Any:
        url = f"http://127.0.0.1:{self.admin_port}{path}"
        answer = (
            httpx.get(url, verify=NO_TLS)
            if body is None
            else httpx.post(url, json=body, verify=NO_TLS)
        )
        if expect is None:
            assert answer.is_success, answer.text
        else:
            assert answer.status_code == expect, answer.text
        return answer.json()

    def contact(self, **properties: str) -> str:
        """The id of a new contact that no other test uses."""
        contact_id = str(next(_numbers))
        properties = properties or {"jobtitle": "before"}
        self.admin("/contacts", {"id": contact_id, "properties": properties})
        return contact_id

    def script(self, **rule: object) -> str:
        """The id of a rule that was added."""
        return str(self.admin("/script", [rule])["rules"][0])

    def patch(
        self,
        contact: str,
        title: str = "after",
        *,
        command: str | None = None,
        patience_s: float = 10.0,
    ) -> Heard:
        return self.talk(patch_bytes(contact, title, command=command), patience_s=patience_s)

    def get(self, contact: str, query: str = "properties=jobtitle") -> Heard:
        return self.talk(request_bytes("GET", f"{contact_path(contact)}?{query}"))

    def talk(self, request: bytes, *, patience_s: float = 10.0) -> Heard:
        return talk(self.port, request, patience_s=patience_s)

    def title(self, contact: str) -> str | None:
        """The title as the provider shows it now."""
        value: str | None = self.get(contact).json["properties"]["jobtitle"]
        return value

    def rows(self, contact: str, *kinds: Kind) -> list[Row]:
        return [
            row
            for row in self.ledger.rows
            if row.contact == contact and (row.kind in kinds or not kinds)
        ]

    def kinds(self, contact: str, method: str | None = "PATCH") -> list[str]:
        """The kinds of the rows about this contact's requests, without its making."""
        return [
            row.kind.value
            for row in self.rows(contact)
            if row.method == method or row.kind is Kind.HUMAN
        ]

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


def contact_path(contact: str) -> str:
    return f"/crm/v3/objects/contacts/{contact}"


def request_bytes(
    method: str,
    target: str,
    body: bytes = b"",
    *,
    token: str = TOKEN,
    headers: Mapping[str, str] | None = None,
) -> bytes:
    given = {
        "Host": "provider",
        "Authorization": f"Bearer {token}",
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        **(headers or {}),
    }
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in given.items())]
    return "\r\n".join([*lines, "", ""]).encode() + body


def patch_bytes(contact: str, title: str = "after", *, command: str | None = None) -> bytes:
    body = json.dumps({"properties": {"jobtitle": title}}).encode()
    named = None
    if command is not None:
        named = {"X-Oncefence-Command": command, "X-Oncefence-Attempt": f"{command}/1"}
    return request_bytes("PATCH", contact_path(contact), body, headers=named)


def talk(port: int, request: bytes, *, patience_s: float = 10.0) -> Heard:
    """Sends `request` and listens until the other side ends it or patience does."""
    received = bytearray()
    give_up_at = time.monotonic() + patience_s
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=patience_s) as client:
            client.sendall(request)
            while (left_s := give_up_at - time.monotonic()) > 0:
                client.settimeout(left_s)
                data = client.recv(65_536)
                if not data:
                    return Heard(received=bytes(received), end="closed")
                received += data
    except ConnectionRefusedError:
        return Heard(received=b"", end="refused")
    except ConnectionError:
        return Heard(received=bytes(received), end="reset")
    except TimeoutError:
        pass  # patience ended while listening: the same end as below
    return Heard(received=bytes(received), end="silence")


def until(claim: Callable[[], object], *, within_s: float = 10.0) -> None:
    """Returns when the claim holds; fails when it does not in time."""
    give_up_at = time.monotonic() + within_s
    while not claim():
        assert time.monotonic() < give_up_at, "the condition did not come true in time"
        time.sleep(0.005)


def command_line(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "oncefence.simulator", *map(str, arguments)]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(_ROOT / "src")}


@contextmanager
def simulator_at(ledger_path: Path, *arguments: str | Path) -> Iterator[Simulated]:
    """A simulator that writes `ledger_path`, ended by SIGTERM."""
    process = subprocess.Popen(
        command_line("--ledger", ledger_path, "--token", TOKEN, *arguments),
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    assert process.stdout is not None
    try:
        ready = json.loads(process.stdout.readline())
        yield Simulated(
            process=process,
            ledger_path=ledger_path,
            port=ready["port"],
            admin_port=ready["admin_port"],
        )
    finally:
        process.terminate()
        process.wait(timeout=10)
        process.stdout.close()
