"""Requests as packs write them: paths, forms, conditions, keys, and creates (C142, C242, C563)."""

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncefence.catalog.errors import PayloadRefused
from oncefence.catalog.form_body import form_body
from oncefence.catalog.loader import load_binding, load_pack
from oncefence.catalog.operations import BoundOperation
from oncefence.catalog.templates import check_path, expand_target
from oncefence.catalog.view import compile_view

DATA = Path(__file__).parents[1] / "data/packs"
COMMAND = UUID("00000000-0000-4000-8000-00000000c0de")
OTHER_COMMAND = UUID("00000000-0000-4000-8000-00000000c0df")


def bound(folder: Path, pack: str | Path, operation: str, **fields: str) -> BoundOperation:
    """An operation of a pack under a binding that gives each field its own name."""
    loaded = load_pack(pack)
    text = f"""
format = "oncefence.binding/1"
name = "bound"
pack = "{loaded.name}"
principal = "main"

[operations."it"]
operation = "{operation}"
payload_version = 1
local_object = "thing"
subject = ".+"
remote_object = "{loaded.operations[operation].object}"
completion = {{ command = "done", version = 1 }}

[operations."it".fields]
""" + "".join(
        f'{name} = {{ remote = "{name}", type = "{kind}", direction = "outbound" }}\n'
        for name, kind in fields.items()
    )
    path = folder / "bound.toml"
    path.write_text(text, encoding="utf-8")
    return compile_view(loaded, load_binding(path)).operation("it")


def payload(**members: object) -> bytes:
    return json.dumps(members).encode()


class TestPath:
    @pytest.mark.parametrize(
        ("path", "reason"),
        [
            ("/a/{+remote_id}", "segments of its own"),
            ("/a{#remote_id}", "fragment is never sent"),
            ("/a{.remote_id}", "write the dot before it"),
            ("/a{/remote_id}", "write the slash before it"),
            ("/a{;remote_id}", "path parameters"),
            ("/a{?remote_id}", "a query has its own table"),
            ("/a{&remote_id}", "a query has its own table"),
            ("/a/{=remote_id}", "keeps for later"),
            ("/a/{|remote_id}", "keeps for later"),
            ("/a/{remote_id,command}", "one variable each"),
            ("/a/{remote_id*}", "explodes a list"),
            ("/a/{remote_id:3}", "part of an id is another id"),
            ("/a/{remote}", "unknown variable {remote}"),
            ("/a/{}", "unknown variable {}"),
            ("/a/{{x}}", "a brace cannot stand in one"),
            ("/a/{remote_id", "single brace"),
        ],
    )
    def test_of_more_than_simple_expansion_is_refused_with_the_reason(
        self, path: str, reason: str
    ) -> None:
        """Each operator of RFC 6570 either lets a value change the path or has another home."""
        with pytest.raises(ValueError, match=re.escape(reason)):
            check_path(path)

    @pytest.mark.parametrize(
        ("value", "expanded"),
        [
            ("value", "/value"),
            ("Hello World!", "/Hello%20World%21"),
            ("50%", "/50%25"),
            ("half/way", "/half%2Fway"),
            ("/foo/bar", "/%2Ffoo%2Fbar"),
            ("../x?a=b#c", "/..%2Fx%3Fa%3Db%23c"),
            ("1024,768", "/1024%2C768"),
            ("ä", "/%C3%A4"),
            ("-._~", "/-._~"),
        ],
    )
    def test_expands_as_the_standard_does(self, value: str, expanded: str) -> None:
        """Level 1 of RFC 6570: every character that is not unreserved is percent-encoded."""
        assert expand_target("/{remote_id}", {}, {"remote_id": value}) == expanded


class TestForm:
    @pytest.mark.parametrize(
        ("body", "text"),
        [
            ({"b": "2", "a": "1"}, b"a=1&b=2"),
            ({"a": {"b": {"c": "x y"}}}, b"a%5Bb%5D%5Bc%5D=x+y"),
            ({"a": ["x", {"b": "y"}]}, b"a%5B0%5D=x&a%5B1%5D%5Bb%5D=y"),
            ({"a": True, "b": False, "c": 0, "d": ""}, b"a=true&b=false&c=0&d="),
            ({"a": "1&b=2", "c=d": "%+"}, b"a=1%26b%3D2&c%3Dd=%25%2B"),
            ({"a": "Größe\r\n"}, b"a=Gr%C3%B6%C3%9Fe%0D%0A"),
            ({"a": {}, "b": []}, b""),
        ],
    )
    def test_nests_in_brackets_and_escapes_every_character(
        self, body: dict[str, Any], text: bytes
    ) -> None:
        """One body has one form, and no value can bring a key of its own."""
        assert form_body(body) == text

    @given(
        st.dictionaries(
            st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
            st.text(st.characters(exclude_categories=["Cs"])),
            max_size=4,
        )
    )
    def test_is_read_as_it_was_meant(self, body: dict[str, str]) -> None:
        """Whatever a person typed arrives as typed."""
        read = parse_qsl(form_body(body).decode(), keep_blank_values=True, strict_parsing=False)

        assert read == sorted(body.items())

    def test_says_no_null(self) -> None:
        """An empty text in its place would be another value."""
        with pytest.raises(PayloadRefused, match=r"a\[b\]: is null"):
            form_body({"a": {"b": None}})


class TestUpdateUnderAKey:
    def test_sends_the_same_bytes_and_key_each_time(self, tmp_path: Path) -> None:
        """The key is the command's: another command is another key (C563)."""
        update = bound(tmp_path, "stripe", "customer.update", name="string", phone="string")

        first, again, other = (
            update.freeze(payload(name="Ä & b", phone=None), remote_id="cus_1", command=command)
            for command in (COMMAND, COMMAND, OTHER_COMMAND)
        )

        assert first == again
        assert (first.method, first.target) == ("POST", "/v1/customers/cus_1")
        assert first.body == b"name=%C3%84+%26+b&phone="
        assert first.idempotency_key == str(COMMAND)
        assert first.headers == (
            ("Content-Type", "application/x-www-form-urlencoded"),
            ("Idempotency-Key", str(COMMAND)),
        )
        assert other.idempotency_key == str(OTHER_COMMAND)
        assert first.digest != other.digest

    def test_keeps_no_key_where_the_pack_has_none(self, tmp_path: Path) -> None:
        """A header that means nothing would suggest a safety that is not there."""
        update = bound(tmp_path, "hubspot", "contact.update", jobtitle="string")

        frozen = update.freeze(payload(jobtitle="x"), remote_id="1", command=COMMAND)

        assert frozen.idempotency_key is None
        assert str(COMMAND) not in str(frozen.headers)


class TestJsonApi:
    @pytest.mark.parametrize(
        ("title", "shown"), [("", '""'), (None, "null"), ("  ", '"  "'), ("0", '"0"')]
    )
    def test_clears_by_null_and_keeps_an_empty_text(
        self, tmp_path: Path, title: str | None, shown: str
    ) -> None:
        """The two are different there, and both differ from a field that is not written."""
        update = bound(tmp_path, "outreach", "prospect.update", title="string", nickname="string")

        frozen = update.freeze(payload(title=title), remote_id="501", command=COMMAND)

        assert frozen.body.decode() == (
            f'{{"data":{{"attributes":{{"title":{shown}}},"id":501,"type":"prospect"}}}}'
        )
        assert ("Content-Type", "application/vnd.api+json") in frozen.headers
        assert update.lookup is not None
        assert update.lookup.request("501", frozen.written, command=COMMAND).target == (
            "/api/v2/prospects/501?fields%5Bprospect%5D=title%2CupdatedAt"
        )


class TestCondition:
    def stones(self, folder: Path, form: str = "text", header: str = "If-Match") -> BoundOperation:
        text = (DATA / "quarry.toml").read_text(encoding="utf-8")
        changed = text.replace(
            'header = "If-Match", payload_key', f'header = "{header}", form = "{form}", payload_key'
        )
        (folder / "quarry.toml").write_text(changed, encoding="utf-8")
        return bound(folder, folder / "quarry.toml", "stone.set", grade="string")

    def test_is_a_header_made_of_the_payload(self, tmp_path: Path) -> None:
        """The provider changes only the record that we knew; the value is no field."""
        frozen = self.stones(tmp_path).freeze(
            payload(version='W/"7"', grade="A"), remote_id="ST000001", command=COMMAND
        )

        assert ("If-Match", 'W/"7"') in frozen.headers
        assert frozen.body == b'{"grade":"A"}'
        assert frozen.written == {"grade": "A"}

    def test_may_be_a_time(self, tmp_path: Path) -> None:
        """An HTTP date knows whole seconds; a later half of the second is cut, never added."""
        stones = self.stones(tmp_path, "http_date", "If-Unmodified-Since")

        frozen = stones.freeze(
            payload(version="2026-03-29T02:00:00.900+02:00", grade="A"),
            remote_id="ST000001",
            command=COMMAND,
        )

        assert ("If-Unmodified-Since", "Sun, 29 Mar 2026 00:00:00 GMT") in frozen.headers
        with pytest.raises(PayloadRefused, match="version: must be a time with its zone"):
            stones.freeze(payload(version="now", grade="A"), remote_id="ST000001", command=COMMAND)

    @pytest.mark.parametrize("version", [None, "", "a\r\nX: y", "ä", " a", 7, "x" * 300])
    def test_is_required_and_cannot_bring_a_header_of_its_own(
        self, tmp_path: Path, version: object
    ) -> None:
        """Without its condition the write would overwrite whatever is there."""
        with pytest.raises(PayloadRefused) as refused:
            self.stones(tmp_path).freeze(
                payload(version=version, grade="A"), remote_id="ST000001", command=COMMAND
            )

        assert refused.value.field == "version"


class TestCreate:
    def test_names_no_record_and_carries_the_command(self, tmp_path: Path) -> None:
        """What the record is found by when no answer came is part of the request."""
        create = bound(tmp_path, "stripe", "customer.create", email="string", name="string")

        frozen = create.freeze(payload(email="a@b.example"), remote_id=None, command=COMMAND)

        assert create.is_create
        assert not create.looks_first
        assert frozen.target == "/v1/customers"
        assert parse_qsl(frozen.body.decode()) == [
            ("email", "a@b.example"),
            ("metadata[oncefence_command]", str(COMMAND)),
        ]

    def test_takes_no_remote_id_and_an_update_needs_one(self, tmp_path: Path) -> None:
        """A create for a record that is linked would make it twice."""
        create = bound(tmp_path, "stripe", "customer.create", name="string")
        with pytest.raises(PayloadRefused, match="a create makes a new record"):
            create.freeze(payload(name="x"), remote_id="cus_1", command=COMMAND)

        update = bound(tmp_path, "stripe", "customer.update", name="string")
        with pytest.raises(PayloadRefused, match="needs a linked record"):
            update.freeze(payload(name="x"), remote_id=None, command=COMMAND)

    def test_learns_only_an_id_that_can_be_sent_to(self, tmp_path: Path) -> None:
        """An id of another form would be linked and could never be used."""
        create = bound(tmp_path, "stripe", "customer.create", name="string")

        def answered(identity: object) -> tuple[bool, str | None]:
            body = payload(id=identity, object="customer")
            reading = create.read_answer(200, {}, body, remote_id=None)
            return reading.identity_matches, reading.remote_id

        assert answered("cus_A1") == (True, "cus_A1")
        assert answered("../x") == answered(7) == answered(None) == (False, None)


class TestReplyContract:
    def test_has_the_conditions_and_the_key_of_the_operation(self, tmp_path: Path) -> None:
        """What the domain classifies by is taken from the frozen operation alone."""
        stones = bound(tmp_path, DATA / "quarry.toml", "stone.set", grade="string")
        update = bound(tmp_path, "stripe", "customer.update", name="string")

        contract = stones.reply_contract({}, key_is_live=False)
        live = update.reply_contract({}, key_is_live=True)
        kept = update.reply_contract({"Idempotent-Replayed": "true"}, key_is_live=True)

        assert contract.condition_failed_statuses == {412}
        assert live.has_live_idempotency_key
        # The kept answer of an earlier attempt would be given to each later one too.
        assert not kept.has_live_idempotency_key
