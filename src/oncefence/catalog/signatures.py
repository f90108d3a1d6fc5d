"""How a provider signs what it delivers, as data, and the one reader of all dialects (C321)."""

import base64
import binascii
import hmac
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from hashlib import sha256
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from oncefence.catalog.canonical import FrozenMap, Model
from oncefence.catalog.names import HeaderName, HeaderValue
from oncefence.catalog.templates import pieces, variables
from oncefence.domain.redaction import Secret

BODY = "body"
METHOD = "method"
URL = "url"
TIMESTAMP = "timestamp"
SECRET = "secret"  # noqa: S105  # the name of a variable
HEADER_PREFIX = "header:"

_KNOWN = (BODY, METHOD, URL, TIMESTAMP, SECRET)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_HEX = re.compile(r"[0-9A-Fa-f]{64}")
_BASE64 = re.compile(r"[A-Za-z0-9+/]{43}=")
_WHOLE_NUMBER = re.compile(r"[0-9]{1,16}")
_ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})")
_LATIN_1 = re.compile(r"[\x00-\xff]*")


class Mac(StrEnum):
    """What the signature is made with."""

    HMAC_SHA256 = "hmac-sha256"
    SHA256 = "sha256"
    """No MAC but a plain hash; the secret is part of the hashed text."""


class KeyForm(StrEnum):
    """How the text that a person was given becomes the key."""

    UTF8 = "utf8"
    """The text itself."""

    BASE64 = "base64"
    """The bytes that the text, after its prefix, spells."""


class Encoding(StrEnum):
    """How the signature's 32 bytes are written."""

    HEX = "hex"
    BASE64 = "base64"


class TimestampUnit(StrEnum):
    """What the signed time counts since 1970."""

    SECONDS = "s"
    MILLISECONDS = "ms"


class SignatureVerdict(StrEnum):
    """What a check of a delivery finds. Only VALID may become a receipt (C323)."""

    VALID = "valid"

    MISSING = "missing"
    """A header that the dialect needs is not there or empty."""

    AMBIGUOUS = "ambiguous"
    """A header is there more than once, equal or not; two readers could read two things."""

    MALFORMED = "malformed"
    """A header is not of the declared form, or has another value than the dialect needs."""

    UNKEYED = "unkeyed"
    """There is no usable secret, so nothing could ever be verified."""

    MISMATCH = "mismatch"
    """No live secret gives this signature for these bytes."""

    STALE = "stale"
    """Signed by us and the provider alone, but longer ago than tolerated."""

    FUTURE = "future"
    """Signed, with a time further ahead than tolerated."""


def _text_template(template: str) -> str:
    used = variables(template)
    for variable in used:
        if variable not in _KNOWN and not variable.startswith(HEADER_PREFIX):
            known = ", ".join(f"{{{name}}}" for name in (*_KNOWN, f"{HEADER_PREFIX}NAME"))
            raise ValueError(f"uses the unknown variable {{{variable}}}; known here: {known}")
    if used.count(BODY) != 1:
        raise ValueError("must use {body} exactly once, or the signature would not cover it")
    return template


def _escaped_characters(characters: str) -> str:
    if not characters.isascii() or len(set(characters)) != len(characters) or "%" in characters:
        raise ValueError("must name ASCII characters, each once, and never %")
    return characters


class HeaderPart(Model):
    """A value in a header: the whole of it, or items of a list that begin in a certain way."""

    header: HeaderName
    prefix: str = Field(default="", max_length=32)
    """What the whole header value begins with."""

    separator: Literal[",", ";", " "] | None = None
    item_prefix: str = Field(default="", max_length=32)

    def values(self, text: str) -> list[str]:
        """The values that a header `text` holds, without their prefixes."""
        if self.separator is None:
            items = [text]
            prefix = self.prefix
        else:
            items = [item.strip() for item in text.split(self.separator)]
            prefix = self.item_prefix
        return [item.removeprefix(prefix) for item in items if item.startswith(prefix)]


class SignaturePlace(HeaderPart):
    """Where the signature stands and how it is written."""

    encoding: Encoding

    def read(self, value: str) -> bytes | None:
        """The 32 bytes of a signature, or None; no other length and no loose form is taken."""
        if self.encoding is Encoding.HEX:
            return bytes.fromhex(value) if _HEX.fullmatch(value) else None
        if not _BASE64.fullmatch(value):
            return None
        decoded = base64.b64decode(value)
        return decoded if base64.b64encode(decoded) == value.encode("ascii") else None


class SignedTime(HeaderPart):
    """Where the time of signing stands, and how far it may be from ours, to either side."""

    unit: TimestampUnit
    tolerance_s: int = Field(default=300, ge=1, le=3_600)

    def verdict(self, value: str, now: datetime) -> SignatureVerdict:
        """Whether `value` is near enough to `now`; whole numbers throughout, so exactly."""
        unit = 1_000 if self.unit is TimestampUnit.MILLISECONDS else 1_000_000
        age = (now - _EPOCH) // timedelta(microseconds=1) - int(value) * unit
        if age > self.tolerance_s * 1_000_000:
            return SignatureVerdict.STALE
        if -age > self.tolerance_s * 1_000_000:
            return SignatureVerdict.FUTURE
        return SignatureVerdict.VALID


class SignatureDialect(Model):
    """One way of signing deliveries; `verify` needs nothing else to know about a provider."""

    mac: Mac
    key: KeyForm = KeyForm.UTF8
    key_prefix: str = Field(default="", max_length=32)
    text: Annotated[str, AfterValidator(_text_template)]
    url_decoded: Annotated[str, AfterValidator(_escaped_characters)] = ""
    """Characters whose percent escapes in the URL are decoded before signing."""

    signature: SignaturePlace
    requires: FrozenMap[HeaderName, HeaderValue] = Field(default_factory=dict, max_length=8)
    timestamp: SignedTime | None = None

    def usable_key(self, secret: Secret) -> bytes | None:
        """
        The key that `secret` spells, or None where it spells none.

        A blank secret is none: its key would be known to everybody.
        """
        text = secret.reveal()
        if not text.strip():
            return None
        try:
            if self.key is KeyForm.UTF8:
                return text.encode("utf-8")
            if not text.startswith(self.key_prefix):
                return None
            return base64.b64decode(text.removeprefix(self.key_prefix), validate=True) or None
        except (UnicodeEncodeError, binascii.Error, ValueError):
            return None

    def verify(
        self,
        *,
        method: str,
        url: str,
        headers: Iterable[tuple[str, str]],
        body: bytes,
        secrets: Sequence[Secret],
        now: datetime,
    ) -> SignatureVerdict:
        """
        Whether these exact bytes were signed with one of the live `secrets`.

        Args:
            method: As received.
            url: The public URL that the provider was given, with the query as received; never
                one that is put together from headers, which whoever sends could choose.
            headers: All of them, repeated ones as often as they came.
            body: The bytes before anything else has read them.
            secrets: Those that are live; two while one is exchanged.
            now: The verifier's clock, with its zone.
        """
        if now.tzinfo is None:
            raise ValueError("now needs a time zone")
        found = self._headers(headers)
        if isinstance(found, SignatureVerdict):
            return found
        offered = [
            read
            for value in self.signature.values(found[self.signature.header.lower()])
            if (read := self.signature.read(value)) is not None
        ]
        stamp = self._stamp(found)
        if not offered or stamp is None:
            return SignatureVerdict.MALFORMED
        keys = [made for secret in secrets if (made := self.usable_key(secret)) is not None]
        if not keys:
            return SignatureVerdict.UNKEYED
        values = {
            BODY: body,
            METHOD: method.encode("ascii", "replace"),
            URL: self._decoded(url).encode("utf-8", "surrogatepass"),
            TIMESTAMP: stamp.encode("ascii"),
        }
        values |= {
            f"{HEADER_PREFIX}{name}": found[name.lower()].encode("latin-1")
            for name in self.signed_headers()
        }
        # Every pair is compared in full: how long it takes tells nothing of how near it was.
        matches = [
            hmac.compare_digest(self._made(made, values), given)
            for made in keys
            for given in offered
        ]
        if not any(matches):
            return SignatureVerdict.MISMATCH
        if self.timestamp is None:
            return SignatureVerdict.VALID
        return self.timestamp.verdict(stamp, now)

    def signed_headers(self) -> list[str]:
        """The headers that are part of the signed text."""
        return [
            variable.removeprefix(HEADER_PREFIX)
            for variable in variables(self.text)
            if variable.startswith(HEADER_PREFIX)
        ]

    def _headers(self, headers: Iterable[tuple[str, str]]) -> dict[str, str] | SignatureVerdict:
        """Each header that counts here, once and in lower case, or why the request is refused."""
        needed = {name.lower() for name in (*self.requires, *self.signed_headers())}
        needed.add(self.signature.header.lower())
        if self.timestamp is not None:
            needed.add(self.timestamp.header.lower())
        found: dict[str, str] = {}
        for name, value in headers:
            if name.lower() not in needed:
                continue
            if name.lower() in found:
                return SignatureVerdict.AMBIGUOUS
            # Blanks around a field's value are no part of it.
            found[name.lower()] = value.strip(" \t")
        if any(not found.get(name) for name in needed):
            return SignatureVerdict.MISSING
        if any(found[name.lower()] != value for name, value in self.requires.items()):
            return SignatureVerdict.MALFORMED
        if not all(map(_LATIN_1.fullmatch, found.values())):
            return SignatureVerdict.MALFORMED
        return found

    def _stamp(self, found: Mapping[str, str]) -> str | None:
        """The signed time as it was written, "" where the dialect has none, None if unreadable."""
        if self.timestamp is None:
            return ""
        values = self.timestamp.values(found[self.timestamp.header.lower()])
        return values[0] if len(values) == 1 and _WHOLE_NUMBER.fullmatch(values[0]) else None

    def _decoded(self, url: str) -> str:
        def plain(escape: re.Match[str]) -> str:
            character = chr(int(escape[1], 16))
            return character if character in self.url_decoded else escape[0]

        return _ESCAPE.sub(plain, url)

    def _made(self, made_of: bytes, values: Mapping[str, bytes]) -> bytes:
        parts = {**values, SECRET: made_of}
        text = b"".join(
            parts[piece.text] if piece.is_variable else piece.text.encode("utf-8")
            for piece in pieces(self.text)
        )
        if self.mac is Mac.SHA256:
            return sha256(text).digest()
        return hmac.digest(made_of, text, "sha256")
