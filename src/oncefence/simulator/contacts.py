"""
The provider's records. The simulator calls each a contact, whatever the provider calls it.

Sole owner of the contacts in memory: a change is in the ledger first and in memory at once after,
with no await between, so the two never disagree for anybody who can look.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from oncefence.simulator.clock import Clock
from oncefence.simulator.journal import Journal, stamp, utc_now
from oncefence.simulator.ledger import Kind, Ledger, Row
from oncefence.simulator.marks import Mark

# A contact made without times stands for a record that was there before the run. Were it as new as
# the run, "unchanged since before the send" could not be told from "changed just now".
_AGE_OF_A_NEW_CONTACT = timedelta(hours=1)
_TICK = timedelta(milliseconds=1)
# How much of a record's past an old index can show.
_VERSIONS_MAX = 64
_EVER = datetime.min.replace(tzinfo=UTC)


class ContactExists(Exception):
    """A contact of this id is there already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contact:
    """One record as it stands."""

    id: str
    properties: Mapping[str, Any]
    created_at: datetime
    updated_at: datetime
    is_archived: bool = False
    object: str | None = None


class _Key(NamedTuple):
    object: str | None
    id: str


class _Version(NamedTuple):
    since: datetime
    contact: Contact


class Contacts:
    """All records of one account, by kind and id."""

    def __init__(
        self, journal: Journal, *, clock: Clock | None = None, account: str | None = None
    ) -> None:
        self._journal = journal
        self._clock = clock
        self._account = account
        self._contacts: dict[_Key, Contact] = {}
        self._versions: dict[_Key, deque[_Version]] = {}
        self._property_names: set[str] = set()

    def replay(self, ledger: Ledger) -> None:
        """The records stand as the ledger left them."""
        for row in ledger.rows:
            if row.kind in (Kind.CONTACT, Kind.CHANGE, Kind.HUMAN) and row.account == self._account:
                self._take_in(row)

    def get(self, contact_id: str, object_name: str | None = None) -> Contact | None:
        """The record, archived or not."""
        return self._contacts.get(_Key(object_name, contact_id))

    def all(self) -> Sequence[Contact]:
        """Every record, in the order of their making."""
        return tuple(self._contacts.values())

    def as_of(self, moment: datetime) -> list[Contact]:
        """Every record as it stood then; those that a person made were always there."""
        past = []
        for versions in self._versions.values():
            known = [version.contact for version in versions if version.since <= moment]
            # Where the versions of that time are gone, the oldest that is left stands for them.
            past += (
                known[-1:] or [v.contact for v in versions if len(versions) == _VERSIONS_MAX][:1]
            )
        return past

    def has_property(self, name: str) -> bool:
        """Some record has or had this property."""
        return name in self._property_names

    def create(
        self,
        contact_id: str,
        properties: Mapping[str, Any],
        *,
        object_name: str | None = None,
        created_at: datetime | None = None,
        updated_at: datetime | None = None,
        is_archived: bool = False,
    ) -> Contact:
        """
        A record that a person made.

        Raises:
            ContactExists: The id is taken.
        """
        if _Key(object_name, contact_id) in self._contacts:
            raise ContactExists(f"contact {contact_id} exists; change it with /human-edit")
        created_at = created_at or updated_at or self._now() - _AGE_OF_A_NEW_CONTACT
        row = self._journal.append(
            Row(
                kind=Kind.CONTACT,
                contact=contact_id,
                properties=properties,
                created_at=stamp(created_at),
                updated_at=stamp(updated_at or created_at),
                archived=is_archived,
                object=object_name,
                account=self._account,
            )
        )
        return self._take_in(row)

    def change(
        self,
        contact: Contact,
        properties: Mapping[str, Any],
        *,
        mark: Mark,
        request: int,
        skew: timedelta = timedelta(),
        keep: Callable[[Contact], Mapping[str, Any]] | None = None,
    ) -> Contact:
        """The record with a request's change applied; `keep` makes what the key of it keeps."""
        row = self._row_of_change(contact.id, contact.object, properties, mark, request)
        changed_at = self._next_change_time(contact) if not skew else stamp(self._now() + skew)
        return self._apply(replace(row, updated_at=changed_at), keep)

    def add(
        self,
        contact_id: str,
        properties: Mapping[str, Any],
        *,
        object_name: str | None,
        mark: Mark,
        request: int,
        skew: timedelta = timedelta(),
        keep: Callable[[Contact], Mapping[str, Any]] | None = None,
    ) -> Contact:
        """A new record that a request asked for."""
        row = self._row_of_change(contact_id, object_name, properties, mark, request)
        now = stamp(self._now() + skew)
        return self._apply(replace(row, created_at=now, updated_at=now), keep)

    def edit(
        self,
        contact_id: str,
        properties: Mapping[str, Any],
        *,
        object_name: str | None = None,
        request: int | None = None,
    ) -> Contact:
        """The record with a person's change applied."""
        before = self._contacts[_Key(object_name, contact_id)]
        row = self._journal.append(
            Row(
                kind=Kind.HUMAN,
                contact=contact_id,
                properties=properties,
                request=request,
                updated_at=self._next_change_time(before),
                object=object_name,
                account=self._account,
            )
        )
        return self._take_in(row)

    def _row_of_change(
        self,
        contact_id: str,
        object_name: str | None,
        properties: Mapping[str, Any],
        mark: Mark,
        request: int,
    ) -> Row:
        return Row(
            kind=Kind.CHANGE,
            method=mark.method,
            path=mark.path,
            contact=contact_id,
            properties=properties,
            attempt=mark.attempt,
            command=mark.command,
            request=request,
            operation=mark.operation.value,
            object=object_name,
            account=self._account,
            key=mark.key,
        )

    def _apply(self, row: Row, keep: Callable[[Contact], Mapping[str, Any]] | None) -> Contact:
        if keep is not None:
            # In the row of the change itself: a kill must not come between the two.
            row = replace(row, kept=keep(self._after(row)))
        return self._take_in(self._journal.append(row))

    def _next_change_time(self, contact: Contact) -> str:
        # Two changes in one millisecond still show two times, or a reader would miss the second.
        before = self._contacts.get(_Key(contact.object, contact.id), contact)
        return stamp(max(self._now(), before.updated_at + _TICK))

    def _now(self) -> datetime:
        return utc_now() + (self._clock.offset if self._clock is not None else timedelta())

    def _take_in(self, row: Row) -> Contact:
        after = self._after(row)
        key = _Key(after.object, after.id)
        since = _EVER if row.kind is Kind.CONTACT else read_stamp(row.at)
        self._property_names |= (row.properties or {}).keys()
        self._contacts[key] = after
        self._versions.setdefault(key, deque(maxlen=_VERSIONS_MAX)).append(_Version(since, after))
        return after

    def _after(self, row: Row) -> Contact:
        """The record as the row leaves it."""
        contact_id, properties = row.contact or "", dict(row.properties or {})
        before = self._contacts.get(_Key(row.object, contact_id))
        updated_at = read_stamp(row.updated_at or row.at)
        if row.kind is Kind.CONTACT or before is None:
            return Contact(
                id=contact_id,
                properties=properties,
                created_at=read_stamp(row.created_at or row.at),
                updated_at=updated_at,
                is_archived=bool(row.archived),
                object=row.object,
            )
        return replace(
            before, properties={**before.properties, **properties}, updated_at=updated_at
        )


def read_stamp(text: str) -> datetime:
    """The moment that `stamp` wrote; ValueError where it is none with an offset."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no offset from UTC")
    return moment.astimezone(UTC)
