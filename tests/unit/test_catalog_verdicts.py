"""What one answer proves by the rules of a pack: refusals, doubts, limits, lists of inputs."""

import json
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncefence.catalog.answers import ResponseContract
from oncefence.catalog.items import ItemsRule
from oncefence.catalog.loader import load_pack
from oncefence.domain.classification import (
    AttemptFailure,
    Classified,
    ReplyContract,
    WirePhase,
    classify,
)
from oncefence.domain.effect import Outcome

DATA = Path(__file__).parents[1] / "data/packs"
COMMAND = UUID("00000000-0000-4000-8000-000000000001")
JSON = {"Content-Type": "application/json"}

OUTREACH = load_pack("outreach").operations["prospect.update"].answer
HUBSPOT = load_pack("hubspot").operations["contact.update"].answer
STRIPE = load_pack("stripe").operations["customer.update"].answer
QUARRY = load_pack(DATA / "quarry.toml").operations["stone.set"].answer
BATCH = ResponseContract(
    success=(200, 207),
    rejected=(400, 404),
    evidence=("results",),
    identity="results[0].id",
    contradicted_by=(),
    items=ItemsRule(results="results", id="id", errors="errors", error_ids="context.ids"),
)
MAINTENANCE = {"errors": [{"id": "scheduledServerMaintenance"}]}
MIXED = {
    "results": [{"id": "501"}],
    "errors": [{"category": "OBJECT_NOT_FOUND", "context": {"ids": ["502"]}}],
}
PROSPECT = {"type": "prospect", "id": 501, "attributes": {"title": "Lead"}}


def outcome(
    contract: ResponseContract,
    status: int,
    body: object,
    remote_id: str | None = "501",
    headers: dict[str, str] | None = None,
    *,
    is_only_input: bool = True,
) -> Classified:
    """The class of a whole answer, by the contract and by what the answer declares itself."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    reading = contract.read_body(
        status, JSON if headers is None else headers, data, remote_id, is_only_input=is_only_input
    )
    return classify(
        phase=WirePhase.COMPLETE,
        status=status,
        body=reading.verdict(complete=True),
        contract=ReplyContract(
            success_statuses=frozenset(contract.success),
            rejected_statuses=frozenset(contract.rejected),
            not_applied_statuses=frozenset(contract.not_applied),
            has_live_idempotency_key=False,
        ),
        cause=None,
    )


class TestErrorUnderSuccess:
    @pytest.mark.parametrize(
        "body",
        [
            {"errors": [{"id": "validationError", "detail": "x"}]},
            {"errors": [{"id": "validationError"}], "data": None},
        ],
    )
    def test_is_a_refusal_where_the_pack_declares_it(self, body: object) -> None:
        """The provider's own form of errors refuses, whatever status it is sent with."""
        assert outcome(OUTREACH, 200, body).outcome is Outcome.REJECTED

    def test_proves_nothing_where_the_pack_declares_none(self) -> None:
        """A guess that it was refused could hide a change that was made."""
        for body in ({"errors": [{"id": "x"}]}, {"ok": False, "error": "invalid"}, {}, [], None):
            assert outcome(HUBSPOT, 200, body).outcome is Outcome.OUTCOME_UNKNOWN

    def test_may_be_any_declared_flag(self) -> None:
        """Some providers answer everything with 200 and a word."""
        contract = ResponseContract.model_validate_json(
            json.dumps(
                {
                    "success": [200],
                    "evidence": ["message.ts"],
                    "identity": "message.id",
                    "error_code": ["error"],
                    "refusals": [{"statuses": [200], "body": "ok == `false`"}],
                }
            )
        )

        refused = contract.read_body(200, JSON, b'{"ok":false,"error":"invalid"}', "501")

        assert (refused.declares_refusal, refused.error_code) == (True, "invalid")
        assert outcome(contract, 200, {"ok": False, "error": "x"}).outcome is Outcome.REJECTED

    @pytest.mark.parametrize(
        ("contract", "body"),
        [
            (OUTREACH, {"data": PROSPECT, "errors": [{"id": "validationError"}]}),
            # Part of the evidence is already a sign that something was done.
            (OUTREACH, {"data": {"type": "prospect"}, "errors": [{"id": "x"}]}),
            (HUBSPOT, {"id": "501", "properties": {}, "updatedAt": "x", "errors": [{}]}),
            (HUBSPOT, {"id": "501", "properties": {}, "updatedAt": "x", "status": "error"}),
            (STRIPE, {"id": "501", "object": "customer", "deleted": True}),
            (STRIPE, {"id": "501", "object": "customer", "error": {"type": "api_error"}}),
        ],
    )
    def test_beside_a_success_is_a_contradiction(
        self, contract: ResponseContract, body: object
    ) -> None:
        """Both cannot be true, so neither is believed."""
        found = outcome(contract, 200, body)

        assert found.outcome is Outcome.OUTCOME_UNKNOWN
        assert found.failure_class is AttemptFailure.CONTRADICTORY_ANSWER

    def test_that_is_empty_is_none(self) -> None:
        """Many providers send the member always."""
        for empty in ([], {}, None, "", False, 0):
            body = {"id": "501", "properties": {}, "updatedAt": "x", "errors": empty}
            assert outcome(HUBSPOT, 200, body).outcome is Outcome.ACCEPTED


class TestMediaType:
    @pytest.mark.parametrize(
        ("kind", "expected"),
        [
            ("application/json", Outcome.ACCEPTED),
            ("application/vnd.api+json; charset=utf-8", Outcome.ACCEPTED),
            ("Application/JSON", Outcome.ACCEPTED),
            ("text/html", Outcome.OUTCOME_UNKNOWN),
            ("text/html; charset=utf-8", Outcome.OUTCOME_UNKNOWN),
            ("text/plain", Outcome.OUTCOME_UNKNOWN),
            ("application/jsonp", Outcome.OUTCOME_UNKNOWN),
        ],
    )
    def test_of_another_than_the_provider_proves_nothing(
        self, kind: str, expected: Outcome
    ) -> None:
        """A page of somebody in between may even hold sound JSON."""
        answer = outcome(OUTREACH, 200, {"data": PROSPECT}, headers={"Content-Type": kind})

        assert answer.outcome is expected

    def test_that_is_declared_must_be_named(self) -> None:
        """Without a declaration a silent answer is read; with one it has to say."""
        good = {"id": "501", "properties": {}, "updatedAt": "x"}

        assert outcome(HUBSPOT, 200, good, headers={}).outcome is Outcome.ACCEPTED
        assert outcome(OUTREACH, 200, {"data": PROSPECT}, headers={}).outcome is (
            Outcome.OUTCOME_UNKNOWN
        )

    def test_of_a_maintenance_page_is_unknown(self) -> None:
        """Under 200 as under 503."""
        page, html = b"<html>maintenance</html>", {"Content-Type": "text/html"}

        for contract in (OUTREACH, HUBSPOT, STRIPE):
            for status in (200, 503):
                assert outcome(contract, status, page, headers=html).outcome is (
                    Outcome.OUTCOME_UNKNOWN
                )


class TestNoBody:
    def test_is_success_only_where_it_is_declared(self) -> None:
        """An empty 204 is the whole answer of one provider and nothing at all of another."""
        assert outcome(QUARRY, 204, b"", headers={}).outcome is Outcome.ACCEPTED
        for contract in (OUTREACH, HUBSPOT, STRIPE):
            assert outcome(contract, 204, b"", headers={}).outcome is Outcome.OUTCOME_UNKNOWN

    def test_may_be_a_declared_redirect_whose_page_is_not_read(self) -> None:
        """It is not followed; that it came is what the pack calls done."""
        contract = ResponseContract(success=(303,), evidence=())

        page = outcome(contract, 303, b"<a href=...>", headers={"Content-Type": "text/html"})

        assert page.outcome is Outcome.ACCEPTED
        assert outcome(contract, 302, b"").outcome is Outcome.OUTCOME_UNKNOWN


class TestNotApplied:
    @pytest.mark.parametrize(
        ("status", "body", "retry_after", "expected"),
        [
            (503, MAINTENANCE, "2026-01-01T00:20:00", Outcome.REPLAY_SAFE_RETRY),
            (503, MAINTENANCE, "2026-01-01T00:20:00Z", Outcome.REPLAY_SAFE_RETRY),
            (503, MAINTENANCE, None, Outcome.OUTCOME_UNKNOWN),
            (503, MAINTENANCE, "soon", Outcome.OUTCOME_UNKNOWN),
            (503, {"errors": [{"id": "other"}]}, "60", Outcome.OUTCOME_UNKNOWN),
            (503, {}, "60", Outcome.OUTCOME_UNKNOWN),
            (503, b"<html>", "60", Outcome.OUTCOME_UNKNOWN),
            (500, MAINTENANCE, "60", Outcome.OUTCOME_UNKNOWN),
            (502, MAINTENANCE, "60", Outcome.OUTCOME_UNKNOWN),
        ],
    )
    def test_is_proven_by_body_and_header_together(
        self, status: int, body: object, retry_after: str | None, expected: Outcome
    ) -> None:
        """A status alone may come from whoever stands in between (C252)."""
        headers = {**JSON, **({"Retry-After": retry_after} if retry_after else {})}

        assert outcome(OUTREACH, status, body, headers=headers).outcome is expected

    def test_in_a_dialect_that_is_not_declared_proves_nothing(self) -> None:
        """A time that cannot be read is no time to come back."""
        contract = OUTREACH.model_copy(
            update={"retry_after": HUBSPOT.retry_after}  # seconds and HTTP dates only
        )
        headers = {**JSON, "Retry-After": "2026-01-01T00:20:00"}

        found = outcome(contract, 503, MAINTENANCE, headers=headers)

        assert found.outcome is Outcome.OUTCOME_UNKNOWN

    @pytest.mark.parametrize(
        ("code", "expected"),
        [
            ("idempotency_key_in_use", Outcome.REPLAY_SAFE_RETRY),
            ("lock_timeout", Outcome.OUTCOME_UNKNOWN),
            (None, Outcome.OUTCOME_UNKNOWN),
        ],
    )
    def test_may_be_one_meaning_of_a_status_with_several(
        self, code: str | None, expected: Outcome
    ) -> None:
        """A twin that is still at work is one conflict among others."""
        assert outcome(STRIPE, 409, {"error": {"code": code}}).outcome is expected

    def test_may_come_under_success(self) -> None:
        """A provider that answers all with 200 also says that way that one came too often."""
        contract = ResponseContract.model_validate_json(
            json.dumps(
                {
                    "success": [200],
                    "evidence": ["data.item.id"],
                    "identity": "data.item.id",
                    "not_applied_when": [
                        {"statuses": [200], "body": "errors[?code == 'THROTTLED']"}
                    ],
                    "refusals": [{"statuses": [200], "body": "errors[?code == 'INVALID']"}],
                }
            )
        )

        def of(*codes: str, **data: object) -> Outcome:
            body = {"errors": [{"code": code} for code in codes], "data": data}
            return outcome(contract, 200, body).outcome

        assert of("THROTTLED") is Outcome.REPLAY_SAFE_RETRY
        assert of("INVALID") is Outcome.REJECTED
        assert of("THROTTLED", "INVALID") is Outcome.OUTCOME_UNKNOWN
        assert of("THROTTLED", item={"id": "501"}) is Outcome.OUTCOME_UNKNOWN
        assert of("ELSE", item={"id": "501"}) is Outcome.OUTCOME_UNKNOWN
        assert of(item={"id": "501"}) is Outcome.ACCEPTED


class TestItems:
    @pytest.mark.parametrize(
        ("remote_id", "expected"),
        [
            ("501", Outcome.ACCEPTED),
            ("502", Outcome.REJECTED),
            ("503", Outcome.OUTCOME_UNKNOWN),
        ],
    )
    def test_are_told_apart(self, remote_id: str, expected: Outcome) -> None:
        """One status is the fate of many; each has its own."""
        found = outcome(BATCH, 207, MIXED, remote_id, is_only_input=False)

        assert found.outcome is expected

    @pytest.mark.parametrize(
        ("results", "errors", "is_only_input", "expected"),
        [
            ([], [{"context": {"ids": ["501"]}}], True, Outcome.REJECTED),
            ([], [{"context": {"ids": "501"}}], True, Outcome.REJECTED),
            ([], [{"context": {"ids": [501]}}], True, Outcome.REJECTED),
            (None, [{"status": "error"}], True, Outcome.REJECTED),
            ([], [{"status": "error"}], False, Outcome.OUTCOME_UNKNOWN),
            ([], [{"context": {"ids": ["502"]}}], True, Outcome.OUTCOME_UNKNOWN),
            ([{"id": "502"}], [{"status": "error"}], True, Outcome.OUTCOME_UNKNOWN),
            ([{"id": "501"}], [{"context": {"ids": ["501"]}}], True, Outcome.OUTCOME_UNKNOWN),
            ([{"id": "501"}, {"id": "501"}], [], True, Outcome.OUTCOME_UNKNOWN),
            ([{"id": 501}], None, True, Outcome.ACCEPTED),
            ([], [], True, Outcome.OUTCOME_UNKNOWN),
            ({"id": "501"}, [], True, Outcome.OUTCOME_UNKNOWN),
            ([None, 7, "501"], "501", True, Outcome.OUTCOME_UNKNOWN),
        ],
    )
    def test_say_nothing_of_what_they_do_not_name_once(
        self, results: object, errors: object, is_only_input: bool, expected: Outcome
    ) -> None:
        """On both sides, on none, or twice: a person or a lookup decides."""
        body = {"results": results, "errors": errors}

        found = outcome(BATCH, 207, body, "501", is_only_input=is_only_input)

        assert found.outcome is expected

    def test_are_read_only_under_their_status(self) -> None:
        """A plain 200 is read as always."""
        assert outcome(BATCH, 200, {"results": [{"id": "501"}]}).outcome is Outcome.ACCEPTED
        assert outcome(BATCH, 200, MIXED, "502").outcome is Outcome.OUTCOME_UNKNOWN


@given(
    st.sampled_from([OUTREACH, HUBSPOT, STRIPE, BATCH]),
    st.recursive(
        st.none() | st.booleans() | st.integers(0, 2) | st.sampled_from(["501", "x"]),
        lambda inner: (
            st.lists(inner, max_size=2)
            | st.dictionaries(
                st.sampled_from(["id", "data", "errors", "error", "object", "results", "type"]),
                inner,
                max_size=3,
            )
        ),
        max_leaves=8,
    ),
)
def test_nothing_with_an_error_in_it_is_accepted(contract: ResponseContract, body: Any) -> None:
    """Whatever else it holds, an answer with an error member is no success (C246)."""
    status = 207 if contract is BATCH else 200
    if isinstance(body, dict) and body.get("errors") and contract is not BATCH:
        if contract is STRIPE:
            body["error"] = body["errors"]
        assert outcome(contract, status, body).outcome is not Outcome.ACCEPTED
    else:
        assert outcome(contract, status, body) is not None
