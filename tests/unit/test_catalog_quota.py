"""What a binding counts of its pack's dimensions, and what an answer tells of them (C300, C302)."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from oncefence.catalog.bound_quota import BoundQuota, Refusal
from oncefence.catalog.errors import CatalogError
from oncefence.catalog.limits import NEXT_UTC_MIDNIGHT, NamedLimit
from oncefence.catalog.loader import load_binding, load_pack
from oncefence.catalog.operations import BoundOperation
from oncefence.catalog.view import IntegrationBindingView, compile_view
from oncefence.domain.quota import Purpose

ROOT = Path(__file__).parents[2]
EXAMPLE = (ROOT / "docs/examples/lead-title.binding.toml").read_text("utf-8")
NOW = datetime(2100, 1, 1, 22, tzinfo=UTC)
OLD_VIEW = ROOT / "tests/data/views/lead-title.view-1.json"


def view_with(tmp_path: Path, quota: str = "") -> IntegrationBindingView:
    path = tmp_path / "a.binding.toml"
    path.write_text(f"{EXAMPLE}\n[quota]\n{quota}", encoding="utf-8")
    return compile_view(load_pack("hubspot"), load_binding(path))


def operation_with(tmp_path: Path, quota: str = "") -> BoundOperation:
    return view_with(tmp_path, quota).operation("lead.title.push")


@pytest.fixture
def operation(tmp_path: Path) -> BoundOperation:
    return operation_with(tmp_path)


class TestABinding:
    def test_counts_what_the_pack_declares_of_its_own_classes(
        self, operation: BoundOperation
    ) -> None:
        """A write and its lookup; the searches are nobody's here."""
        write = {each["name"]: each for each in operation.quota_dimensions("crm.objects.write")}
        read = operation.quota_dimensions("crm.objects.read")

        assert write["burst"] == {
            "name": "burst",
            "class": "crm.objects.write",
            "scope": ["provider_key"],
            "limit": 100,
            "window": "rolling",
            "window_s": 10,
            "purposes": ["effect", "lookup"],
        }
        assert set(write) == {each["name"] for each in read} == {"burst", "daily"}
        assert write["daily"]["purposes"] == ["cursor", "effect", "lookup"]
        assert operation.quota_dimensions("crm.search") == []

    @pytest.mark.parametrize(
        ("choice", "limit"), [("190", 190), ("1", 1), ("10000000", 10_000_000), ("false", None)]
    )
    def test_says_what_its_own_account_has(
        self, tmp_path: Path, choice: str, limit: int | None
    ) -> None:
        """Accounts differ, and a pack is for all of them."""
        operation = operation_with(tmp_path, f"burst = {choice}\n")

        found = {
            each["name"]: each["limit"] for each in operation.quota_dimensions("crm.objects.write")
        }

        assert found == {"burst": limit, "daily": 250_000}

    @pytest.mark.parametrize(
        ("line", "key", "reason"),
        [
            ("burts = 5", "quota.burts", "unknown quota dimension of pack hubspot 'burts'"),
            ("burst = 0", "quota.burst", "must be a whole number from 1 to 10000000, or false"),
            ("burst = -1", "quota.burst", "must be a whole number"),
            ("burst = true", "quota.burst", "must be a whole number"),
            ("burst = 10000001", "quota.burst", "must be a whole number"),
            ('burst = "5"', "quota.burst", "must be a whole number"),
            ("burst = 1.5", "quota.burst", "must be a whole number"),
        ],
    )
    def test_that_says_something_else_is_refused(
        self, tmp_path: Path, line: str, key: str, reason: str
    ) -> None:
        """One clear message that names the key."""
        with pytest.raises(CatalogError) as refused:
            view_with(tmp_path, line)

        (problem,) = refused.value.problems
        assert problem.key == key
        assert reason in problem.reason

    def test_of_before_counts_nothing(self) -> None:
        """A stored view stays what it was, and what it accepted is sent."""
        view = IntegrationBindingView.from_json(OLD_VIEW.read_text("utf-8"))
        operation = view.operation("lead.title.push")

        assert operation.quota_dimensions(operation.endpoint_class) == []
        assert operation.quota_told({}, None, now=NOW, since_sent_s=1.0) is None

    def test_survives_being_stored(self, tmp_path: Path) -> None:
        """What a command pins is what it was accepted by."""
        view = view_with(tmp_path, "burst = 7\ndaily = false\n")

        assert IntegrationBindingView.from_json(view.to_json()) == view

    def test_with_a_class_of_its_own_shares_with_that_class_alone(self, tmp_path: Path) -> None:
        """Where classes are counted apart, a lookup of another class takes nothing."""
        path = tmp_path / "a.binding.toml"
        path.write_text(
            """
format = "oncefence.binding/1"
name = "customers"
pack = "stripe"
principal = "main"
[operations."customer.push"]
operation = "customer.update"
payload_version = 1
local_object = "customer"
subject = "[a-z]+"
remote_object = "customer"
completion = { command = "customer.pushed", version = 1 }
fields.name = { remote = "name", type = "string", direction = "outbound" }
""",
            encoding="utf-8",
        )
        operation = compile_view(load_pack("stripe"), load_binding(path)).operation("customer.push")

        found = {
            each["name"]: each["purposes"] for each in operation.quota_dimensions("customers.write")
        }

        assert found == {"account": ["effect", "lookup"], "endpoint": ["effect"]}


def said(status: int, name: str | None = None, wait: int | str | None = None) -> Refusal:
    limit = None if name is None else NamedLimit(name=name, wait=wait)
    return Refusal(status=status, limit=limit)


class TestAnAnswer:
    @pytest.mark.parametrize(
        ("refusal", "headers", "expected"),
        [
            (said(429), {}, ("class", None, 1.0, False)),
            (said(429), {"Retry-After": "7"}, ("class", None, 7.0, False)),
            (said(429), {"Retry-After": "soon"}, ("class", None, 30.0, False)),
            (said(429), {"Retry-After": "999999999"}, ("class", None, 86_400.0, False)),
            (said(503), {"Retry-After": "7"}, ("provider", None, 7.0, False)),
            (
                said(429, "TEN_SECONDLY_ROLLING", 10),
                {},
                ("dimension", "burst", 10.0, False),
            ),
            (
                said(429, "TEN_SECONDLY_ROLLING", 10),
                {"Retry-After": "60"},
                ("dimension", "burst", 60.0, False),
            ),
            (said(429, "DAILY", NEXT_UTC_MIDNIGHT), {}, ("dimension", "daily", 1.0, True)),
            (said(429, "MONTHLY", NEXT_UTC_MIDNIGHT), {}, ("binding", None, 1.0, True)),
            (said(429, "NEW"), {}, ("class", None, 30.0, False)),
            (said(503, "DAILY", NEXT_UTC_MIDNIGHT), {}, ("dimension", "daily", 1.0, True)),
            (said(503, "NEW"), {}, ("provider", None, 30.0, False)),
            (said(503), {"Retry-After": "86400"}, ("provider", None, 3_600.0, False)),
        ],
        ids=repr,
    )
    def test_that_turns_a_request_away_closes_what_it_names(
        self,
        operation: BoundOperation,
        refusal: Refusal,
        headers: dict[str, str],
        expected: tuple[str, str | None, float, bool],
    ) -> None:
        """The narrowest thing that it can be about, for as long as it says (QUO-02, QUO-04)."""
        told = operation.quota_told(headers, refusal, now=NOW)

        assert told is not None
        close: Any = told["close"]
        assert (
            close["closes"],
            close["dimension"],
            close["seconds"],
            close["until_midnight"],
        ) == expected

    @pytest.mark.parametrize("status", [200, 423, 477, 500, 502])
    def test_of_another_status_closes_nothing(self, operation: BoundOperation, status: int) -> None:
        """A locked record is no limit of the account."""
        assert operation.quota_told({"Retry-After": "60"}, said(status), now=NOW) is None

    def test_tells_the_rates_of_what_is_counted_and_names_both(self, tmp_path: Path) -> None:
        """Each rate is about the dimensions that name it, by whatever name that has."""
        operation = operation_with(tmp_path, "daily = 500\n")
        headers = {
            "X-HubSpot-RateLimit-Max": "110",
            "X-HubSpot-RateLimit-Remaining": "3",
            "X-HubSpot-RateLimit-Interval-Milliseconds": "10000",
            "X-HubSpot-RateLimit-Daily-Remaining": "99999999999",
        }

        told = operation.quota_told(headers, None, now=NOW)

        assert told == {
            "rates": [
                {"dimension": "burst", "limit": 110, "remaining": 3, "reset_s": 10.0},
                {"dimension": "daily", "limit": None, "remaining": 2**31 - 1, "reset_s": None},
            ],
            "close": None,
        }
        json.dumps(told)

    @pytest.mark.parametrize("value", ["", "abc", "-1", "1e3", "0x0", "9" * 40])
    def test_that_shows_garbage_tells_nothing(self, operation: BoundOperation, value: str) -> None:
        """It is as if the header were not there (QUO-08)."""
        names = ("Max", "Remaining", "Interval-Milliseconds")
        headers = {f"X-HubSpot-RateLimit-{name}": value for name in names}

        assert operation.quota_told(headers, None, now=NOW) is None

    def test_to_a_read_is_told_apart_by_the_same_names(self, operation: BoundOperation) -> None:
        """A read that is refused holds the other reads back."""
        body = json.dumps({"policyName": "TEN_SECONDLY_ROLLING"}).encode()

        told = operation.quota_told_of_read(429, {}, body, now=NOW)

        assert told is not None
        close: Any = told["close"]
        assert (close["closes"], close["dimension"]) == ("dimension", "burst")
        assert operation.quota_told_of_read(500, {}, b"", now=NOW) is None
        assert operation.quota_told_of_read(None, {}, None, now=NOW) is None

    @pytest.mark.parametrize(("quota", "tells"), [("", True), ("burst = false\n", False)])
    def test_tells_when_it_left_where_a_rolling_window_counts(
        self, tmp_path: Path, quota: str, tells: bool
    ) -> None:
        """Nothing else asks for it."""
        told = operation_with(tmp_path, quota).quota_told({}, None, now=NOW, since_sent_s=0.25)

        assert (told == {"rates": [], "close": None, "since_sent_s": 0.25}) == tells
        assert (told is None) != tells


def test_purposes_are_written_as_the_database_knows_them() -> None:
    """Its functions compare texts."""
    assert [each.value for each in Purpose] == ["effect", "lookup", "cursor"]
    assert set(BoundQuota.model_fields) >= {"limit", "purposes"}
