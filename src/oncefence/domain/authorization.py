"""
Authorisation: how an account is connected, and what a generation of a binding stands for.

A request for authorisation is used once. From its use on the provider's code may be spent, so a
lost answer is never asked for again: the person starts anew, and nothing stands half made.
"""

import hashlib
import re
from base64 import urlsafe_b64encode
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

REQUEST_SECONDS: Final = 600
"""How long a person has to consent; the provider's own page times out sooner or later too."""

NOBODY: Final = "absent"
"""The version of a binding that is not there."""

SUBJECT_LENGTH_MAX: Final = 200
_SUBJECT: Final = re.compile(rf"[!-~]{{1,{SUBJECT_LENGTH_MAX}}}")
_INSTALLATION: Final = re.compile(r"[A-Za-z0-9_-]{1,200}")


class Flow(StrEnum):
    """How a generation comes by its tokens."""

    BEARER = "bearer"
    """A person hands one over."""

    OAUTH2 = "oauth2"
    """A person consents in a browser, and it is refreshed from there on."""

    MINT = "mint"
    """It is made on the word of our own key."""


class RequestAct(StrEnum):
    """What a request for authorisation is for."""

    CONNECT = "connect"
    """Another generation, whoever the account turns out to be (C282)."""

    REAUTHORIZE = "reauthorize"
    """Tokens for the generation that is there, if it proves to be the same account."""


class RequestOutcome(StrEnum):
    """What a request that was used came to."""

    CONNECTED = "connected"
    REAUTHORIZED = "reauthorized"
    DENIED = "denied"
    """The provider's page sent the person back with an error."""

    REFUSED = "refused"
    """The token endpoint answered, and gave no token."""

    UNSENT = "unsent"
    """Nothing of the call left."""

    LOST = "lost"
    """The call left, and its answer did not arrive whole: the code is spent."""

    UNFIT = "unfit"
    """Tokens came, for what may not be connected: their host, their account, their scopes."""

    MOVED = "moved"
    """The binding changed since the request was made; it was not overwritten."""

    @property
    def is_success(self) -> bool:
        """Whether the binding is connected by it."""
        return self in (RequestOutcome.CONNECTED, RequestOutcome.REAUTHORIZED)


class RevocationOutcome(StrEnum):
    """What a call that ends an authorisation at its provider came to."""

    REVOKED = "revoked"
    REFUSED = "refused"
    UNSENT = "unsent"
    LOST = "lost"


class Retirement(StrEnum):
    """Why a generation ended."""

    RECONNECTED = "reconnected"
    REBOUND = "rebound"
    DISCONNECTED = "disconnected"


@dataclass(frozen=True, slots=True, kw_only=True)
class Authority:
    """
    What a generation stands for: another value of any part is another generation (C282).

    Token material is no part of it, and neither is when it was made.
    """

    flow: Flow
    pack_grant: str | None = None
    """None of a token that was handed over without one."""

    issuer: str | None = None
    client_id: str | None = None
    account: str | None = None
    installation: str | None = None
    scopes: frozenset[str] = frozenset()
    base_url: str | None = None

    def what_differs(self, other: "Authority") -> str | None:
        """The first part in which the two differ; None where they are one authority."""
        for part in (
            "flow",
            "pack_grant",
            "issuer",
            "client_id",
            "account",
            "installation",
            "scopes",
            "base_url",
        ):
            if getattr(self, part) != getattr(other, part):
                return part
        return None

    @property
    def is_proven(self) -> bool:
        """Whether it names its account, so that another can be told from it."""
        return self.account is not None


def binding_version(ordinal: int | None, state: str | None) -> str:
    """The version of a binding, as an act on it names it: its newest generation and its state."""
    return NOBODY if ordinal is None else f"{ordinal}.{state}"


def challenge_of(verifier: str) -> str:
    """The S256 challenge of a PKCE verifier (RFC 7636)."""
    digest = hashlib.sha256(verifier.encode("ascii")).digest()
    return urlsafe_b64encode(digest).rstrip(b"=").decode("ascii")


def state_hash(state: str) -> bytes:
    """What is stored of a state: whoever reads the table cannot come back with it."""
    return hashlib.sha256(state.encode("utf-8", "surrogatepass")).digest()


def is_user(text: str) -> bool:
    """Whether a per-user binding's user may be called so: printable ASCII without blanks."""
    return _SUBJECT.fullmatch(text) is not None


def is_installation(text: str) -> bool:
    """Whether an app's installation may be called so: it becomes part of a path."""
    return _INSTALLATION.fullmatch(text) is not None
