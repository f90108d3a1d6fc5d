"""
What the simulator needs to know of a provider's language.

A dialect reads requests and writes answers. It holds no state, changes no record and knows of no
fault: records, keys, limits and all that breaks are the simulator's, the same for every dialect.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Protocol

from oncefence.simulator.contacts import Contact, Contacts
from oncefence.simulator.faults import ScriptedFault
from oncefence.simulator.marks import Operation
from oncefence.simulator.wire import Answer, Head, Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a request's head asks for; `contact` is the id of the record that its path names."""

    operation: Operation
    contact: str | None = None
    object: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A valid write to one record."""

    contact: Contact
    properties: Mapping[str, Any]
    shows: tuple[str, ...] = ()
    route: str = ""
    """For dialects that have more than one answer to a write: whose answer is due."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Creation:
    """A valid request for a new record."""

    properties: Mapping[str, Any]
    object: str | None = None
    shows: tuple[str, ...] = ()
    route: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A valid read of one record."""

    contact: Contact
    shows: tuple[str, ...] = ()
    route: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """A valid search or list."""

    matches: Callable[[Contact], bool]
    order: Callable[[Contact], Any]
    is_descending: bool = False
    start: Callable[[Sequence[Contact]], int] = lambda _: 0
    """Where the page begins in the ordered matches."""
    size: int
    object: str | None = None
    shows: tuple[str, ...] = ()
    route: str = ""
    asked: Mapping[str, Any]
    """What the answer must repeat, such as the query of the next page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A valid request of many writes; those that cannot be done are `failures` already."""

    changes: tuple[Change, ...]
    failures: tuple[Mapping[str, Any], ...]


Asked = Change | Creation | Reading | Search | Batch


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The records that an answer shows, as they stand now."""

    contacts: tuple[Contact, ...]
    total: int = 1
    end: int = 1
    """Where the page ends in the ordered matches."""
    has_more: bool = False


class Limit(StrEnum):
    """Which of a provider's limits a 429 speaks of."""

    ORDINARY = "ordinary"
    SECONDLY = "secondly"
    DAILY = "daily"


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A limit that is enforced: so many requests in so long."""

    name: str
    requests_max: int
    length: timedelta
    limit: Limit = Limit.ORDINARY
    is_shown: bool = True
    """Each answer says how much is left."""


class KeyTrouble(StrEnum):
    """Why a request is refused for its idempotency key."""

    IN_FLIGHT = "in_flight"
    OTHER_PARAMETERS = "other_parameters"
    UNUSABLE = "unusable"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRule:
    """How a provider keeps idempotency keys."""

    header: str
    kept_for: timedelta
    length_max: int = 255
    replayed: tuple[str, str] | None = None
    """The header and value that mark an answer as an earlier one."""


class Dialect(Protocol):
    """One provider's language."""

    name: str
    title: str
    default_token: str
    objects: tuple[str | None, ...]
    """The kinds of its records; None where there is only the one."""
    command_header: str
    attempt_header: str
    keys: KeyRule | None
    index_lag: timedelta
    """How old the search index is when nothing is wrong."""
    version: str | None
    """The property that is a record's version, where conditional writes know a record by one."""
    cannot_show: frozenset[ScriptedFault]
    """What nobody who speaks this language could ever see."""

    def target(self, head: Head) -> Target:
        """What the head asks for."""
        ...

    def window(self, target: Target) -> Window | None:
        """The limit that a request counts against."""
        ...

    def unauthorized(self, head: Head, token: str) -> Answer | None:
        """The answer to a request that does not bring the token."""
        ...

    def judge(self, request: Request, contacts: Contacts) -> Asked | Answer:
        """What a valid request asks for, or the answer that refuses it."""
        ...

    def success(self, asked: Asked, found: Found) -> Answer:
        """The plain answer."""
        ...

    def error(
        self, status: int, message: str, *, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """An error in the provider's form."""
        ...

    def error_inside(self, asked: Asked) -> Answer:
        """An error in the provider's form under a success status."""
        ...

    def limited(
        self,
        limit: Limit,
        headers: Mapping[str, str],
        now: datetime,
        *,
        resets_at: datetime | None = None,
    ) -> Answer:
        """429; Retry-After is in `headers`, or the dialect's own where the limit is a real one."""
        ...

    def maintenance(self, headers: Mapping[str, str], until: datetime) -> Answer:
        """503; a Retry-After in `headers` goes before the dialect's own."""
        ...

    def key_trouble(self, trouble: KeyTrouble) -> Answer:
        """The refusal of an idempotency key."""
        ...

    def rate_headers(self, left: int, resets_at: datetime) -> dict[str, str]:
        """What an answer says about the limit that is shown."""
        ...

    def fingerprint(self, request: Request) -> bytes:
        """What two requests under one idempotency key must have in common."""
        ...

    def why_not(self, contact: Contact) -> str | None:
        """Why no record can be like this, or None."""
        ...

    def new_id(self, contacts: Contacts, object_name: str | None) -> str:
        """An id that no record has."""
        ...

    def example(self, number: int) -> tuple[str | None, str, Mapping[str, Any]]:
        """Object, id and fields of a record to begin with."""
        ...
