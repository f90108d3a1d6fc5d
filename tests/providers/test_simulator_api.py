"""Without faults the simulator answers as the provider's contacts API does."""

import json
import socket
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path

import httpx
import pytest

from oncefence.simulator import contacts as contacts_module
from oncefence.simulator.journal import Journal
from oncefence.simulator.ledger import Kind
from tests.providers.simulated import (
    TOKEN,
    Simulated,
    contact_path,
    patch_bytes,
    request_bytes,
    simulator_at,
    until,
)


class TestPatch:
    def test_changes_the_record_once_and_shows_it(self, simulator: Simulated) -> None:
        """One PATCH is one change, in the answer, in the record and in the ledger."""
        contact = simulator.contact(jobtitle="CTO", city="Bern")

        heard = simulator.patch(contact, "Chief Ünïcode 役員", command="c-1")

        assert heard.status == 200
        assert heard.json["id"] == contact
        assert heard.json["properties"]["jobtitle"] == "Chief Ünïcode 役員"
        assert heard.json["properties"]["hs_object_id"] == contact
        assert heard.json["properties"]["lastmodifieddate"] == heard.json["updatedAt"]
        assert heard.json["updatedAt"] > heard.json["createdAt"]
        assert heard.json["archived"] is False
        assert simulator.title(contact) == "Chief Ünïcode 役員"
        assert simulator.kinds(contact) == ["read", "change", "answered"]
        [change] = simulator.ledger.changes_by_command()["c-1"]
        assert (change.contact, change.attempt) == (contact, "c-1/1")
        assert change.properties == {"jobtitle": "Chief Ünïcode 役員"}

    def test_of_the_same_value_moves_the_change_time(self, simulator: Simulated) -> None:
        """The provider cannot know a repeat from a new wish: it counts as a second change."""
        contact = simulator.contact()

        first, second = simulator.patch(contact, "same"), simulator.patch(contact, "same")

        assert second.json["updatedAt"] > first.json["updatedAt"]
        assert len(simulator.rows(contact, Kind.CHANGE)) == 2

    def test_in_the_same_millisecond_moves_the_change_time(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """However fast a second change follows, a reader can tell that there was one."""
        monkeypatch.setattr(contacts_module, "utc_now", lambda: datetime(2026, 1, 1, tzinfo=UTC))
        journal, _ = Journal.open(tmp_path / "ledger")
        contacts = contacts_module.Contacts(journal)
        contacts.create("1", {"jobtitle": "before"})

        first = contacts.edit("1", {"jobtitle": "one"}).updated_at
        second = contacts.edit("1", {"jobtitle": "two"}).updated_at
        journal.close()

        assert second > first

    def test_with_the_empty_string_clears(self, simulator: Simulated) -> None:
        """The empty string is a value of its own and is read back as one."""
        contact = simulator.contact()

        assert simulator.patch(contact, "").status == 200
        assert simulator.title(contact) == ""

    def test_in_chunks_after_a_100_is_one_request(self, simulator: Simulated) -> None:
        """A client may ask leave before its body and send it without a length."""
        contact = simulator.contact()
        body = b'{"properties":{"jobtitle":"chunked"}}'
        head = (
            f"PATCH {contact_path(contact)} HTTP/1.1\r\nHost: p\r\n"
            f"Authorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\n"
            "Transfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n"
        )

        with socket.create_connection(("127.0.0.1", simulator.port), timeout=10) as client:
            client.sendall(head.encode())
            leave = client.recv(65_536)
            client.sendall(b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body))
            answer = client.recv(65_536)

        assert leave.startswith(b"HTTP/1.1 100 ")
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert simulator.title(contact) == "chunked"

    def test_by_an_ordinary_client_library(self, simulator: Simulated) -> None:
        """A client that nobody wrote for this test finds the answers well formed."""
        contact = simulator.contact()

        answer = httpx.patch(
            f"http://127.0.0.1:{simulator.port}{contact_path(contact)}",
            json={"properties": {"jobtitle": "by httpx"}},
            headers={"Authorization": f"Bearer {TOKEN}"},
        )

        assert answer.status_code == 200
        assert answer.json()["properties"]["jobtitle"] == "by httpx"


class TestGet:
    @pytest.mark.parametrize(
        "query",
        ["properties=jobtitle,city&archived=false", "properties=jobtitle&properties=city"],
    )
    def test_shows_what_is_asked_for(self, simulator: Simulated, query: str) -> None:
        """Both spellings of the list are known; what was never set is null."""
        contact = simulator.contact(jobtitle="CTO")

        shown = simulator.get(contact, query).json["properties"]

        assert (shown["jobtitle"], shown["city"]) == ("CTO", None)
        assert shown.keys() == {"jobtitle", "city", "hs_object_id", "lastmodifieddate"}
        assert simulator.kinds(contact, "GET") == ["read", "answered"]

    def test_of_an_archived_contact_needs_the_word(self, simulator: Simulated) -> None:
        """An archived record is not found unless archived ones are asked for."""
        simulator.admin("/contacts", {"id": "archived", "archived": True})

        assert simulator.get("archived").status == 404
        assert simulator.get("archived", "archived=true").json["archived"] is True
        assert simulator.patch("archived").status == 404


def _body(content: object) -> bytes:
    return json.dumps({"properties": content}).encode()


_TITLE = _body({"jobtitle": "x"})


class TestRefusals:
    @pytest.mark.parametrize(
        ("status", "category", "overrides"),
        [
            (401, "INVALID_AUTHENTICATION", {"token": "wrong"}),
            (401, "INVALID_AUTHENTICATION", {"token": TOKEN[:-1]}),
            (401, "INVALID_AUTHENTICATION", {"token": TOKEN + "x"}),
            (401, "INVALID_AUTHENTICATION", {"headers": {"Authorization": f"Basic {TOKEN}"}}),
            (401, "INVALID_AUTHENTICATION", {"headers": {"Authorization": "Bearer \xff"}}),
            (404, "OBJECT_NOT_FOUND", {"target": contact_path("nobody")}),
            (404, "NOT_FOUND", {"target": "/crm/v3/objects/companies/1"}),
            (405, "VALIDATION_ERROR", {"method": "DELETE"}),
            (415, "VALIDATION_ERROR", {"headers": {"Content-Type": "text/plain"}}),
            (400, "VALIDATION_ERROR", {"body": b"{"}),
            (400, "VALIDATION_ERROR", {"body": b"[" * 100_000}),
            (400, "VALIDATION_ERROR", {"body": b"\xff"}),
            (400, "VALIDATION_ERROR", {"body": b"[]"}),
            (400, "VALIDATION_ERROR", {"body": b"{}"}),
            (400, "VALIDATION_ERROR", {"body": b'{"properties":{},"x":1}'}),
            (400, "VALIDATION_ERROR", {"body": _body({})}),
            (400, "VALIDATION_ERROR", {"body": _body({"jobtitle": 1})}),
            (400, "VALIDATION_ERROR", {"body": _body({"jobtitle": None})}),
            (400, "VALIDATION_ERROR", {"body": b'{"properties":{"jobtitle":NaN}}'}),
            (400, "VALIDATION_ERROR", {"body": b'{"properties":{"jobtitle":"\\ud800"}}'}),
            (413, "VALIDATION_ERROR", {"body": b" " * 1_048_577}),
        ],
    )
    def test_answer_in_the_providers_shape_and_change_nothing(
        self, simulator: Simulated, status: int, category: str, overrides: dict[str, object]
    ) -> None:
        """Every bad request gets its status and category, a REFUSED row, and no change."""
        contact = simulator.contact()
        before = len(simulator.ledger.rows)
        wanted: dict[str, object] = {
            "method": "PATCH",
            "target": contact_path(contact),
            "body": _TITLE,
        }
        request = wanted | overrides

        heard = simulator.talk(_request(request))

        assert (heard.status, heard.json["category"]) == (status, category)
        assert heard.json["status"] == "error"
        assert heard.json["correlationId"]
        assert simulator.title(contact) == "before"
        rows = simulator.ledger.rows[before:]
        assert [row.status for row in rows if row.kind is Kind.REFUSED] == [status]
        assert not [row for row in rows if row.kind is Kind.CHANGE]

    @pytest.mark.parametrize(
        ("name", "code"),
        [
            ("nope", "PROPERTY_DOESNT_EXIST"),
            ("lastmodifieddate", "READ_ONLY_VALUE"),
            ("hs_object_id", "READ_ONLY_VALUE"),
        ],
    )
    def test_of_properties_name_each(self, simulator: Simulated, name: str, code: str) -> None:
        """One wrong property refuses the whole change and is named."""
        contact = simulator.contact()
        body = _body({"jobtitle": "after", name: "x"})

        heard = simulator.talk(request_bytes("PATCH", contact_path(contact), body))

        assert heard.status == 400
        assert [(entry["in"], entry["code"]) for entry in heard.json["errors"]] == [(name, code)]
        assert simulator.title(contact) == "before"

    def test_of_what_is_not_http(self, simulator: Simulated) -> None:
        """Noise gets a 400 and leaves the simulator standing."""
        heard = simulator.talk(b"\x16\x03\x01 this is TLS\r\n\r\n")

        assert heard.status == 400
        assert simulator.patch(simulator.contact()).status == 200

    def test_never_write_the_token(self, simulator: Simulated) -> None:
        """The ledger is shown to people; a credential must not be in it."""
        simulator.talk(request_bytes("GET", contact_path("1"), token="another-secret"))

        text = simulator.ledger_path.read_text()
        assert "another-secret" not in text
        assert TOKEN not in text


def _request(parts: dict[str, object]) -> bytes:
    method, target, body = parts["method"], parts["target"], parts["body"]
    assert isinstance(method, str)
    assert isinstance(target, str)
    assert isinstance(body, bytes)
    headers, token = parts.get("headers"), parts.get("token", TOKEN)
    assert headers is None or isinstance(headers, dict)
    assert isinstance(token, str)
    return request_bytes(method, target, body, token=token, headers=headers)


class TestPartialRequests:
    def test_leave_a_row_that_says_so(self, simulator: Simulated) -> None:
        """A request whose client dies in the middle was read in part and changed nothing."""
        contact = simulator.contact()

        with socket.create_connection(("127.0.0.1", simulator.port), timeout=10) as client:
            client.sendall(patch_bytes(contact, command="half")[:-5])

        until(lambda: simulator.rows(contact, Kind.CLOSED))
        [read] = simulator.rows(contact, Kind.READ)
        assert read.complete is False
        assert read.command == "half"
        assert simulator.title(contact) == "before"

    def test_in_slow_pieces_are_one_request(self, simulator: Simulated) -> None:
        """A head that comes in two pieces is served like any other."""
        contact = simulator.contact()
        request = patch_bytes(contact)

        with socket.create_connection(("127.0.0.1", simulator.port), timeout=10) as client:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for start in range(0, len(request), 40):
                client.sendall(request[start : start + 40])
            assert client.recv(65_536).startswith(b"HTTP/1.1 200 ")


class TestAdmin:
    def test_plays_the_person_who_edits(self, simulator: Simulated) -> None:
        """A person's edit moves value and change time and is no change of ours."""
        contact = simulator.contact()
        before = simulator.get(contact).json["updatedAt"]

        simulator.admin("/human-edit", {"id": contact, "properties": {"jobtitle": "by hand"}})

        assert simulator.title(contact) == "by hand"
        assert simulator.get(contact).json["updatedAt"] > before
        assert simulator.kinds(contact) == ["human"]
        edits = [edit for edit in simulator.ledger.human_edits() if edit.contact == contact]
        assert [edit.properties for edit in edits] == [{"jobtitle": "by hand"}]

    def test_makes_contacts_with_the_times_it_is_given(self, simulator: Simulated) -> None:
        """A record can be older or newer than the run."""
        made = {"id": "timed", "createdAt": "2026-01-01T00:00:00Z"}
        simulator.admin("/contacts", made | {"updatedAt": "2026-02-01T01:00:00+01:00"})

        shown = simulator.get("timed").json
        assert shown["createdAt"] == "2026-01-01T00:00:00.000Z"
        assert shown["updatedAt"] == "2026-02-01T00:00:00.000Z"

    def test_moves_the_clock_of_the_provider(self, tmp_path: Path) -> None:
        """Records and dates are of the moved clock, also after a restart; the ledger is not."""
        path = tmp_path / "ledger"
        with simulator_at(path) as simulator:
            simulator.admin("/clock", {"advance_s": 86_400})
            simulator.kill()
        with simulator_at(path) as simulator:
            contact = simulator.contact()
            heard = simulator.patch(contact)
            [change] = simulator.rows(contact, Kind.CHANGE)

        at = datetime.fromisoformat(change.at)
        ahead = datetime.fromisoformat(heard.json["updatedAt"]) - at
        date = parsedate_to_datetime(heard.headers["date"]) - at
        for difference in (ahead, date):
            assert timedelta(hours=23, minutes=59) < difference < timedelta(hours=24, minutes=1)

    def test_introduces_a_property(self, simulator: Simulated) -> None:
        """A property of a tenant's own is known once a record was made with it."""
        contact = simulator.contact(score_of_ours="1")
        body = _body({"score_of_ours": "2"})

        heard = simulator.talk(request_bytes("PATCH", contact_path(contact), body))

        assert heard.json["properties"]["score_of_ours"] == "2"

    @pytest.mark.parametrize(
        ("path", "body", "status", "message"),
        [
            ("/contacts", {"id": "a/b"}, 400, "id: "),
            ("/contacts", {"id": "n", "properties": {"jobtitle": 1}}, 400, "properties.jobtitle: "),
            ("/contacts", {"id": "n", "updatedAt": "2026-01-01T00:00:00"}, 400, "updatedAt: "),
            ("/human-edit", {"id": "nobody", "properties": {"a": "b"}}, 404, "no contact nobody"),
            ("/human-edit", {"id": "nobody", "properties": {}}, 400, "properties: "),
            ("/release", {"hold": "nobody"}, 404, "no rule holds under the name nobody"),
            ("/hold", {"fault": "lost_answer"}, 400, "without fault"),
            ("/script", [{"fault": "nope"}], 400, "rule 1: fault: "),
            ("/close-listener", {"for_s": -1}, 400, "for_s: "),
            ("/clock", {"advance_s": -1}, 400, "advance_s: "),
            ("/contacts", {"id": "n", "object": "deal"}, 400, "object: leave it out"),
            ("/script", [{"fault": "key_expiry"}], 400, "HubSpot has nothing for it"),
            ("/nowhere", {}, 404, "there is POST /contacts"),
        ],
    )
    def test_says_what_is_wrong(
        self, simulator: Simulated, path: str, body: object, status: int, message: str
    ) -> None:
        """Bad input to the admin surface gets one message that names the place."""
        assert message in simulator.admin(path, body, expect=status)["error"]

    def test_refuses_an_id_that_is_taken(self, simulator: Simulated) -> None:
        """Making a contact again would wipe what the run did to it."""
        contact = simulator.contact()

        assert "exists" in simulator.admin("/contacts", {"id": contact}, expect=409)["error"]

    def test_shows_the_ledger_as_it_is_in_the_file(self, simulator: Simulated) -> None:
        """The ledger over HTTP is the file and no memory of it."""
        simulator.patch(simulator.contact())

        lines = simulator.ledger_path.read_text().splitlines()
        assert simulator.admin("/ledger") == [json.loads(line) for line in lines]
