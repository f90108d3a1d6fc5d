"""Checks that no pack can fail: each is shown to fail for a product that believes too much."""

from typing import Any, Final

import pytest

from oncefence.activities import attempt
from oncefence.activities.wire_message import WireAnswer
from oncefence.app.conform import product
from oncefence.app.conform.certificate import Verdict
from oncefence.app.conform.run import certify
from oncefence.catalog.answers import ResponseContract
from oncefence.catalog.creates import QueryRule
from oncefence.catalog.loader import load_pack
from oncefence.catalog.lookup import LookupContract, LookupFinding, LookupReading
from oncefence.domain.classification import Classified
from oncefence.domain.effect import Outcome
from oncefence.simulator.dialects import pack_requests
from tests.support.dialect import DATA

BOOKS = str(DATA / "packs" / "books.toml")
TIDES = str(DATA / "packs" / "tides.toml")

BY_STATUS: Final = {
    *("success.empty", "success.other_record", "success.error_inside"),
    *("success.not_json", "success.other_status"),
    *("refusal.declared", "refusal.undeclared", "redirect.not_followed"),
    *("unsent.refused", "lost.silence", "lost.connection", "lost.body"),
}
FAILED_BY_PRODUCTS: Final = BY_STATUS | {
    *("not_applied.declared", "wait.default", "wait.forms"),
    *("lookup.misled", "lookup.strangers", "lookup.older", "lookup.first", "lookup.reads_only"),
}
"""What no pack can fail, because the loader or the product stands before it."""


async def failed(pack: str, operation: str) -> set[str]:
    """The checks that fail."""
    certificate = await certify(load_pack(pack), only=operation)
    return {each.check for each in certificate.checks if each.verdict is Verdict.FAILED}


async def test_one_that_classes_by_the_status_alone_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """The classes of doubt are the promise; nothing else in a certificate would notice."""

    def by_status(*, status: int | None, **_: Any) -> Classified:
        is_good = status is not None and status < 400
        return Classified(
            outcome=Outcome.ACCEPTED if is_good else Outcome.REPLAY_SAFE_RETRY,
            failure_class=None,
            may_have_applied=False,
            is_configuration_fault=False,
        )

    monkeypatch.setattr(attempt, "classify", by_status)

    assert await failed("hubspot", "contact.update") >= BY_STATUS | {
        *("refusal.final", "server_error.applied"),
    }


async def test_one_that_never_sends_again_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """A product that gives up at the first refusal for lack of room loses commands."""

    def refused(**_: Any) -> Classified:
        return Classified(
            outcome=Outcome.REJECTED,
            failure_class=None,
            may_have_applied=False,
            is_configuration_fault=False,
        )

    plain = attempt.classify
    monkeypatch.setattr(
        *(attempt, "classify"),
        lambda **given: refused() if given["status"] in (423, 429, 477) else plain(**given),
    )

    assert {"not_applied.declared", "wait.default", "wait.forms"} <= await failed(
        "hubspot", "contact.update"
    )


async def test_one_that_waits_for_nothing_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Coming back at once to a provider that said when is how an account is closed."""
    monkeypatch.setattr(ResponseContract, "wait_seconds", lambda *_, **__: 1.0)

    assert {"wait.default", "wait.provider"} <= await failed("outreach", "prospect.update")


async def test_one_that_takes_every_lookup_for_success_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A lookup that finds what it looks for in anything settles unknowns at random."""
    found = LookupFinding(reading=LookupReading.EQUAL, remote_id="1")
    monkeypatch.setattr(LookupContract, "judge", lambda *_, **__: found)

    assert await failed("hubspot", "contact.update") >= {
        *("lookup.not_applied", "lookup.horizon", "lookup.other_hand"),
        *("lookup.missing_record", "lookup.misled"),
    }


async def test_one_that_trusts_the_filter_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody else's record, taken for ours, is the worst that a search can do."""
    monkeypatch.setattr(QueryRule, "_matches", lambda *_: True)

    assert "lookup.strangers" in await failed("stripe", "customer.create")


async def test_one_that_minds_no_ages_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """What has the same unique property and was there before is not what we made."""
    monkeypatch.setattr(QueryRule, "_is_older", lambda *_: False)

    assert "lookup.older" in await failed(BOOKS, "account.open")


async def test_one_that_finds_nothing_before_a_create_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A look that never finds anything makes every record twice."""
    nothing = LookupFinding(reading=LookupReading.NO_MATCH)
    monkeypatch.setattr(LookupContract, "judge_first", lambda *_, **__: nothing)

    assert "lookup.first" in await failed(BOOKS, "account.open")


async def test_one_that_looks_twice_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lookup spends the limits of the provider, and two requests are twice that."""
    plain = product.read_record

    async def twice(*args: Any, **given: Any) -> WireAnswer:
        await plain(*args, **given)
        return await plain(*args, **given)

    monkeypatch.setattr(product, "read_record", twice)

    assert "lookup.reads_only" in await failed("hubspot", "contact.update")


async def test_a_provider_that_minds_no_condition_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its header is taken and means nothing, so every such write is an unconditional one."""
    monkeypatch.setattr(pack_requests, "_is_unchanged_since", lambda *_: True)

    assert await failed(TIDES, "buoy.move") == {"condition.stale"}
