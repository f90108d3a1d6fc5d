"""
An authorisation server and its API: real HTTP, with every call on record.

`tests/data/packs/clubs.toml` describes it. It checks what such servers check (client, redirect,
single use of a code, PKCE, reuse of a spent refresh token) and fails in the ways that they do.
"""

import base64
import hashlib
import json
import secrets
import select
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from http.server import BaseHTTPRequestHandler
from itertools import count
from time import time
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

import httpx
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from tests.support.dialect import DATA, Dialect, Provider
from tests.support.plain_http import NO_TLS
from tests.support.serving import serving

CLIENT, CLIENT_SECRET = "client-of-the-tests", "client-secret-of-the-tests"
APP = "app-of-the-tests"
CLUBS = DATA / "packs" / "clubs.toml"
CLUBS_BINDING = DATA / "clubs.binding.toml"
TOKEN_OF_A_PERSON = "token-that-a-person-made"


class Rotation(StrEnum):
    """What a refresh does to the refresh token."""

    ROTATING = "rotating"
    """It is spent; shown again, the whole family is revoked."""

    STATIC = "static"
    """It stays, and the reply leaves it out."""

    GRACE = "grace"
    """Another one is given, and the old one goes on working."""


class Fault(StrEnum):
    """What goes wrong with the next call of a token or revocation endpoint."""

    LOST = "lost"
    """Done, and the connection ends without an answer."""

    HANG = "hang"
    """Nothing is done and nothing is answered."""

    CUT = "cut"
    """Done, and the answer ends in the middle of its body."""

    ERROR = "error"
    """500, and nothing is done."""

    AWAY = "away"
    """503, and nothing is done."""

    TOO_MANY = "too_many"
    """429, and nothing is done."""

    NOT_JSON = "not_json"
    """Done, and answered with a page."""


@dataclass(slots=True)
class Family:
    """What one consent gave: its tokens live and die together."""

    account: str
    client: str
    scopes: str
    refresh: str | None
    access: set[str] = field(default_factory=set)
    is_revoked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request as it came: form and headers are those that were sent."""

    method: str
    path: str
    form: dict[str, str]
    authorization: str | None
    body: bytes = b""


@cache
def an_app_key() -> rsa.RSAPrivateKey:
    """The key of our app; one for all tests of a process, because making one takes a while."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


@dataclass(slots=True)
class OAuthServer:
    """Its consents, its members, the calls that came, and what it is told to do next."""

    consents_as: str = "club-a"
    """The account that the person at the browser has."""

    denies: str | None = None
    """The error that the person's refusal comes back with."""

    rotation: Rotation = Rotation.ROTATING
    scopes: str | None = None
    """What is granted; by default what was asked for, and the reply does not say it."""

    reply: dict[str, object] = field(default_factory=dict)
    """Members of the token reply that are replaced; None takes one out."""

    literal: dict[str, object] = field(default_factory=dict)
    """Members of the token reply as they stand, null too."""

    token_answers: list[tuple[int, dict[str, object]]] = field(default_factory=list)
    """What the next calls of a token endpoint are answered, with nothing done."""

    member_answers: list[int] = field(default_factory=list)
    """Statuses that the next calls of the API are answered with, whatever was done."""

    revocation_status: int = 200
    minted_scope: dict[str, object] = field(default_factory=dict)
    clients: dict[str, str] = field(default_factory=lambda: {CLIENT: CLIENT_SECRET})
    key: rsa.RSAPrivateKey = field(default_factory=an_app_key)
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    spent: dict[str, Family] = field(default_factory=dict)
    families: list[Family] = field(default_factory=list)
    members: dict[str, dict[str, object]] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    gate: threading.Event | None = None
    """Where it is set to an event, a call that writes waits for it before anything is done."""

    waiting: int = 0
    """How many calls came to such a gate."""

    port: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    numbers: Iterator[int] = field(default_factory=lambda: count(101))

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def meet(self, *faults: Fault) -> None:
        """The next calls of a token or revocation endpoint meet these, one each."""
        self.faults.extend(faults)

    def calls_of(self, path: str, **form: str) -> list[Call]:
        """The calls of a path whose form says all of this."""
        return [
            each for each in self.calls if each.path == path and form.items() <= each.form.items()
        ]

    def sent_to(self, account: str) -> list[Call]:
        """The API's calls that a token of this account came with."""
        tokens = {
            token
            for family in self.families
            if family.account == account
            for token in family.access
        }
        return [
            each
            for each in self.calls
            if each.path.startswith("/v1/")
            and (each.authorization or "").removeprefix("Bearer ") in tokens
        ]

    def family_of(self, token: str) -> Family | None:
        return next(
            (each for each in self.families if token == each.refresh or token in each.access), None
        )

    def key_pem(self) -> str:
        """The app's own key, as it is handed to `oncefence app add`."""
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()

    def add_member(self) -> str:
        """A member that is there already; its id."""
        with self.lock:
            identity = f"m{next(self.numbers)}"
            self.members[identity] = {"id": identity, "rank": "before", "changed_ms": 0}
            return identity

    def as_provider(self) -> Provider:
        return Provider(
            base_url=self.base_url,
            dialect=Dialect(
                pack_name="clubs",
                pack_text=CLUBS.read_text("utf-8"),
                binding_text=CLUBS_BINDING.read_text("utf-8"),
                token=TOKEN_OF_A_PERSON,
            ),
            make_record=self.add_member,
        )

    async def consent(self, url: str) -> str:
        """What a person's browser does at `url`: consent, and where it is sent back to."""
        async with httpx.AsyncClient(
            trust_env=False, follow_redirects=False, verify=NO_TLS
        ) as browser:
            answer = await browser.get(url)
        assert answer.status_code == 302, answer.text
        return str(answer.headers["location"])

    # --- what it does, under the lock --------------------------------------------------------

    def authorize(self, asked: dict[str, str]) -> str:
        """The address that the browser is sent back to."""
        back = {"state": asked["state"], "iss": self.base_url}
        if self.denies is not None:
            back |= {"error": self.denies, "error_description": "<b>no</b>"}
        else:
            code = secrets.token_urlsafe(16)
            self.codes[code] = asked | {"account": self.consents_as}
            back["code"] = code
        return f"{asked['redirect_uri']}?{urlencode(back)}"

    def exchange(self, form: dict[str, str], client: str) -> tuple[int, dict[str, object]]:
        asked = self.codes.pop(form.get("code", ""), None)
        if asked is None:
            family = self.spent.get(form.get("code", ""))
            if family is not None:
                family.is_revoked = True
            return 400, {"error": "invalid_grant"}
        challenge = asked.get("code_challenge")
        verifier = form.get("code_verifier", "")
        if (
            asked["client_id"] != client
            or asked["redirect_uri"] != form.get("redirect_uri")
            or (challenge is None) == bool(verifier)
            or (challenge is not None and challenge != challenge_of(verifier))
        ):
            return 400, {"error": "invalid_grant"}
        family = Family(
            account=asked["account"],
            client=client,
            scopes=self.scopes or asked.get("scope", ""),
            refresh=f"refresh-{secrets.token_urlsafe(24)}",
        )
        self.families.append(family)
        self.spent[form["code"]] = family
        return 200, self.tokens(family, told_refresh=True)

    def refresh(self, form: dict[str, str], client: str) -> tuple[int, dict[str, object]]:
        token = form.get("refresh_token", "")
        spent = self.spent.get(token)
        if spent is not None and self.rotation is Rotation.ROTATING:
            spent.is_revoked = True
            return 400, {"error": "invalid_grant"}
        family = spent or next((each for each in self.families if each.refresh == token), None)
        if family is None or family.is_revoked or family.client != client:
            return 400, {"error": "invalid_grant"}
        if self.rotation is not Rotation.STATIC:
            self.spent[token] = family
            family.refresh = f"refresh-{secrets.token_urlsafe(24)}"
        return 200, self.tokens(family, told_refresh=self.rotation is not Rotation.STATIC)

    def tokens(self, family: Family, *, told_refresh: bool) -> dict[str, object]:
        access = f"access-{secrets.token_urlsafe(24)}"
        family.access.add(access)
        found: dict[str, object] = {
            "access_token": access,
            "token_type": "bearer",
            "expires_in": 1800,
            "club_id": family.account,
        }
        if told_refresh:
            found["refresh_token"] = family.refresh
        if self.scopes is not None:
            found["scope"] = self.scopes
        told = {name: each for name, each in (found | self.reply).items() if each is not None}
        return told | self.literal

    def revoke(self, form: dict[str, str]) -> tuple[int, dict[str, object]]:
        if self.revocation_status == 200:
            family = self.family_of(form.get("token", ""))
            if family is not None:
                family.is_revoked = True
        return self.revocation_status, {}

    def mint(self, installation: str, assertion: str) -> tuple[int, dict[str, object]]:
        """A token for an installation, on the word of a statement that the app's key signed."""
        claims = self._claims(assertion)
        if claims is None or claims.get("iss") != APP:
            return 401, {"error": "invalid_client"}
        family = Family(account=installation, client=APP, scopes="", refresh=None)
        self.families.append(family)
        reply = self.tokens(family, told_refresh=False)
        return 200, {
            "data": {
                "token": reply["access_token"],
                "club": installation,
                "api": "https://eu.clubs.example/v1",
                **self.minted_scope,
            }
        }

    def _claims(self, assertion: str) -> dict[str, object] | None:
        try:
            header, body, signature = assertion.split(".")
            self.key.public_key().verify(
                _from_base64(signature),
                f"{header}.{body}".encode(),
                padding.PKCS1v15(),
                hashes.SHA256(),
            )
            claims = json.loads(_from_base64(body))
        except (ValueError, InvalidSignature):
            return None
        return claims if int(claims["exp"]) > time() else None


def challenge_of(verifier: str) -> str:
    """The S256 challenge, computed by the server for itself."""
    digest = hashlib.sha256(verifier.encode()).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def _from_base64(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


@contextmanager
def oauth_server() -> Iterator[OAuthServer]:
    """The server on a port of its own, until the end of the block."""
    server = OAuthServer()

    class Handler(_Handler):
        of = server

    with serving(Handler) as port:
        server.port = port
        yield server


class _Handler(BaseHTTPRequestHandler):
    of: OAuthServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:  # the name is the library's
        parts = urlsplit(self.path)
        with self.of.lock:
            if parts.path == "/oauth/authorize":
                asked = dict(parse_qsl(parts.query))
                self._note(parts.path, asked, b"")
                self._redirect(self.of.authorize(asked))
                return
            self._note(parts.path, {}, b"")
            answer = self._member(parts.path, None)
        self._say(*answer)

    def do_PATCH(self) -> None:  # the name is the library's
        body = self._body()
        with self.of.lock:
            self._note(self.path, {}, body)
        self._pass_gate()
        with self.of.lock:
            answer = self._member(self.path, json.loads(body))
        self._say(*answer)

    def do_POST(self) -> None:  # the name is the library's
        body = self._body()
        form = dict(parse_qsl(body.decode(), keep_blank_values=True))
        with self.of.lock:
            self._note(self.path, form, body)
            fault = self.of.faults.pop(0) if self.of.faults else None
        self._pass_gate()
        if fault is Fault.HANG:
            self._wait_until_gone()
            return
        status = {Fault.ERROR: 500, Fault.AWAY: 503, Fault.TOO_MANY: 429}.get(fault or Fault.LOST)
        if status is not None:
            self._say(status, {"error": "temporarily_unavailable"})
            return
        with self.of.lock:
            is_told = self.path == "/oauth/token" and self.of.token_answers
            answer = self.of.token_answers.pop(0) if is_told else self._done(form)
        if fault is Fault.LOST:
            self.close_connection = True
        elif fault is Fault.CUT:
            self._say(*answer, cut=20)
        elif fault is Fault.NOT_JSON:
            self._say_page()
        else:
            self._say(*answer)

    def _pass_gate(self) -> None:
        with self.of.lock:
            gate = self.of.gate
            self.of.waiting += gate is not None
        if gate is not None:
            gate.wait(30)

    def _done(self, form: dict[str, str]) -> tuple[int, dict[str, object]]:
        server, parts = self.of, self.path.split("/")
        if self.path.startswith("/api/installs/"):
            shown = self.headers.get("Authorization", "").removeprefix("Bearer ")
            return server.mint(unquote(parts[3]), shown)
        client = self._client(form)
        if client is None:
            return 401, {"error": "invalid_client"}
        if self.path == "/oauth/revoke":
            return server.revoke(form)
        if self.path != "/oauth/token":
            return 404, {}
        match form.get("grant_type"):
            case "authorization_code":
                return server.exchange(form, client)
            case "refresh_token":
                return server.refresh(form, client)
            case _:
                return 400, {"error": "unsupported_grant_type"}

    def _client(self, form: dict[str, str]) -> str | None:
        """The client that the form or the header proves, and not both."""
        name, secret = form.get("client_id"), form.get("client_secret")
        shown = self.headers.get("Authorization", "")
        if shown.startswith("Basic "):
            if secret is not None:
                return None
            pair = base64.b64decode(shown.removeprefix("Basic ")).decode().partition(":")
            name, secret = unquote(pair[0]), unquote(pair[2])
        known = self.of.clients.get(name or "")
        return name if known is not None and known == secret else None

    def _member(self, path: str, change: dict[str, object] | None) -> tuple[int, dict[str, object]]:
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        family = self.of.family_of(token)
        is_known = token == TOKEN_OF_A_PERSON or (family is not None and not family.is_revoked)
        if not is_known:
            return 401, {"error": "unauthorized"}
        member = self.of.members.get(path.rpartition("/")[2])
        if member is None:
            return 404, {"error": "no_such_member"}
        if change is not None:
            member |= change | {"changed_ms": int(time() * 1000)}
        if self.of.member_answers:
            return self.of.member_answers.pop(0), {"error": "told_to"}
        return 200, dict(member)

    def log_message(self, *_: object) -> None:
        """Leave standard error to the tests."""

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", "0")))

    def _note(self, path: str, form: dict[str, str], body: bytes) -> None:
        self.of.calls.append(
            Call(
                method=self.command,
                path=path,
                form=form,
                authorization=self.headers.get("Authorization"),
                body=body,
            )
        )

    def _redirect(self, to: str) -> None:
        self.send_response(302)
        self.send_header("Location", to)
        self.send_header("Content-Length", "0")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True

    def _say(self, status: int, body: dict[str, object], cut: int | None = None) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(content[:cut])
        self.close_connection = True

    def _say_page(self) -> None:
        content = b"<html>welcome</html>"
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(content)))
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
