"""The answers of a provider that is known by its pack alone: all that they must show, planted."""

from collections.abc import Mapping
from datetime import datetime
from email.utils import format_datetime
from typing import Any
from uuid import uuid4

from oncefence.simulator.contacts import Contact
from oncefence.simulator.dialects.pack_file import (
    LookupRule,
    OperationRule,
    Pack,
    PackUnusable,
    StatusAndBody,
)
from oncefence.simulator.dialects.pack_records import time_of, values_of
from oncefence.simulator.dialects.pack_templates import filled
from oncefence.simulator.dialects.planting import NotPlantable, planted, satisfied, shown
from oncefence.simulator.dialects.protocol import Found, Limit
from oncefence.simulator.journal import stamp
from oncefence.simulator.wire import Answer

_CODES = {
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    409: "conflict",
    412: "precondition_failed",
    415: "unsupported_media_type",
    429: "rate_limited",
    503: "unavailable",
}
_LIMIT_DEFAULT = 100


class PackAnswers:
    """Writes answers; one document for each rule of the pack is tried when the pack is read."""

    def __init__(self, pack: Pack, has_number_ids: Mapping[str, bool]) -> None:
        self._pack = pack
        self._has_number_ids = has_number_ids
        self._first = next(iter(pack.operations.values()))

    def written(self, rule: OperationRule, contact: Contact) -> Answer:
        """A write succeeded."""
        answer = rule.answer
        status = answer.success[0]
        headers = self._headers(rule) | {
            source.header: uuid4().hex for source in answer.receipt.values() if source.header
        }
        if status == 204 or not (answer.evidence or answer.identity):
            return Answer(status=status, body=b"", headers=headers)
        document: Any = {}
        lookup = rule.lookup
        if lookup is not None and lookup.kind == "by_id" and lookup.identity == answer.identity:
            document = self._fields(document, lookup, contact)
        if answer.identity is not None:
            document = planted(document, answer.identity, self._id(rule, contact))
        echoed = set(lookup.compare.values()) if lookup is not None else set()
        for expression in answer.evidence:
            if expression not in echoed:
                document = shown(document, expression, stamp(contact.updated_at))
        return Answer(status=status, body=document, headers=headers)

    def read(self, rule: OperationRule, lookup: LookupRule, contact: Contact) -> Answer:
        """A read by id found the record."""
        document = self._fields({}, lookup, contact)
        document = planted(document, lookup.identity, self._id(rule, contact))
        for expression in lookup.evidence:
            document = shown(document, expression, stamp(contact.updated_at))
        return Answer(status=lookup.found[0], body=document, headers=self._headers(rule))

    def searched(self, rule: OperationRule, lookup: LookupRule, found: Found) -> Answer:
        """A read by query found these records."""
        search = lookup.search
        if search is None:
            raise AssertionError("a lookup by query has its search table")
        items = []
        for contact in found.contacts:
            item: Any = self._fields({}, lookup, contact)
            item = planted(item, lookup.identity, self._id(rule, contact))
            for where, template in search.match.items():
                item = planted(item, where, filled(template, values_of(contact)))
            if search.created_time is not None:
                moment = time_of(search.created_time, contact.created_at)
                item = planted(item, search.created_time.value, moment)
            items.append(item)
        document = planted({}, search.items, items)
        if search.more is not None and found.has_more:
            document = satisfied(document, search.more)
        for expression in lookup.evidence:
            document = shown(document, expression)
        return Answer(status=lookup.found[0], body=document, headers=self._headers(rule))

    def error(
        self,
        status: int,
        message: str,
        *,
        rule: OperationRule | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """An error that shows its code where the pack looks for one."""
        rule = rule or self._first
        code = _CODES.get(status, "invalid" if status < 500 else "internal")
        document: Any = {"error": {"code": code, "message": message}}
        if rule.answer.error_code:
            document = planted({"message": message}, rule.answer.error_code[0], code)
        return Answer(
            status=status, body=document, headers=self._headers(rule) | dict(headers or {})
        )

    def error_inside(self, rule: OperationRule) -> Answer:
        """A refusal under a success status, as the pack declares one where it does."""
        status = next((each for each in rule.answer.success if each != 204), 200)
        error = self.error(400, "refused", rule=rule)
        document: Any = error.body
        for refusal in rule.answer.refusals:
            if refusal.body is not None and status in refusal.statuses:
                return Answer(
                    status=status, body=satisfied(document, refusal.body), headers=error.headers
                )
        return Answer(status=status, body={**document, "error": "refused"}, headers=error.headers)

    def turned_away(self, status: int, rules: tuple[StatusAndBody, ...], message: str) -> Answer:
        """An error under which a body says that nothing was applied, where a rule has one."""
        error = self.error(status, message)
        document: Any = error.body
        for rule in rules:
            if status in rule.statuses and rule.body is not None:
                document = satisfied(document, rule.body)
                break
        return Answer(status=status, body=document, headers=error.headers)

    def limited(self, limit: Limit, headers: Mapping[str, str]) -> Answer:
        """429, with the name of the limit where the pack reads one."""
        answer = self._first.answer
        error = self.error(429, f"{limit} limit reached", headers=self.renamed(headers))
        if answer.wait_by is None:
            return error
        waits = sorted(answer.wait_by.waits.items(), key=lambda each: _length(each[1]))
        names = [name for name, _ in waits]
        place = {Limit.SECONDLY: 0, Limit.DAILY: -1, Limit.ORDINARY: len(names) // 2}[limit]
        document = planted(error.body, answer.wait_by.value, names[place])
        return Answer(status=429, body=document, headers=error.headers)

    def renamed(self, headers: Mapping[str, str]) -> dict[str, str]:
        """Retry-After by the name that the pack reads it under."""
        name = self._first.answer.retry_after.header
        return {name if key == "Retry-After" else key: value for key, value in headers.items()}

    def come_back(self, until: datetime, now: datetime) -> dict[str, str]:
        """The time to come back in the last form that the pack reads, its most peculiar one."""
        rule = self._first.answer.retry_after
        return {rule.header: _written(rule.forms[-1], until, now)}

    def rates(self, left: int, resets_at: datetime, now: datetime) -> dict[str, str]:
        """What is left, under every name that the pack reads it by."""
        headers: dict[str, str] = {}
        for rate in self._first.answer.rate.values():
            given = {
                rate.limit: str(_LIMIT_DEFAULT),
                rate.remaining: str(left),
                rate.reset: _written(rate.reset_forms[-1], resets_at, now),
                rate.window_ms: "10000",
            }
            headers |= {name: value for name, value in given.items() if name is not None}
        return headers

    def try_all(self, contact: Contact) -> None:
        """
        Every answer can be made.

        Raises:
            PackUnusable: Naming the operation and the expression that cannot be followed.
        """
        for name, rule in self._pack.operations.items():
            try:
                self.written(rule, contact)
                self.error_inside(rule)
                for status in (409, 503):
                    self.turned_away(status, rule.answer.not_applied_when, "")
                if rule.lookup is not None and rule.lookup.kind == "by_id":
                    self.read(rule, rule.lookup, contact)
                elif rule.lookup is not None:
                    found = Found(contacts=(contact,), has_more=True)
                    self.searched(rule, rule.lookup, found)
            except NotPlantable as reason:
                raise PackUnusable(f"operations.{name}: {reason}") from reason

    def _fields(self, document: Any, lookup: LookupRule, contact: Contact) -> Any:
        for name, expression in lookup.compare.items():
            document = planted(document, expression, contact.properties.get(name))
        if lookup.change_time is not None:
            moment = time_of(lookup.change_time, contact.updated_at)
            document = planted(document, lookup.change_time.value, moment)
        return document

    def _id(self, rule: OperationRule, contact: Contact) -> Any:
        is_number = self._has_number_ids.get(rule.object, False) and contact.id.isdecimal()
        return int(contact.id) if is_number else contact.id

    def _headers(self, rule: OperationRule) -> dict[str, str]:
        if rule.answer.media_types:
            return {"Content-Type": rule.answer.media_types[0]}
        asked = rule.request.media_type
        return {"Content-Type": asked if asked.endswith("+json") else "application/json"}


def lookup_of(rule: OperationRule) -> LookupRule:
    """The lookup of an operation that was asked for by it."""
    if rule.lookup is None:
        raise AssertionError("only an operation with a lookup is looked up")
    return rule.lookup


def _length(wait: int | str) -> float:
    return float(wait) if isinstance(wait, int) else float("inf")


def _written(form: str, moment: datetime, now: datetime) -> str:
    match form:
        case "http_date":
            return format_datetime(moment, usegmt=True)
        case "iso":
            return stamp(moment)
        case "iso_utc":
            return stamp(moment)[:19]
        case "epoch_s":
            return str(int(moment.timestamp()))
        case _:
            return str(max(0, round((moment - now).total_seconds())))
