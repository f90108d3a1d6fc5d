"""Each fault does on the wire and to the record exactly what its name says."""

import json
import socket
import time
from email.utils import parsedate_to_datetime
from typing import Any

import pytest

from oncefence.simulator.faults import Fault
from oncefence.simulator.ledger import Kind
from tests.providers.simulated import Simulated, patch_bytes, until

_SILENT = 0.25

# fault: further keys, how the client is left, its status, the title afterwards
_TABLE: dict[Fault, tuple[dict[str, object], str, int | None, str]] = {
    Fault.RESET_BEFORE_READ: ({}, "reset", None, "before"),
    Fault.RESET_MID_READ: ({}, "reset", None, "before"),
    Fault.RESET_BEFORE_ANSWER: ({}, "reset", None, "before"),
    Fault.RESET_AFTER_COMMIT: ({}, "reset", None, "after"),
    Fault.LOST_ANSWER: ({}, "silence", None, "after"),
    Fault.LATE_ANSWER: ({}, "silence", None, "after"),
    Fault.NO_EFFECT_HANG: ({}, "silence", None, "before"),
    Fault.RATE_LIMIT_429: ({}, "closed", 429, "before"),
    Fault.SERVER_ERROR_BEFORE_COMMIT: ({"status": 503}, "closed", 503, "before"),
    Fault.SERVER_ERROR_AFTER_COMMIT: ({}, "closed", 500, "after"),
    Fault.CUT_BODY: ({}, "closed", 200, "after"),
    Fault.WRONG_ID: ({}, "closed", 200, "after"),
    Fault.DRIP: ({"delay_s": 0.001}, "closed", 200, "after"),
    Fault.GARBLED: ({}, "closed", 200, "after"),
    Fault.REJECT_400: ({"status": 422}, "closed", 422, "before"),
    Fault.UNAUTHORIZED_401: ({}, "closed", 401, "before"),
    Fault.OVERWRITTEN: ({}, "silence", None, "after (edited)"),
}


def test_the_table_has_every_fault_of_a_request() -> None:
    """A fault that is added must say here what it does; refuse strikes the port."""
    assert set(Fault) - {Fault.REFUSE} == set(_TABLE)


@pytest.mark.parametrize("fault", _TABLE)
def test_fault_shows_once_and_then_is_over(simulator: Simulated, fault: Fault) -> None:
    """Wire, record and ledger agree on each fault, and the next request is served plainly."""
    extra, end, status, title = _TABLE[fault]
    contact = simulator.contact()
    command = f"{fault}-{contact}"
    simulator.script(fault=fault.value, contact=contact, **extra)
    fired_before = simulator.ledger.faults_fired().get(fault, 0)

    heard = simulator.patch(
        contact, command=command, patience_s=_SILENT if end == "silence" else 10.0
    )

    assert (heard.end, heard.status) == (end, status)
    if fault is not Fault.RESET_BEFORE_READ:
        until(lambda: simulator.rows(contact, Kind.ANSWERED, Kind.CLOSED))
    assert simulator.title(contact) == title
    assert simulator.ledger.faults_fired()[fault] == fired_before + 1
    changes = simulator.ledger.changes_by_command().get(command, [])
    assert len(changes) == (1 if title != "before" else 0)
    assert simulator.patch(contact, "next").status == 200
    assert simulator.title(contact) == "next"


@pytest.mark.parametrize(
    ("fault", "kinds"),
    [
        (Fault.RESET_BEFORE_READ, ["fault"]),
        (Fault.RESET_MID_READ, ["read", "fault", "closed"]),
        (Fault.RESET_BEFORE_ANSWER, ["read", "fault", "closed"]),
        (Fault.RESET_AFTER_COMMIT, ["read", "fault", "change", "closed"]),
        (Fault.LOST_ANSWER, ["read", "fault", "change", "closed"]),
        (Fault.NO_EFFECT_HANG, ["read", "fault", "closed"]),
        (Fault.RATE_LIMIT_429, ["read", "fault", "refused", "answered"]),
        (Fault.SERVER_ERROR_AFTER_COMMIT, ["read", "fault", "change", "answered"]),
        (Fault.CUT_BODY, ["read", "fault", "change", "closed"]),
        (Fault.OVERWRITTEN, ["read", "fault", "change", "human", "closed"]),
    ],
)
def test_fault_leaves_its_rows_in_order(
    simulator: Simulated, fault: Fault, kinds: list[str]
) -> None:
    """The ledger tells the story in the order in which it happened."""
    contact = simulator.contact()
    simulator.script(fault=fault.value, contact=contact)

    simulator.patch(contact, patience_s=_SILENT)

    until(lambda: len(simulator.kinds(contact)) >= len(kinds))
    assert simulator.kinds(contact) == kinds
    assert {row.fault for row in simulator.rows(contact, Kind.FAULT)} == {fault.value}


class TestResets:
    def test_before_read_takes_no_byte(self, simulator: Simulated) -> None:
        """The request is matched by looking at it, and left in the socket unread."""
        contact = simulator.contact()
        simulator.script(fault="reset_before_read", contact=contact)

        simulator.patch(contact, command="unread")

        assert not simulator.rows(contact, Kind.READ)
        [fault] = simulator.rows(contact, Kind.FAULT)
        assert fault.command == "unread"

    def test_mid_read_says_that_it_was_not_whole(self, simulator: Simulated) -> None:
        """A part was read, so the ledger has the request and says that it is a part."""
        contact = simulator.contact()
        simulator.script(fault="reset_mid_read", contact=contact)

        simulator.patch(contact)

        until(lambda: simulator.rows(contact, Kind.CLOSED))
        assert [row.complete for row in simulator.rows(contact, Kind.READ)] == [False]


class TestLateAnswer:
    def test_applies_when_the_client_has_given_up(self, simulator: Simulated) -> None:
        """Nothing is applied while the client waits; its leaving is what lets it happen."""
        contact = simulator.contact()
        simulator.script(fault="late_answer", contact=contact)

        with socket.create_connection(("127.0.0.1", simulator.port), timeout=10) as client:
            client.sendall(patch_bytes(contact))
            until(lambda: simulator.rows(contact, Kind.FAULT))
            while_waiting = simulator.title(contact)
        until(lambda: simulator.rows(contact, Kind.CHANGE))

        assert while_waiting == "before"
        assert simulator.title(contact) == "after"

    def test_with_a_delay_answers_a_client_who_is_still_there(self, simulator: Simulated) -> None:
        """With `delay_s` it is only slow, and applied no sooner."""
        contact = simulator.contact()
        simulator.script(fault="late_answer", contact=contact, delay_s=0.2)
        began = time.monotonic()

        heard = simulator.patch(contact)

        assert heard.status == 200
        assert time.monotonic() - began >= 0.2


class TestAnswers:
    def heard(self, simulator: Simulated, **rule: object) -> tuple[str, Any]:
        contact = simulator.contact()
        simulator.script(contact=contact, **rule)
        return contact, simulator.patch(contact)

    def test_rate_limit_has_the_providers_body(self, simulator: Simulated) -> None:
        """Without `retry_after` there is no such header, as the provider often has it."""
        _, heard = self.heard(simulator, fault="rate_limit_429")

        assert heard.json.keys() == {
            *("status", "message", "errorType", "correlationId", "policyName", "category")
        }
        assert heard.json["errorType"] == "RATE_LIMIT"
        assert heard.json["policyName"] == "TEN_SECONDLY_ROLLING"
        assert heard.json["category"] == "RATE_LIMITS"
        assert "retry-after" not in heard.headers

    def test_retry_after_in_seconds(self, simulator: Simulated) -> None:
        """A number goes out as it stands."""
        _, heard = self.heard(simulator, fault="rate_limit_429", retry_after=7)

        assert heard.headers["retry-after"] == "7"

    def test_retry_after_as_a_date(self, simulator: Simulated) -> None:
        """A date is made when it is sent, so that a script need not know the time."""
        _, heard = self.heard(simulator, fault="rate_limit_429", retry_after="date:60")

        wait_s = parsedate_to_datetime(heard.headers["retry-after"]).timestamp() - time.time()
        assert 50 < wait_s <= 60

    def test_retry_after_in_the_iso_form(self, simulator: Simulated) -> None:
        """Some send ISO 8601 on a 503."""
        rule = {"fault": "server_error_before_commit", "status": 503, "retry_after": "iso:60"}
        _, heard = self.heard(simulator, **rule)

        assert heard.headers["retry-after"].endswith("Z")

    def test_retry_after_that_is_nonsense(self, simulator: Simulated) -> None:
        """What a client must survive can be sent too."""
        _, heard = self.heard(simulator, fault="rate_limit_429", retry_after="soon")

        assert heard.headers["retry-after"] == "soon"

    def test_cut_body_ends_before_its_length(self, simulator: Simulated) -> None:
        """The stream ends in order, only too early."""
        _, heard = self.heard(simulator, fault="cut_body")

        assert 0 < len(heard.body) < int(heard.headers["content-length"])

    def test_wrong_id_changes_the_right_contact(self, simulator: Simulated) -> None:
        """The record is the one that was meant; only the answer names another."""
        contact, heard = self.heard(simulator, fault="wrong_id")

        assert heard.json["id"] == heard.json["properties"]["hs_object_id"] != contact
        assert simulator.title(contact) == "after"

    def test_garbled_is_whole_and_not_json(self, simulator: Simulated) -> None:
        """The length is right, so nothing but the body's text gives it away."""
        _, heard = self.heard(simulator, fault="garbled")

        assert len(heard.body) == int(heard.headers["content-length"])
        with pytest.raises(json.JSONDecodeError):
            json.loads(heard.body)

    def test_drip_comes_in_single_bytes(self, simulator: Simulated) -> None:
        """A byte at a time never trips a limit on one read, only one on the whole."""
        contact = simulator.contact()
        simulator.script(fault="drip", contact=contact, delay_s=0.1)

        heard = simulator.patch(contact, patience_s=0.45)

        assert heard.end == "silence"
        assert 1 < len(heard.received) <= 5
        until(lambda: simulator.rows(contact, Kind.CLOSED))
        assert simulator.title(contact) == "after"


class TestLookupShapes:
    """The three things that a later read by id can find."""

    def test_equal_after_a_lost_answer(self, simulator: Simulated) -> None:
        """The value is there."""
        contact = simulator.contact()
        simulator.script(fault="lost_answer", contact=contact)

        simulator.patch(contact, "wanted", patience_s=_SILENT)

        assert simulator.title(contact) == "wanted"

    def test_different_and_unchanged_after_a_hang(self, simulator: Simulated) -> None:
        """The value is another and the change time older than the send."""
        contact = simulator.contact()
        unchanged_since = simulator.get(contact).json["updatedAt"]
        simulator.script(fault="no_effect_hang", contact=contact)

        simulator.patch(contact, "wanted", patience_s=_SILENT)

        found = simulator.get(contact).json
        assert found["properties"]["jobtitle"] != "wanted"
        assert found["updatedAt"] == unchanged_since
        assert found["updatedAt"] < simulator.rows(contact, Kind.READ)[0].at

    @pytest.mark.parametrize("apply", [True, False])
    def test_different_and_changed_since_after_an_overwrite(
        self, simulator: Simulated, apply: bool
    ) -> None:
        """Value and time are the same whether the change happened or not: no read can tell."""
        contact = simulator.contact()
        simulator.script(fault="overwritten", contact=contact, apply=apply)

        simulator.patch(contact, "wanted", patience_s=_SILENT)

        found = simulator.get(contact).json
        assert found["properties"]["jobtitle"] == "wanted (edited)"
        assert found["updatedAt"] >= simulator.rows(contact, Kind.READ)[0].at
        assert len(simulator.rows(contact, Kind.CHANGE)) == (1 if apply else 0)


class TestLookupsCanBreakToo:
    def test_a_get_is_struck_only_by_a_rule_that_says_get(self, simulator: Simulated) -> None:
        """Rules mean PATCH unless they say otherwise, or lookups would break by accident."""
        contact = simulator.contact()
        simulator.script(fault="server_error_before_commit", contact=contact)
        simulator.script(fault="garbled", contact=contact, method="GET")

        first, second = simulator.get(contact), simulator.get(contact)

        assert first.body.startswith(b'{"id": <')
        assert second.json["id"] == contact
        assert simulator.patch(contact).status == 500

    def test_a_refused_request_leaves_the_rule_for_the_next(self, simulator: Simulated) -> None:
        """There is no change to break around, so nothing fires and nothing is spent."""
        contact = simulator.contact()
        simulator.script(fault="reset_after_commit", contact=contact)
        wrong = patch_bytes(contact).replace(b"jobtitle", b"joktitle")

        assert simulator.talk(wrong).status == 400
        assert not simulator.rows(contact, Kind.FAULT)
        assert simulator.patch(contact).end == "reset"
