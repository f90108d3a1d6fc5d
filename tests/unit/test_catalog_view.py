"""The view: one immutable text, and requests that are frozen from it byte for byte."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from oncefence.catalog.errors import CatalogError, PayloadRefused, UnknownOperation
from oncefence.catalog.loader import load_binding, load_pack
from oncefence.catalog.operations import BoundOperation
from oncefence.catalog.payload import payload_digest
from oncefence.catalog.view import IntegrationBindingView, compile_view

ROOT = Path(__file__).parents[2]
PACK = ROOT / "src/oncefence/catalog/packs/hubspot.toml"
BINDING = ROOT / "docs/examples/lead-title.binding.toml"
VIEW = compile_view(load_pack(PACK), load_binding(BINDING))
PUSH = VIEW.operation("lead.title.push")
COMMAND = UUID("00000000-0000-4000-8000-000000000001")

TITLES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
AWKWARD = [
    "",
    " ",
    "CTO",
    "Größe & <b>“Quotes”</b>",
    'back\\slash "quote" \\u0041 \\n',
    "line\r\nbreak\ttab\x7f\u2028\u2029",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467\U0001f600",
    "מנהל טכנולוגיה ראשי",
    "e\u0301 is not é",
    "\ufeffmark",
    "{fields} {{remote_id}} %s ${x}",
    "null",
    "x" * 65_536,
]


def payload(title: object, **spelling: Any) -> bytes:
    return json.dumps({"title": title}, **spelling).encode("utf-8", "surrogatepass")


class TestView:
    def test_comes_back_from_its_text_unchanged(self) -> None:
        """A command reads its view years later and must find the same one (C561)."""
        again = IntegrationBindingView.from_json(VIEW.to_json())

        assert again == VIEW
        assert again.digest == VIEW.digest
        assert again.to_json() == VIEW.to_json()
        frozen = again.operation("lead.title.push").freeze(
            payload("CTO"), remote_id="512", command=COMMAND
        )
        assert frozen == PUSH.freeze(payload("CTO"), remote_id="512", command=COMMAND)

    def test_is_canonical(self) -> None:
        """One content has one text: sorted, compact, ASCII."""
        text = VIEW.to_json()

        assert text.isascii()
        assert text == json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"))
        assert len(VIEW.digest) == 64
        assert VIEW.digest == payload_digest(text.encode())

    def test_has_one_digest_for_every_order_of_keys(self, tmp_path: Path) -> None:
        """Moving lines or comments about publishes nothing new."""
        pack = tmp_path / PACK.name
        head, *tables = PACK.read_text(encoding="utf-8").split("\n[")
        text = head + "".join(f"\n[{table}" for table in reversed(tables))
        pack.write_text(f"# Another comment.\n{text}\n", encoding="utf-8")
        binding = tmp_path / BINDING.name
        lines = BINDING.read_text(encoding="utf-8").splitlines()
        first = next(i for i, line in enumerate(lines) if line.startswith("["))
        lines[:first] = reversed(lines[:first])
        binding.write_text("\n".join(lines), encoding="utf-8")

        moved = compile_view(load_pack(pack), load_binding(binding))

        assert moved.digest == VIEW.digest
        assert (moved.pack_digest, moved.binding_digest) == (
            load_pack(PACK).digest,
            load_binding(BINDING).digest,
        )

    @pytest.mark.parametrize(
        ("source", "old", "new"),
        [(PACK, "skew_s = 5", "skew_s = 6"), (BINDING, "65536", "65535")],
    )
    def test_has_another_digest_for_another_content(
        self, tmp_path: Path, source: Path, old: str, new: str
    ) -> None:
        """Every change of either file is another view, with its lineage in it."""
        other = tmp_path / source.name
        other.write_text(source.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
        files = [other if path == source else path for path in (PACK, BINDING)]

        view = compile_view(load_pack(files[0]), load_binding(files[1]))

        assert view.digest != VIEW.digest
        assert (view.pack_digest != VIEW.pack_digest) == (source == PACK)
        assert (view.binding_digest != VIEW.binding_digest) == (source == BINDING)

    def test_cannot_be_changed(self) -> None:
        """A pinned view that could change would be no pin."""
        with pytest.raises(ValidationError):
            VIEW.name = "other"
        for mapping in (VIEW.operations, PUSH.query, PUSH.body, PUSH.completion.data):
            with pytest.raises(TypeError):
                mapping["x"] = "y"  # type: ignore[index]

    def test_names_the_operations_it_has(self) -> None:
        """An unknown operation is mostly a misspelt one (C156)."""
        with pytest.raises(UnknownOperation, match=r"it has lead\.title\.push") as refused:
            VIEW.operation("lead.titel.push")

        assert refused.value.known == ("lead.title.push",)

    def test_is_refused_when_its_text_is_not_ours(self) -> None:
        """A text of another version is not read as if it were of this one."""
        other = VIEW.to_json().replace("oncefence.view/1", "oncefence.view/2")
        with pytest.raises(CatalogError) as refused:
            IntegrationBindingView.from_json(other)

        assert (refused.value.file, refused.value.key) == ("stored view", "format")

    def test_carries_the_choices_of_the_tenant(self) -> None:
        """What the binding says reaches the command."""
        assert (VIEW.pack, VIEW.principal) == ("hubspot", "hubspot-main")
        assert (PUSH.pack_operation, PUSH.local_object) == ("contact.update", "lead")
        assert (PUSH.lanes.source, PUSH.lanes.target) == ("subject", "link")
        assert PUSH.completion.command == "lead.title.pushed"
        assert dict(PUSH.completion.data) == {"object": "lead", "field": "title"}
        assert (PUSH.total_deadline_ms, PUSH.replay, PUSH.sensitive) == (8000, "none", False)
        assert VIEW.trace.attempt_header == "X-Oncefence-Attempt"

    def test_makes_the_header_of_a_token_and_repeats_no_bad_one(self) -> None:
        """A token with a line break would be a second header; it is in no message (C444)."""
        assert VIEW.auth.header_for("abc") == ("Authorization", "Bearer abc")
        for token in ("canary\r\nX: y", "canary x", "canary\u00e9", ""):
            with pytest.raises(PayloadRefused) as refused:
                VIEW.auth.header_for(token)
            assert "canary" not in f"{refused.value!s}{refused.value!r}"


class TestFreeze:
    def test_makes_the_request_of_the_pack(self) -> None:
        """Method, target, headers and body are what the provider documents."""
        frozen = PUSH.freeze(payload("CTO"), remote_id="512", command=COMMAND)

        assert (frozen.method, frozen.target) == ("PATCH", "/crm/v3/objects/contacts/512")
        assert frozen.headers == (
            ("Accept", "application/json"),
            ("Content-Type", "application/json"),
        )
        assert frozen.body == b'{"properties":{"jobtitle":"CTO"}}'
        assert frozen.written == {"jobtitle": "CTO"}

    @given(TITLES, st.booleans())
    def test_brings_any_title_to_the_provider_exactly(self, title: str, escaped: bool) -> None:
        """Not one character of a title is lost, composed, escaped twice or trimmed (C155)."""
        data = payload(title, ensure_ascii=escaped)
        digest = payload_digest(data)

        frozen = PUSH.freeze(data, remote_id="512", command=COMMAND)

        assert json.loads(frozen.body) == {"properties": {"jobtitle": title}}
        # Its own bytes, not an escape for each character.
        plain = json.dumps(title, ensure_ascii=False).encode()
        assert frozen.body == b'{"properties":{"jobtitle":' + plain + b"}}"
        assert frozen.written == {"jobtitle": title}
        assert payload_digest(data) == digest

    @pytest.mark.parametrize("title", AWKWARD)
    def test_brings_an_awkward_title_to_the_provider_exactly(self, title: str) -> None:
        """The titles that break other systems, each by name."""
        frozen = PUSH.freeze(payload(title, ensure_ascii=False), remote_id="512", command=COMMAND)

        assert json.loads(frozen.body)["properties"]["jobtitle"] == title

    def test_clears_by_an_empty_text(self) -> None:
        """Null and an empty text both clear here; neither is taken for "unchanged"."""
        assert PUSH.freeze(payload(None), remote_id="1", command=COMMAND).written == {
            "jobtitle": ""
        }
        assert PUSH.freeze(payload(""), remote_id="1", command=COMMAND).written == {"jobtitle": ""}

    @pytest.mark.parametrize(
        ("data", "field", "reason"),
        [
            (b"{}", "title", "is required"),
            (b'{"title":1}', "title", "must be a string"),
            (b'{"title":false}', "title", "must be a string"),
            (b'{"title":["x"]}', "title", "must be a string"),
            (b'{"title":"x","note":1}', "note", "it takes title"),
            (payload("x" * 65_537), "title", "has 65537 characters; at most 65536"),
            (b'{"title":"x","title":"y"}', "title", "is given twice"),
            (payload("\ud83d"), "title", "surrogate"),
        ],
    )
    def test_refuses_what_is_not_bound(self, data: bytes, field: str, reason: str) -> None:
        """Nothing is guessed, dropped or converted on the way."""
        with pytest.raises(PayloadRefused) as refused:
            PUSH.freeze(data, remote_id="512", command=COMMAND)

        assert refused.value.field == field
        assert reason in refused.value.reason

    @pytest.mark.parametrize(
        "remote_id",
        ["", ".", "..", "../1", "1/2", "1\\2", "1%2f2", "1%", "1?a=b", "1#a", "1\n", "1\r\nX: y",
         " 1", "1 ", "//host", "http://host", "a@b", "0", "01", "\u0661", "1\0",
         "9" * 21, "9" * 300],
    )  # fmt: skip
    def test_refuses_an_id_that_is_none(self, remote_id: str) -> None:
        """An id can never choose another path, host or header (C242)."""
        with pytest.raises(PayloadRefused) as refused:
            PUSH.freeze(payload("CTO"), remote_id=remote_id, command=COMMAND)

        assert refused.value.field == "remote id"

    @given(st.text(max_size=12))
    def test_never_lets_an_id_change_the_path(self, remote_id: str) -> None:
        """Even a pack whose pattern admits everything sends to its own path only."""
        lax = with_pattern(".*")
        try:
            target = lax.freeze(payload("CTO"), remote_id=remote_id, command=COMMAND).target
        except PayloadRefused:
            return
        prefix = "/crm/v3/objects/contacts/"
        assert target.startswith(prefix)
        assert target.isascii()
        assert unquote(target.removeprefix(prefix)) == remote_id
        assert not set("/\\?#@%") & set(unquote(target.removeprefix(prefix)))
        assert ".." not in target

    @pytest.mark.parametrize("remote_id", ["..", ".", "a/b", "a\\b", "a%2e", "a b", "a\n", "é", ""])
    def test_refuses_path_tricks_whatever_the_pattern_says(self, remote_id: str) -> None:
        """A pack's author may err; the guard does not rest on the pattern alone."""
        with pytest.raises(PayloadRefused):
            with_pattern("(?s).*").freeze(payload("CTO"), remote_id=remote_id, command=COMMAND)

    def test_shows_no_content_in_its_repr(self) -> None:
        """A request may be logged whole by accident (C445)."""
        frozen = PUSH.freeze(payload("canary"), remote_id="512", command=COMMAND)

        assert "canary" not in repr(frozen)

    def test_has_a_digest_of_all_that_is_sent(self) -> None:
        """Two requests that differ anywhere differ in digest."""
        digests = {
            PUSH.freeze(payload(title), remote_id=remote_id, command=COMMAND).digest
            for title in ("a", "b")
            for remote_id in ("1", "2")
        }

        assert len(digests) == 4
        assert PUSH.freeze(b'{ "title" : "a" }', remote_id="1", command=COMMAND).digest in digests


class TestSubject:
    @pytest.mark.parametrize("subject", ["lead-1", "Lead/00Q", "lead:7", "a"])
    def test_of_the_declared_form_is_taken(self, subject: str) -> None:
        """The binding says what its subjects look like."""
        PUSH.check_subject(subject)

    @pytest.mark.parametrize("subject", ["", "-1", "lead 1", "lead\n", "é", "x" * 129])
    def test_of_another_form_is_refused(self, subject: str) -> None:
        """A subject is part of a lane's key; it has one spelling."""
        with pytest.raises(PayloadRefused, match="subject: does not match"):
            PUSH.check_subject(subject)


def with_pattern(pattern: str) -> BoundOperation:
    return PUSH.model_copy(update={"remote_id_pattern": pattern})


class TestStoredView:
    TEXT = (ROOT / "tests/data/views/lead-title.view-1.json").read_text(encoding="utf-8")

    def test_of_an_earlier_version_is_read_with_what_it_then_meant(self) -> None:
        """A command that was accepted before an upgrade is sent by its own view (C561)."""
        push = IntegrationBindingView.from_json(self.TEXT).operation("lead.title.push")

        frozen = push.freeze(payload("CTO"), remote_id="512", command=COMMAND)

        assert frozen == PUSH.freeze(payload("CTO"), remote_id="512", command=COMMAND)
        assert (push.kind, push.replay, push.idempotency, push.condition) == (
            "update",
            "none",
            None,
            None,
        )
        assert push.lookup is not None
        assert push.lookup.kind == "by_id"
        assert push.response.read_body(200, {}, b'{"id":"512"}', "512").identity_matches

    def test_of_an_earlier_version_believes_no_contradictory_answer(self) -> None:
        """What was learned since about answers holds for it too, where it is the safer way."""
        push = IntegrationBindingView.from_json(self.TEXT).operation("lead.title.push")
        body = b'{"id":"512","properties":{},"updatedAt":"x","errors":[{}]}'

        reading = push.read_answer(200, {}, body, remote_id="512")

        assert reading.declares_refusal
        assert reading.evidence_present
