"""A RemoteLink: which remote record stands for which local subject, and in which version."""

from dataclasses import dataclass
from enum import StrEnum

from oncefence.domain.ids import LinkId


class LinkState(StrEnum):
    """Whether commands may still be sent to the linked record."""

    CREATING = "creating"
    """A create slot: the record that it will stand for is being created."""

    ACTIVE = "active"
    SUSPENDED = "suspended"
    RETIRED = "retired"


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkPin:
    """A link exactly as a command found it; another version is another target."""

    link: LinkId
    version: int
    remote_id: str | None
    """None for a create: the link is its slot, and the record is still to be made."""
