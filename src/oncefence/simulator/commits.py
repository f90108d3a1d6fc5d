"""
What a valid request does to the records, and the answer that is then due.

The one place where a request changes something. There is no await in here: what is kept under an
idempotency key is on disk with its change, before anybody can hear of either.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, assert_never

from oncefence.simulator.contacts import Contact, Contacts
from oncefence.simulator.dialects.protocol import (
    Asked,
    Batch,
    Change,
    Creation,
    Dialect,
    Found,
    Reading,
    Search,
)
from oncefence.simulator.exchange import Exchange
from oncefence.simulator.faults import Fault, Rule, ScriptedFault
from oncefence.simulator.journal import utc_now
from oncefence.simulator.keys import Keys
from oncefence.simulator.wire import Answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A valid request, the account that it is served in, and the digest of what it asks for."""

    asked: Asked
    contacts: Contacts
    account: str | None
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The answer that is due, and the records that were written with what they were given."""

    answer: Answer
    written: tuple[tuple[Contact, Mapping[str, Any]], ...] = ()


class Commits:
    """Carries out requests, plainly or as a rule's fault has it."""

    def __init__(self, *, dialect: Dialect, keys: Keys, index_lag: timedelta) -> None:
        self._dialect = dialect
        self._keys = keys
        self._index_lag = index_lag

    def carry_out(self, exchange: Exchange, ask: Ask, rule: Rule | None) -> Done:
        """The records are as the request wants them."""
        asked = ask.asked
        match asked:
            case Search():
                found = self._search(asked, ask.contacts, rule)
                return Done(answer=self._dialect.success(asked, found))
            case Batch(changes=changes):
                changed = [self._change(exchange, ask, each, rule) for each in changes]
                return Done(
                    answer=self._dialect.success(asked, Found(contacts=tuple(changed))),
                    written=tuple(
                        (contact, change.properties)
                        for contact, change in zip(changed, changes, strict=True)
                    ),
                )
            case Reading(contact=contact):
                now = ask.contacts.get(contact.id, contact.object) or contact
                return Done(answer=self._shown(asked, now, rule))
            case Change():
                written = self._change(exchange, ask, asked, rule)
            case Creation():
                written = self._create(exchange, ask, asked, rule)
            case _:
                assert_never(asked)
        return Done(
            answer=self._shown(asked, written, rule), written=((written, asked.properties),)
        )

    def keep_failure(self, exchange: Exchange, ask: Ask, answer: Answer) -> None:
        """The answer to a request that was begun and failed is what its key says from now on."""
        key = exchange.mark.key
        if key is not None and self._dialect.keys is not None:
            self._keys.keep(ask.account, key, ask.digest, answer)

    def _change(self, exchange: Exchange, ask: Ask, change: Change, rule: Rule | None) -> Contact:
        contact = change.contact
        for keep in self._rounds(exchange, ask, rule):
            exchange.changes += 1
            contact = ask.contacts.change(
                contact,
                change.properties,
                mark=exchange.mark,
                request=exchange.request or 0,
                skew=exchange.skew,
                keep=self._keeping(exchange, ask, rule) if keep else None,
            )
        return contact

    def _create(
        self, exchange: Exchange, ask: Ask, creation: Creation, rule: Rule | None
    ) -> Contact:
        made = [
            ask.contacts.add(
                self._dialect.new_id(ask.contacts, creation.object),
                creation.properties,
                object_name=creation.object,
                mark=exchange.mark,
                request=exchange.request or 0,
                skew=exchange.skew,
                keep=self._keeping(exchange, ask, rule) if keep else None,
            )
            for keep in self._rounds(exchange, ask, rule)
        ]
        exchange.changes += len(made)
        return made[0]

    def _rounds(self, exchange: Exchange, ask: Ask, rule: Rule | None) -> list[bool]:
        """One entry for each time that the change is made: whether its answer is kept."""
        keeps = (
            exchange.mark.key is not None
            and self._dialect.keys is not None
            and not isinstance(ask.asked, Batch)
        )
        is_twice = rule is not None and rule.fault is ScriptedFault.DUPLICATE_APPLY
        return [keeps, False] if is_twice else [keeps]

    def _keeping(self, exchange: Exchange, ask: Ask, rule: Rule | None) -> "_Keeping":
        return _Keeping(self._dialect, self._keys, exchange, ask, rule)

    def _shown(
        self, asked: Change | Creation | Reading, contact: Contact, rule: Rule | None
    ) -> Answer:
        if rule is not None and rule.fault is Fault.WRONG_ID:
            contact = replace(contact, id=f"{contact.id}0")
        return self._dialect.success(asked, Found(contacts=(contact,)))

    def _search(self, search: Search, contacts: Contacts, rule: Rule | None) -> Found:
        fault = rule.fault if rule is not None else None
        lag = self._index_lag
        if rule is not None and fault is ScriptedFault.INDEX_LAG:
            lag = timedelta(seconds=rule.lag_s)
        known = [
            contact
            for contact in (contacts.as_of(utc_now() - lag) if lag else contacts.all())
            if contact.object == search.object and not contact.is_archived
        ]
        if fault is not ScriptedFault.IGNORED_FILTER:
            known = [contact for contact in known if search.matches(contact)]
        known.sort(key=search.order, reverse=search.is_descending)
        if rule is not None and fault is ScriptedFault.CAPPED_SEARCH:
            known = known[: rule.cap]
        start = search.start(known)
        page = known[start : start + search.size]
        if fault is Fault.WRONG_ID:
            page = [replace(contact, id=f"{contact.id}0") for contact in page]
        end = start + len(page)
        return Found(contacts=tuple(page), total=len(known), end=end, has_more=end < len(known))


@dataclass(frozen=True, slots=True)
class _Keeping:
    """Makes what a key keeps of a change, once the change's record is known."""

    dialect: Dialect
    keys: Keys
    exchange: Exchange
    ask: Ask
    rule: Rule | None

    def __call__(self, contact: Contact) -> Mapping[str, Any]:
        asked = self.ask.asked
        assert isinstance(asked, Change | Creation)  # a batch keeps nothing
        answer = self.dialect.success(asked, Found(contacts=(contact,)))
        if self.rule is not None and self.rule.fault is Fault.SERVER_ERROR_AFTER_COMMIT:
            answer = self.dialect.error(self.rule.status or 500, "internal error")
        record = self.keys.record(self.ask.digest, answer)
        self.keys.keep_changed(self.ask.account, self.exchange.mark.key or "", record)
        return record
