"""What requests ask for, by the rules of a pack; or the answers that refuse them."""

import re
from collections.abc import Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any

from oncefence.simulator.contacts import Contact, Contacts
from oncefence.simulator.dialects.bodies import form_of, json_of, nested
from oncefence.simulator.dialects.pack_answers import PackAnswers
from oncefence.simulator.dialects.pack_file import LookupRule, OperationRule, Pack
from oncefence.simulator.dialects.pack_records import (
    COMMAND,
    FIELD,
    VERSION,
    values_of,
    wrong_fields,
)
from oncefence.simulator.dialects.pack_routes import Arrival, Routes
from oncefence.simulator.dialects.pack_templates import DoesNotFit, body_matched
from oncefence.simulator.dialects.protocol import Asked, Change, Creation, Reading, Search
from oncefence.simulator.wire import Answer, Head, Request

_FORM = "application/x-www-form-urlencoded"
_SIZE_DEFAULT = 100
# Which of its refusals a provider most likely means, where the pack declares several.
_INVALID = (422, 400)
_CONFLICT = (409, 422, 400)
_MISSING = (404, 410)


class PackRequests:
    """Judges requests by one pack."""

    def __init__(self, pack: Pack, routes: Routes, answers: PackAnswers) -> None:
        self._pack = pack
        self._routes = routes
        self._answers = answers

    def judge(self, request: Request, contacts: Contacts) -> Asked | Answer:
        """What a valid request asks for, or the answer that refuses it."""
        refused = None
        for arrival in self._routes.arrivals(request.head):
            lookup = arrival.route.lookup
            if lookup is not None:
                wanted = lookup.media_type
                if wanted is not None and request.head.media_type != _plain(wanted):
                    return self._answers.error(415, f"the content type must be {wanted}")
                return self._looked_up(arrival, lookup, contacts)
            asked = self._write(arrival, request, contacts)
            if not isinstance(asked, Answer):
                return asked
            refused = refused or asked
        if refused is not None:
            return refused
        status = 405 if self._routes.knows_path(request.head) else 404
        return self._answers.error(status, "the pack has no such request")

    def _looked_up(
        self, arrival: Arrival, lookup: LookupRule, contacts: Contacts
    ) -> Reading | Search | Answer:
        route, values = arrival.route, arrival.values
        if lookup.kind == "by_query":
            search = lookup.search
            return Search(
                matches=lambda contact: _matches(contact, values),
                order=lambda contact: (contact.created_at, contact.id),
                size=(search.cap if search is not None else None) or _SIZE_DEFAULT,
                object=route.rule.object,
                route=route.name,
                asked={},
            )
        contact = contacts.get(values.get("remote_id", ""), route.rule.object)
        if contact is None or contact.is_archived:
            status = lookup.not_found[0] if lookup.not_found else 404
            return self._answers.error(status, "there is no such record", rule=route.rule)
        return Reading(contact=contact, route=route.name)

    def _write(
        self, arrival: Arrival, request: Request, contacts: Contacts
    ) -> Change | Creation | Answer:
        rule = arrival.route.rule
        wanted = _plain(rule.request.media_type)
        if request.head.media_type != wanted:
            return self._answers.error(415, f"the content type must be {wanted}", rule=rule)
        try:
            values = {**arrival.values, **_body_of(rule, request.body)}
        except DoesNotFit as reason:
            return self._refused(rule, _INVALID, str(reason))
        fields = {
            name.removeprefix(FIELD): value
            for name, value in values.items()
            if name.startswith(FIELD)
        }
        if wrong := wrong_fields(self._pack.objects[rule.object], fields):
            return self._refused(rule, _INVALID, wrong)
        if rule.kind == "create":
            return self._creation(arrival, values.get("command"), fields, contacts)
        if arrival.values.get("remote_id", values.get("remote_id")) != values.get("remote_id"):
            return self._refused(rule, _INVALID, "the id of the body is not that of the path")
        contact = contacts.get(str(values.get("remote_id", "")), rule.object)
        if contact is None or contact.is_archived:
            return self._refused(rule, _MISSING, "there is no such record")
        return self._change(arrival, request.head, contact, fields)

    def _change(
        self, arrival: Arrival, head: Head, contact: Contact, fields: Mapping[str, Any]
    ) -> Change | Answer:
        rule = arrival.route.rule
        condition = rule.condition
        version = contact.properties.get(VERSION)
        if condition is not None:
            given = head.headers.get(condition.header.lower())
            if given is None:
                return self._refused(rule, _INVALID, f"{condition.header} is missing")
            if condition.form == "http_date":
                is_met = _is_unchanged_since(contact, given)
            else:
                is_met = version is None or given == version
            if not is_met:
                return self._answers.error(
                    condition.failed[0], "the record is another by now", rule=rule
                )
        moved = {} if version is None else {VERSION: _next(version)}
        return Change(contact=contact, properties={**fields, **moved}, route=arrival.route.name)

    def _creation(
        self, arrival: Arrival, command: Any, fields: Mapping[str, Any], contacts: Contacts
    ) -> Creation | Answer:
        rule = arrival.route.rule
        named = {} if command is None else {COMMAND: command}
        lookup = rule.lookup
        if lookup is not None and lookup.key_strength == "unique_property":
            unique = lookup.fields_used()
            for other in contacts.all():
                same = [other.properties.get(name) == fields.get(name) for name in unique]
                if other.object == rule.object and not other.is_archived and same and all(same):
                    return self._refused(rule, _CONFLICT, "there is such a record already")
        return Creation(
            properties={**fields, **named}, object=rule.object, route=arrival.route.name
        )

    def _refused(self, rule: OperationRule, likely: tuple[int, ...], message: str) -> Answer:
        declared = [status for status in likely if status in rule.answer.rejected]
        return self._answers.error((declared or likely)[0], message, rule=rule)


def _plain(media_type: str) -> str:
    return media_type.partition(";")[0].strip().lower()


def _body_of(rule: OperationRule, body: bytes) -> dict[str, Any]:
    content: Any
    if _plain(rule.request.media_type) == _FORM:
        pairs = form_of(body)
        content = nested(pairs) if pairs is not None else None
    else:
        content = json_of(body, is_exact=True)
    if content is None:
        raise DoesNotFit("the body cannot be read")
    return body_matched(rule.request.body, content)


def _matches(contact: Contact, values: Mapping[str, str]) -> bool:
    has = values_of(contact)
    return all(has.get(name) == value for name, value in values.items() if name != "written")


def _is_unchanged_since(contact: Contact, text: str) -> bool:
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return False
    return contact.updated_at.astimezone(UTC).replace(microsecond=0) <= moment.astimezone(UTC)


def _next(version: Any) -> str:
    text = str(version)
    digits = re.search(r"[0-9]+(?=[^0-9]*$)", text)
    if digits is None:
        return f"{text}1"
    return f"{text[: digits.start()]}{int(digits[0]) + 1}{text[digits.end() :]}"
