"""Checks that no pack can fail: each is shown to fail for a product that believes too much."""

from typing import Any

import pytest

from oncefence.activities import attempt
from oncefence.app.conform.certificate import Verdict
from oncefence.app.conform.run import certify
from oncefence.catalog.answers import ResponseContract
from oncefence.catalog.creates import QueryRule
from oncefence.catalog.loader import load_pack
from oncefence.catalog.lookup import LookupContract, LookupFinding, LookupReading
from oncefence.domain.classification import Classified
from oncefence.domain.effect import Outcome
from tests.support.dialect import DATA

BOOKS = str(DATA / "packs" / "books.toml")


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

    assert await failed("hubspot", "contact.update") >= {
        *("success.empty", "success.other_record", "success.error_inside"),
        *("success.not_json", "success.other_status"),
        *("refusal.final", "refusal.declared", "refusal.undeclared", "redirect.not_followed"),
        *("server_error.applied", "unsent.refused"),
        *("lost.silence", "lost.connection", "lost.body"),
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
    plain = LookupContract.judge

    def blind(self: LookupContract, *args: Any, **given: Any) -> LookupFinding:
        is_first_look = given["mark_time"].year == 1970
        return nothing if is_first_look else plain(self, *args, **given)

    monkeypatch.setattr(LookupContract, "judge", blind)

    assert "lookup.first" in await failed(BOOKS, "account.open")
