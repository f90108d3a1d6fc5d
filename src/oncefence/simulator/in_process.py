"""
The simulator inside the process that tests with it: no command line, no second process.

It listens on loopback as always, so that whatever is tested sends real requests to it.
"""

import json
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

from oncefence.simulator.contacts import Contact
from oncefence.simulator.dialects.known import dialect_of
from oncefence.simulator.dialects.protocol import Dialect
from oncefence.simulator.faults import FAULTS, parse_rules
from oncefence.simulator.journal import Journal
from oncefence.simulator.ledger import Change, Exchange, Ledger, read_ledger
from oncefence.simulator.server import Settings, Simulator

_HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatorHere:
    """A running simulator. Records are told apart by id, and by object where a pack has several."""

    base_url: str
    token: str = field(repr=False)
    dialect: Dialect
    simulator: Simulator
    numbers: "count[int]"

    def add_record(
        self,
        contact_id: str | None = None,
        properties: Mapping[str, Any] | None = None,
        *,
        object_name: str | None = None,
    ) -> Contact:
        """
        A record that was there before; an example of the dialect's own where nothing is given.

        Raises:
            BadRecord: The provider can have no such record.
            ContactExists: The id is taken.
        """
        while True:
            kind, made_id, example = self.dialect.example(next(self.numbers))
            if object_name in (None, kind) and self.record(made_id, kind) is None:
                break
        return self.simulator.admin.make(
            contact_id or made_id,
            example if properties is None else properties,
            object_name=object_name or kind,
        )

    def record(self, contact_id: str, object_name: str | None = None) -> Contact | None:
        """The record as it stands; without an object, of the first kind that has the id."""
        kinds = self.dialect.objects if object_name is None else (object_name,)
        found = (self.simulator.stores.contacts.get(contact_id, kind) for kind in kinds)
        return next((contact for contact in found if contact is not None), None)

    def edit(
        self, contact_id: str, properties: Mapping[str, Any], *, object_name: str | None = None
    ) -> Contact:
        """A person changes the record."""
        contact = self.record(contact_id, object_name)
        if contact is None:
            raise LookupError(f"there is no record {contact_id}")
        contacts = self.simulator.stores.contacts
        return contacts.edit(contact_id, properties, object_name=contact.object)

    def can_show(self, fault: str) -> bool:
        """The dialect has something for this fault to strike."""
        return FAULTS[fault] not in self.dialect.cannot_show

    def strike(self, fault: str, contact: str | None = None, **keys: Any) -> str:
        """
        The next write (of the record) meets the fault; `keys` are those of a rule in a script.

        A record can be named only where the provider's path names it too.

        Raises:
            ScriptError: There is no such rule, or its fault cannot show here.
        """
        rule = {"fault": fault, **({} if contact is None else {"contact": contact}), **keys}
        [parsed] = parse_rules(json.dumps([rule]), source="rule")
        return self.simulator.admin.add_rule(parsed)

    def release(self, hold: str) -> None:
        """Nothing is held under this name any more."""
        self.simulator.stores.rulebook.release(hold)

    def advance_clock(self, seconds: float) -> None:
        """It is later at the provider: keys grow old and windows empty."""
        self.simulator.stores.clock.advance(seconds)

    @property
    def ledger(self) -> Ledger:
        """All that happened, from the file."""
        return read_ledger(self.simulator.stores.journal.path)

    def changes(self, contact_id: str | None = None) -> list[Change]:
        """The changes that requests made, of the record or of all."""
        return [change for change in self.ledger.changes() if contact_id in (None, change.contact)]

    def requests(self, contact_id: str | None = None) -> list[Exchange]:
        """The requests that were read, for the record or for all, with what became of them."""
        return [
            exchange
            for exchange in self.ledger.exchanges()
            if contact_id in (None, exchange.contact)
        ]


@asynccontextmanager
async def simulating(
    pack: str | Path | Mapping[str, Any] | Dialect,
    *,
    token: str | None = None,
    ledger: Path | None = None,
    index_lag: timedelta | None = None,
) -> AsyncIterator[SimulatorHere]:
    """
    A simulator of the pack until the block ends: a name, a file, or the tables of one.

    Raises:
        PackUnusable: There is no such name, or the pack cannot be played.
    """
    dialect = dialect_of(pack) if isinstance(pack, str | Path | Mapping) else pack
    with tempfile.TemporaryDirectory(prefix="simulator-") as folder:
        settings = Settings(
            host=_HOST,
            port=0,
            admin_port=0,
            ledger=ledger or Path(folder) / "ledger.jsonl",
            token=token or dialect.default_token,
            dialect=dialect,
            index_lag=index_lag,
        )
        simulator = Simulator(settings, *Journal.open(settings.ledger))
        try:
            simulator.open()
            yield SimulatorHere(
                base_url=f"http://{_HOST}:{simulator.port}",
                token=settings.token,
                dialect=dialect,
                simulator=simulator,
                numbers=count(1),
            )
        finally:
            await simulator.stop()
        simulator.raise_failure()
