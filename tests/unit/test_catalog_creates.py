"""What became of a create is found by what it carried, and every hit is checked (C263, C264)."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncefence.catalog.errors import PayloadRefused
from oncefence.catalog.loader import load_binding, load_pack
from oncefence.catalog.lookup import LookupContract, LookupFinding, LookupReading
from oncefence.catalog.operations import BoundOperation
from oncefence.catalog.view import compile_view

COMMAND = UUID("00000000-0000-4000-8000-00000000c0de")
OTHER = "00000000-0000-4000-8000-00000000c0df"
MARK = datetime(2026, 11, 30, 10, tzinfo=UTC)
WRITTEN: dict[str, str | None] = {"name": "Ä"}
BINDING = """
format = "oncefence.binding/1"
name = "people"
pack = "{pack}"
principal = "main"

[operations."it"]
operation = "{operation}"
payload_version = 1
local_object = "person"
subject = ".+"
remote_object = "{remote_object}"
completion = {{ command = "done", version = 1 }}
fields.{field} = {{ remote = "{field}", type = "string", required = true, direction = "outbound" }}
"""
# A register that refuses a second entry of one address, and shows when an entry was made.
REGISTER = """
format = "oncefence.pack/1"
name = "register"
display_name = "Register"
base_url = "https://register.example"
auth = { scheme = "bearer" }

[objects.entry]
remote_id = "e[0-9]+"
fields.mail = { type = "string" }

[operations."entry.make"]
object = "entry"
kind = "create"
method = "POST"
path = "/entries"
endpoint_class = "entries"
replay = "none"
request.body = "{fields}"
answer = { success = [201], rejected = [409], evidence = ["id"], identity = "id" }

[operations."entry.make".lookup]
kind = "by_query"
path = "/entries"
query = { mail = "{field.mail}" }
endpoint_class = "entries"
key_strength = "unique_property"
completeness = "exact"
horizon_s = 0
identity = "id"

[operations."entry.make".lookup.search]
items = "entries"
match = { mail = "{field.mail}" }
created_time = { value = "made_at", format = "iso8601", skew_s = 5 }
"""


def bound(folder: Path, pack: str | Path, operation: str, field: str) -> BoundOperation:
    loaded = load_pack(pack)
    path = folder / "people.toml"
    path.write_text(
        BINDING.format(
            pack=loaded.name,
            operation=operation,
            remote_object=loaded.operations[operation].object,
            field=field,
        ),
        encoding="utf-8",
    )
    return compile_view(loaded, load_binding(path)).operation("it")


@pytest.fixture(scope="module")
def customers(tmp_path_factory: pytest.TempPathFactory) -> LookupContract:
    create = bound(tmp_path_factory.mktemp("customers"), "stripe", "customer.create", "name")
    assert create.lookup is not None
    return create.lookup


@pytest.fixture(scope="module")
def entries(tmp_path_factory: pytest.TempPathFactory) -> BoundOperation:
    folder = tmp_path_factory.mktemp("entries")
    (folder / "register.toml").write_text(REGISTER, encoding="utf-8")
    return bound(folder, folder / "register.toml", "entry.make", "mail")


def customer(identity: object = "cus_1", command: object = str(COMMAND)) -> dict[str, Any]:
    return {"id": identity, "object": "customer", "metadata": {"oncefence_command": command}}


def judged(
    contract: LookupContract, document: object, status: int = 200, **written: str
) -> LookupFinding:
    return contract.judge(
        status,
        json.dumps(document).encode(),
        written=written or WRITTEN,
        mark_time=MARK,
        remote_id=None,
        command=COMMAND,
    )


class TestRequest:
    def test_asks_for_what_the_create_carried(self, customers: LookupContract) -> None:
        """The command's id is the key that nobody else writes."""
        request = customers.request(None, WRITTEN, command=COMMAND)

        assert (request.method, request.body) == ("GET", b"")
        assert request.target == (
            "/v1/customers/search?limit=10&query="
            f"metadata%5B%27oncefence_command%27%5D%3A%27{COMMAND}%27"
        )

    def test_asks_for_a_field_that_was_written(self, entries: BoundOperation) -> None:
        """An unwritten or empty one would find everybody, so such a create is not accepted."""
        assert entries.lookup is not None
        request = entries.lookup.request(None, {"mail": "a+b@c.example&x"}, command=COMMAND)

        assert request.target == "/entries?mail=a%2Bb%40c.example%26x"
        with pytest.raises(PayloadRefused, match="mail: must not be empty"):
            entries.freeze(b'{"mail":""}', remote_id=None, command=COMMAND)
        with pytest.raises(PayloadRefused, match="mail: is required"):
            entries.freeze(b"{}", remote_id=None, command=COMMAND)

    @pytest.mark.parametrize(
        ("mail", "reason"),
        [
            ("a@b\n", "mail: must not hold control characters"),
            ("\x7fa@b", "mail: must not hold control characters"),
            ("\u00e4" * 1_364, "mail: is too long to be asked for"),
        ],
    )
    def test_for_what_the_wire_would_not_ask_is_never_needed(
        self, entries: BoundOperation, mail: str, reason: str
    ) -> None:
        """A create that can never be looked for would wait for ever, and send nothing."""
        with pytest.raises(PayloadRefused, match=reason):
            entries.freeze(json.dumps({"mail": mail}).encode(), remote_id=None, command=COMMAND)

        entries.freeze(
            json.dumps({"mail": "\u00e4" * 1_363}).encode(), remote_id=None, command=COMMAND
        )


class TestJudge:
    @pytest.mark.parametrize(
        ("document", "reading", "remote_id"),
        [
            ({"data": [customer()], "has_more": False}, "equal", "cus_1"),
            ({"data": []}, "no_match", None),
            ({"data": [customer(), customer("cus_2")]}, "ambiguous", None),
            # One record in two rows is one record.
            ({"data": [customer(), customer()]}, "equal", "cus_1"),
            # A filter that was ignored, or read otherwise.
            ({"data": [customer(command=OTHER)]}, "unreadable", None),
            ({"data": [customer(command=OTHER), customer()]}, "equal", "cus_1"),
            ({"data": [{"id": "cus_1"}]}, "unreadable", None),
            ({"data": [customer(command=str(COMMAND).upper())]}, "unreadable", None),
            # As many as an answer holds at most, or more by the provider's own word.
            ({"data": [customer(command=OTHER)] * 10}, "capped", None),
            ({"data": [customer(command=OTHER)] * 9 + [customer()]}, "capped", None),
            ({"data": [], "has_more": True}, "capped", None),
            # No list of records, or a record without an id that could be used.
            ({"data": None}, "unreadable", None),
            ({"data": {}}, "unreadable", None),
            ({}, "unreadable", None),
            ([], "unreadable", None),
            ({"data": [customer(None)]}, "unreadable", None),
            ({"data": [customer("../x")]}, "unreadable", None),
            ({"data": [None, "x", 7]}, "unreadable", None),
        ],
    )
    def test_finds_the_one_record_or_says_why_not(
        self, customers: LookupContract, document: object, reading: str, remote_id: str | None
    ) -> None:
        """Only a whole answer without it shows that there is none; a guess makes a second one."""
        assert judged(customers, document) == LookupFinding(
            reading=LookupReading(reading), remote_id=remote_id
        )

    @pytest.mark.parametrize("status", [204, 400, 404, 429, 500])
    def test_reads_no_other_status(self, customers: LookupContract, status: int) -> None:
        """A search that is not there says nothing of the record."""
        assert judged(customers, {"data": []}, status).reading is LookupReading.UNREADABLE

    @given(st.binary(max_size=60))
    def test_finds_nothing_in_noise(self, customers: LookupContract, body: bytes) -> None:
        """Random bytes are neither a record nor the absence of one."""
        finding = customers.judge(
            200, body, written=WRITTEN, mark_time=MARK, remote_id=None, command=COMMAND
        )

        assert finding.reading is LookupReading.UNREADABLE

    @pytest.mark.parametrize(
        ("made", "reading"),
        [
            (timedelta(seconds=1), "equal"),
            (timedelta(seconds=-5), "equal"),
            (timedelta(seconds=-6), "no_match"),
            (None, "ambiguous"),
        ],
    )
    def test_takes_no_older_record_for_its_own(
        self, entries: BoundOperation, made: timedelta | None, reading: str
    ) -> None:
        """It was there before, so the create was refused and made nothing."""
        assert entries.lookup is not None
        entry = {"id": "e1", "mail": "a@b", "made_at": (MARK + made).isoformat() if made else None}

        assert judged(entries.lookup, {"entries": [entry]}, mail="a@b").reading == reading

    def test_by_a_fuzzy_key_proves_nothing(self, customers: LookupContract) -> None:
        """Found or not: names are shared and misspelt."""
        fuzzy = customers.model_copy(update={"key_strength": "fuzzy"})

        for data in ([], [customer()], [customer(), customer("cus_2")]):
            assert judged(fuzzy, {"data": data}).reading is LookupReading.AMBIGUOUS


class TestJudgeFirst:
    @pytest.mark.parametrize(
        ("entries_shown", "reading"),
        [
            ([], "no_match"),
            ([{"id": "e1", "mail": "a@b", "made_at": "2020-01-01T00:00:00Z"}], "equal"),
            ([{"id": "e1", "mail": "a@b"}, {"id": "e2", "mail": "a@b"}], "ambiguous"),
            ([{"id": "e1", "mail": "x@y"}], "unreadable"),
            (None, "unreadable"),
        ],
    )
    def test_sees_a_record_of_any_age(
        self, entries: BoundOperation, entries_shown: object, reading: str
    ) -> None:
        """Before a create it does not matter who made the record, only that it is there."""
        assert entries.looks_first
        assert entries.lookup is not None

        finding = entries.lookup.judge_first(
            200,
            json.dumps({"entries": entries_shown}).encode(),
            written={"mail": "a@b"},
            command=COMMAND,
        )

        assert finding.reading == reading
