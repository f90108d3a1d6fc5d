"""What is different between two views, key by key, and what that means for work that is queued."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

from oncefence.catalog.findings import key
from oncefence.catalog.view import IntegrationBindingView

Json: TypeAlias = object
"""A value as JSON has it."""


class DifferenceKind(StrEnum):
    """How a key differs."""

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"


class Touch(StrEnum):
    """What a difference is about; each means something else for what was accepted before it."""

    OFFER = "offer"
    ACCOUNT = "account"
    HANDOVER = "handover"
    REQUEST = "request"
    ORDER = "order"
    CAPACITY = "capacity"
    JUDGEMENT = "judgement"
    COMPLETION = "completion"
    SURROUNDINGS = "surroundings"
    DISPLAY = "display"


_MEANINGS: Final[Mapping[Touch, str]] = {
    Touch.ACCOUNT: "queued work stays with the account that it pinned; new commands go to the "
    "other one, and dead letters of the old one cannot be replayed",
    Touch.HANDOVER: "queued work was judged when it was accepted; what is handed over from then on "
    "must have the new form",
    Touch.REQUEST: "queued requests are frozen and are sent as they are; new commands get the new "
    "form",
    Touch.ORDER: "queued work keeps its queue and its places; it and new commands stay in order "
    "only in lanes that both have",
    Touch.CAPACITY: "queued work is counted by the limits that it was accepted with; new commands "
    "by the new ones",
    Touch.JUDGEMENT: "queued work is judged, looked up and retried by the revision that it pinned",
    Touch.COMPLETION: "completions of queued work are as its own revision says",
    Touch.SURROUNDINGS: "no queued effect uses it: it is about accounts and what comes in",
    Touch.DISPLAY: "nothing that is done changes",
}
_OFFERED: Final = "it is accepted from then on"
_WITHDRAWN: Final = (
    "new handovers of it are refused; what is queued goes on, and its dead letters cannot be "
    "replayed"
)

OF_VIEW: Final[Mapping[str, Touch]] = {
    "format": Touch.DISPLAY,
    "name": Touch.DISPLAY,
    "pack": Touch.ACCOUNT,
    "display_name": Touch.DISPLAY,
    "principal": Touch.ACCOUNT,
    "base_url": Touch.REQUEST,
    "auth": Touch.REQUEST,
    "trace": Touch.REQUEST,
    "quota": Touch.CAPACITY,
    "grants": Touch.SURROUNDINGS,
    "signatures": Touch.SURROUNDINGS,
    "webhooks": Touch.SURROUNDINGS,
    "subscriptions": Touch.SURROUNDINGS,
    "cursors": Touch.SURROUNDINGS,
}
"""What each key of a view is about."""

LINEAGE: Final = ("pack_digest", "binding_digest")
"""These differ wherever a file does; what follows from that stands at the other keys."""

OF_OPERATION: Final[Mapping[str, Touch]] = {
    "name": Touch.DISPLAY,
    "provider": Touch.ACCOUNT,
    "pack_operation": Touch.REQUEST,
    "endpoint_class": Touch.ORDER,
    "payload_version": Touch.HANDOVER,
    "local_object": Touch.HANDOVER,
    "subject_pattern": Touch.HANDOVER,
    "remote_object": Touch.REQUEST,
    "remote_id_pattern": Touch.REQUEST,
    "kind": Touch.REQUEST,
    "method": Touch.REQUEST,
    "path": Touch.REQUEST,
    "query": Touch.REQUEST,
    "headers": Touch.REQUEST,
    "body": Touch.REQUEST,
    "body_form": Touch.REQUEST,
    "idempotency": Touch.REQUEST,
    "condition": Touch.REQUEST,
    "total_deadline_ms": Touch.REQUEST,
    "replay": Touch.JUDGEMENT,
    "sensitive": Touch.JUDGEMENT,
    "user": Touch.HANDOVER,
    "fields": Touch.HANDOVER,
    "lanes": Touch.ORDER,
    "completion": Touch.COMPLETION,
    "response": Touch.JUDGEMENT,
    "lookup": Touch.JUDGEMENT,
    "quota": Touch.CAPACITY,
}
"""What each key of a bound operation is about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One key of the projected view that is not the same in both."""

    key: str
    kind: DifferenceKind
    touches: Touch
    before: Json
    after: Json

    @property
    def meaning(self) -> str:
        """What it means for queued work and for new commands, once the second one is current."""
        if self.touches is Touch.OFFER:
            return _OFFERED if self.kind is DifferenceKind.ADDED else _WITHDRAWN
        return _MEANINGS[self.touches]


def differences(
    before: IntegrationBindingView, after: IntegrationBindingView
) -> tuple[Difference, ...]:
    """Every difference in what the two views do, in the order of their keys."""
    return tuple(sorted(_found(before, after), key=lambda found: found.key))


def _found(before: IntegrationBindingView, after: IntegrationBindingView) -> Iterator[Difference]:
    old, new = before.model_dump(mode="json"), after.model_dump(mode="json")
    olds, news = old.pop("operations"), new.pop("operations")
    for name in olds.keys() ^ news.keys():
        yield Difference(
            key=key("operations", name),
            kind=DifferenceKind.ADDED if name in news else DifferenceKind.REMOVED,
            touches=Touch.OFFER,
            before=None,
            after=None,
        )
    for name in olds.keys() & news.keys():
        for member, touches in OF_OPERATION.items():
            at = ("operations", name, member)
            yield from _compared(at, touches, olds[name][member], news[name][member])
    for member, touches in OF_VIEW.items():
        yield from _compared((member,), touches, old[member], new[member])


def _compared(
    at: tuple[str, ...], touches: Touch, before: Json, after: Json
) -> Iterator[Difference]:
    old, new = dict(_leaves(before, at)), dict(_leaves(after, at))
    for place in old.keys() | new.keys():
        is_old, is_new = place in old, place in new
        if is_old and is_new and old[place] == new[place]:
            continue
        changed = DifferenceKind.CHANGED if is_old else DifferenceKind.ADDED
        yield Difference(
            key=key(*place),
            kind=changed if is_new else DifferenceKind.REMOVED,
            touches=touches,
            before=old.get(place),
            after=new.get(place),
        )


def _leaves(value: Json, at: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Json]]:
    """The places of a value at which a difference is shown, each with what stands there."""
    members = _members(value)
    # What is null or empty is not there: a table that gets its first key is that key's addition.
    if not members and value not in (None, {}, []):
        yield at, value
    for name, member in members.items():
        yield from _leaves(member, (*at, name))


def _members(value: Json) -> Mapping[str, Json]:
    """What a value is made of, by name; nothing where it is compared whole."""
    if isinstance(value, Mapping):
        return value
    if not isinstance(value, list):
        return {}
    named: list[tuple[str, Json]] = []
    for member in value:
        match member:
            case {"local": str(name), **rest} | {"name": str(name), **rest}:
                named.append((name, rest))
            case [str(name), single]:
                named.append((name, single))
    members = dict(named)
    # A list without names is compared whole: a place in it says nothing to a reader.
    return members if len(members) == len(value) else {}
