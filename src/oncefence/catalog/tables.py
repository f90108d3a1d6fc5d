"""The tables of a pack beside its operations, and all that is wrong between them."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pydantic import Field

from oncefence.catalog.canonical import FrozenMap, Model
from oncefence.catalog.cursors import Cursor, cursor_errors
from oncefence.catalog.findings import Finding
from oncefence.catalog.grants import Grant, grant_errors
from oncefence.catalog.names import Name
from oncefence.catalog.quota import QuotaDimension, quota_errors, quota_warnings
from oncefence.catalog.signature_checks import signature_errors, signature_warnings
from oncefence.catalog.signatures import SignatureDialect
from oncefence.catalog.subscriptions import Subscription, subscription_errors
from oncefence.catalog.webhooks import Webhook, webhook_errors, webhook_warnings

if TYPE_CHECKING:
    # A pack is made of these tables, so its module imports this one.
    from oncefence.catalog.definitions import ProviderPack


class PackTables(Model):
    """What pack and view both hold; a pack may leave out any of them."""

    quota: FrozenMap[Name, QuotaDimension] = Field(default_factory=dict)
    grants: FrozenMap[Name, Grant] = Field(default_factory=dict)
    signatures: FrozenMap[Name, SignatureDialect] = Field(default_factory=dict)
    webhooks: FrozenMap[Name, Webhook] = Field(default_factory=dict)
    subscriptions: FrozenMap[Name, Subscription] = Field(default_factory=dict)
    cursors: FrozenMap[Name, Cursor] = Field(default_factory=dict)

    def tables(self) -> dict[str, Any]:  # Any: each table has a type of its own
        """The six tables by their keys, as another holder of them takes them."""
        return {name: dict(getattr(self, name)) for name in PackTables.model_fields}

    def own_endpoint_classes(self) -> Iterator[str]:
        """The endpoint classes of the requests that are declared here."""
        for subscription in self.subscriptions.values():
            for _, call, _ in subscription.calls():
                yield call.endpoint_class
        for cursor in self.cursors.values():
            yield cursor.request.endpoint_class
            if cursor.ties is not None:
                yield cursor.ties.endpoint_class


def table_findings(pack: "ProviderPack") -> tuple[list[Finding], list[Finding]]:
    """Errors and warnings in the tables of a pack whose single keys are sound."""
    classes = set(pack.own_endpoint_classes())
    rates: dict[str, set[str]] = {}
    limits: dict[str, set[str]] = {}
    for operation in pack.operations.values():
        classes.add(operation.endpoint_class)
        if operation.lookup is not None:
            classes.add(operation.lookup.endpoint_class)
        for name in operation.answer.rate:
            rates.setdefault(name, set()).add(operation.endpoint_class)
        for name in operation.answer.wait_by.waits if operation.answer.wait_by else ():
            limits.setdefault(name, set()).add(operation.endpoint_class)
    used = {webhook.signature for webhook in pack.webhooks.values()}
    errors = [
        *quota_errors(pack.quota, classes=classes, rates=rates, limits=limits),
        *grant_errors(pack.grants, urlsplit(pack.base_url).hostname or ""),
        *signature_errors(pack.signatures, used),
        *webhook_errors(pack.webhooks, pack.signatures, pack.objects),
        *subscription_errors(pack.subscriptions, pack.webhooks),
        *cursor_errors(pack.cursors, pack.objects),
    ]
    warnings = [
        *quota_warnings(pack.quota, classes),
        *signature_warnings(pack.signatures),
        *webhook_warnings(pack.webhooks, {cursor.object for cursor in pack.cursors.values()}),
    ]
    return errors, warnings
