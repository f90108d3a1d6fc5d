"""How a principal's tokens are come by, and what may be asked of a provider again (C286)."""

import math
import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field

from oncefence.catalog.canonical import FrozenMap, Model
from oncefence.catalog.expressions import JmesPath, find
from oncefence.catalog.findings import Finding, key
from oncefence.catalog.hosts import BaseUrlRule, HttpsUrl, https_template
from oncefence.catalog.names import FieldName, HeaderName, Name, Statuses
from oncefence.catalog.templates import check_template

INSTALLATION: Final = "installation"
APP: Final = "app"
LIFETIME_MAX_S: Final = 366 * 86_400
"""No access token is held to be good for longer, whatever its reply says."""

_SECONDS = re.compile(r"(-?)([0-9]{1,15})(\.[0-9]{1,15})?")


class Rotation(StrEnum):
    """What a call for a new token does to the old one; whether it may be made twice (C288)."""

    ROTATING = "rotating"
    """The refresh token is used up: a lost answer cannot be asked for again."""

    STATIC = "static"
    """The refresh token stays as it is."""

    GRACE = "grace"
    """A used refresh token works for a while longer."""

    MINT = "mint"
    """There is no refresh token: each call makes a token from nothing but our own key."""

    @property
    def may_be_repeated(self) -> bool:
        """Whether a call whose answer was lost is simply made again."""
        return self is not Rotation.ROTATING


def _scope(text: str) -> str:
    if not re.fullmatch(r"[!#-\[\]-~]{1,100}", text):
        raise ValueError("is not a scope (printable ASCII without blanks)")
    return text


def _installation_url(url: str) -> str:
    return https_template(url, (INSTALLATION,))


def _refreshing(rotation: Rotation) -> Rotation:
    if rotation is Rotation.MINT:
        raise ValueError("must be rotating, static or grace: a mint has a table of its own")
    return rotation


def _claim_template(template: str) -> str:
    return check_template(template, (APP, INSTALLATION))


LifetimeS = Annotated[int, Field(ge=1, le=LIFETIME_MAX_S)]


class TokenReply(Model):
    """Where a token endpoint's reply holds what."""

    access_token: JmesPath = "access_token"  # noqa: S105  # where it stands
    expires_in: JmesPath | None = "expires_in"
    account: JmesPath | None = None
    """The remote account; another one than before is another generation (C282)."""


class RefreshReply(TokenReply):
    """A reply that may also hold another refresh token; without one the old one stays."""

    refresh_token: JmesPath = "refresh_token"  # noqa: S105  # where it stands


class Bearer(Model):
    """A token that a person makes at the provider and hands over."""

    grace_s: int = Field(default=0, ge=0, le=LIFETIME_MAX_S)
    """How long the old token works on after it was exchanged for a new one."""


class Revocation(Model):
    """How a grant is ended at the provider (C295)."""

    url: HttpsUrl
    token: Literal["refresh_token", "access_token"] = "refresh_token"  # noqa: S105  # which one


class OAuth2(Model):
    """The authorisation-code flow of a person, and the refreshes that follow."""

    authorize_url: HttpsUrl
    token_url: HttpsUrl
    client: Literal["form", "basic"] = "form"
    """Whether the client's id and secret go into the body or into a header."""

    pkce: bool = True
    scopes: tuple[Annotated[str, AfterValidator(_scope)], ...] = ()
    rotation: Annotated[Rotation, AfterValidator(_refreshing)]
    grace_s: int | None = Field(default=None, ge=1, le=LIFETIME_MAX_S)
    access_ttl_s: LifetimeS
    """What an access token lives where the reply does not tell."""

    refresh_ttl_s: LifetimeS | None = None
    live_max: int | None = Field(default=None, ge=1)
    """How many refresh tokens of one account are alive at a time; older ones die."""

    min_gap_s: int = Field(default=0, ge=0, le=86_400)
    """The least time between two calls for one account."""

    not_applied: Statuses = ()
    """5xx statuses of the token endpoint after which nothing has changed (C289)."""

    reply: RefreshReply = RefreshReply()
    revoke: Revocation | None = None


class Assertion(Model):
    """The signed statement by which an app says who it is."""

    algorithm: Literal["RS256"]
    issuer: Annotated[str, AfterValidator(_claim_template)] = f"{{{APP}}}"
    claims: FrozenMap[FieldName, Annotated[str, AfterValidator(_claim_template)]] = Field(
        default_factory=dict
    )
    lifetime_s: int = Field(default=300, ge=30, le=3_600)
    header: HeaderName = "Authorization"


class Mint(Model):
    """A token for one installation of an app, made on the word of the app's own key."""

    url: Annotated[str, AfterValidator(_installation_url)]
    assertion: Assertion
    access_ttl_s: LifetimeS
    min_gap_s: int = Field(default=0, ge=0, le=86_400)
    not_applied: Statuses = ()
    reply: TokenReply = TokenReply()


class Grant(Model):
    """One way of getting tokens; exactly one of `bearer`, `oauth2` and `mint`."""

    principal: tuple[Literal["shared", "user"], ...] = Field(min_length=1)
    """Whether it acts for the organisation, for one person, or either (C281)."""

    bearer: Bearer | None = None
    oauth2: OAuth2 | None = None
    mint: Mint | None = None
    base_url: BaseUrlRule | None = None

    @property
    def rotation(self) -> Rotation:
        """What a call for a new token does to the old one."""
        if self.oauth2 is not None:
            return self.oauth2.rotation
        return Rotation.MINT if self.mint is not None else Rotation.STATIC

    def lifetime_s(self, document: object) -> int:
        """
        How long the access token of this reply is good for, in seconds; never raises.

        What is no number of seconds counts as left out. Zero and less is a token that has
        expired already, which is for the caller to renew before its next use and not at once.
        """
        flow = self.oauth2 or self.mint
        if flow is None:
            return LIFETIME_MAX_S
        told = find(flow.reply.expires_in, document) if flow.reply.expires_in else None
        seconds = _seconds(told)
        return flow.access_ttl_s if seconds is None else max(0, min(seconds, LIFETIME_MAX_S))


def grant_errors(grants: Mapping[Name, Grant], base_host: str) -> Iterator[Finding]:
    """What no single key of `[grants]` shows."""
    for name, grant in grants.items():
        at = key("grants", name)
        flows = [part for part in ("bearer", "oauth2", "mint") if getattr(grant, part) is not None]
        if len(flows) != 1:
            yield at, "needs exactly one of bearer, oauth2 and mint"
        if len(set(grant.principal)) != len(grant.principal):
            yield f"{at}.principal", "names one twice"
        if grant.oauth2 is not None:
            yield from _oauth2_errors(f"{at}.oauth2", grant.oauth2)
        if grant.mint is not None:
            yield from _mint_errors(f"{at}.mint", grant.mint)
        if grant.base_url is not None:
            if grant.bearer is not None:
                yield f"{at}.base_url", "has no effect: a bearer token comes without a reply"
            if not grant.base_url.admits(base_host):
                yield f"{at}.base_url.hosts", f"does not admit the pack's own host {base_host}"


def _oauth2_errors(at: str, flow: OAuth2) -> Iterator[Finding]:
    if (flow.rotation is Rotation.GRACE) != (flow.grace_s is not None):
        yield f"{at}.grace_s", "must be there with rotation grace, and only then"
    if len(set(flow.scopes)) != len(flow.scopes):
        yield f"{at}.scopes", "names one twice"
    yield from _answer_errors(at, flow.not_applied)


def _mint_errors(at: str, flow: Mint) -> Iterator[Finding]:
    for claim in sorted({"iss", "iat", "exp"} & set(flow.assertion.claims)):
        yield f"{at}.assertion.claims.{claim}", "is set by issuer and lifetime_s"
    yield from _answer_errors(at, flow.not_applied)


def _answer_errors(at: str, not_applied: Statuses) -> Iterator[Finding]:
    for status in not_applied:
        if status < 500:
            yield f"{at}.not_applied", f"{status} is an answer anyway; only a 5xx needs to be named"


def _seconds(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        if math.isnan(value):
            return None
        return int(max(-1.0, min(value, float(LIFETIME_MAX_S))))
    if isinstance(value, str) and (match := _SECONDS.fullmatch(value.strip())):
        return -int(match[2]) if match[1] else int(match[2])
    return None
