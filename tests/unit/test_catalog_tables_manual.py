"""The manual is true of the tables beside a pack's operations, and leaves nothing out."""

import hmac
import json
import re
import tomllib
from datetime import UTC, datetime
from pathlib import Path

from oncefence.catalog.calls import Call
from oncefence.catalog.canonical import Model
from oncefence.catalog.cursors import Cursor, NextPage
from oncefence.catalog.grants import (
    Assertion,
    Bearer,
    Grant,
    Mint,
    OAuth2,
    RefreshReply,
    Revocation,
    Rotation,
)
from oncefence.catalog.hosts import BaseUrlRule
from oncefence.catalog.quota import QuotaDimension, QuotaScope, QuotaWindow
from oncefence.catalog.record_times import TimeFormat
from oncefence.catalog.signature_checks import signature_errors
from oncefence.catalog.signatures import (
    Encoding,
    KeyForm,
    Mac,
    SignatureDialect,
    SignaturePlace,
    SignatureVerdict,
    SignedTime,
    TimestampUnit,
)
from oncefence.catalog.subscriptions import (
    Cleanup,
    Observation,
    Subscription,
    SubscriptionHealth,
)
from oncefence.catalog.tables import PackTables
from oncefence.catalog.webhooks import (
    DedupKey,
    EventDefinition,
    EventKind,
    EventPaths,
    Moment,
    Redelivery,
    Webhook,
)
from oncefence.domain.redaction import Secret

MANUAL = (Path(__file__).parents[2] / "docs/packs.md").read_text(encoding="utf-8")
MODELS: list[type[Model]] = [
    PackTables,
    QuotaDimension,
    Grant,
    Bearer,
    OAuth2,
    RefreshReply,
    Revocation,
    Mint,
    Assertion,
    BaseUrlRule,
    SignatureDialect,
    SignaturePlace,
    SignedTime,
    Webhook,
    Redelivery,
    DedupKey,
    EventPaths,
    EventDefinition,
    Moment,
    Subscription,
    Observation,
    Cleanup,
    SubscriptionHealth,
    Call,
    Cursor,
    NextPage,
]
CHOICES = [
    QuotaScope,
    QuotaWindow,
    Rotation,
    Mac,
    KeyForm,
    Encoding,
    TimestampUnit,
    SignatureVerdict,
    EventKind,
    TimeFormat,
]


def test_explains_every_key() -> None:
    """A key that the manual leaves out exists for nobody."""
    words = set(re.findall(r"[a-z_0-9]+", MANUAL))

    for model in MODELS:
        assert sorted(set(model.model_fields) - words) == [], model.__name__


def test_explains_every_choice() -> None:
    """The words that a key may hold are part of the format."""
    for choices in CHOICES:
        assert [choice for choice in choices if f"`{choice}`" not in MANUAL] == []


def test_shows_a_signature_that_is_read_as_it_says() -> None:
    """Whoever copies the example starts from something that works."""
    (example,) = re.findall(r"^```text\n(\[signatures.*?)^```$", MANUAL, re.MULTILINE | re.DOTALL)
    table = tomllib.loads(example)["signatures"]["v1"]
    dialect = SignatureDialect.model_validate_json(json.dumps(table))
    made = hmac.new(b"key", b"1767225600.{}", "sha256").hexdigest()

    verdict = dialect.verify(
        method="POST",
        url="https://hooks.example/in",
        headers=[("x-tickets-signature", f"t=1767225600,v1={made}")],
        body=b"{}",
        secrets=[Secret("key")],
        now=datetime(2026, 1, 1, tzinfo=UTC),
    )

    assert list(signature_errors({"v1": dialect}, {"v1"})) == []
    assert verdict is SignatureVerdict.VALID
