"""The manual for packs is true: its example works and does what it says."""

import json
import re
from pathlib import Path

from oncefence.catalog.answers import ResponseContract, RetryAfterForm
from oncefence.catalog.bindings import (
    CompletionContract,
    FieldBinding,
    IntegrationBinding,
    OperationBinding,
)
from oncefence.catalog.canonical import Model
from oncefence.catalog.definitions import (
    AuthRule,
    FieldDefinition,
    ObjectDefinition,
    OperationDefinition,
    ProviderPack,
    RequestTemplate,
    TraceHeaders,
)
from oncefence.catalog.freeze import ClearRule
from oncefence.catalog.loader import check, load_binding, load_pack
from oncefence.catalog.lookup import ChangeTime, LookupDefinition, LookupReading, TimeFormat
from oncefence.catalog.view import compile_view

MANUAL = (Path(__file__).parents[2] / "docs/packs.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", MANUAL, re.MULTILINE | re.DOTALL)
MODELS: list[type[Model]] = [
    ProviderPack,
    AuthRule,
    TraceHeaders,
    ObjectDefinition,
    FieldDefinition,
    OperationDefinition,
    RequestTemplate,
    ResponseContract,
    LookupDefinition,
    ChangeTime,
    IntegrationBinding,
    OperationBinding,
    FieldBinding,
    CompletionContract,
]


def test_the_example_is_sound_and_sends_what_the_manual_shows(tmp_path: Path) -> None:
    """Whoever copies the example starts from something that works."""
    pack, binding = (text for language, text in BLOCKS if language == "toml")
    shown = next(text for language, text in BLOCKS if not language)
    (tmp_path / "tickets.toml").write_text(pack, encoding="utf-8")
    (tmp_path / "topic.toml").write_text(binding, encoding="utf-8")

    report = check([tmp_path])
    view = compile_view(
        load_pack("tickets", folders=[tmp_path]), load_binding(tmp_path / "topic.toml")
    )
    sent = view.operation("case.topic.push").freeze('{"topic": "Größe"}'.encode(), remote_id="T-7")

    assert report.errors == report.warnings == ()
    assert f"{sent.method} {sent.target}\n{sent.body.decode()}\n" == shown
    assert json.loads(sent.body)["ticket"]["id"] == "T-7"


def test_every_key_is_explained() -> None:
    """A key that the manual leaves out exists for nobody."""
    words = set(re.findall(r"[a-z_]+", MANUAL))

    for model in MODELS:
        assert sorted(set(model.model_fields) - words) == [], model.__name__


def test_every_choice_is_explained() -> None:
    """The words that a key may hold are part of the format."""
    for choices in (RetryAfterForm, ClearRule, TimeFormat, LookupReading):
        assert [choice for choice in choices if f"`{choice}`" not in MANUAL] == []
