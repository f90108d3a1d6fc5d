"""Sending again under the provider's key: whether it is honoured, for how long, and at once."""

import asyncio
from typing import Final

from oncefence.app.conform.check import Check
from oncefence.app.conform.scene import Bench, Played
from oncefence.app.conform.trial import NotApplicable
from oncefence.catalog.replays import IdempotencyRule
from oncefence.domain.effect import Outcome
from oncefence.simulator.faults import Fault

_MARGIN_SECONDS: Final = 20


async def _honoured(bench: Bench) -> None:
    _rule(bench)
    async with bench.scene() as scene:
        scene.stage.script(Fault.RESET_AFTER_COMMIT)
        first = await scene.attempt("applied, then reset")
        _expect_repeat(bench, await scene.attempt("sent again", of=first.sent))


async def _window(bench: Bench) -> None:
    rule = _rule(bench)
    late = max(rule.window_s - _MARGIN_SECONDS, 0)
    async with bench.scene() as scene:
        scene.stage.script(Fault.RESET_AFTER_COMMIT)
        first = await scene.attempt("applied, then reset")
        scene.stage.pass_time(late)
        _expect_repeat(bench, await scene.attempt(f"sent again {late} s later", of=first.sent))


async def _twin(bench: Bench) -> None:
    _rule(bench)
    async with bench.scene() as scene:
        command = scene.next_command()
        with scene.stage.holding():
            held = asyncio.create_task(scene.attempt("held by the provider", command=command))
            try:
                is_held = await scene.stage.is_holding()
                twin = await scene.attempt("its twin meanwhile", command=command)
            except BaseException:
                held.cancel()
                raise
        first = await held
        bench.trial.expect(is_held, "the provider did not hold the first request")
        bench.trial.expect(
            twin.outcome in (Outcome.REPLAY_SAFE_RETRY, Outcome.OUTCOME_UNKNOWN),
            f"a twin of a request that is being served is {twin.outcome}",
        )
        bench.trial.expect(
            first.outcome is Outcome.ACCEPTED and len(scene.stage.ledger.changes()) == 1,
            f"the request itself is {first.outcome}; "
            f"{len(scene.stage.ledger.changes())} changes were made",
        )


async def _kept_failure(bench: Bench) -> None:
    rule = _rule(bench)
    if rule.replayed is None:
        raise NotApplicable("the pack does not say how a kept answer is marked")
    async with bench.scene() as scene:
        scene.stage.script(Fault.SERVER_ERROR_AFTER_COMMIT)
        first = await scene.attempt("applied, answered 500")
        again = await scene.attempt("sent again: the kept 500", of=first.sent)
        bench.trial.expect(
            again.outcome is Outcome.OUTCOME_UNKNOWN,
            f"a kept failure is {again.outcome}: every repeat would be given the same",
        )
        bench.trial.expect(not again.changes, "the repeat changed a record")


def _rule(bench: Bench) -> IdempotencyRule:
    rule = bench.subject.operation.idempotency
    if rule is None:
        raise NotApplicable("the operation has no idempotency key, so nothing is sent twice")
    return rule


def _expect_repeat(bench: Bench, again: Played) -> None:
    bench.trial.expect(
        again.outcome is Outcome.ACCEPTED, f"the repeat is {again.outcome}, not accepted"
    )
    bench.trial.expect(
        not again.changes, "the repeat made the change again: the provider did not know the key"
    )


CHECKS = (
    Check(
        name="key.repeat",
        claim="a repeat under the key is given the first answer and changes nothing again",
        run=_honoured,
        after=("success.accepted",),
    ),
    Check(
        name="key.window",
        claim="the provider keeps a key as long as the pack says",
        run=_window,
        after=("key.repeat",),
    ),
    Check(
        name="key.twin",
        claim="a repeat while the first is being served is neither refused nor done",
        run=_twin,
        after=("key.repeat",),
    ),
    Check(
        name="key.kept",
        claim="a failure that is kept under the key is not asked for for ever",
        run=_kept_failure,
        after=("key.repeat",),
    ),
)
