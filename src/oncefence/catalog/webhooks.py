"""Routes that a provider delivers events to, and what it does with our answer (C320, C336)."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from oncefence.catalog.answers import ReceiptSource
from oncefence.catalog.canonical import FrozenMap, Model
from oncefence.catalog.expressions import JmesPath
from oncefence.catalog.findings import Finding, key, unknown
from oncefence.catalog.names import DeadlineMs, HeaderName, Name
from oncefence.catalog.record_times import TimeFormat

EventName = Annotated[str, Field(pattern=r"^[!-~]{1,100}\z")]


class EventKind(StrEnum):
    """What an event is about."""

    CREATED = "created"
    UPDATED = "updated"
    DELETED = "deleted"
    INSTALLED = "installed"
    """The app was installed or set up anew; the account tells whether it is another one."""

    UNINSTALLED = "uninstalled"

    @property
    def has_object(self) -> bool:
        """Whether a record is what it is about."""
        return self not in (EventKind.INSTALLED, EventKind.UNINSTALLED)


class Moment(Model):
    """Where a point in time stands and how it is written."""

    value: JmesPath
    format: TimeFormat


class Redelivery(Model):
    """What makes the provider deliver once more, and how often."""

    on_status: bool
    """After an answer that is no success. Without it any answer ends the delivery."""

    on_network_failure: bool
    attempts_max: int | None = Field(default=None, ge=1, le=1_000)
    """Further attempts."""

    within_s: int | None = Field(default=None, ge=1, le=31 * 86_400)


class DedupKey(Model):
    """
    What makes a copy known where a delivery has no id (C327).

    The subscription's generation is part of it in any case. In a batch each event has a key.
    """

    parts: tuple[JmesPath, ...] = Field(min_length=1)
    body_sha256: bool


class EventPaths(Model):
    """Where an event says what happened to which record."""

    name: JmesPath
    id: JmesPath
    account: JmesPath | None = None
    """The remote account, where one route serves several."""

    changed_at: Moment | None = None
    changes: JmesPath | None = None
    """The changed fields by name; what is absent is unchanged."""

    property: JmesPath | None = None
    """The name of the one changed field, whose new value is at `value`."""

    value: JmesPath | None = None
    before: JmesPath | None = None
    """The earlier values by name."""

    actor: JmesPath | None = None


class EventDefinition(Model):
    """One event by the name that the provider gives it."""

    kind: EventKind
    object: Name | None = None


class Webhook(Model):
    """One route: who may deliver to it, what is answered, and what is read of a delivery."""

    signature: Name
    secret: Literal["app", "subscription"]
    """Whose secret signs: one of the whole app, or one for each subscription."""

    signed_body: Literal["wire", "decoded"] = "wire"
    """Whether the signature covers the bytes before or after Content-Encoding is undone."""

    success: int = Field(default=200, ge=200, le=299)
    deadline_ms: DeadlineMs
    redelivery: Redelivery
    delivery_id: ReceiptSource | None = None
    dedup: DedupKey | None = None
    batch_max: int | None = Field(default=None, ge=1, le=10_000)
    """The body is an array of at most so many events; without it, it is one event."""

    event: EventPaths
    events: FrozenMap[EventName, EventDefinition] = Field(min_length=1)
    secret_headers: tuple[HeaderName, ...] = ()
    """Headers of a delivery whose values are never logged, shown or kept in clear."""


def webhook_errors(
    webhooks: Mapping[Name, Webhook], signatures: Collection[str], objects: Collection[str]
) -> Iterator[Finding]:
    """What no single key of `[webhooks]` shows."""
    for name, webhook in webhooks.items():
        at = key("webhooks", name)
        if webhook.signature not in signatures:
            yield f"{at}.signature", unknown("signature", webhook.signature, signatures)
        if webhook.secret == "app" and webhook.event.account is None:  # noqa: S105  # a choice
            yield (
                f"{at}.event.account",
                "is missing: an app's one secret does not tell whose account a delivery is about",
            )
        for header, count in Counter(map(str.lower, webhook.secret_headers)).items():
            if count > 1:
                yield f"{at}.secret_headers", f"names {header} twice"
        yield from _copies(at, webhook)
        yield from _event_paths(f"{at}.event", webhook.event)
        for event, definition in webhook.events.items():
            yield from _event(f"{at}.{key('events', event)}", definition, objects)


def webhook_warnings(
    webhooks: Mapping[Name, Webhook], reconciled: Collection[str]
) -> Iterator[Finding]:
    """Deliveries that can be lost; `reconciled` are the objects that a cursor reads again."""
    for name, webhook in webhooks.items():
        if webhook.redelivery.on_status:
            continue
        lost = {event.object for event in webhook.events.values() if event.object is not None}
        if unread := sorted(lost - set(reconciled)):
            yield (
                f"{key('webhooks', name)}.redelivery",
                f"a delivery that is not taken is lost, and no cursor reads {', '.join(unread)}",
            )


def _copies(at: str, webhook: Webhook) -> Iterator[Finding]:
    source = webhook.delivery_id
    if source is None and webhook.dedup is None:
        yield f"{at}.dedup", "is missing: without a delivery id it is what makes a copy known"
    elif source is not None and webhook.dedup is not None:
        yield f"{at}.dedup", "has no effect: the delivery id is what makes a copy known"
    if source is not None and (source.body is None) == (source.header is None):
        yield f"{at}.delivery_id", "needs either body or header, and only one of them"
    if webhook.batch_max is not None:
        if webhook.dedup is not None and webhook.dedup.body_sha256:
            yield (
                f"{at}.dedup.body_sha256",
                "must be false: an event that comes again in another batch would seem new",
            )
        if source is not None and source.header is not None:
            yield f"{at}.delivery_id.header", "is one for a whole batch; name one in each event"
    again = webhook.redelivery
    if not (again.on_status or again.on_network_failure):
        for part in ("attempts_max", "within_s"):
            if getattr(again, part) is not None:
                yield f"{at}.redelivery.{part}", "has no effect: nothing is delivered again"


def _event_paths(at: str, event: EventPaths) -> Iterator[Finding]:
    if (event.property is None) != (event.value is None):
        yield f"{at}.value", "must be there with property, and only then"
    if event.changes is not None and event.property is not None:
        yield f"{at}.property", "cannot be there with changes: an event says it one way"


def _event(at: str, event: EventDefinition, objects: Collection[str]) -> Iterator[Finding]:
    if event.kind.has_object and event.object is None:
        yield f"{at}.object", f"is missing: a record is what {event.kind} is about"
    elif not event.kind.has_object and event.object is not None:
        yield f"{at}.object", f"has no effect: no record is what {event.kind} is about"
    elif event.object is not None and event.object not in objects:
        yield f"{at}.object", unknown("object", event.object, objects)
