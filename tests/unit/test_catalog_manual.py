"""The manual for packs is true: its example works and does what it says."""

import json
import re
from pathlib import Path
from uuid import UUID

from oncefence.catalog.answers import NotAppliedRule, ReceiptSource, RefusalRule, ResponseContract
from oncefence.catalog.bindings import (
    CompletionContract,
    FieldBinding,
    IntegrationBinding,
    OperationBinding,
)
from oncefence.catalog.canonical import Model
from oncefence.catalog.conditions import ConditionForm, ConditionRule
from oncefence.catalog.creates import QueryRule
from oncefence.catalog.definitions import (
    AuthRule,
    FieldDefinition,
    ObjectDefinition,
    OperationDefinition,
    ProviderPack,
    RequestTemplate,
    TraceHeaders,
)
from oncefence.catalog.field_values import ClearRule, FieldType
from oncefence.catalog.items import ItemsRule
from oncefence.catalog.limits import LimitNames, RateHeaders, RetryAfterForm, RetryAfterRule
from oncefence.catalog.loader import check, load_binding, load_pack
from oncefence.catalog.lookup import LookupDefinition, LookupReading
from oncefence.catalog.record_times import ChangeTime, TimeFormat
from oncefence.catalog.replays import IdempotencyRule, ReplayedMark
from oncefence.catalog.view import compile_view
from tests.golden import pack_keys

COMMAND = UUID("00000000-0000-4000-8000-000000000001")
MANUAL = (Path(__file__).parents[2] / "docs/packs.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", MANUAL, re.MULTILINE | re.DOTALL)
MODELS: list[type[Model]] = [
    ProviderPack,
    AuthRule,
    TraceHeaders,
    ObjectDefinition,
    FieldDefinition,
    OperationDefinition,
    IdempotencyRule,
    ReplayedMark,
    ConditionRule,
    RequestTemplate,
    ResponseContract,
    RefusalRule,
    NotAppliedRule,
    ReceiptSource,
    ItemsRule,
    LimitNames,
    RateHeaders,
    RetryAfterRule,
    LookupDefinition,
    QueryRule,
    ChangeTime,
    IntegrationBinding,
    OperationBinding,
    FieldBinding,
    CompletionContract,
]


CHOICES = (RetryAfterForm, ClearRule, FieldType, ConditionForm, TimeFormat, LookupReading)


def test_the_example_is_sound_and_sends_what_the_manual_shows(tmp_path: Path) -> None:
    """Whoever copies the example starts from something that works."""
    pack, binding, _ = (text for language, text in BLOCKS if language == "toml")
    shown = next(text for language, text in BLOCKS if not language)
    (tmp_path / "tickets.toml").write_text(pack, encoding="utf-8")
    (tmp_path / "topic.toml").write_text(binding, encoding="utf-8")

    report = check([tmp_path])
    view = compile_view(
        load_pack("tickets", folders=[tmp_path]), load_binding(tmp_path / "topic.toml")
    )
    sent = view.operation("case.topic.push").freeze(
        '{"topic": "Größe"}'.encode(), remote_id="T-7", command=COMMAND
    )

    assert report.errors == report.warnings == ()
    assert f"{sent.method} {sent.target}\n{sent.body.decode()}\n" == shown
    assert json.loads(sent.body)["ticket"]["id"] == "T-7"


def test_the_example_of_a_create_is_sound(tmp_path: Path) -> None:
    """The shape that it shows is the one that a reader is going to copy."""
    *_, pack = (text for language, text in BLOCKS if language == "toml")
    (tmp_path / "register.toml").write_text(pack, encoding="utf-8")

    report = check([tmp_path])

    assert report.errors == report.warnings == ()
    assert load_pack("register", folders=[tmp_path]).operations["entry.create"].kind == "create"


def test_every_key_is_listed_as_the_models_have_it() -> None:
    """The long table is made, not written: `python -m tests.golden.pack_keys`."""
    assert pack_keys.BEGIN + pack_keys.page() + pack_keys.END in MANUAL


def test_every_key_is_explained() -> None:
    """A key that the manual leaves out exists for nobody."""
    # Not by the long table, which lists all of them.
    words = set(re.findall(r"[a-z_]+", MANUAL.partition(pack_keys.BEGIN)[0]))

    for model in MODELS:
        assert sorted(set(model.model_fields) - words) == [], model.__name__


def test_every_choice_is_explained() -> None:
    """The words that a key may hold are part of the format."""
    for choices in CHOICES:
        assert [choice for choice in choices if f"`{choice}`" not in MANUAL] == []
