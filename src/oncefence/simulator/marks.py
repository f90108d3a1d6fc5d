"""What a request says of itself before its body is read."""

from dataclasses import dataclass
from enum import StrEnum


class Operation(StrEnum):
    """What a request asks for, as its head shows it."""

    UPDATE = "update"
    CREATE = "create"
    BATCH = "batch"
    READ = "read"
    SEARCH = "search"
    OTHER = "other"

    @property
    def is_write(self) -> bool:
        """It may change a record."""
        return self in {Operation.UPDATE, Operation.CREATE, Operation.BATCH}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """One request as rules and ledger know it."""

    method: str
    path: str
    operation: Operation
    contact: str | None = None
    object: str | None = None
    command: str | None = None
    attempt: str | None = None
    key: str | None = None
    """The idempotency key, where the provider has such."""
    nth: int = 0

    @property
    def who(self) -> str | None:
        """By what a dealt fault knows the request: its record, or what a repeat shares with it."""
        return self.contact or self.key or self.command
