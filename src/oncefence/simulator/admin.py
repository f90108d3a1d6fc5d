"""
The admin surface: makes records, plays the person who edits them, adds rules, moves the clock.

Plain JSON over HTTP on loopback; it has no credential and must never be bound elsewhere.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Annotated, Any

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from oncefence.simulator.contacts import Contact, ContactExists
from oncefence.simulator.dialects.protocol import Dialect
from oncefence.simulator.faults import Rule, ScriptError, Seconds, check_for, parse_rules
from oncefence.simulator.journal import stamp
from oncefence.simulator.ledger import Kind, Row, read_ledger
from oncefence.simulator.listener import Listener
from oncefence.simulator.stores import Stores
from oncefence.simulator.wire import Answer, Connection, Malformed, Request, Unfinished

_ID_PATTERN = r"^[^/\x00-\x1f]+$"


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class _NewContact(_Body):
    id: Annotated[str, Field(min_length=1, max_length=256, pattern=_ID_PATTERN)]
    object: str | None = None
    properties: dict[str, Any] = Field(default_factory=dict)
    createdAt: AwareDatetime | None = None  # noqa: N815  # the provider's own spelling
    updatedAt: AwareDatetime | None = None  # noqa: N815
    archived: bool = False


class _HumanEdit(_Body):
    id: Annotated[str, Field(min_length=1)]
    object: str | None = None
    properties: Annotated[dict[str, Any], Field(min_length=1)]


class _MoveClock(_Body):
    advance_s: Annotated[float, Field(ge=0, le=31_536_000, allow_inf_nan=False)]


class BadRecord(Exception):
    """No record of this provider can be like that; the message names the key."""


class _Release(_Body):
    hold: Annotated[str, Field(min_length=1)]


class _CloseListener(_Body):
    for_s: Seconds


class Admin:
    """Serves the admin surface to one connection after another."""

    def __init__(
        self,
        *,
        dialect: Dialect,
        stores: Stores,
        provider_listener: Listener,
        close_port: Callable[[float], None],
        rules_changed: Callable[[], None],
        rules_added_before: int,
    ) -> None:
        self._dialect = dialect
        self._stores = stores
        self._journal = stores.journal
        self._contacts = stores.contacts
        self._rulebook = stores.rulebook
        self._listener = provider_listener
        self._close_port = close_port
        self._rules_changed = rules_changed
        self._rules_added = rules_added_before
        self._routes: Mapping[tuple[str, str], Callable[[bytes], Answer]] = {
            ("POST", "/contacts"): self._create_contact,
            ("POST", "/human-edit"): self._human_edit,
            ("POST", "/script"): self._script,
            ("POST", "/hold"): self._hold,
            ("POST", "/release"): self._release,
            ("POST", "/close-listener"): self._close_listener,
            ("POST", "/open-listener"): self._open_listener,
            ("POST", "/clock"): self._move_clock,
            ("GET", "/state"): self._state,
            ("GET", "/ledger"): self._ledger,
        }

    async def serve(self, connection: Connection) -> None:
        """One request, answered."""
        try:
            await connection.send(self._answer(await connection.read()).encode())
        except Malformed as reason:
            await connection.send(_error(reason.status, str(reason)).encode())
        except (Unfinished, ConnectionError):
            return  # whoever asked has left; what was done stands in the ledger

    def _answer(self, request: Request) -> Answer:
        head = request.head
        route = self._routes.get((head.method, head.path))
        if route is None:
            known = ", ".join(f"{method} {path}" for method, path in self._routes)
            return _error(404, f"no {head.method} {head.path} here; there is {known}")
        try:
            return route(request.body)
        except ValidationError as reason:
            first = reason.errors(include_url=False)[0]
            place = ".".join(str(part) for part in first["loc"])
            return _error(400, f"{place}: {first['msg']}" if place else first["msg"])
        except (ScriptError, BadRecord) as reason:
            return _error(400, str(reason))
        except ContactExists as reason:
            return _error(409, str(reason))

    def make(
        self,
        contact_id: str,
        properties: Mapping[str, Any],
        *,
        object_name: str | None = None,
        created_at: datetime | None = None,
        updated_at: datetime | None = None,
        is_archived: bool = False,
    ) -> Contact:
        """
        A record that was there before anybody asked.

        Raises:
            BadRecord: The provider can have no such record.
            ContactExists: The id is taken.
        """
        object_name = self._object(object_name)
        self._check(contact_id, properties, object_name)
        return self._contacts.create(
            contact_id,
            properties,
            object_name=object_name,
            created_at=created_at,
            updated_at=updated_at,
            is_archived=is_archived,
        )

    def add_rule(self, rule: Rule) -> str:
        """
        The id of the rule, which strikes from now on.

        Raises:
            ScriptError: Its fault cannot show in this dialect.
        """
        check_for(self._dialect.cannot_show, self._dialect.title, rule)
        self._rules_added += 1
        rule_id = f"admin-{self._rules_added}"
        text = rule.model_dump_json(exclude_unset=True)
        self._journal.append(Row(kind=Kind.RULE, rule=rule_id, note=text))
        self._rulebook.add(rule_id, rule)
        self._rules_changed()
        return rule_id

    def _create_contact(self, body: bytes) -> Answer:
        new = _NewContact.model_validate_json(body)
        contact = self.make(
            new.id,
            new.properties,
            object_name=new.object,
            created_at=new.createdAt,
            updated_at=new.updatedAt,
            is_archived=new.archived,
        )
        return Answer(status=201, body=_shown(contact))

    def _human_edit(self, body: bytes) -> Answer:
        edit = _HumanEdit.model_validate_json(body)
        object_name = self._object(edit.object)
        if self._contacts.get(edit.id, object_name) is None:
            return _error(404, f"no contact {edit.id}; make it with POST /contacts")
        self._check(edit.id, edit.properties, object_name)
        edited = self._contacts.edit(edit.id, edit.properties, object_name=object_name)
        return Answer(status=200, body=_shown(edited))

    def _move_clock(self, body: bytes) -> Answer:
        self._stores.clock.advance(_MoveClock.model_validate_json(body).advance_s)
        return Answer(status=200, body={"now": stamp(self._stores.clock.now())})

    def _object(self, name: str | None) -> str | None:
        known = self._dialect.objects
        if name is None and len(known) == 1:
            return known[0]
        if name not in known:
            names = ", ".join(each for each in known if each is not None)
            raise BadRecord(f"object: name one of {names}" if names else "object: leave it out")
        return name

    def _check(
        self, contact_id: str, properties: Mapping[str, Any], object_name: str | None
    ) -> None:
        now = self._stores.clock.now()
        wanted = Contact(
            id=contact_id,
            properties=properties,
            created_at=now,
            updated_at=now,
            object=object_name,
        )
        why = self._dialect.why_not(wanted)
        if why is not None:
            raise BadRecord(why)

    def _script(self, body: bytes) -> Answer:
        text = body if body.lstrip()[:1] == b"[" else b"[" + body + b"]"
        rules = parse_rules(text, source="POST /script")
        return Answer(status=201, body={"rules": [self.add_rule(rule) for rule in rules]})

    def _hold(self, body: bytes) -> Answer:
        rule = Rule.model_validate_json(body)
        if rule.hold is None or rule.fault is not None:
            return _error(400, "POST /hold takes a rule with hold and without fault; see /script")
        return Answer(status=201, body={"rules": [self.add_rule(rule)]})

    def _release(self, body: bytes) -> Answer:
        name = _Release.model_validate_json(body).hold
        if not self._rulebook.has_hold(name):
            return _error(404, f"no rule holds under the name {name}")
        self._journal.append(Row(kind=Kind.RELEASE, note=name))
        return Answer(status=200, body={"released": self._rulebook.release(name)})

    def _close_listener(self, body: bytes) -> Answer:
        seconds = _CloseListener.model_validate_json(body).for_s
        self._close_port(seconds)
        return Answer(status=200, body={"closed_for_s": seconds})

    def _open_listener(self, _: bytes) -> Answer:
        was_closed = not self._listener.is_open
        self._listener.open_again()
        return Answer(status=200, body={"was_closed": was_closed})

    def _state(self, _: bytes) -> Answer:
        return Answer(
            status=200,
            body={
                "contacts": [_shown(contact) for contact in self._contacts.all()],
                "rules": [
                    {
                        "id": standing.rule_id,
                        "left": standing.left,
                        **standing.rule.model_dump(mode="json", exclude_unset=True),
                    }
                    for standing in self._rulebook.standings()
                ],
                "held": self._rulebook.waiting(),
                "is_listening": self._listener.is_open,
                "now": stamp(self._stores.clock.now()),
            },
        )

    def _ledger(self, _: bytes) -> Answer:
        rows = read_ledger(self._journal.path).rows
        return Answer(status=200, body=[row.as_json() for row in rows])


def _shown(contact: Contact) -> dict[str, Any]:
    kind = {"object": contact.object} if contact.object is not None else {}
    return kind | {
        "id": contact.id,
        "properties": dict(contact.properties),
        "createdAt": stamp(contact.created_at),
        "updatedAt": stamp(contact.updated_at),
        "archived": contact.is_archived,
    }


def _error(status: int, message: str) -> Answer:
    return Answer(status=status, body={"error": message})
