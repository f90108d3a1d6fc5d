"""Stripe's customers: forms, and above all what an idempotency key keeps, and for how long."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote, urlencode

import pytest

from oncefence.simulator.in_process import SimulatorHere, simulating
from oncefence.simulator.ledger import Kind
from tests.providers.simulated import Heard, request_bytes, talk, until
from tests.providers.speaking import STRIPE

_BASE = "/v1/customers"
_DAY_S = 86_400


@pytest.fixture
async def here() -> AsyncIterator[SimulatorHere]:
    async with simulating("stripe", index_lag=timedelta()) as running:
        yield running


async def post(
    here: SimulatorHere,
    target: str = _BASE,
    *,
    key: str | None = None,
    patience_s: float = 10.0,
    **form: str,
) -> Heard:
    wish = ("POST", target, urlencode(form).encode())
    return await asyncio.to_thread(STRIPE.say, here, wish, key=key, patience_s=patience_s)


async def get(here: SimulatorHere, target: str) -> Heard:
    return await asyncio.to_thread(STRIPE.say, here, ("GET", target, b""))


class TestKeys:
    async def test_keep_the_first_answer_and_mark_it(self, here: SimulatorHere) -> None:
        """The repeat gets the same status and body, and nothing is done."""
        first = await post(here, key="k", email="a@b.c")
        second = await post(here, key="k", email="a@b.c")

        assert second.json == first.json
        assert "idempotent-replayed" not in first.headers
        assert second.headers["idempotent-replayed"] == "true"
        assert len(here.changes()) == 1

    async def test_do_not_mind_the_order_of_a_form(self, here: SimulatorHere) -> None:
        """The parameters are what is compared, not the bytes."""
        await post(here, key="k", email="a@b.c", name="x")
        again = await post(here, key="k", name="x", email="a@b.c")

        assert again.headers["idempotent-replayed"] == "true"

    @pytest.mark.parametrize("other", ["form", "path"])
    async def test_with_other_parameters_are_an_error(
        self, here: SimulatorHere, other: str
    ) -> None:
        """The key belongs to one wish; another one under it is refused and done by nobody."""
        record = here.add_record().id
        await post(here, key="k", email="a@b.c")

        heard = await (
            post(here, key="k", email="x@b.c")
            if other == "form"
            else post(here, f"{_BASE}/{record}", key="k", email="a@b.c")
        )

        assert (heard.status, heard.json["error"]["type"]) == (400, "idempotency_error")
        assert len(here.changes()) == 1

    async def test_refuse_a_twin_while_the_first_is_served(self, here: SimulatorHere) -> None:
        """409 says nothing about what becomes of the first."""
        here.strike("clock_skew", hold="h")
        first = asyncio.create_task(post(here, key="k", email="a@b.c"))
        await asyncio.to_thread(until, lambda: here.ledger.of(Kind.HELD))

        twin = await post(here, key="k", email="a@b.c")
        here.release("h")

        assert (await first).status == 200
        assert (twin.status, twin.json["error"]["code"]) == (409, "idempotency_key_in_use")
        assert twin.headers["stripe-should-retry"] == "true"

    async def test_are_forgotten_after_a_day_and_no_sooner(self, here: SimulatorHere) -> None:
        """A repeat after that is a new wish: a second customer."""
        await post(here, key="k", email="a@b.c")
        here.advance_clock(_DAY_S - 5)
        within = await post(here, key="k", email="a@b.c")
        here.advance_clock(6)
        after = await post(here, key="k", email="a@b.c")

        assert within.headers["idempotent-replayed"] == "true"
        assert "idempotent-replayed" not in after.headers
        assert len(here.changes()) == 2

    @pytest.mark.parametrize(
        ("fault", "form", "status"),
        [
            ("rate_limit_429", {"email": "a@b.c"}, 429),
            ("unauthorized_401", {"email": "a@b.c"}, 401),
            ("maintenance_503", {"email": "a@b.c"}, 503),
            (None, {"email": "none"}, 400),
            (None, {"nope": "x"}, 400),
        ],
    )
    async def test_keep_nothing_of_what_was_not_begun(
        self, here: SimulatorHere, fault: str | None, form: dict[str, str], status: int
    ) -> None:
        """A refusal before the work leaves the key free, also for other parameters."""
        if fault is not None:
            here.strike(fault)

        refused = await post(here, key="k", **form)
        done = await post(here, key="k", email="a@b.c", name="another")

        assert refused.status == status
        assert (done.status, len(here.changes())) == (200, 1)
        assert "idempotent-replayed" not in done.headers

    @pytest.mark.parametrize(
        ("fault", "changes"),
        [("server_error_before_commit", 0), ("server_error_after_commit", 1)],
    )
    async def test_keep_a_500_of_what_was_begun(
        self, here: SimulatorHere, fault: str, changes: int
    ) -> None:
        """The repeat gets the 500 again and does nothing: it tells nobody if there was a change."""
        here.strike(fault)

        statuses = [(await post(here, key="k", email="a@b.c")).status for _ in range(3)]

        assert statuses == [500, 500, 500]
        assert len(here.changes()) == changes

    @pytest.mark.parametrize("fault", ["lost_answer", "reset_after_commit", "cut_body", "garbled"])
    async def test_give_the_true_answer_to_who_missed_it(
        self, here: SimulatorHere, fault: str
    ) -> None:
        """What went wrong on the wire is not what is kept."""
        here.strike(fault)

        await post(here, key="k", email="a@b.c", patience_s=0.3)
        again = await post(here, key="k", email="a@b.c")

        assert again.headers["idempotent-replayed"] == "true"
        assert again.json["email"] == "a@b.c"
        assert len(here.changes()) == 1

    async def test_outlive_a_restart(self, tmp_path: Path) -> None:
        """Kept with the change, in one row, so that no kill comes between them."""
        ledger = tmp_path / "ledger.jsonl"
        async with simulating("stripe", ledger=ledger) as here:
            first = await post(here, key="k", email="a@b.c")
            here.advance_clock(_DAY_S - 60)
        async with simulating("stripe", ledger=ledger) as here:
            again = await post(here, key="k", email="a@b.c")
            here.advance_clock(120)
            late = await post(here, key="k", email="a@b.c")

        assert again.json == first.json
        assert again.headers["idempotent-replayed"] == "true"
        assert late.json["id"] != first.json["id"]

    @pytest.mark.parametrize("key", ["k" * 256, ""])
    async def test_of_a_wrong_length_are_refused(self, here: SimulatorHere, key: str) -> None:
        """At most 255 characters, and at least one."""
        heard = await post(here, key=key, email="a@b.c")

        assert heard.status == 400
        assert here.changes() == []

    async def test_of_another_account_are_other_keys(self, here: SimulatorHere) -> None:
        """The token that means another account finds the key unused there."""
        await post(here, key="k", email="a@b.c")
        # A kept key answers before any rule is asked, so the first request has to meet the switch.
        here.strike("account_switch")

        switched = await post(here, key="other", email="a@b.c")
        at_home = await post(here, key="other", email="a@b.c")

        assert "idempotent-replayed" not in switched.headers
        assert "idempotent-replayed" not in at_home.headers
        assert [change.account for change in here.changes()] == [None, "other", None]


class TestForms:
    async def test_nest_and_clear(self, here: SimulatorHere) -> None:
        """Metadata is merged key by key, and an empty text takes a value away."""
        record = (await post(here, email="a@b.c", **{"metadata[a]": "1", "metadata[b]": "2"})).json

        changed = await post(
            here,
            f"{_BASE}/{record['id']}",
            **{"metadata[a]": "", "metadata[c]": "3", "address[city]": "Bern", "email": ""},
        )

        assert changed.json["metadata"] == {"b": "2", "c": "3"}
        assert changed.json["address"] == {"city": "Bern"}
        assert changed.json["email"] is None

    async def test_clear_all_metadata_at_once(self, here: SimulatorHere) -> None:
        """The key alone, empty, stands for all that is below it."""
        record = (await post(here, **{"metadata[a]": "1", "metadata[b]": "2"})).json

        changed = await post(here, f"{_BASE}/{record['id']}", metadata="")

        assert changed.json["metadata"] == {}

    @pytest.mark.parametrize(
        ("form", "code", "parameter"),
        [
            ({"nope": "x"}, "parameter_unknown", "nope"),
            ({"address[moon]": "x"}, "parameter_unknown", "address[moon]"),
            ({"email": "none"}, "email_invalid", "email"),
            ({"balance": "1.5"}, "parameter_invalid_integer", "balance"),
            ({"metadata[a]": "x" * 501}, "metadata_too_long", "metadata[a]"),
            ({"name": "x" * 257}, "parameter_too_long", "name"),
            ({"metadata": "x"}, "parameter_invalid_string", "metadata"),
        ],
    )
    async def test_that_are_wrong_name_the_parameter(
        self, here: SimulatorHere, form: dict[str, str], code: str, parameter: str
    ) -> None:
        """The whole request is refused for one of its keys."""
        heard = await post(here, **form)

        error = heard.json["error"]
        assert (heard.status, error["code"], error["param"]) == (400, code, parameter)
        assert here.changes() == []

    async def test_must_be_forms(self, here: SimulatorHere) -> None:
        """JSON is no form, whatever is in it."""
        headers = {"Content-Type": "application/json"}
        request = request_bytes("POST", _BASE, b"{}", token=here.token, headers=headers)

        assert (await asyncio.to_thread(talk, here.simulator.port, request)).status == 400

    async def test_of_a_deleted_customer_find_nobody(self, here: SimulatorHere) -> None:
        """It is still shown, and says of itself that it is gone."""
        here.simulator.admin.make("cus_gone", {}, is_archived=True)

        read, written = await get(here, f"{_BASE}/cus_gone"), await post(here, f"{_BASE}/cus_gone")

        assert (read.status, read.json["deleted"]) == (200, True)
        assert (written.status, written.json["error"]["code"]) == (404, "resource_missing")


class TestFinding:
    async def test_lists_newest_first_page_by_page(self, here: SimulatorHere) -> None:
        """Each page begins after the last record of the one before."""
        made = [(await post(here, name=str(number))).json["id"] for number in range(3)]

        first = (await get(here, f"{_BASE}?limit=2")).json
        rest = (await get(here, f"{_BASE}?limit=2&starting_after={first['data'][-1]['id']}")).json

        seen = [each["id"] for each in (*first["data"], *rest["data"])]
        assert seen == made[::-1]
        assert (first["has_more"], rest["has_more"]) == (True, False)

    @pytest.mark.parametrize(
        ("query", "expected"),
        [
            ("email:'A@b.c'", ["cus_1"]),
            ("email:'a@b.c' AND name:'Two'", []),
            ("email:'a@b.c' OR name:'Two'", ["cus_1", "cus_2"]),
            ("name~'wo'", None),
            ("name~'two'", ["cus_2"]),
            ("-name:'Two'", ["cus_1"]),
            ("metadata['order']:'7'", ["cus_1"]),
            ('metadata["order"]:"7"', ["cus_1"]),
            ("metadata['order']:null", ["cus_2"]),
            ("created>0", ["cus_1", "cus_2"]),
            ("created<10", []),
            ("phone:'1' AND email:'a' OR name:'x'", None),
            ("address:'x'", None),
            ("name>'x'", None),
            ("name:'x' junk", None),
            ("", None),
        ],
    )
    async def test_searches_by_its_language(
        self, here: SimulatorHere, query: str, expected: list[str] | None
    ) -> None:
        """What cannot be read is refused; None stands for that."""
        here.add_record("cus_1", {"email": "a@b.c", "metadata[order]": "7"})
        here.add_record("cus_2", {"name": "Two"})

        heard = await get(here, f"{_BASE}/search?query={quote(query)}")

        if expected is None:
            assert heard.status == 400
        else:
            assert sorted(each["id"] for each in heard.json["data"]) == expected

    async def test_searches_page_by_page(self, here: SimulatorHere) -> None:
        """A token leads to the next page, and the last has none."""
        for number in range(3):
            here.add_record(f"cus_{number}", {"name": "same"})
        target = f"{_BASE}/search?limit=2&query=" + quote("name:'same'")

        first = (await get(here, target)).json
        rest = (await get(here, f"{target}&page={quote(first['next_page'])}")).json

        assert len(first["data"]) + len(rest["data"]) == 3
        assert (first["has_more"], rest["has_more"], rest["next_page"]) == (True, False, None)
