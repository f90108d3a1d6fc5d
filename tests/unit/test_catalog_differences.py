"""What two views do otherwise, key by key, and what that means for work that is queued."""

from pathlib import Path
from typing import Any

import pytest

from oncefence.catalog.differences import (
    LINEAGE,
    OF_OPERATION,
    OF_VIEW,
    Difference,
    DifferenceKind,
    Touch,
    differences,
)
from oncefence.catalog.loader import load_binding, load_pack
from oncefence.catalog.view import IntegrationBindingView, compile_view

ROOT = Path(__file__).parents[2]
VIEW = compile_view(
    load_pack("hubspot"), load_binding(ROOT / "docs/examples/lead-title.binding.toml")
)
PUSH = "lead.title.push"
OPERATION = VIEW.operation(PUSH)
AT = f'operations."{PUSH}"'


def view_with(**changes: Any) -> IntegrationBindingView:
    """The example with its operation changed."""
    return VIEW.model_copy(update={"operations": {PUSH: OPERATION.model_copy(update=changes)}})


def found(after: IntegrationBindingView) -> list[tuple[str, DifferenceKind, object, object]]:
    return [(each.key, each.kind, each.before, each.after) for each in differences(VIEW, after)]


def test_the_same_view_has_none() -> None:
    """Also where it was made of other files: digests alone change nothing that is done."""
    twin = VIEW.model_copy(update={"binding_digest": "ab" * 32, "pack_digest": "cd" * 32})

    assert differences(VIEW, VIEW) == ()
    assert differences(VIEW, twin) == ()


@pytest.mark.parametrize(
    ("changes", "key", "kind", "before", "after"),
    [
        ({"sensitive": True}, "sensitive", DifferenceKind.CHANGED, False, True),
        ({"method": "PUT"}, "method", DifferenceKind.CHANGED, "PATCH", "PUT"),
        ({"body": {"all": "{fields}"}}, "body.all", DifferenceKind.ADDED, None, "{fields}"),
        (
            {"fields": (OPERATION.fields[0].model_copy(update={"max_length": 9}),)},
            "fields.title.max_length",
            DifferenceKind.CHANGED,
            65_536,
            9,
        ),
        (
            {"fields": (OPERATION.fields[0].model_copy(update={"max_length": None}),)},
            "fields.title.max_length",
            DifferenceKind.REMOVED,
            65_536,
            None,
        ),
        (
            {"headers": (*OPERATION.headers, ("X-More", "1"))},
            "headers.X-More",
            DifferenceKind.ADDED,
            None,
            "1",
        ),
        (
            {"response": OPERATION.response.model_copy(update={"success": (200, 202)})},
            "response.success",
            DifferenceKind.CHANGED,
            [200],
            [200, 202],
        ),
        (
            {"query": {"a": "b"}},
            "query.a",
            DifferenceKind.ADDED,
            None,
            "b",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_difference_names_the_key_that_differs(
    changes: dict[str, Any], key: str, kind: DifferenceKind, before: object, after: object
) -> None:
    """A table or a list of named things is compared member by member, all else whole."""
    assert (f"{AT}.{key}", kind, before, after) in found(view_with(**changes))


def test_only_what_differs_is_named() -> None:
    """Whoever compares reads each line."""
    assert found(view_with(sensitive=True, method="PUT")) == [
        (f"{AT}.method", DifferenceKind.CHANGED, "PATCH", "PUT"),
        (f"{AT}.sensitive", DifferenceKind.CHANGED, False, True),
    ]
    assert found(VIEW.model_copy(update={"principal": "other"})) == [
        ("principal", DifferenceKind.CHANGED, "hubspot-main", "other")
    ]


def test_an_operation_that_comes_or_goes_is_one_line() -> None:
    """And says what becomes of what is queued for it."""
    other = VIEW.model_copy(update={"operations": {"lead.other": OPERATION}})

    come, gone = differences(VIEW, other)

    assert (come.key, come.kind) == ('operations."lead.other"', DifferenceKind.ADDED)
    assert (gone.key, gone.kind) == (AT, DifferenceKind.REMOVED)
    assert "accepted from then on" in come.meaning
    assert "what is queued goes on" in gone.meaning


@pytest.mark.parametrize(
    ("view", "says"),
    [
        (VIEW.model_copy(update={"principal": "other"}), "stays with the account"),
        (view_with(method="PUT"), "frozen and are sent as they are"),
        (view_with(payload_version=2), "must have the new form"),
        (view_with(sensitive=True), "by the revision that it pinned"),
        (view_with(endpoint_class="crm.other"), "keeps its queue"),
        (
            view_with(completion=OPERATION.completion.model_copy(update={"version": 2})),
            "completions of queued work",
        ),
        (VIEW.model_copy(update={"display_name": "Other"}), "nothing that is done changes"),
    ],
)
def test_a_difference_says_what_it_means_for_queued_work(
    view: IntegrationBindingView, says: str
) -> None:
    """The question that everybody has before they activate a revision."""
    (only,) = differences(VIEW, view)

    assert says in only.meaning


def test_every_key_of_a_view_is_about_something() -> None:
    """A key that is in none of the tables would be a difference that nobody is shown."""
    shown = set(OF_VIEW) | set(LINEAGE) | {"operations"}

    assert set(IntegrationBindingView.model_fields) == shown
    assert set(type(OPERATION).model_fields) == set(OF_OPERATION)


def test_every_meaning_is_said_in_words() -> None:
    """A touch without its words would be an error on somebody's screen."""
    for touches in Touch:
        difference = Difference(
            key="a", kind=DifferenceKind.ADDED, touches=touches, before=None, after=1
        )
        assert difference.meaning


@pytest.mark.parametrize("path", sorted((ROOT / "tests/data/views").glob("*.json")), ids=str)
def test_a_view_that_an_earlier_version_stored_is_still_read(path: Path) -> None:
    """Work that is queued when a deployment rolls pins a view of the version before (C561)."""
    stored = IntegrationBindingView.from_json(path.read_text(encoding="utf-8"))

    operation = stored.operation(PUSH)
    assert (operation.method, operation.path) == (OPERATION.method, OPERATION.path)
    assert operation.lookup is not None
    assert not {each.key for each in differences(stored, VIEW)} & {f"{AT}.kind", f"{AT}.replay"}
