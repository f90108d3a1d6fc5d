"""The simulator put together: one journal, what it is told, and two ports."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from oncefence.simulator.admin import Admin
from oncefence.simulator.clock import Clock
from oncefence.simulator.contacts import Contacts
from oncefence.simulator.dealing import Dealer
from oncefence.simulator.dialects.hubspot import HubSpot
from oncefence.simulator.dialects.protocol import Dialect
from oncefence.simulator.exchange import Exchange
from oncefence.simulator.faults import Fault, Rule, check_for
from oncefence.simulator.journal import Journal
from oncefence.simulator.keys import Keys
from oncefence.simulator.ledger import Kind, Ledger, Row
from oncefence.simulator.listener import Listener
from oncefence.simulator.provider import Provider
from oncefence.simulator.rulebook import RuleBook
from oncefence.simulator.stores import OTHER_ACCOUNT, Stores

_ADMIN_HOST = "127.0.0.1"


class LedgerOfAnother(Exception):
    """The ledger was written by a simulator of another provider."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What one run of the simulator is told."""

    host: str
    port: int
    admin_port: int
    ledger: Path
    token: str = field(repr=False)
    script: Mapping[str, Rule] = field(default_factory=dict)
    seeded: Dealer | None = None
    dialect: Dialect = field(default_factory=HubSpot)
    index_lag: timedelta | None = None
    """How old the search index is; without it, as old as the provider's is."""
    tell: Callable[[Exchange], None] = lambda _: None
    """Told of every exchange when it is over."""


class Simulator:
    """A provider that goes on where its ledger ends."""

    def __init__(self, settings: Settings, journal: Journal, ledger: Ledger) -> None:
        self._settings = settings
        self._journal = journal
        dialect = settings.dialect
        for row in ledger.of(Kind.STARTED):
            if row.note not in (None, dialect.name):
                raise LedgerOfAnother(
                    f"ledger {journal.path} is of a simulated {row.note}; name another file"
                )
        self._rulebook = RuleBook(settings.seeded)
        for rule_id, rule in settings.script.items():
            check_for(dialect.cannot_show, dialect.title, rule)
            self._rulebook.add(rule_id, rule)
        clock = Clock(journal)
        self.stores = Stores(
            journal=journal,
            clock=clock,
            contacts=Contacts(journal, clock=clock),
            elsewhere=Contacts(journal, clock=clock, account=OTHER_ACCOUNT),
            keys=Keys(journal, clock, dialect.keys),
            rulebook=self._rulebook,
        )
        self.stores.replay(ledger)
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        lag = settings.index_lag
        self.provider = Provider(
            dialect=dialect,
            stores=self.stores,
            token=settings.token,
            index_lag=dialect.index_lag if lag is None else lag,
            write_answered=self._close_port_where_due,
            tell=settings.tell,
        )
        self._provider_listener = Listener(
            serve=self.provider.serve, fail=self._fail, refuses=self._refuses
        )
        self.admin = Admin(
            dialect=dialect,
            stores=self.stores,
            provider_listener=self._provider_listener,
            close_port=self._close_port,
            rules_changed=self._close_port_where_due,
            rules_added_before=len(ledger.of(Kind.RULE)),
        )
        self._admin_listener = Listener(serve=self.admin.serve, fail=self._fail)

    @property
    def dialect(self) -> Dialect:
        """The language that it speaks."""
        return self._settings.dialect

    @property
    def port(self) -> int:
        """Where the provider's API is."""
        return self._provider_listener.port

    @property
    def admin_port(self) -> int:
        """Where the admin surface is, on loopback."""
        return self._admin_listener.port

    def open(self) -> None:
        """Both ports are open. Raises OSError when one cannot be had."""
        self._admin_listener.bind(_ADMIN_HOST, self._settings.admin_port)
        self._provider_listener.bind(self._settings.host, self._settings.port)
        self._journal.append(Row(kind=Kind.STARTED, note=self.dialect.name))
        self._admin_listener.open()
        self._provider_listener.open()
        self._close_port_where_due()

    async def stop(self) -> None:
        """Both ports are free, nothing runs, and the ledger is let go."""
        await self._provider_listener.stop()
        await self._admin_listener.stop()
        self._journal.close()

    async def serve_until(self, stopped: asyncio.Event) -> None:
        """Returns when `stopped` is set; raises what ended an exchange by surprise."""
        stopping = asyncio.create_task(stopped.wait())
        first = asyncio.FIRST_COMPLETED
        await asyncio.wait((stopping, self._failure), return_when=first)
        stopping.cancel()
        self.raise_failure()

    def raise_failure(self) -> None:
        """Raises what ended an exchange by surprise, if anything did."""
        if self._failure.done():
            self._failure.result()

    def _refuses(self) -> bool:
        deal = self._rulebook.take_refusal()
        if deal is None:
            return False
        self._journal.append(Row(kind=Kind.FAULT, fault=Fault.REFUSE.value, rule=deal.rule_id))
        return True

    def _close_port_where_due(self) -> None:
        while (deal := self._rulebook.take_closing()) is not None:
            self._close_port(deal.rule.refuse_for_s or 0.0, rule_id=deal.rule_id)

    def _close_port(self, seconds: float, rule_id: str = "admin") -> None:
        self._journal.append(
            Row(
                kind=Kind.FAULT,
                fault=Fault.REFUSE.value,
                rule=rule_id,
                note=f"port closed for {seconds:g} s",
            )
        )
        self._provider_listener.close_for(seconds)

    def _fail(self, reason: BaseException) -> None:
        if not self._failure.done():
            self._failure.set_exception(reason)
