"""The simulator put together: one journal, the records, the rules, and two ports."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from oncefence.simulator.admin import Admin
from oncefence.simulator.contacts import Contacts
from oncefence.simulator.faults import Fault, Rule, SeededFaults
from oncefence.simulator.journal import Journal
from oncefence.simulator.ledger import Kind, Ledger, Row
from oncefence.simulator.listener import Listener
from oncefence.simulator.provider import Provider
from oncefence.simulator.rulebook import RuleBook

_ADMIN_HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What one run of the simulator is told."""

    host: str
    port: int
    admin_port: int
    ledger: Path
    token: str = field(repr=False)
    script: Mapping[str, Rule] = field(default_factory=dict)
    seeded: SeededFaults | None = None


class Simulator:
    """A provider that goes on where its ledger ends."""

    def __init__(self, settings: Settings, journal: Journal, ledger: Ledger) -> None:
        self._settings = settings
        self._journal = journal
        self._rulebook = RuleBook(settings.seeded)
        for rule_id, rule in settings.script.items():
            self._rulebook.add(rule_id, rule)
        self._rulebook.replay(ledger)
        self._contacts = Contacts(journal)
        self._contacts.replay(ledger)
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        provider = Provider(
            journal=journal,
            contacts=self._contacts,
            rulebook=self._rulebook,
            token=settings.token,
            patch_answered=self._close_port_where_due,
        )
        self._provider_listener = Listener(
            serve=provider.serve, fail=self._fail, refuses=self._refuses
        )
        admin = Admin(
            journal=journal,
            contacts=self._contacts,
            rulebook=self._rulebook,
            provider_listener=self._provider_listener,
            close_port=self._close_port,
            rules_changed=self._close_port_where_due,
            rules_added_before=len(ledger.of(Kind.RULE)),
        )
        self._admin_listener = Listener(serve=admin.serve, fail=self._fail)

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
        self._journal.append(Row(kind=Kind.STARTED))
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
