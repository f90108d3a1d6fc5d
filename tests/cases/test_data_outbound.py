"""
Symptoms of data on its way out that people met in the field, each as a test under its id.

What cannot be sent exactly is refused at the door and becomes no command: there is no row of it,
and so nothing that could be claimed, counted against a limit, or sent.
"""

import json
from collections.abc import AsyncIterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import count
from math import isfinite
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import pytest_asyncio
from hypothesis import given
from hypothesis import strategies as st

from oncefence.app.handoff_file import RefusedLine, read_handoff_line
from oncefence.catalog.errors import PayloadRefused
from oncefence.catalog.lookup import LookupReading
from oncefence.catalog.payload import DEPTH_MAX, parse_payload
from oncefence.catalog.strict_json import INTEGER_MAX
from tests.cases.outbound import (
    DATA,
    OPERATION,
    ZONES,
    Outbound,
    cases,
    outbound,
    says,
    shipped,
    standing_in,
    view_of,
)
from tests.support.doors import handoff, put, refusal
from tests.support.servers import Database

pytestmark = pytest.mark.asyncio(loop_scope="module")

HERE = Path(__file__).read_text(encoding="utf-8")
CASES = cases("data_outbound")
COMMAND = UUID("00000000-0000-4000-8000-000000000001")
CONTACT = view_of("contact", "hubspot").operation(OPERATION)
PROSPECT = view_of("prospect", "outreach").operation(OPERATION)
FIGURES = view_of("figures", DATA / "figures.toml").operation(OPERATION)

WRITABLE = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=40)
# Odd numbers, which a double cannot hold.
BEYOND_DOUBLES = count(INTEGER_MAX + 1, 2)

MORE_CONTACT = """
[objects.contact.fields]
score = { type = "integer", clear = "empty_string", as_text = true }
optin = { type = "boolean", clear = "empty_string", as_text = true }

"""
MORE_PROSPECT = """
score = { type = "integer", clear = "null" }
optin = { type = "boolean", clear = "null" }
"""
MORE_BOUND = """
score = { remote = "score", type = "integer", direction = "outbound" }
optin = { remote = "optin", type = "boolean", direction = "outbound" }
"""


def asked(case: str) -> Any:  # a case's own form
    return CASES[case]["input"]


def expected(case: str) -> Any:  # as above
    return CASES[case]["expected"]


def paired(case: str, given_by: str, wanted_by: str) -> list[tuple[Any, Any]]:
    return list(zip(asked(case)[given_by], expected(case)[wanted_by], strict=True))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def contacts(
    store: Database, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Outbound]:
    """The way to contacts, by the shipped pack with a number and a yes or no beside its texts."""
    folder = tmp_path_factory.mktemp("contacts")
    text = shipped("hubspot")
    pack = folder / "hubspot.toml"
    pack.write_text(
        with_more(
            with_more(text, '[operations."contact.update"]\n', MORE_CONTACT, is_before=True),
            '[operations."contact.update".lookup.compare]\n',
            'score = "properties.score"\noptin = "properties.optin"\n',
        ),
        encoding="utf-8",
    )
    async with outbound(store, folder, view_of("contact", pack, MORE_BOUND)) as way:
        yield way


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def prospects(
    store: Database, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Outbound]:
    """The way to prospects, likewise."""
    folder = tmp_path_factory.mktemp("prospects")
    pack = folder / "outreach.toml"
    pack.write_text(
        with_more(
            with_more(shipped("outreach"), "[objects.prospect.fields]\n", MORE_PROSPECT),
            '[operations."prospect.update".lookup.compare]\n',
            'score = "data.attributes.score"\noptin = "data.attributes.optin"\n',
        ),
        encoding="utf-8",
    )
    async with outbound(store, folder, view_of("prospect", pack, MORE_BOUND)) as way:
        yield way


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def figures(
    store: Database, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Outbound]:
    """The way to a provider that takes every type as JSON has it."""
    view = view_of("figures", DATA / "figures.toml")
    async with outbound(store, tmp_path_factory.mktemp("figures"), view) as way:
        yield way


def with_more(text: str, place: str, more: str, *, is_before: bool = False) -> str:
    assert text.count(place) == 1
    return text.replace(place, more + place if is_before else place + more)


def line_of(payload: bytes) -> bytes:
    """A line of a file of handoffs with exactly this payload."""
    return (
        b'{"outbox_id":"1","operation":"lead.push","subject":"lead-1","payload":' + payload + b"}"
    )


async def is_refused_everywhere(way: Outbound, payload: bytes) -> str:
    """Why; by the door that takes bytes and by the file of handoffs, and with no value of it."""
    line = read_handoff_line(1, line_of(payload))
    assert isinstance(line, RefusedLine)
    return await way.refuse(payload)


async def test_every_case_has_its_test() -> None:
    """A case without a test is a symptom that may come back."""
    missing = [case for case in CASES if f"test_{case.lower().replace('-', '_')}_" not in HERE]

    assert missing == []
    assert len(CASES) == 8


# --- DAT-01 ----------------------------------------------------------------------------------


class TestDAT01:
    @pytest.mark.parametrize("payload", asked("DAT-01")["refused"])
    async def test_dat_01_a_nul_is_refused_at_the_door(
        self, contacts: Outbound, payload: str
    ) -> None:
        """Where it stands and how it is written does not matter; it is never left out (C155)."""
        await is_refused_everywhere(contacts, payload.encode())

    @pytest.mark.parametrize(("payload", "properties"), paired("DAT-01", "sent", "properties"))
    async def test_dat_01_text_that_looks_like_one_is_sent_as_it_is(
        self, contacts: Outbound, payload: str, properties: str
    ) -> None:
        """A backslash and five characters are a text like any other."""
        body = await contacts.body_of(payload.encode())

        assert body == f'{{"properties":{properties}}}'.encode()

    @pytest.mark.parametrize("text", [r"\u0000", r"a\u0000b", r"\ud83d", r"\ude00x"])
    async def test_dat_01_an_answer_with_one_is_kept_and_ends_the_run(
        self, contacts: Outbound, text: str
    ) -> None:
        """Its bytes stay as they came, and what the database cannot hold is in no projection."""
        body = (
            f'{{"id":"RECORD","properties":{{"jobtitle":"{text}"}},"correlationId":"{text}",'
            '"updatedAt":"2026-03-29T00:00:00Z"}'
        )

        ran = await contacts.send(b'{"title":"x"}', says(body))

        kept = await contacts.kept_answer(ran)
        assert ran.attempt.outcome == "ACCEPTED"
        assert ran.item.state == "succeeded"
        assert set(ran.attempt.provider_receipt) == {"remote_id", "updated_at"}
        assert kept == body.replace("RECORD", ran.command.record).encode()

    @pytest.mark.parametrize("text", [r"\u0000", r"\ud83d"])
    async def test_dat_01_a_refusal_with_one_is_a_refusal(
        self, contacts: Outbound, text: str
    ) -> None:
        """What it is called cannot be stored, and what it is can."""
        body = f'{{"status":"error","category":"{text}","errorType":"{text}"}}'

        ran = await contacts.send(b'{"title":"x"}', says(body, status="422 Unprocessable Entity"))

        assert ran.attempt.outcome == "REJECTED"
        assert ran.item.state == "dead"
        assert "error_code" not in ran.attempt.provider_receipt


# --- DAT-02 ----------------------------------------------------------------------------------


class TestDAT02:
    @pytest.mark.parametrize(
        "payload",
        [
            *(text.encode() for text in asked("DAT-02")["refused"]),
            *map(bytes.fromhex, asked("DAT-02")["refused_hex"]),
        ],
    )
    async def test_dat_02_half_of_a_pair_is_refused_at_the_door(
        self, contacts: Outbound, payload: bytes
    ) -> None:
        """Escaped or in bytes, in a text or in a name; it is never replaced (C155)."""
        why = await is_refused_everywhere(contacts, payload)

        assert "cut" not in why

    async def test_dat_02_a_whole_pair_is_sent(self, contacts: Outbound) -> None:
        """As the one character that it is, in UTF-8."""
        body = await contacts.body_of(asked("DAT-02")["sent"].encode())

        assert body == f'{{"properties":{expected("DAT-02")["properties"]}}}'.encode()

    @given(WRITABLE)
    async def test_dat_02_every_text_that_can_be_written_arrives(self, text: str) -> None:
        """Character for character, however the Runtime escapes it."""
        for escaped in (True, False):
            payload = json.dumps({"title": text}, ensure_ascii=escaped).encode()
            for operation, member in ((CONTACT, "jobtitle"), (PROSPECT, "title")):
                body = json.loads(operation.freeze(payload, remote_id="501", command=COMMAND).body)
                fields = body.get("properties") or body["data"]["attributes"]
                assert fields == {member: text}


# --- DAT-04 ----------------------------------------------------------------------------------


class TestDAT04:
    @pytest.mark.parametrize("payload", asked("DAT-04")["refused"])
    async def test_dat_04_a_number_that_readers_round_is_refused(
        self, figures: Outbound, payload: str
    ) -> None:
        """And whoever sent it is told to send it as text (C155)."""
        why = await is_refused_everywhere(figures, payload.encode())

        assert "send it as text" in why
        assert not any(digits in why for digits in ("9007199254740993", "1234567890", "6532470"))

    @pytest.mark.parametrize(("payload", "values"), paired("DAT-04", "sent", "values"))
    async def test_dat_04_every_digit_arrives(
        self, figures: Outbound, payload: str, values: str
    ) -> None:
        """As text or as a number, and zeros at the end too."""
        command = await figures.accept(payload.encode())
        figures.will_succeed(command)

        (arrived,) = (await figures.run(command)).requests

        assert arrived.body == f'{{"sheet":{command.record},"values":{values}}}'.encode()

    async def test_dat_04_ids_that_are_one_as_floats_are_two_records(
        self, contacts: Outbound, prospects: Outbound
    ) -> None:
        """In the path, in the body and in the answer each id is its own digits."""
        for way, is_in_body in ((contacts, False), (prospects, True)):
            ran = [
                await way.send(b'{"title":"x"}', record=record)
                for record in asked("DAT-04")["records"]
            ]

            assert [each.attempt.outcome for each in ran] == ["ACCEPTED"] * 2
            for each in ran:
                (arrived,) = each.requests
                assert arrived.target.endswith(f"/{each.command.record}")
                assert (f'"id":{each.command.record},' in arrived.body.decode()) is is_in_body
                assert each.attempt.provider_receipt["remote_id"] == each.command.record

    @pytest.mark.parametrize(
        ("shown", "outcome"),
        [
            ("{own}", "ACCEPTED"),
            ('"{own}"', "ACCEPTED"),
            ("{before}", "OUTCOME_UNKNOWN"),
            ("{after}", "OUTCOME_UNKNOWN"),
            ('"{before}"', "OUTCOME_UNKNOWN"),
            ("{own}.0", "OUTCOME_UNKNOWN"),
            ("{own}e0", "OUTCOME_UNKNOWN"),
            ("{own}0", "OUTCOME_UNKNOWN"),
            ("-{own}", "OUTCOME_UNKNOWN"),
            ("true", "OUTCOME_UNKNOWN"),
        ],
    )
    async def test_dat_04_an_answer_about_the_neighbour_is_none(
        self, figures: Outbound, shown: str, outcome: str
    ) -> None:
        """An id is compared digit by digit; one that is no whole number is no id (C246)."""
        own = next(BEYOND_DOUBLES)
        assert float(own) in (float(own - 1), float(own + 1))
        sheet = shown.format(own=own, before=own - 1, after=own + 1)

        ran = await figures.send(
            b'{"note":"x"}', says(f'{{"sheet":{sheet},"values":{{}}}}'), record=str(own)
        )

        assert ran.attempt.outcome == outcome
        assert len(ran.requests) == 1

    @given(st.integers(-(10**40), 10**40), st.integers(0, 30))
    async def test_dat_04_numbers_as_text_keep_every_digit(self, whole: int, places: int) -> None:
        """However long they are."""
        amount = f"{Decimal(whole).scaleb(-places):f}"
        payload = json.dumps({"count": str(whole), "amount": amount}).encode()

        body = FIGURES.freeze(payload, remote_id="501", command=COMMAND).body.decode()

        shown = json.loads(body, parse_int=str, parse_float=str)["values"]
        assert shown["count"] == str(whole)
        assert shown["amount"] == amount.removeprefix("-") if not Decimal(amount) else amount

    @given(st.integers(INTEGER_MAX + 1, 10**30), st.integers(-3, 3).filter(bool))
    async def test_dat_04_a_lookup_does_not_take_a_neighbour_for_what_was_written(
        self, written: int, off_by: int
    ) -> None:
        """As floats the two would be equal, and a lost write would pass for a done one."""
        assert FIGURES.lookup is not None
        readings = [
            FIGURES.lookup.judge(
                200,
                f'{{"sheet":501,"values":{{"count":{shown}}}}}'.encode(),
                written={"count": str(written)},
                mark_time=datetime(2026, 1, 1, tzinfo=UTC),
                remote_id="501",
                command=COMMAND,
            ).reading
            for shown in (written, written + off_by)
        ]

        assert readings[0] is LookupReading.EQUAL
        assert readings[1] is not LookupReading.EQUAL


# --- DAT-05 ----------------------------------------------------------------------------------


class TestDAT05:
    @pytest.mark.parametrize("payload", asked("DAT-05")["refused"])
    async def test_dat_05_what_is_no_number_is_refused_at_the_door(
        self, figures: Outbound, payload: str
    ) -> None:
        """As a bare word, as a text for a number, or too large for one; never null instead."""
        await figures.refuse(payload.encode())

    @pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
    async def test_dat_05_a_float_of_python_is_refused_by_every_door(
        self, figures: Outbound, value: float
    ) -> None:
        """As Python writes it without being told not to."""
        await is_refused_everywhere(figures, json.dumps({"amount": value}).encode())

    @pytest.mark.parametrize("value", ["NaN", "sNaN", "Infinity", "-Infinity"])
    async def test_dat_05_a_decimal_of_python_is_refused(
        self, figures: Outbound, value: str
    ) -> None:
        """As its own text says it."""
        await figures.refuse(json.dumps({"amount": str(Decimal(value))}).encode())

    async def test_dat_05_the_word_is_a_text_where_a_text_is_wanted(
        self, figures: Outbound
    ) -> None:
        """People have such names."""
        command = await figures.accept(asked("DAT-05")["sent"].encode())
        figures.will_succeed(command)

        (arrived,) = (await figures.run(command)).requests

        values = expected("DAT-05")["values"]
        assert arrived.body == f'{{"sheet":{command.record},"values":{values}}}'.encode()

    @pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity", "1e999"])
    async def test_dat_05_an_answer_with_one_proves_nothing(
        self, figures: Outbound, word: str
    ) -> None:
        """It is no JSON, so nothing that it shows is evidence (C246)."""
        body = f'{{"sheet":RECORD,"values":{{"amount":{word}}}}}'

        ran = await figures.send(b'{"note":"x"}', says(body))

        assert ran.attempt.outcome == "OUTCOME_UNKNOWN"
        assert len(ran.requests) == 1


# --- DAT-07 ----------------------------------------------------------------------------------


class TestDAT07:
    @pytest.mark.parametrize("payload", asked("DAT-07")["refused"])
    async def test_dat_07_a_member_that_is_given_twice_is_refused(
        self, contacts: Outbound, payload: str
    ) -> None:
        """At any depth, with equal values or not, and however its name is escaped (C155)."""
        why = await is_refused_everywhere(contacts, payload.encode())

        assert "is given twice" in why

    @pytest.mark.parametrize("member", ["subject", "operation", "outbox_id", "payload_digest"])
    async def test_dat_07_a_handoff_with_one_is_refused(
        self, contacts: Outbound, member: str
    ) -> None:
        """Or the check could see another subject than the command has."""
        subject, record = await contacts.link()
        payload = b'{"title":"x"}'
        await put(contacts.client, payload)
        scope = contacts.world.caller.scope
        body = handoff(scope, "twice", payload, operation=OPERATION, subject=subject)
        text = json.dumps(body)[:-1] + f", {json.dumps(member)}: {json.dumps(body[member])}}}"
        before = await contacts.world.count("handoffs")

        response = await contacts.client.post(
            "/v1/handoffs", content=text, headers={"Content-Type": "application/json"}
        )

        assert refusal(response) == (400, "json_refused")
        assert await contacts.world.count("handoffs") == before
        assert contacts.provider.requests(record) == []

    @pytest.mark.parametrize("body", asked("DAT-07")["answers"])
    async def test_dat_07_an_answer_with_one_proves_nothing(
        self, contacts: Outbound, body: str
    ) -> None:
        """Which of two records it names is anybody's guess (C246)."""
        ran = await contacts.send(b'{"title":"x"}', says(body))

        assert ran.attempt.outcome == expected("DAT-07")["outcome"]
        assert len(ran.requests) == 1

    @given(
        st.dictionaries(st.text("abc\u00e9\U0001f600", max_size=3), st.none(), min_size=1),
        st.data(),
        st.lists(st.booleans(), max_size=12),
    )
    async def test_dat_07_no_place_hides_one(
        self, members: dict[str, None], data: st.DataObject, around: list[bool]
    ) -> None:
        """Whatever stands around it."""
        twice = data.draw(st.sampled_from(sorted(members)))
        units = twice.encode("utf-16-be")
        escaped = "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2))
        text = json.dumps(members, ensure_ascii=False)[:-1] + f', "{escaped}": 1}}'
        for is_list in around:
            text = f"[{text}]" if is_list else f'{{"in": {text}}}'

        with pytest.raises(PayloadRefused, match="is given twice"):
            parse_payload(f'{{"title": {text}}}'.encode())


# --- DAT-08 ----------------------------------------------------------------------------------


def nested(levels: int, inside: str = "") -> str:
    return "[" * levels + inside + "]" * levels


LEVELS = asked("DAT-08")["levels"]
DEEP = [
    nested(LEVELS),
    f'{{"title":{nested(LEVELS)}}}',
    '{"title":' * LEVELS + "1" + "}" * LEVELS,
    "[" * 200_000,
    '{"title":' + "[" * 200_000,
    "[{" * LEVELS,
    "]" * 200_000,
]


class TestDAT08:
    @pytest.mark.parametrize("payload", DEEP, ids=range(len(DEEP)))
    async def test_dat_08_deep_nesting_is_refused_and_the_next_is_served(
        self, contacts: Outbound, payload: str
    ) -> None:
        """With a reason, before any parser has to go down there."""
        await is_refused_everywhere(contacts, payload.encode())

        assert b"after it" in await contacts.body_of(b'{"title":"after it"}')

    async def test_dat_08_a_stranger_is_refused_without_a_look_at_it(
        self, contacts: Outbound
    ) -> None:
        """Whose it is comes first."""
        stranger = contacts.door.client("nobody")

        response = await stranger.post(
            "/v1/handoffs", content=nested(LEVELS), headers={"Content-Type": "application/json"}
        )

        assert refusal(response) == (401, "credential_unknown")

    async def test_dat_08_a_handoff_that_is_nested_is_refused(self, contacts: Outbound) -> None:
        """By the same rule, and not by the end of the stack."""
        for text in (nested(LEVELS), f'{{"subject":{nested(LEVELS)}}}'):
            response = await contacts.client.post(
                "/v1/handoffs", content=text, headers={"Content-Type": "application/json"}
            )

            assert refusal(response) == (400, "json_refused")

    @pytest.mark.parametrize("levels", [300, LEVELS])
    @pytest.mark.parametrize("status", ["200 OK", "429 Too Many Requests", "422 Unprocessable"])
    async def test_dat_08_an_answer_that_is_nested_ends_no_process(
        self, contacts: Outbound, status: str, levels: int
    ) -> None:
        """Its body shows nothing; what its status alone declares is heard (C246)."""
        body = f'{{"id":"RECORD","properties":{nested(levels)},"updatedAt":"x"}}'

        ran = await contacts.send(b'{"title":"x"}', says(body, status=status))

        wanted = {"200": "OUTCOME_UNKNOWN", "429": "REPLAY_SAFE_RETRY", "422": "REJECTED"}
        assert ran.attempt.outcome == wanted[status[:3]]

    @given(st.lists(st.booleans(), min_size=1, max_size=2 * DEPTH_MAX))
    async def test_dat_08_the_limit_is_the_same_for_every_nesting(self, kinds: list[bool]) -> None:
        """Objects and lists count alike, and brackets in a text do not count at all."""
        text = json.dumps("[{" * 100 + '\\"')
        for is_list in kinds:
            text = f"[{text}]" if is_list else f'{{"a":{text}}}'
        payload = f'{{"title":{text}}}'.encode()

        if len(kinds) < expected("DAT-08")["deepest"]:
            assert parse_payload(payload) == json.loads(payload)
        else:
            with pytest.raises(PayloadRefused, match="levels deep"):
                parse_payload(payload)


# --- DAT-10 ----------------------------------------------------------------------------------


class TestDAT10:
    @pytest.mark.parametrize("dialect", ["contact", "prospect"])
    @pytest.mark.parametrize("number", range(len(asked("DAT-10")["changes"])))
    async def test_dat_10_what_changed_is_sent_as_it_is_and_nothing_else(
        self, contacts: Outbound, prospects: Outbound, dialect: str, number: int
    ) -> None:
        """Empty, null, nothing, zero, false and blank are six different things."""
        way = contacts if dialect == "contact" else prospects
        payload = asked("DAT-10")["changes"][number].encode()
        wanted = expected("DAT-10")[dialect][number]
        if wanted is None:
            assert "writes nothing" in await way.refuse(payload)
            return

        command = await way.accept(payload)
        way.will_succeed(command)
        ran = await way.run(command)

        assert [each.body.decode() for each in ran.requests] == [
            wanted.replace("RECORD", command.record)
        ]
        assert ran.attempt.outcome == "ACCEPTED"

    @pytest.mark.parametrize(
        "payload", ['{"score":""}', '{"optin":""}', '{"optin":0}', '{"score":false}']
    )
    async def test_dat_10_no_value_is_taken_for_another_that_is_empty_too(
        self, contacts: Outbound, prospects: Outbound, payload: str
    ) -> None:
        """Zero is not false, and neither is an empty text."""
        for way in (contacts, prospects):
            await way.refuse(payload.encode())

    @given(
        st.dictionaries(
            st.sampled_from(["title", "company", "phone"]),
            st.none() | st.sampled_from(["", " ", "0", "false", "null", "None", "\t"]) | WRITABLE,
            min_size=1,
        )
    )
    async def test_dat_10_a_sparse_write_has_the_members_of_its_payload(
        self, changes: dict[str, str | None]
    ) -> None:
        """Each with its own value, whichever of them are empty and whichever are there."""
        remote = {"title": "jobtitle", "company": "company", "phone": "phone"}
        payload = json.dumps(changes).encode()

        body = json.loads(CONTACT.freeze(payload, remote_id="501", command=COMMAND).body)

        assert body == {
            "properties": {
                remote[name]: "" if value is None else value for name, value in changes.items()
            }
        }

    @given(
        st.dictionaries(
            st.sampled_from(["note", "count", "amount", "flag", "day", "day_ms", "moment"]),
            st.none() | st.just(0) | st.just(value=False),
            min_size=1,
        )
    )
    async def test_dat_10_null_clears_a_field_of_any_type(
        self, changes: dict[str, int | None]
    ) -> None:
        """And is never what a zero or a false becomes."""
        takes = {"count": (int,), "amount": (int,), "flag": (bool,)}
        payload = json.dumps(changes).encode()
        is_sound = all(
            value is None or type(value) in takes.get(name, ()) for name, value in changes.items()
        )
        if not is_sound:
            with pytest.raises(PayloadRefused):
                FIGURES.freeze(payload, remote_id="501", command=COMMAND)
            return

        body = json.loads(FIGURES.freeze(payload, remote_id="501", command=COMMAND).body)

        assert json.dumps(body["values"], sort_keys=True) == json.dumps(changes, sort_keys=True)


# --- DAT-11 ----------------------------------------------------------------------------------


class TestDAT11:
    @pytest.mark.parametrize("zone", asked("DAT-11")["zones"])
    async def test_dat_11_a_day_is_the_same_day_wherever_the_worker_is(
        self, figures: Outbound, zone: str
    ) -> None:
        """Midnight UTC, and never the worker's own, on the day of a change of the clocks too."""
        day = asked("DAT-11")["day"]
        payload = json.dumps({"day": day, "day_ms": day}).encode()
        with standing_in(zone):
            command = await figures.accept(payload)
            figures.will_succeed(command)
            (arrived,) = (await figures.run(command)).requests

        values = expected("DAT-11")["values"]
        assert arrived.body == f'{{"sheet":{command.record},"values":{values}}}'.encode()

    @pytest.mark.parametrize("payload", asked("DAT-11")["refused"])
    @pytest.mark.parametrize("zone", asked("DAT-11")["zones"][:2])
    async def test_dat_11_a_time_without_a_zone_is_no_time(
        self, figures: Outbound, zone: str, payload: str
    ) -> None:
        """Refused wherever the worker is; nor is a time a day, or a number a time."""
        with standing_in(zone):
            await figures.refuse(payload.encode())

    @pytest.mark.parametrize("zone", asked("DAT-11")["zones"])
    async def test_dat_11_a_time_with_its_zone_is_one_moment(
        self, figures: Outbound, zone: str
    ) -> None:
        """In an hour that some clocks skip too."""
        with standing_in(zone):
            command = await figures.accept(b'{"moment":"2026-03-29T01:30:00+00:00"}')
            figures.will_succeed(command)
            (arrived,) = (await figures.run(command)).requests

        assert b'{"moment":"2026-03-29T01:30:00Z"}' in arrived.body

    @given(st.dates(), st.sampled_from(sorted(ZONES)))
    async def test_dat_11_every_day_has_its_own_midnight(self, day: date, zone: str) -> None:
        """Days before 1970 and days on which clocks change among them."""
        payload = json.dumps({"day": day.isoformat(), "day_ms": day.isoformat()}).encode()
        with standing_in(zone):
            frozen = FIGURES.freeze(payload, remote_id="501", command=COMMAND)

        midnight = datetime(day.year, day.month, day.day, tzinfo=UTC)
        since = midnight - datetime(1970, 1, 1, tzinfo=UTC)
        assert json.loads(frozen.body)["values"] == {
            "day": day.isoformat(),
            "day_ms": since // timedelta(milliseconds=1),
        }


# --- every kind at once ----------------------------------------------------------------------


def is_exact(value: object) -> bool:
    """Whether every reader keeps this value; told without the code that is tested."""
    if isinstance(value, dict):
        return all(is_exact(key) and is_exact(member) for key, member in value.items())
    if isinstance(value, list):
        return all(map(is_exact, value))
    if isinstance(value, str):
        return not any(char == "\0" or "\ud800" <= char <= "\udfff" for char in value)
    if isinstance(value, float):
        return isfinite(value) and abs(value) <= INTEGER_MAX
    return not isinstance(value, int) or abs(value) <= INTEGER_MAX


TEXTS = st.lists(st.sampled_from(["a", "\0", "\ud83d", "\ude00", "\\u0000", '"'])).map("".join)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(TEXTS, VALUES, max_size=3))
async def test_dat_01_02_04_05_a_payload_is_taken_exactly_or_not_at_all(
    members: dict[str, object],
) -> None:
    """What a Python program writes by its defaults is either kept or refused, never altered."""
    payload = json.dumps(members).encode()
    written = json.loads(payload, object_pairs_hook=lambda pairs: pairs)
    value = json.loads(payload)
    if is_exact(value) and _no_member_twice(written):
        assert parse_payload(payload) == value
    else:
        with pytest.raises(PayloadRefused):
            parse_payload(payload)


def _no_member_twice(value: object) -> bool:
    if not isinstance(value, list):
        return True
    keys = [pair[0] for pair in value if isinstance(pair, tuple)]
    inner = [pair[1] if isinstance(pair, tuple) else pair for pair in value]
    return len(set(keys)) == len(keys) and all(map(_no_member_twice, inner))
