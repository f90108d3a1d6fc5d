"""
Which rule strikes which request, and what is left of each.

A rule is reserved when a request is matched and given back if its fault turns out not to apply, so
two requests at once never share one.
"""

import asyncio
from collections import Counter
from dataclasses import dataclass

from oncefence.simulator.dealing import Dealer
from oncefence.simulator.faults import SEARCH_FAULTS, Fault, Rule, ScriptedFault
from oncefence.simulator.ledger import Kind, Ledger, Row
from oncefence.simulator.marks import Mark, Operation

DEALT_RULE_ID = "seed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Deal:
    """A rule that strikes one request."""

    rule_id: str
    rule: Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A rule and what is left of it."""

    rule_id: str
    rule: Rule
    left: int


class RuleBook:
    """The rules in order, the first that matches wins; after them the dealer."""

    def __init__(self, dealer: Dealer | None = None) -> None:
        self._dealer = dealer
        self._rules: dict[str, Rule] = {}
        self._spent: Counter[str] = Counter()
        self._requests: Counter[tuple[str, str]] = Counter()
        self._answered: set[str] = set()
        self._released: set[str] = set()
        self._waiting: dict[str, list[asyncio.Event]] = {}

    def add(self, rule_id: str, rule: Rule) -> None:
        """The rule strikes from now on; a hold of a released name holds again."""
        self._rules[rule_id] = rule
        if rule.hold is not None:
            self._released.discard(rule.hold)

    def replay(self, ledger: Ledger) -> None:
        """Counts, spent rules, added rules and releases stand as the ledger left them."""
        struck: set[tuple[str | None, int | None]] = set()
        for row in ledger.rows:
            match row.kind:
                case Kind.RULE if row.rule is not None and row.note is not None:
                    self.add(row.rule, Rule.model_validate_json(row.note))
                case Kind.RELEASE if row.note is not None:
                    self._released.add(row.note)
                case Kind.FAULT | Kind.HELD:
                    # A rule that held a request and then broke it was spent once.
                    if row.request is None or (row.rule, row.request) not in struck:
                        self._spent[row.rule or ""] += 1
                        struck.add((row.rule, row.request))
                    if row.fault == Fault.RESET_BEFORE_READ:
                        self.count(row.method or "", _who(row))
                case Kind.READ:
                    self.count(row.method or "", _who(row))
                case Kind.ANSWERED if row.contact is not None and _wrote(row):
                    self._answered.add(row.contact)

    def count(self, method: str, who: str | None) -> int:
        """The how-manieth request with this method by this name has just come."""
        self._requests[method, who or ""] += 1
        return self._requests[method, who or ""]

    def take(self, mark: Mark) -> Deal | None:
        """The rule that strikes this request, reserved."""
        for rule_id, rule in self._rules.items():
            if rule.fault is not Fault.REFUSE and _matches(rule, mark) and self._left(rule_id):
                self._spent[rule_id] += 1
                return Deal(rule_id=rule_id, rule=rule)
        dealt = self._dealt(mark)
        return Deal(rule_id=DEALT_RULE_ID, rule=dealt) if dealt is not None else None

    def give_back(self, deal: Deal) -> None:
        """The reserved rule did not strike and is free for another request."""
        self._spent[deal.rule_id] -= 1

    def take_refusal(self) -> Deal | None:
        """The rule that resets the connection which was just accepted."""
        return self._take_refuse(closing=False)

    def take_closing(self) -> Deal | None:
        """The rule that closes the port now."""
        return self._take_refuse(closing=True)

    def answered(self, contact: str) -> None:
        """Refusals that wait for this contact are armed."""
        self._answered.add(contact)

    async def held(self, name: str) -> None:
        """Returns when `name` is released."""
        if name in self._released:
            return
        released = asyncio.Event()
        waiting = self._waiting.setdefault(name, [])
        waiting.append(released)
        try:
            await released.wait()
        finally:
            waiting.remove(released)

    def release(self, name: str) -> int:
        """All that is held under `name` goes on, and nothing more is; how many that were."""
        self._released.add(name)
        waiting = self._waiting.get(name, [])
        for released in waiting:
            released.set()
        return len(waiting)

    def has_hold(self, name: str) -> bool:
        """Some rule holds under this name."""
        return any(rule.hold == name for rule in self._rules.values())

    def is_released(self, name: str) -> bool:
        """Nothing is held under this name any more."""
        return name in self._released

    def waiting(self) -> dict[str, int]:
        """How many requests each name holds now."""
        return {name: len(events) for name, events in self._waiting.items() if events}

    def standings(self) -> list[Standing]:
        """Every rule with what is left of it."""
        return [
            Standing(rule_id=rule_id, rule=rule, left=self._left(rule_id))
            for rule_id, rule in self._rules.items()
        ]

    def _dealt(self, mark: Mark) -> Rule | None:
        if self._dealer is None:
            return None
        if mark.operation is Operation.SEARCH:
            return self._dealer.deal_search(mark.nth)
        if not mark.operation.is_write or mark.who is None:
            return None
        return self._dealer.deal(mark.who, mark.nth)

    def _take_refuse(self, *, closing: bool) -> Deal | None:
        for rule_id, rule in self._rules.items():
            if (
                rule.fault is Fault.REFUSE
                and (rule.refuse_for_s is not None) is closing
                and (rule.after_contact is None or rule.after_contact in self._answered)
                and self._left(rule_id)
            ):
                self._spent[rule_id] += 1
                return Deal(rule_id=rule_id, rule=rule)
        return None

    def _left(self, rule_id: str) -> int:
        rule = self._rules[rule_id]
        if rule.fault is None and rule.hold in self._released:
            return 0
        return max(0, rule.times - self._spent[rule_id])


def _matches(rule: Rule, mark: Mark) -> bool:
    return (
        _matches_kind(rule, mark)
        and rule.contact in (None, mark.contact)
        and rule.command in (None, mark.command)
        and rule.nth in (None, mark.nth)
        and (rule.fault is not ScriptedFault.KEY_EXPIRY or mark.key is not None)
    )


def _matches_kind(rule: Rule, mark: Mark) -> bool:
    if rule.method not in (None, "*", mark.method):
        return False
    if rule.fault in SEARCH_FAULTS:
        return mark.operation is Operation.SEARCH
    if rule.operation is not None:
        return mark.operation is rule.operation
    return rule.method is not None or mark.operation.is_write


def _who(row: Row) -> str | None:
    return row.contact or row.key or row.command or row.operation


def _wrote(row: Row) -> bool:
    if row.operation is None:
        return row.method == "PATCH"
    return Operation(row.operation).is_write
