"""What outlives an exchange: all that a ledger is replayed into."""

from dataclasses import dataclass

from oncefence.simulator.clock import Clock
from oncefence.simulator.contacts import Contacts
from oncefence.simulator.journal import Journal
from oncefence.simulator.keys import Keys
from oncefence.simulator.ledger import Ledger
from oncefence.simulator.rulebook import RuleBook

OTHER_ACCOUNT = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stores:
    """The provider's memory; `elsewhere` are the records of another account."""

    journal: Journal
    clock: Clock
    contacts: Contacts
    elsewhere: Contacts
    keys: Keys
    rulebook: RuleBook

    def replay(self, ledger: Ledger) -> None:
        """Everything stands as the ledger left it."""
        for store in (self.clock, self.contacts, self.elsewhere, self.keys, self.rulebook):
            store.replay(ledger)

    def contacts_of(self, account: str | None) -> Contacts:
        """The records of the account; None is the one that the token was for."""
        return self.contacts if account is None else self.elsewhere
