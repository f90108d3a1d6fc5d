"""Every fault in every dialect: the wire, the record and the ledger say the same of each."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from datetime import timedelta
from email.utils import parsedate_to_datetime

import pytest

from oncefence.simulator.fault_texts import FAULT_TEXTS
from oncefence.simulator.faults import (
    FAULTS,
    REDIRECTS,
    SEARCH_FAULTS,
    Fault,
    ScriptedFault,
    ScriptError,
)
from oncefence.simulator.in_process import SimulatorHere, simulating
from oncefence.simulator.journal import utc_now
from oncefence.simulator.ledger import Kind
from tests.providers.simulated import Heard
from tests.providers.speaking import HUBSPOT, OUTREACH, SPEECHES, Speech, Wish

_SILENT = 0.25
_EDITED = "after (edited)"

# fault: further keys, how the client is left, its status (0: that of a success), how often the
# change is applied, the value afterwards
_TABLE: dict[Fault | ScriptedFault, tuple[dict[str, object], str, int | None, int, str]] = {
    Fault.RESET_BEFORE_READ: ({}, "reset", None, 0, "before"),
    Fault.RESET_MID_READ: ({}, "reset", None, 0, "before"),
    Fault.RESET_BEFORE_ANSWER: ({}, "reset", None, 0, "before"),
    Fault.RESET_AFTER_COMMIT: ({}, "reset", None, 1, "after"),
    Fault.LOST_ANSWER: ({}, "silence", None, 1, "after"),
    Fault.LATE_ANSWER: ({"delay_s": 0.05}, "closed", 0, 1, "after"),
    Fault.NO_EFFECT_HANG: ({}, "silence", None, 0, "before"),
    Fault.RATE_LIMIT_429: ({}, "closed", 429, 0, "before"),
    Fault.SERVER_ERROR_BEFORE_COMMIT: ({"status": 502}, "closed", 502, 0, "before"),
    Fault.SERVER_ERROR_AFTER_COMMIT: ({}, "closed", 500, 1, "after"),
    Fault.CUT_BODY: ({}, "closed", 0, 1, "after"),
    Fault.WRONG_ID: ({}, "closed", 0, 1, "after"),
    Fault.DRIP: ({"delay_s": 0.0}, "closed", 0, 1, "after"),
    Fault.GARBLED: ({}, "closed", 0, 1, "after"),
    Fault.REJECT_400: ({"status": 422}, "closed", 422, 0, "before"),
    Fault.UNAUTHORIZED_401: ({}, "closed", 401, 0, "before"),
    Fault.OVERWRITTEN: ({}, "silence", None, 1, _EDITED),
    ScriptedFault.ERROR_INSIDE_200: ({}, "closed", 0, 0, "before"),
    ScriptedFault.SECONDLY_LIMIT_429: ({}, "closed", 429, 0, "before"),
    ScriptedFault.DAILY_LIMIT_429: ({}, "closed", 429, 0, "before"),
    ScriptedFault.QUOTA_SPENT: ({}, "closed", 0, 1, "after"),
    ScriptedFault.MAINTENANCE_503: ({}, "closed", 503, 0, "before"),
    ScriptedFault.REDIRECT_301: ({}, "closed", 301, 0, "before"),
    ScriptedFault.REDIRECT_302: ({}, "closed", 302, 0, "before"),
    ScriptedFault.REDIRECT_303: ({}, "closed", 303, 0, "before"),
    ScriptedFault.REDIRECT_307: ({}, "closed", 307, 0, "before"),
    ScriptedFault.REDIRECT_308: ({}, "closed", 308, 0, "before"),
    ScriptedFault.DUPLICATE_APPLY: ({}, "closed", 0, 2, "after"),
    ScriptedFault.ACCOUNT_SWITCH: ({}, "closed", 404, 0, "before"),
    ScriptedFault.CLOCK_SKEW: ({}, "closed", 0, 1, "after"),
    ScriptedFault.HUGE_BODY: ({"size_mib": 1}, "closed", 0, 1, "after"),
    ScriptedFault.CUT_GZIP: ({}, "closed", 0, 1, "after"),
    ScriptedFault.CUT_CHUNKED: ({}, "closed", 0, 1, "after"),
    ScriptedFault.EMPTY_204: ({}, "closed", 204, 1, "after"),
}
_OTHERWISE = {Fault.REFUSE, ScriptedFault.KEY_EXPIRY, *SEARCH_FAULTS}


@pytest.fixture(params=SPEECHES)
def speech(request: pytest.FixtureRequest) -> Speech:
    name: str = request.param
    return SPEECHES[name]


@pytest.fixture
async def here(speech: Speech) -> AsyncIterator[SimulatorHere]:
    async with simulating(speech.pack, index_lag=timedelta()) as running:
        yield running


class Client:
    """Says one wish after another, without holding up the simulator that runs beside it."""

    def __init__(self, speech: Speech, here: SimulatorHere) -> None:
        self.speech = speech
        self.here = here

    async def say(
        self,
        wish: Wish,
        *,
        key: str | None = None,
        command: str | None = None,
        patience_s: float = 10.0,
    ) -> Heard:
        return await asyncio.to_thread(
            self.speech.say, self.here, wish, key=key, command=command, patience_s=patience_s
        )

    def record(self) -> str:
        return self.here.add_record(properties={self.speech.field: "before"}).id

    def kept(self, record: str) -> object:
        found = self.here.record(record)
        assert found is not None
        return found.properties[self.speech.field]

    async def found(self, value: str) -> list[str]:
        return self.speech.found((await self.say(self.speech.search(value))).json)


@pytest.fixture
def client(speech: Speech, here: SimulatorHere) -> Client:
    return Client(speech, here)


def test_every_fault_is_crossed_and_told() -> None:
    """A fault that is added must say here what it does, and in the list what it is."""
    assert set(_TABLE) | _OTHERWISE == set(FAULTS.values()) == set(FAULT_TEXTS)


@pytest.mark.parametrize("fault", _TABLE)
async def test_fault_means_the_same_in_every_dialect(client: Client, fault: Fault) -> None:
    """Whatever the provider's words, what happens is what the fault's name says (C32)."""
    extra, end, status, applied, value = _TABLE[fault]
    here, speech, record = client.here, client.speech, client.record()
    if not here.can_show(fault):
        with pytest.raises(ScriptError, match="cannot strike here"):
            here.strike(fault, record)
        return
    here.strike(fault, record, **extra)
    expected = 200 if status == 0 else status

    heard = await client.say(
        speech.update(record, "after"),
        command="c-1",
        patience_s=_SILENT if end == "silence" else 10.0,
    )

    assert (heard.end, heard.status) == (end, expected)
    assert client.kept(record) == value
    assert [change.command for change in here.changes(record)] == ["c-1"] * applied
    assert here.ledger.faults_fired() == {fault.value: 1}
    assert (await client.say(speech.update(record, "next"))).status == 200
    assert client.kept(record) == "next"


class TestAnswers:
    async def struck(self, client: Client, fault: ScriptedFault, **keys: object) -> Heard:
        record = client.record()
        client.here.strike(fault, record, **keys)
        return await client.say(client.speech.update(record, "after"))

    async def test_error_inside_a_success_has_no_evidence_of_one(self, client: Client) -> None:
        """The status alone would say that it was done."""
        heard = await self.struck(client, ScriptedFault.ERROR_INSIDE_200)

        assert isinstance(heard.json, dict)
        assert {"error", "errors", "status"} & heard.json.keys()
        with pytest.raises((KeyError, TypeError)):
            client.speech.value(heard.json)

    async def test_error_inside_a_success_can_follow_a_change(self, client: Client) -> None:
        """Some providers do it all and complain nevertheless."""
        await self.struck(client, ScriptedFault.ERROR_INSIDE_200, apply=True)

        assert len(client.here.changes()) == 1

    @pytest.mark.parametrize("fault", REDIRECTS)
    async def test_redirects_lead_back_where_the_ledger_sees_who_follows(
        self, client: Client, fault: ScriptedFault
    ) -> None:
        """A client that follows shows as a second request."""
        heard = await self.struck(client, fault)

        [struck] = client.here.requests()
        assert heard.headers["location"] == f"http://provider{struck.path}"

    async def test_redirects_lead_wherever_the_rule_says(self, client: Client) -> None:
        """To another host, say, that must never see the token."""
        heard = await self.struck(
            client, ScriptedFault.REDIRECT_307, location="https://elsewhere.example/x"
        )

        assert heard.headers["location"] == "https://elsewhere.example/x"

    async def test_clock_skew_moves_date_and_change_time_together(self, client: Client) -> None:
        """A clock that is off by an hour dates everything so."""
        heard = await self.struck(client, ScriptedFault.CLOCK_SKEW, skew_s=-3600)

        date = parsedate_to_datetime(heard.headers["date"])
        [contact] = client.here.simulator.stores.contacts.all()
        for moment in (date, contact.updated_at):
            assert timedelta(minutes=59) < utc_now() - moment < timedelta(minutes=61)

    async def test_huge_body_is_a_good_answer_and_blanks(self, client: Client) -> None:
        """The document is whole and true, so only a cap on its size can end it."""
        heard = await self.struck(client, ScriptedFault.HUGE_BODY, size_mib=1, framing="length")

        assert len(heard.body) == int(heard.headers["content-length"]) > 1_048_576
        assert client.speech.value(heard.json) == "after"

    async def test_cut_gzip_is_whole_on_the_wire(self, client: Client) -> None:
        """Only who unpacks it can tell that something is missing."""
        heard = await self.struck(client, ScriptedFault.CUT_GZIP)

        assert heard.headers["content-encoding"] == "gzip"
        assert len(heard.body) == int(heard.headers["content-length"])
        with pytest.raises(EOFError):
            gzip.decompress(heard.body)

    async def test_cut_chunked_ends_after_a_whole_document(self, client: Client) -> None:
        """What came is sound JSON; the chunk that says so never does."""
        heard = await self.struck(client, ScriptedFault.CUT_CHUNKED)

        length, _, rest = heard.body.partition(b"\r\n")
        assert client.speech.value(json.loads(rest[: int(length, 16)])) == "after"
        assert not heard.body.endswith(b"0\r\n\r\n")

    async def test_empty_204_has_neither_body_nor_length(self, client: Client) -> None:
        """A 204 with a length would be another fault."""
        heard = await self.struck(client, ScriptedFault.EMPTY_204)

        assert heard.body == b""
        assert "content-length" not in heard.headers

    async def test_a_limit_of_the_day_is_told_from_one_of_the_second(self, client: Client) -> None:
        """Where a provider names its limits at all, the two answers differ."""
        secondly = await self.struck(client, ScriptedFault.SECONDLY_LIMIT_429)
        daily = await self.struck(client, ScriptedFault.DAILY_LIMIT_429)

        def told(heard: Heard) -> object:
            reason = heard.headers.get("stripe-rate-limited-reason")
            return reason, heard.json.get("policyName"), heard.headers.get("x-ratelimit-reset")

        names_them = client.speech.pack in ("hubspot", "outreach", "stripe")
        assert (told(secondly) != told(daily)) is names_them

    @pytest.mark.parametrize("speech", [HUBSPOT, OUTREACH])
    async def test_quota_that_is_spent_stands_in_a_whole_success(self, client: Client) -> None:
        """It is a success like any other, and the last one for now."""
        heard = await self.struck(client, ScriptedFault.QUOTA_SPENT)

        left = [value for name, value in heard.headers.items() if name.endswith("-remaining")]
        assert left == ["0"]
        assert client.speech.value(heard.json) == "after"


class TestCreates:
    async def test_show_the_new_record(self, client: Client) -> None:
        """Its id is one that nobody had, and a read finds it."""
        heard = await client.say(client.speech.create("made"), command="c-1")

        made = client.speech.identity(heard.json)
        assert heard.status == client.speech.made
        assert client.kept(made) == "made"
        [change] = client.here.changes()
        assert (change.contact, change.command, change.is_creation) == (made, "c-1", True)
        assert (await client.say(client.speech.read(made))).status == 200

    async def test_that_are_applied_twice_make_two_records(self, client: Client) -> None:
        """The answer names one of them, and nobody hears of the other."""
        client.here.strike("duplicate_apply")

        heard = await client.say(client.speech.create("made"))

        made = [change.contact for change in client.here.changes()]
        assert len(set(made)) == 2
        assert client.speech.identity(heard.json) == made[0]

    async def test_whose_answer_is_lost_are_found_by_a_search(self, client: Client) -> None:
        """That is the only way to learn of them."""
        client.here.strike("reset_after_commit")

        await client.say(client.speech.create("made"))

        [change] = client.here.changes()
        assert await client.found("made") == [change.contact]

    async def test_in_another_account_are_not_in_this_one(self, client: Client) -> None:
        """The answer is a success, and the record is where nobody looks for it."""
        client.here.strike("account_switch")

        heard = await client.say(client.speech.create("made"))

        assert heard.status == client.speech.made
        assert [change.account for change in client.here.changes()] == ["other"]
        assert await client.found("made") == []


class TestAccounts:
    async def test_that_are_switched_change_the_record_of_the_same_id(self, client: Client) -> None:
        """With `apply` the other account has that id too: a success that changed another's."""
        record = client.record()
        client.here.strike("account_switch", record, apply=True)

        heard = await client.say(client.speech.update(record, "after"))

        assert heard.status == 200
        assert client.speech.value(heard.json) == "after"
        assert client.kept(record) == "before"
        assert [change.account for change in client.here.changes(record)] == ["other"]


class TestSearches:
    async def test_find_by_the_filter(self, client: Client) -> None:
        """Without a fault they show all that match and nothing else."""
        for value in ("one", "two"):
            await client.say(client.speech.create(value))

        [change] = [each for each in client.here.changes() if "one" in str(each.properties)]
        assert await client.found("one") == [change.contact]
        assert await client.found("nobody") == []

    async def test_behind_their_index_miss_what_is_new(self, client: Client) -> None:
        """The record is there by its id, and the search does not know it yet."""
        made = client.speech.identity((await client.say(client.speech.create("new"))).json)
        client.here.strike("index_lag", lag_s=3600)

        assert await client.found("new") == []
        assert await client.found("new") == [made]
        assert (await client.say(client.speech.read(made))).status == 200

    async def test_behind_their_index_show_what_was(self, client: Client) -> None:
        """A record that is older than the index is shown as it stood then."""
        field = client.speech.field
        old = {"plan": "old", "email": "old@a.b"} if field == "plan" else {field: "old"}
        record = client.here.add_record(properties=old).id
        client.here.edit(record, {name: value.replace("old", "new") for name, value in old.items()})
        client.here.strike("index_lag", lag_s=3600)

        assert await client.found("old") == [record]
        assert await client.found("old") == []

    async def test_that_are_capped_say_that_this_is_all(self, client: Client) -> None:
        """Nothing in the answer tells that there is more."""
        for _ in range(3):
            client.here.add_record()
        client.here.strike("ignored_filter")
        everything = (await client.say(client.speech.search("x"))).json
        client.here.strike("capped_search", cap=0)

        heard = await client.say(client.speech.search("x"))

        assert len(client.speech.found(everything)) == 3
        assert client.speech.found(heard.json) == []
        assert not heard.json.get("has_more")
        assert not heard.json.get("paging")
        assert not (heard.json.get("links") or {}).get("next")

    async def test_that_ignore_their_filter_show_strangers(self, client: Client) -> None:
        """Who takes the first hit for the one that was asked for takes a stranger's."""
        record = client.record()
        client.here.strike("ignored_filter")

        assert await client.found("nobody") == [record]

    async def test_are_struck_by_their_own_faults_alone(self, client: Client) -> None:
        """A rule of writes passes them by, and theirs passes writes by."""
        record = client.record()
        client.here.strike("garbled", record)
        client.here.strike("index_lag")

        searched = await client.say(client.speech.search("x"))
        written = await client.say(client.speech.update(record, "after"))

        assert (searched.status, written.status) == (200, 200)
        assert written.body.startswith(b'{"id": <')
        kinds = [row.fault for row in client.here.ledger.of(Kind.FAULT)]
        assert kinds == ["index_lag", "garbled"]


class TestKeys:
    async def test_that_are_forgotten_let_a_repeat_through(self, client: Client) -> None:
        """The provider promised a day, and kept it for a moment."""
        record = client.record()
        wish = client.speech.update(record, "after")
        if not client.speech.keyed:
            with pytest.raises(ScriptError, match="cannot strike here"):
                client.here.strike("key_expiry", record)
            return
        client.here.strike("key_expiry", record)

        statuses = [(await client.say(wish, key="k")).status for _ in range(3)]

        assert statuses == [200, 200, 200]
        assert len(client.here.changes(record)) == 2
        assert client.here.ledger.faults_fired() == {"key_expiry": 1}
