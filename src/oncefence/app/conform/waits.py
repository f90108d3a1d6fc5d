"""How long the product waits after it was turned away, and what it reads of the limits."""

from datetime import UTC, datetime, timedelta
from typing import Final

from oncefence.app.conform.bending import Bend
from oncefence.app.conform.check import Check
from oncefence.app.conform.scene import Bench, Played
from oncefence.app.conform.trial import NotApplicable
from oncefence.catalog.limits import RetryAfterForm
from oncefence.domain.backoff import RETRY_AFTER_UNREADABLE_SECONDS
from oncefence.simulator.faults import Fault, ScriptedFault

_ASKED_SECONDS: Final = 120
_DICE_SECONDS: Final = 2.0
"""The first wait is drawn from this window, on top of what the provider asks for."""

_SLACK_SECONDS: Final = 8.0
"""Providers that write points in time write them before the answer is read."""

_LIMITS: Final = (
    Fault.RATE_LIMIT_429,
    ScriptedFault.SECONDLY_LIMIT_429,
    ScriptedFault.DAILY_LIMIT_429,
)


async def _without_header(bench: Bench) -> None:
    response = bench.subject.operation.response
    _needs_429(bench)
    async with bench.scene() as scene:
        scene.stage.script(Fault.RATE_LIMIT_429)
        case = "429 without a time"
        played = await scene.attempt(case)
        if response.retry_after.header.lower() in played.sent.answer.headers:
            raise NotApplicable("the provider never leaves the time out")
        named = None if played.sent.reading is None else played.sent.reading.limit
        _saw_wait(bench, case, played)
        least = max(response.wait_min_seconds(429), 1)
        if named is None and not response.wait_min_seconds(429):
            least = round(RETRY_AFTER_UNREADABLE_SECONDS)
        bench.trial.expect(
            played.may_repeat and played.wait_seconds >= least,
            f"{case}: {played.outcome} after {played.wait_seconds:.0f} s, not {least} s or more",
        )


async def _declared_forms(bench: Bench) -> None:
    rule = bench.subject.operation.response.retry_after
    _needs_429(bench)
    asked = _ASKED_SECONDS + bench.subject.operation.response.wait_min_seconds(429)
    for form in rule.forms:
        async with bench.scene() as scene:
            scene.stage.script(Fault.RATE_LIMIT_429, retry_after=_written(form, asked))
            case = f"429 with {asked} s as {form}"
            played = await scene.attempt(case)
            _expect_wait(bench, case, played, asked)
            bench.trial.expect(
                rule.is_readable(played.sent.answer.headers), f"{case}: it is not read as declared"
            )


async def _providers_form(bench: Bench) -> None:
    _needs_429(bench)
    header = bench.subject.operation.response.retry_after.header.lower()
    async with bench.scene() as scene:
        scene.stage.script(Fault.RATE_LIMIT_429)
        case = f"429 of a limit that opens in {_ASKED_SECONDS} s"
        with scene.stage.bent(Bend(opens_in=timedelta(seconds=_ASKED_SECONDS))):
            played = await scene.attempt(case)
        if not {header, "retry-after"} & played.sent.answer.headers.keys():
            raise NotApplicable("the provider does not say when its limits open again")
        _expect_wait(bench, case, played, _ASKED_SECONDS)


async def _named_limits(bench: Bench) -> None:
    if bench.subject.operation.response.wait_by is None:
        raise NotApplicable("the pack names no limits")
    _needs_429(bench)
    for fault in _LIMITS:
        async with bench.scene() as scene:
            scene.stage.script(fault)
            case = str(fault)
            played = await scene.attempt(case)
            _saw_wait(bench, case, played)
            limit = None if played.sent.reading is None else played.sent.reading.limit
            bench.trial.expect(
                limit is not None and limit.wait is not None,
                f"{case}: answer.wait_by does not find the limit, or does not know it",
            )


async def _rates(bench: Bench) -> None:
    response = bench.subject.operation.response
    if not response.rate:
        raise NotApplicable("no rate headers are declared")
    async with bench.scene() as scene:
        scene.stage.script(ScriptedFault.QUOTA_SPENT)
        case = "applied, and nothing is left of the limit"
        played = await scene.attempt(case)
        rates = response.rates(played.sent.answer.headers, now=datetime.now(UTC))
        bench.trial.saw(
            "read of the limits", {name: rate.remaining for name, rate in rates.items()}
        )
        bench.trial.expect(
            any(rate.remaining == 0 for rate in rates.values()),
            "answer.rate does not find that nothing is left",
        )


def _needs_429(bench: Bench) -> None:
    response = bench.subject.operation.response
    if 429 not in response.not_applied:
        raise NotApplicable("429 is not declared as not applied, so it is never sent again")


def _written(form: RetryAfterForm, seconds: int) -> str | int:
    """The rule's word for this form."""
    match form:
        case RetryAfterForm.SECONDS:
            return seconds
        case RetryAfterForm.HTTP_DATE:
            return f"date:{seconds}"
        case RetryAfterForm.ISO:
            return f"iso:{seconds}"
        case RetryAfterForm.ISO_UTC:
            return f"iso-naive:{seconds}"
        case RetryAfterForm.EPOCH_S:
            return str(round(datetime.now(UTC).timestamp()) + seconds)


def _expect_wait(bench: Bench, case: str, played: Played, header_seconds: int) -> None:
    _saw_wait(bench, case, played)
    wait = played.wait_seconds
    limit = None if played.sent.reading is None else played.sent.reading.limit
    named = None if limit is None else limit.seconds(now=datetime.now(UTC))
    # The body may name a limit that opens later than the header says.
    asked = max(header_seconds, round(named or 0))
    bench.trial.expect(
        played.may_repeat and asked - _SLACK_SECONDS <= wait <= asked + _DICE_SECONDS + 2,
        f"{case}: {played.outcome} after {wait:.0f} s, not after {asked} s",
    )


def _saw_wait(bench: Bench, case: str, played: Played) -> None:
    bench.trial.saw(f"{case}: the wait", {"seconds": round(played.wait_seconds - 0.5)})


CHECKS = (
    Check(
        name="wait.default",
        claim="429 without a time waits as long as the pack or the default says",
        run=_without_header,
        after=("success.accepted",),
    ),
    Check(
        name="wait.provider",
        claim="the time that the provider itself writes is read",
        run=_providers_form,
        after=("success.accepted",),
    ),
    Check(
        name="wait.forms",
        claim="a time in each declared form is read",
        run=_declared_forms,
        after=("success.accepted", "wait.provider"),
    ),
    Check(
        name="wait.named",
        claim="each limit that the provider names is known",
        run=_named_limits,
        after=("success.accepted",),
    ),
    Check(
        name="wait.rates",
        claim="what is left of a limit is read",
        run=_rates,
        after=("success.accepted",),
    ),
)
