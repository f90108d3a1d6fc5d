"""What a provider is to deliver, and the requests that see to it (C340, C342)."""

from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, Final

from pydantic import AfterValidator, Field, PlainSerializer

from oncefence.catalog.calls import Call, call_errors
from oncefence.catalog.canonical import FrozenMap, Model, plain, read_only
from oncefence.catalog.cursors import NextPage, next_errors
from oncefence.catalog.expressions import JmesPath
from oncefence.catalog.findings import Finding, key, unknown
from oncefence.catalog.names import FieldName, HeaderName, Name
from oncefence.catalog.webhooks import EventName, Webhook

SUBSCRIPTION_ID: Final = "subscription_id"
URL: Final = "url"
SECRET: Final = "secret"  # noqa: S105  # the name of a variable
CLEANUP_TOKEN: Final = "cleanup_token"  # noqa: S105  # the name of a variable
PAGE: Final = "page"
EVENT_PREFIX: Final = "event."

EventValue = Annotated[str, Field(min_length=1, max_length=255)]
SubscribedEvents = Annotated[
    Mapping[EventName, Mapping[FieldName, EventValue]],
    Field(min_length=1),
    AfterValidator(read_only),
    PlainSerializer(plain),
]


class Observation(Model):
    """The list that shows which subscriptions there are; it is read before one is created."""

    request: Call
    items: JmesPath
    identity: JmesPath
    """The id within an item."""

    same: FrozenMap[str, JmesPath] = Field(min_length=1)
    """Where an item holds what a create was given: `url` and each `event.NAME`."""

    next: NextPage | None = None


class SubscriptionHealth(Model):
    """Where an item tells whether the provider still delivers."""

    active: JmesPath
    reason: JmesPath | None = None
    since: JmesPath | None = None
    until: JmesPath | None = None
    any_update_clears: bool = False
    """Whether an update, whatever it changes, makes a suspended subscription active again."""


class Cleanup(Model):
    """The end of a subscription that works when the principal's access is gone."""

    request: Call
    token: JmesPath
    """In the answer to the create."""

    header: HeaderName | None = None
    """The header of each delivery that holds it too."""


class Subscription(Model):
    """Subscriptions of one webhook: one at the provider for each event."""

    webhook: Name
    events: SubscribedEvents
    """Each subscribed event with the values that its request uses as `{event.NAME}`."""

    create: Call
    identity: JmesPath
    """The id in the answer to the create."""

    secret: JmesPath | None = None
    """The secret in that answer, where the provider makes it."""

    secret_max: int | None = Field(default=None, ge=16)
    url_max: int | None = Field(default=None, ge=16)
    observe: Observation
    update: Call | None = None
    delete: Call
    cleanup: Cleanup | None = None
    health: SubscriptionHealth | None = None

    def calls(self) -> Iterator[tuple[str, Call, tuple[str, ...]]]:
        """Each request by its key, with the variables that it may use."""
        names = sorted({name for values in self.events.values() for name in values})
        given = (URL, SECRET, *(EVENT_PREFIX + name for name in names))
        yield "create", self.create, given
        yield "observe.request", self.observe.request, (URL, PAGE)
        if self.update is not None:
            yield "update", self.update, (SUBSCRIPTION_ID, *given)
        yield "delete", self.delete, (SUBSCRIPTION_ID,)
        if self.cleanup is not None:
            yield "cleanup.request", self.cleanup.request, (SUBSCRIPTION_ID, CLEANUP_TOKEN)


def subscription_errors(
    subscriptions: Mapping[Name, Subscription], webhooks: Mapping[Name, Webhook]
) -> Iterator[Finding]:
    """What no single key of `[subscriptions]` shows."""
    holder: dict[tuple[str, str], str] = {}
    for name, subscription in subscriptions.items():
        at = key("subscriptions", name)
        for part, call, allowed in subscription.calls():
            yield from call_errors(f"{at}.{part}", call, allowed)
        yield from _uses(at, subscription)
        yield from _values(at, subscription)
        yield from _observation(f"{at}.observe", subscription)
        webhook = webhooks.get(subscription.webhook)
        if webhook is None:
            yield f"{at}.webhook", unknown("webhook", subscription.webhook, webhooks)
            continue
        yield from _fit(at, subscription, webhook)
        for event in subscription.events:
            other = holder.setdefault((subscription.webhook, event), name)
            if other != name:
                yield (
                    f"{at}.{key('events', event)}",
                    f"is subscribed by subscriptions.{other} already",
                )


def _uses(at: str, subscription: Subscription) -> Iterator[Finding]:
    needed = {"create": URL, "update": SUBSCRIPTION_ID, "delete": SUBSCRIPTION_ID}
    for part, call, _ in subscription.calls():
        if part in needed and needed[part] not in call.variables():
            yield f"{at}.{part}", f"does not use {{{needed[part]}}}"
    if subscription.create.method not in ("POST", "PUT"):
        yield f"{at}.create.method", "must be POST or PUT"
    cleanup = subscription.cleanup
    if cleanup is not None:
        if CLEANUP_TOKEN not in cleanup.request.variables():
            yield f"{at}.cleanup.request", "does not use {cleanup_token}"
        if cleanup.request.credential != "none":
            yield (
                f"{at}.cleanup.request.credential",
                "must be none: this is for when the principal's access is gone",
            )


def _values(at: str, subscription: Subscription) -> Iterator[Finding]:
    used = {
        variable.removeprefix(EVENT_PREFIX)
        for variable in subscription.create.variables()
        if variable.startswith(EVENT_PREFIX)
    }
    seen: dict[frozenset[tuple[str, str]], str] = {}
    for event, values in subscription.events.items():
        here = f"{at}.{key('events', event)}"
        for name in sorted(used - set(values)):
            yield f"{here}.{name}", "is missing: the create uses it"
        for name in sorted(set(values) - used):
            yield f"{here}.{name}", "has no effect: the create does not use it"
        same = frozenset(values.items())
        if same in seen:
            yield here, f"is the same request as {seen[same]}; one subscription serves one event"
        seen.setdefault(same, event)


def _observation(at: str, subscription: Subscription) -> Iterator[Finding]:
    observe = subscription.observe
    if observe.request.method != "GET":
        yield f"{at}.request.method", "must be GET: it only reads"
    names = {name for values in subscription.events.values() for name in values}
    needed = {URL, *(EVENT_PREFIX + name for name in names)}
    for name in sorted(needed - set(observe.same)):
        yield f"{at}.{key('same', name)}", "is missing: a create that was lost could not be found"
    for name in sorted(set(observe.same) - needed):
        yield f"{at}.{key('same', name)}", unknown("variable", name, needed)
    if observe.next is not None:
        yield from next_errors(f"{at}.next", observe.next, observe.request)


def _fit(at: str, subscription: Subscription, webhook: Webhook) -> Iterator[Finding]:
    known: Collection[str] = webhook.events
    for event in subscription.events:
        if event not in known:
            yield (
                f"{at}.{key('events', event)}",
                unknown(f"event of webhook {subscription.webhook}", event, known),
            )
    own = webhook.secret == "subscription"  # noqa: S105  # a choice
    ways = (SECRET in subscription.create.variables()) + (subscription.secret is not None)
    if ways != own:
        yield (
            f"{at}.secret",
            "must be given in the create or read from its answer where each subscription has one",
        )
    if subscription.cleanup is not None and subscription.cleanup.header is not None:
        header = subscription.cleanup.header.lower()
        if header not in {name.lower() for name in webhook.secret_headers}:
            yield (
                f"{at}.cleanup.header",
                f"must be among webhooks.{subscription.webhook}.secret_headers",
            )
