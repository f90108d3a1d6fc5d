"""Providers of other shapes are packs and nothing else (C33, C560)."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import pytest

from oncefence.catalog.errors import CatalogError, PayloadRefused
from oncefence.catalog.loader import check, load_binding, load_pack
from oncefence.catalog.lookup import LookupReading
from oncefence.catalog.operations import BoundOperation
from oncefence.catalog.view import IntegrationBindingView, compile_view

COMMAND = UUID("00000000-0000-4000-8000-000000000001")

# Another method, path, header, body, place of the id, form of errors and form of time.
PEOPLE = """
format = "oncefence.pack/1"
name = "people"
display_name = "People Directory"
base_url = "https://people.example:8443"
auth = { scheme = "bearer", header = "X-Api-Token", template = "token={token}" }

[objects.person]
remote_id = "p_[a-z0-9]{8}"
fields.title = { type = "string", clear = "null" }
fields.grade = { type = "string", clear = "refuse", max_length = 3 }

[operations."person.replace"]
object = "person"
method = "PUT"
path = "/v2/people/{remote_id}.json"
endpoint_class = "people"
total_deadline_ms = 12000
replay = "none"

[operations."person.replace".request]
media_type = "application/json; charset=utf-8"
query = { notify = "no/one & all", "on[behalf]" = "{remote_id}" }
headers = { X-Version = "2" }

[operations."person.replace".request.body]
kind = "person/{remote_id}"
version = 2
flags = [true, "{field.grade}"]
person = { title = "{field.title}", note = "{{kept}}" }

[operations."person.replace".answer]
success = [200, 202]
rejected = [409]
not_applied = [429, 503]
evidence = ["result.person.version"]
identity = "result.person.uid"
error_code = ["errors[0].id"]
receipt.request_id = { header = "X-Request-Id" }
retry_after = { header = "X-Wait", forms = ["iso_utc"] }

[operations."person.replace".lookup]
path = "/v2/people"
query = { uid = "{remote_id}", show = "{written},changed" }
endpoint_class = "people"
key_strength = "object_by_id"
completeness = "exact"
horizon_s = 0
not_found = [404, 410]
identity = "people[0].uid"
compare = { title = "people[0].title", grade = "people[0].grade" }
change_time = { value = "people[0].changed", format = "epoch_ms", skew_s = 60 }
"""
PEOPLE_BINDING = """
format = "oncefence.binding/1"
name = "staff"
pack = "people"
principal = "directory"

[operations."staff.push"]
operation = "person.replace"
payload_version = 3
local_object = "employee"
subject = "e[0-9]+"
remote_object = "person"
sensitive = true
completion = { command = "staff.pushed", version = 1 }

[operations."staff.push".fields]
role = { remote = "title", type = "string", direction = "outbound" }
level = { remote = "grade", type = "string", direction = "outbound" }
"""

# JSON:API: a type, an integer id beside the attributes, and a media type of its own.
JSON_API = (
    PEOPLE[: PEOPLE.index('[operations."person.replace".request]')]
    .replace("p_[a-z0-9]{8}", "[1-9][0-9]*")
    .replace('"PUT"', '"PATCH"')
    + """
[operations."person.replace".request]
media_type = "application/vnd.api+json"
body.data = { type = "person", id = "{remote_id:integer}", attributes = "{fields}" }

[operations."person.replace".answer]
success = [200]
evidence = ["data.attributes"]
identity = "data.id"
"""
)

FLAT = (
    PEOPLE[: PEOPLE.index('[operations."person.replace".request]')]
    + """
[operations."person.replace".request]
body = "{fields}"

[operations."person.replace".answer]
success = [200]
evidence = ["uid"]
identity = "uid"
"""
)


def view_of(folder: Path, pack: str, binding: str = PEOPLE_BINDING) -> IntegrationBindingView:
    (folder / "people.toml").write_text(pack, encoding="utf-8")
    (folder / "staff.toml").write_text(binding, encoding="utf-8")
    assert check([folder]).errors == ()
    view = compile_view(load_pack("people", folders=[folder]), load_binding(folder / "staff.toml"))
    return IntegrationBindingView.from_json(view.to_json())


def push_of(folder: Path, pack: str) -> BoundOperation:
    return view_of(folder, pack).operation("staff.push")


class TestAnotherShape:
    def test_sends_its_own_method_path_query_headers_and_body(self, tmp_path: Path) -> None:
        """Nothing of the request is built into the code."""
        view = view_of(tmp_path, PEOPLE)
        push = view.operation("staff.push")

        frozen = push.freeze(
            '{"role":"Ä","level":"A1"}'.encode(), remote_id="p_12345678", command=COMMAND
        )

        assert (frozen.method, push.total_deadline_ms, push.sensitive) == ("PUT", 12000, True)
        assert frozen.target == (
            "/v2/people/p_12345678.json?notify=no%2Fone%20%26%20all&on%5Bbehalf%5D=p_12345678"
        )
        assert frozen.headers == (
            ("Content-Type", "application/json; charset=utf-8"),
            ("X-Version", "2"),
        )
        assert json.loads(frozen.body) == {
            "kind": "person/p_12345678",
            "version": 2,
            "flags": [True, "A1"],
            "person": {"title": "Ä", "note": "{kept}"},
        }
        assert frozen.written == {"title": "Ä", "grade": "A1"}
        assert view.auth.header_for("t") == ("X-Api-Token", "token=t")
        assert view.trace.attempt_header is None

    def test_leaves_out_a_field_that_is_not_written(self, tmp_path: Path) -> None:
        """An unwritten field is absent; null would clear it."""
        push = push_of(tmp_path, PEOPLE)

        only_level = push.freeze(b'{"level":"A1"}', remote_id="p_12345678", command=COMMAND)
        cleared = push.freeze(b'{"role":null}', remote_id="p_12345678", command=COMMAND)

        assert json.loads(only_level.body)["person"] == {"note": "{kept}"}
        assert json.loads(cleared.body)["person"] == {"note": "{kept}", "title": None}
        assert json.loads(cleared.body)["flags"] == [True]

    @pytest.mark.parametrize(
        ("payload", "field", "reason"),
        [
            (b"{}", "$", "writes nothing; give at least one of level, role"),
            (b'{"level":null}', "level", "must not be empty"),
            (b'{"level":""}', "level", "must not be empty"),
            (b'{"level":"A123"}', "level", "at most 3"),
            (b'{"title":"x"}', "title", "it takes level, role"),
        ],
    )
    def test_keeps_its_own_rules_of_data(
        self, tmp_path: Path, payload: bytes, field: str, reason: str
    ) -> None:
        """Clearing and length are the provider's rules, not ours."""
        push = push_of(tmp_path, PEOPLE)

        with pytest.raises(PayloadRefused) as refused:
            push.freeze(payload, remote_id="p_12345678", command=COMMAND)

        assert refused.value.field == field
        assert reason in refused.value.reason

    def test_reads_its_own_answers(self, tmp_path: Path) -> None:
        """Id, evidence, error code, receipt and waiting time are where the pack says."""
        response = push_of(tmp_path, PEOPLE).response
        done = b'{"result":{"person":{"uid":"p_12345678","version":4}}}'
        error = b'{"errors":[{"id":"conflict","detail":"anna"}]}'

        accepted = response.read_body(202, [("x-request-id", "r-1")], done, "p_12345678")
        refused = response.read_body(409, {"X-Request-ID": "r-2"}, error, "p_12345678")

        assert accepted.evidence_present
        assert accepted.identity_matches
        assert accepted.receipt == {"request_id": "r-1"}
        assert (refused.error_code, refused.receipt) == ("conflict", {"request_id": "r-2"})
        assert (response.retry_after.header, response.retry_after.forms) == ("X-Wait", ("iso_utc",))

    def test_judges_by_its_own_change_time(self, tmp_path: Path) -> None:
        """The lookup's path, compared places, clock form and skew are the pack's."""
        lookup = push_of(tmp_path, PEOPLE).lookup
        assert lookup is not None
        written: dict[str, str | None] = {"title": "Chief", "grade": None}
        mark = datetime(2026, 1, 1, tzinfo=UTC)

        def judge(title: str, moved: timedelta, status: int = 200) -> LookupReading:
            changed = int((mark + moved).timestamp() * 1000)
            person = {"uid": "p_12345678", "title": title, "grade": None, "changed": changed}
            body = json.dumps({"people": [person]}).encode()
            return lookup.judge(
                status,
                body,
                written=written,
                mark_time=mark,
                remote_id="p_12345678",
                command=COMMAND,
            ).reading

        assert lookup.request("p_12345678", written, command=COMMAND).target == (
            "/v2/people?show=grade%2Ctitle%2Cchanged&uid=p_12345678"
        )
        assert judge("Chief", timedelta()) is LookupReading.EQUAL
        assert judge("Cook", timedelta(seconds=-61)) is LookupReading.DIFFERENT_UNCHANGED
        assert judge("Cook", timedelta(seconds=-60)) is LookupReading.DIFFERENT_CHANGED
        assert judge("Chief", timedelta(), 410) is LookupReading.ABSENT


class TestBodyForm:
    def test_can_be_a_typed_resource(self, tmp_path: Path) -> None:
        """Type and id beside nested attributes, the id as a number with all its digits."""
        push = push_of(tmp_path, JSON_API)

        frozen = push.freeze(b'{"role":"CTO"}', remote_id="9007199254740993", command=COMMAND)

        assert frozen.body == (
            b'{"data":{"attributes":{"title":"CTO"},"id":9007199254740993,"type":"person"}}'
        )
        assert ("Content-Type", "application/vnd.api+json") in frozen.headers

    def test_can_be_flat(self, tmp_path: Path) -> None:
        """The fields alone may be the whole body."""
        push = push_of(tmp_path, FLAT)

        frozen = push.freeze(
            b'{"role":"CTO","level":"A1"}', remote_id="p_12345678", command=COMMAND
        )

        assert frozen.body == b'{"grade":"A1","title":"CTO"}'

    def test_leaves_out_what_holds_nothing_but_unwritten_fields(self, tmp_path: Path) -> None:
        """An empty table or list in its place would be read as a wish to clear it."""
        body = '{ name = { short = "{field.title}" }, tags = ["{field.grade}"], kept = {} }'
        push = push_of(tmp_path, FLAT.replace('"{fields}"', body))

        only_role = push.freeze(b'{"role":"CTO"}', remote_id="p_12345678", command=COMMAND)
        only_level = push.freeze(b'{"level":"A1"}', remote_id="p_12345678", command=COMMAND)

        assert only_role.body == b'{"kept":{},"name":{"short":"CTO"}}'
        assert only_level.body == b'{"kept":{},"tags":["A1"]}'

    def test_refuses_an_id_that_is_no_number_where_one_is_due(self, tmp_path: Path) -> None:
        """A number with a leading zero would be another number."""
        push = push_of(tmp_path, JSON_API.replace("[1-9][0-9]*", "[a-z0-9]+"))

        for remote_id in ("abc", "007"):
            with pytest.raises(PayloadRefused, match="whole number"):
                push.freeze(b'{"role":"CTO"}', remote_id=remote_id, command=COMMAND)

    def test_refuses_a_field_placed_twice(self, tmp_path: Path) -> None:
        """A field with two places has two values as soon as one is edited."""
        pack = PEOPLE.replace('note = "{{kept}}"', 'note = "{field.title}"')
        path = tmp_path / "people.toml"
        path.write_text(pack, encoding="utf-8")

        with pytest.raises(CatalogError, match=r"request\.body: places \{field\.title\} twice"):
            load_pack(path)
