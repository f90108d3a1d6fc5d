"""
The provider's records.

Sole owner of the contacts in memory: a change is in the ledger first and in memory at once after,
with no await between, so the two never disagree for anybody who can look.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import MappingProxyType

from oncefence.simulator.journal import Journal, stamp, utc_now
from oncefence.simulator.ledger import Kind, Ledger, Row
from oncefence.simulator.rulebook import Mark

_ORDINARY_PROPERTIES = (
    "address annualrevenue city company country email fax firstname hs_lead_status hs_persona "
    "industry jobtitle lastname lifecyclestage mobilephone numemployees phone salutation state "
    "twitterhandle website zip"
)
READ_ONLY_PROPERTIES = frozenset({"createdate", "hs_object_id", "lastmodifieddate"})
# A contact made without times stands for a record that was there before the run. Were it as new as
# the run, "unchanged since before the send" could not be told from "changed just now".
_AGE_OF_A_NEW_CONTACT = timedelta(hours=1)
_TICK = timedelta(milliseconds=1)


class ContactExists(Exception):
    """A contact of this id is there already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contact:
    """One record as it stands."""

    id: str
    properties: Mapping[str, str]
    created_at: datetime
    updated_at: datetime
    is_archived: bool = False

    def property(self, name: str) -> str | None:
        """The property's value, the kept ones included; None where it was never set."""
        match name:
            case "createdate":
                return stamp(self.created_at)
            case "hs_object_id":
                return self.id
            case "lastmodifieddate":
                return stamp(self.updated_at)
            case _:
                return self.properties.get(name)


class Contacts:
    """All records, by id."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._contacts: dict[str, Contact] = {}
        self._known_properties = set(_ORDINARY_PROPERTIES.split())

    def replay(self, ledger: Ledger) -> None:
        """The records stand as the ledger left them."""
        for row in ledger.rows:
            if row.kind in (Kind.CONTACT, Kind.CHANGE, Kind.HUMAN):
                self._take_in(row)

    def get(self, contact_id: str) -> Contact | None:
        """The record, archived or not."""
        return self._contacts.get(contact_id)

    def all(self) -> Mapping[str, Contact]:
        """Every record."""
        return MappingProxyType(self._contacts)

    def is_known_property(self, name: str) -> bool:
        """A property that records can have: an ordinary one, or one that a person introduced."""
        return name in self._known_properties

    def create(
        self,
        contact_id: str,
        properties: Mapping[str, str],
        *,
        created_at: datetime | None = None,
        updated_at: datetime | None = None,
        is_archived: bool = False,
    ) -> Contact:
        """
        A new record.

        Raises:
            ContactExists: The id is taken.
        """
        if contact_id in self._contacts:
            raise ContactExists(f"contact {contact_id} exists; change it with /human-edit")
        created_at = created_at or updated_at or utc_now() - _AGE_OF_A_NEW_CONTACT
        row = self._journal.append(
            Row(
                kind=Kind.CONTACT,
                contact=contact_id,
                properties=properties,
                created_at=stamp(created_at),
                updated_at=stamp(updated_at or created_at),
                archived=is_archived,
            )
        )
        return self._take_in(row)

    def change(
        self, contact: Contact, properties: Mapping[str, str], *, mark: Mark, request: int
    ) -> Contact:
        """The record with a request's change applied."""
        row = self._journal.append(
            Row(
                kind=Kind.CHANGE,
                method=mark.method,
                path=mark.path,
                contact=contact.id,
                properties=properties,
                attempt=mark.attempt,
                command=mark.command,
                request=request,
                updated_at=self._next_change_time(contact.id),
            )
        )
        return self._take_in(row)

    def edit(
        self, contact_id: str, properties: Mapping[str, str], *, request: int | None = None
    ) -> Contact:
        """The record with a person's change applied."""
        row = self._journal.append(
            Row(
                kind=Kind.HUMAN,
                contact=contact_id,
                properties=properties,
                request=request,
                updated_at=self._next_change_time(contact_id),
            )
        )
        return self._take_in(row)

    def _next_change_time(self, contact_id: str) -> str:
        # Two changes in one millisecond still show two times, or a reader would miss the second.
        return stamp(max(utc_now(), self._contacts[contact_id].updated_at + _TICK))

    def _take_in(self, row: Row) -> Contact:
        contact_id, properties = row.contact or "", dict(row.properties or {})
        before = self._contacts.get(contact_id)
        updated_at = read_stamp(row.updated_at or row.at)
        if row.kind is Kind.CONTACT or before is None:
            after = Contact(
                id=contact_id,
                properties=properties,
                created_at=read_stamp(row.created_at or row.at),
                updated_at=updated_at,
                is_archived=bool(row.archived),
            )
        else:
            after = Contact(
                id=contact_id,
                properties={**before.properties, **properties},
                created_at=before.created_at,
                updated_at=updated_at,
                is_archived=before.is_archived,
            )
        self._known_properties |= properties.keys()
        self._contacts[contact_id] = after
        return after


def read_stamp(text: str) -> datetime:
    """The moment that `stamp` wrote; ValueError where it is none with an offset."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no offset from UTC")
    return moment.astimezone(UTC)
