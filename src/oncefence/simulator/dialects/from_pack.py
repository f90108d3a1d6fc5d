"""Any provider at all: the language that a pack describes, spoken from the pack alone."""

import hmac
import json
import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from oncefence.simulator.contacts import Contact, Contacts
from oncefence.simulator.dialects.pack_answers import PackAnswers, lookup_of
from oncefence.simulator.dialects.pack_file import Pack, PackUnusable, read_pack
from oncefence.simulator.dialects.pack_ids import made_id
from oncefence.simulator.dialects.pack_records import (
    COMMAND,
    VERSION,
    example_fields,
    wrong_fields,
)
from oncefence.simulator.dialects.pack_requests import PackRequests
from oncefence.simulator.dialects.pack_routes import Routes
from oncefence.simulator.dialects.pack_templates import filled
from oncefence.simulator.dialects.protocol import (
    Asked,
    Batch,
    Found,
    KeyRule,
    KeyTrouble,
    Limit,
    Reading,
    Search,
    Target,
    Window,
)
from oncefence.simulator.faults import SEARCH_FAULTS, ScriptedFault
from oncefence.simulator.journal import utc_now
from oncefence.simulator.marks import Operation
from oncefence.simulator.wire import Answer, Head, Request


class FromPack:
    """
    The dialect of one pack.

    Raises:
        PackUnusable: It cannot be played; naming the file, the key and the reason.
    """

    default_token = "simulated"  # noqa: S105  # a made-up token, said so in its text

    def __init__(self, source: Path | Mapping[str, Any]) -> None:
        pack = read_pack(source)
        self._pack = pack
        self._routes = Routes(pack)
        self.name = pack.name
        self.title = pack.display_name or pack.name
        self.objects: tuple[str | None, ...] = tuple(pack.objects)
        self.command_header = pack.trace.command_header or "X-Oncefence-Command"
        self.attempt_header = pack.trace.attempt_header or "X-Oncefence-Attempt"
        self.keys = _key_rule(pack)
        self.index_lag = timedelta()
        self.version = VERSION if _has_versions(pack) else None
        self.cannot_show = _cannot_show(pack, self._routes)
        self._answers = PackAnswers(pack, _number_ids(pack))
        self._requests = PackRequests(pack, self._routes, self._answers)
        try:
            self._try()
        except PackUnusable as reason:
            place = f"{source}: " if isinstance(source, Path) else ""
            raise PackUnusable(f"{place}{reason}") from reason

    def target(self, head: Head) -> Target:
        """What the head asks for."""
        arrivals = self._routes.arrivals(head)
        if not arrivals:
            return Target(operation=Operation.OTHER)
        route = arrivals[0].route
        return Target(
            operation=route.operation,
            contact=arrivals[0].values.get("remote_id"),
            object=route.rule.object,
        )

    def window(self, target: Target) -> Window | None:  # noqa: ARG002
        """A pack's limits are for those who send; nothing is counted here."""
        return None

    def unauthorized(self, head: Head, token: str) -> Answer | None:
        """401 where the header of the token is missing or another."""
        auth = self._pack.auth
        given = head.headers.get(auth.header.lower(), "")
        wanted = filled(auth.template, {"token": token})
        if hmac.compare_digest(given.encode(), wanted.encode()):
            return None
        return self.error(401, "the token is missing or is not valid")

    def judge(self, request: Request, contacts: Contacts) -> Asked | Answer:
        """What a valid request asks for, or the answer that refuses it."""
        return self._requests.judge(request, contacts)

    def success(self, asked: Asked, found: Found) -> Answer:
        """The plain answer, with all that the pack looks for."""
        match asked:
            case Batch():
                raise AssertionError("no pack has a batch")
            case Search(route=name):
                rule = self._pack.operations[name]
                return self._answers.searched(rule, lookup_of(rule), found)
            case Reading(route=name):
                rule = self._pack.operations[name]
                return self._answers.read(rule, lookup_of(rule), found.contacts[0])
            case _:
                rule = self._pack.operations[asked.route]
                return self._answers.written(rule, found.contacts[0])

    def error(
        self, status: int, message: str, *, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """An error in the form that the pack reads."""
        return self._answers.error(status, message, headers=self._answers.renamed(headers or {}))

    def error_inside(self, asked: Asked) -> Answer:
        """A success status around an error."""
        match asked:
            case Batch():
                raise AssertionError("no pack has a batch")
            case _:
                return self._answers.error_inside(self._pack.operations[asked.route])

    def limited(
        self,
        limit: Limit,
        headers: Mapping[str, str],
        now: datetime,  # noqa: ARG002
        *,
        resets_at: datetime | None = None,  # noqa: ARG002
    ) -> Answer:
        """429, with the name of the limit where the pack reads one."""
        return self._answers.limited(limit, headers)

    def maintenance(self, headers: Mapping[str, str], until: datetime) -> Answer:
        """503, with a time to come back, as one that the pack takes for not applied."""
        rules = next(iter(self._pack.operations.values())).answer.not_applied_when
        away = self._answers.turned_away(503, rules, "under maintenance")
        waits = self._answers.renamed(headers) or self._answers.come_back(until, utc_now())
        return Answer(status=503, body=away.body, headers={**away.headers, **waits})

    def key_trouble(self, trouble: KeyTrouble) -> Answer:
        """The refusal of an idempotency key."""
        if trouble is KeyTrouble.IN_FLIGHT:
            rules = tuple(
                rule
                for operation in self._pack.operations.values()
                for rule in operation.answer.not_applied_when
            )
            return self._answers.turned_away(409, rules, "the key is in use")
        return self.error(400, f"the idempotency key cannot be used: {trouble}")

    def rate_headers(self, left: int, resets_at: datetime) -> dict[str, str]:
        """What is left, by the names of the pack."""
        return self._answers.rates(left, resets_at, utc_now())

    def fingerprint(self, request: Request) -> bytes:
        """All of the request but its headers."""
        return f"{request.head.method} {request.head.target}\n".encode() + request.body

    def why_not(self, contact: Contact) -> str | None:
        """The id and the fields are of the pack's forms."""
        rule = self._pack.objects[contact.object or ""]
        if not re.fullmatch(rule.remote_id, contact.id, re.ASCII):
            return f"id: must match {rule.remote_id}"
        fields = {
            name: value
            for name, value in contact.properties.items()
            if name not in (COMMAND, VERSION)
        }
        wrong = wrong_fields(rule, fields)
        return f"properties: {wrong}" if wrong else None

    def new_id(self, contacts: Contacts, object_name: str | None) -> str:
        """An id of the pack's form that no record has."""
        number = len(contacts.all())
        while True:
            number += 1
            made = self._id(object_name or "", number)
            if contacts.get(made, object_name) is None:
                return made

    def example(self, number: int) -> tuple[str | None, str, Mapping[str, Any]]:
        """A record to begin with, of the pack's kinds in turn."""
        name = list(self._pack.objects)[(number - 1) % len(self._pack.objects)]
        return name, self._id(name, number), example_fields(self._pack.objects[name])

    def _id(self, object_name: str, number: int) -> str:
        pattern = self._pack.objects[object_name].remote_id
        made = made_id(pattern, number)
        if made is None:
            raise PackUnusable(f"objects.{object_name}.remote_id: no id can be made for {pattern}")
        return made

    def _try(self) -> None:
        now = utc_now()
        for number, name in enumerate(self._pack.objects, start=1):
            contact = Contact(
                id=self._id(name, number),
                properties=example_fields(self._pack.objects[name]) | {COMMAND: "command"},
                created_at=now,
                updated_at=now,
                object=name,
            )
            self._answers.try_all(contact)
        self._answers.limited(Limit.DAILY, {})


def _key_rule(pack: Pack) -> KeyRule | None:
    # One provider keeps its keys in one way; the first operation that has them says how.
    rules = [each.idempotency for each in pack.operations.values() if each.idempotency is not None]
    if not rules:
        return None
    mark = rules[0].replayed
    return KeyRule(
        header=rules[0].header,
        kept_for=timedelta(seconds=rules[0].window_s),
        length_max=rules[0].key_max_length,
        replayed=(mark.header, mark.value) if mark is not None else None,
    )


def _cannot_show(pack: Pack, routes: Routes) -> frozenset[ScriptedFault]:
    hidden: set[ScriptedFault] = set()
    if all(route.operation is not Operation.SEARCH for route in routes):
        hidden |= SEARCH_FAULTS
    if _key_rule(pack) is None:
        hidden.add(ScriptedFault.KEY_EXPIRY)
    if not next(iter(pack.operations.values())).answer.rate:
        hidden.add(ScriptedFault.QUOTA_SPENT)
    return frozenset(hidden)


def _has_versions(pack: Pack) -> bool:
    rules = (operation.condition for operation in pack.operations.values())
    return any(rule is not None and rule.form == "text" for rule in rules)


def _number_ids(pack: Pack) -> dict[str, bool]:
    """Whose ids are numbers in the bodies of the pack, and so in its answers."""
    return {
        name: any(
            "{remote_id:integer}" in json.dumps(operation.request.body)
            for operation in pack.operations.values()
            if operation.object == name
        )
        for name in pack.objects
    }
